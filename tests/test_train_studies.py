"""make studies: which are trained in which order, and what becomes of one that goes wrong."""

from dataclasses import replace
from typing import Any

import pytest
import train_studies
import yaml
from claimed_studies import entry
from common import ORDER, by_value
from conftest import ROOT, SHAPE, STEPS
from fake_studies import fabricate
from one_run import carry_out, here
from train_studies import Request, carry_over, keep, with_history

from ablate import evidence
from ablate.config.groups import experiments
from ablate.planning.plan import plan_study
from ablate.runs.kept_tables import read_tables, read_verdicts, write_tables
from ablate.runs.study import load_study

TOOLS = str(ROOT / "tools")


@pytest.fixture
def files(tmp_path, text):
    """Writes a study file of the user's, of the small text; later words go before earlier ones."""
    folder = tmp_path / "conf" / "experiment"
    folder.mkdir(parents=True)

    def write(name: str, *words: str, **keys: Any) -> None:
        given = [*SHAPE, *STEPS, "data=text", f"data.path={text}", "seeds=1", "train.parallel=1", *words]
        content = {key: yaml.safe_load(value) for key, _, value in (word.partition("=") for word in given)}
        content = {key: value for key, value in content.items() if key not in keys.get("factors", ())}
        (folder / f"{name}.yaml").write_text("# Mine.\n" + yaml.safe_dump(content | keys))

    return write


def words(*more: str) -> list[str]:
    return ["--config-dir=conf", *more]


def test_what_is_worth_most_goes_first_and_every_file_is_trained():
    assert by_value(["zebra", "qk_norm", "apple", "xiong_warmup"]) == ["xiong_warmup", "qk_norm", "apple", "zebra"]
    assert len(set(ORDER)) == len(ORDER) and set(ORDER) <= experiments().keys()
    with pytest.raises(SystemExit, match="2"):
        train_studies.main(["qk_norm", "zebre"])


@pytest.fixture
def in_this_process(monkeypatch, tmp_path, untried) -> None:
    """Studies are trained here, not each by a command of its own."""

    def train(given: list[str]) -> int:
        plan = plan_study([word for word in given if "=" in word], given[given.index("--config-dir") + 1])
        return carry_out(plan, here)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train_studies, "train", train)


def test_one_that_is_refused_and_one_with_runs_that_fail_leave_the_others_alone(
    files, tmp_path, in_this_process, monkeypatch, capsys
):
    names = ["a_refused", "b_failing", "c_good"]
    for name in names:
        files(name, norm="rms", study=name)
    train = train_studies.train
    codes = {"+experiment=a_refused": 2, "+experiment=b_failing": 1}
    monkeypatch.setattr(train_studies, "train", lambda given: sum(codes.get(word, 0) for word in given) or train(given))
    assert train_studies.main([*names, *words(), "--to", "tables"]) == 1
    refused, failed, good = capsys.readouterr().out.splitlines()[-3:]
    assert refused == "a_refused: refused" and failed.startswith("b_failing: failed")
    assert good == "c_good: complete; tables in tables/c_good"
    assert [path.name for path in tmp_path.glob("tables/*")] == ["c_good"]


def test_without_names_what_has_tables_of_all_that_its_file_asks_for_is_trained_no_more(
    files, tmp_path, in_this_process
):
    files("mine", factors={"norm": ["ln", "rms"]}, study="mine")
    asked = Request([], str(tmp_path / "conf"), tmp_path / "tables")
    assert asked.kept("mine") is None
    assert train_studies.main(["mine", *words(), "--to", "tables"]) == 0
    assert asked.kept("mine") == tmp_path / "tables" / "mine"
    assert train_studies.main(["mine", "confirm=1", *words(), "--to", "tables"]) == 0
    assert read_tables(tmp_path / "tables" / "mine-confirm-1").manifest.seeds == [1], "on a fresh seed"
    files("mine", factors={"norm": ["ln", "rms"]}, study="mine", question="And why?")
    assert asked.kept("mine"), "words change nothing that is trained or judged"
    edits = ({"seeds": 2}, {"claims": {"a": {"less": [{"norm": "rms"}, {"norm": "ln"}]}}}, {"optim.lr": 1e-2})
    for edit in edits:
        files("mine", factors={"norm": ["ln", "rms"]}, study="mine", **edit)
        assert asked.kept("mine") is None, edit
    files("mine", factors={"norm": ["ln", "rms"]}, study="mine")
    assert asked.kept("mine") and asked._replace(words=["train.steps=3"]).kept("mine") is None
    (tmp_path / "tables" / "mine" / "runs.csv").write_text("cell,seed\n")
    assert asked.kept("mine") is None, "torn tables are none"
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text("factors: {norm: [ln\n")
    assert asked.kept("mine") is None, "nor are those of a file that cannot be read"


CLAIM = {"less": [{"norm": "rms"}, {"norm": "ln"}], "metric": "test/loss"}


def test_a_criterion_that_was_edited_in_sight_of_the_tables_is_post_hoc(tmp_path):
    factors, claims = {"norm": ["ln", "rms"]}, {"a": entry(CLAIM), "b": entry(CLAIM | {"margin": 0.1})}
    first, other = ({"value": {"of": of}, "written": "t", "registered": True} for of in (["a"], ["a", "b"]))
    for name, criterion in {"one": first, "same": first, "two": other, "none": None}.items():
        fabricate(tmp_path / name, factors, claims=claims, **({"replicated": criterion} if criterion else {}))
    write_tables(load_study(tmp_path / "one", "fabricated"), tmp_path / "kept")

    def again(name: str) -> Any:
        return with_history(load_study(tmp_path / name, "fabricated"), tmp_path / "kept").manifest.replicated

    assert again("same").registered and not again("two").registered and again("none").value is None
    assert again("two").earlier[0].value.of == again("none").earlier[0].value.of == ["a"]


def test_verdicts_are_kept_with_the_tables_until_these_change(tmp_path, monkeypatch):
    fabricate(tmp_path / "one", {"norm": ["ln", "rms"]}, range(5), claims={"a": entry(CLAIM)})
    study, folder = load_study(tmp_path / "one", "fabricated"), tmp_path / "kept"
    keep(study, folder)
    first = read_verdicts(folder)
    assert first and first.claims["a"].verdict == evidence.claims(study).iloc[0]["verdict"]
    assert first.claims["a"].commit != ""
    monkeypatch.setattr(train_studies, "verdicts_to_store", lambda *_: replace(first, overall="of another method"))
    keep(study, folder)
    assert read_verdicts(folder) == first
    fabricate(tmp_path / "two", {"norm": ["ln", "rms"]}, range(6), claims={"a": entry(CLAIM)})
    keep(load_study(tmp_path / "two", "fabricated"), folder)
    again = read_verdicts(folder)
    assert again and again.overall == "of another method"
    fabricate(tmp_path / "three", {"norm": ["ln", "rms"]}, range(5))
    keep(load_study(tmp_path / "three", "fabricated"), tmp_path / "without claims")
    assert read_verdicts(tmp_path / "without claims") is None


def test_what_was_seen_in_the_tables_was_seen_by_who_trains_it_anew(tmp_path):
    looks = [{"seeds": [0, 1, 2], "when": "2026-01-02T00:00:00+00:00"}]
    factors, gone = {"norm": ["ln", "rms"]}, {"greater": CLAIM["less"]}
    fabricate(tmp_path / "one", factors, claims={"a": entry(CLAIM), "b": entry(gone)}, looks=looks)
    write_tables(load_study(tmp_path / "one", "fabricated"), tmp_path / "kept")
    edited = {"a": entry(CLAIM | {"margin": 0.1}), "c": entry(CLAIM)}
    fabricate(tmp_path / "two", factors, seeds=range(5), claims=edited)
    again = with_history(load_study(tmp_path / "two", "fabricated"), tmp_path / "kept").manifest
    assert [again.claims[name].registered for name in ("a", "c")] == [False, False]
    assert again.claims["a"].earlier[0].registered and again.withdrawn["b"].seen
    assert evidence.unadjusted(again).startswith("unadjusted: intervals do not allow for interim analyses at 3 seeds")
    fabricate(tmp_path / "same", factors, claims={"a": entry(CLAIM), "b": entry(gone)}, looks=looks)
    same = with_history(load_study(tmp_path / "same", "fabricated"), tmp_path / "kept").manifest
    assert all(one.registered for one in same.claims.values()) and not evidence.unadjusted(same)
    known = read_tables(tmp_path / "kept").manifest  # ids of cells change with what goes into keys
    cells = [replace(cell, id=f"old{cell.id}") for cell in known.cells]
    runs = [replace(run, cell=f"old{run.cell}") for run in known.runs]
    older = replace(known, cells=cells, runs=runs)
    assert not carry_over(load_study(tmp_path / "two", "fabricated").manifest, older).claims["c"].registered


@pytest.mark.parametrize("name", ["catalogue", "catalogue_size", "catalogue_tuned"])
def test_committed_tables_are_those_of_a_study_file_that_was_respelt(name):
    tables = ROOT / "experiments" / "results"
    assert Request([], None, tables).kept(name) == tables / name
