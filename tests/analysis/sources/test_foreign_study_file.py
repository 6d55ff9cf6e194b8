"""python -m analysis --runs FILE --study YAML: claims, a margin and designs for runs of other programs."""

import itertools
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml
from fake_studies import fabricate, plain_score
from test_csv_file import effects, exported, verdicts

from ablate import evidence
from ablate.config.claims import Claim
from ablate.config.errors import Refused
from ablate.config.typed_json import parse
from ablate.runs.records import ClaimEntry, MarginEntry
from ablate.runs.study import Study, load_study
from analysis import figures
from analysis.case import case_of
from analysis.cli.main import main
from analysis.sources import Request
from analysis.sources.files import read_runs as read_csv
from analysis.sources.study_file import read_study_file
from analysis.writing.tables import write_csv

GRID: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": ["mlp", "glu", "swiglu"]}
SCALED: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"], "optim.lr": [0.001, 3e-05]}
CLAIMS = {
    "gated": {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "metric": "test/loss"},
    "same_norm": {"equivalent": [{"norm": "rms"}, {"norm": "ln"}], "margin": 0.02},
    "no_worse": {"greater": [{"ffn": "swiglu"}, {"ffn": "mlp"}]},
    "no_more": {"not_greater": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "margin": 0.02},
    "steady": {"diverges_more": [{"norm": "rms"}, {"norm": "ln"}]},
}


def judged_as(study: Study, claims: dict[str, Any], margin: float | None) -> Study:
    """A study whose claims and margin were written after its results."""
    entries = {name: ClaimEntry(claim=parse(Claim, claim), registered=False) for name, claim in claims.items()}
    manifest = replace(study.manifest, claims=entries, margin=MarginEntry(value=margin))
    return replace(study, manifest=manifest)


def described(folder: Path, **content: Any) -> Request:
    """What a study file with this content asks."""
    (folder / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return Request(described=read_study_file(folder / "study.yaml"))


def with_steps(study: Study, file: Path) -> Path:
    """All logged steps of a study with the settings of its runs, as people log them."""
    given = ["cell", "seed", "label", "status", "batches", "params"]
    curves = study.curves.drop(columns=["label", "path"]).merge(study.runs[given], on=["cell", "seed"])
    return write_csv(curves, file)


def one_diverged(levels: dict[str, Any], seed: int) -> str:
    return "diverged" if (levels.get("norm"), levels.get("ffn"), seed) == ("rms", "mlp", 1) else "done"


ORDERED = {"rank_correlates": [{"ffn": ["mlp", "glu", "swiglu"]}, [-1, -2, 3.5]]}


@pytest.mark.parametrize(
    ("factors", "design", "claims", "more"),
    [
        (GRID, "grid", CLAIMS | {"order": ORDERED}, {"status": one_diverged}),
        (SCALED, "grid", {name: claim | {"at": {"optim.lr": 3e-05}} for name, claim in CLAIMS.items()}, {}),
        (GRID, "leave_one_out", CLAIMS | {"order": ORDERED}, {"batches": lambda levels: str(levels["norm"])}),
        (GRID, "cumulative", {name: CLAIMS[name] for name in ("gated", "no_worse")}, {}),
    ],
    ids=["diverged", "strata", "leave one out", "cumulative"],
)
def test_a_native_study_with_claims_and_margin_reads_back_equal(tmp_path, factors, design, claims, more):
    """Effects, claims, cells and figures; registered aside: who reads runs of others cannot know it."""
    name = fabricate(tmp_path, factors, design=design, seeds=range(6), every=200, **more)
    native = judged_as(load_study(tmp_path, name), claims, 0.03)
    asked = described(tmp_path, design=design, margin=0.03, claims=claims)
    within = tuple(name for name in factors if name not in native.manifest.reference)
    export = with_steps if design == "cumulative" or more else exported
    foreign = read_csv(export(native, tmp_path / "runs.csv"), asked._replace(within=within))
    one, other = effects(native), effects(foreign)
    pandas.testing.assert_frame_equal(one, other, check_exact=True)
    assert verdicts(one) == verdicts(other)
    left, right = evidence.claims(native), evidence.claims(foreign)
    left["says"] = left["says"].str.replace(" nats per byte", "")  # which no CSV says
    words = ["sentence", "note"]  # ours give the size of the model
    pandas.testing.assert_frame_equal(left.drop(columns=words), right.drop(columns=words), check_exact=True)
    assert list(left["name"]) == list(claims) and not right["registered"].any()
    assert list(evidence.cells(native)["name"]) == list(evidence.cells(foreign)["name"])
    assert foreign.manifest.design == design and foreign.manifest.factors == native.manifest.factors
    if design == "cumulative":
        kinds = [set(figures.tables(case_of(study, tmp_path))) for study in (native, foreign)]
        assert kinds[0] == kinds[1] >= {"claims", "waterfall"}


def test_a_margin_makes_verdicts_that_say_what_they_rest_on(tmp_path: Path) -> None:
    native = load_study(tmp_path, fabricate(tmp_path, GRID, seeds=range(6)))
    file = exported(native, tmp_path / "runs.csv")
    assert not set(evidence.effects(read_csv(file, Request()))["verdict"]) & {"negligible", "equivalent"}
    study = read_csv(file, described(tmp_path, margin=0.2, claims={"gated": CLAIMS["gated"]}))
    found = evidence.effects(study)
    family = found[found["family"]]
    assert set(family["verdict"]) == {"negligible", "equivalent"}
    assert set(found.loc[~found["family"], "verdict"]) == {"estimate only"}
    assert family["note"].str.contains("by a margin written after results").all()
    told = "margin: ±0.2, post hoc: nothing tells that it was written before the results"
    assert evidence.margin_line(study) == told
    (sentence,) = evidence.claims(study)["sentence"]
    assert sentence.startswith("gated (post hoc): estimate only.")
    assert "false passes" not in sentence, "a number that no valid rule can fail says nothing of a claim"


def run(folder: Path, *options: str) -> int:
    return main([*options, "--results-dir", str(folder / "results")])


ROWS = [f"{norm},{ffn},{lr},{seed},{2 + i / 9 + seed * (i + 1) / 100},{0.9 - (i + 1) * (9 + seed) / 200},{i + seed / 7}"
        for i, (norm, ffn, lr) in enumerate(itertools.product(["ln", "rms"], ["mlp", "no"], ["0.001", "3e-5"]))
        for seed in range(5)]  # fmt: skip
RUNS = "\n".join(["norm,ffn,optim.lr,seed,test/loss,test/acc,quality", *ROWS])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / "runs.csv").write_text(RUNS)
    return tmp_path / "runs.csv"


def test_the_command_line_from_end_to_end(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Levels are texts as they stand there: `no` is no Boolean, 3.0e-05 the number that the runs have as 3e-5."""
    study = tmp_path / "glu.yaml"
    study.write_text(
        "study: gated\nquestion: Does <no> help?\nreference: {norm: rms, ffn: no}\nmargin: 1\nclaims:\n"
        "  gated: {less: [{ffn: no}, {ffn: mlp}], metric: test/acc, at: {optim.lr: 3.0e-05}}\n"
    )
    folder = tmp_path / "results" / "figures" / "gated"
    folder.mkdir(parents=True)
    (folder / "figures.yaml").write_text("subset: {figures: [claims]}")  # all of them take a while
    assert run(tmp_path, "--runs", str(runs), "--study", str(study)) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("gated (post hoc): estimate only. ") and "at optim.lr=3e-05" in said[0]
    assert any("reference norm=rms, ffn=no" in line for line in said)
    assert any("margin: ±1, post hoc" in line for line in said) and str(folder) in said[-1]
    assert "Does &lt;no&gt; help?" in (folder / "report.html").read_text()
    typed = (folder / "report.md").read_text()
    assert "Does" in typed and (folder / "claims.pdf").exists() and (folder / "claims.csv").exists()
    assert f"--study {shlex.quote(str(study))}" in typed
    assert main(["verify", str(folder / "claims.png"), "--runs", str(runs), "--study", str(study)]) == 0
    assert main(["verify", str(folder / "claims.png"), "--runs", str(runs)]) != 0


def test_runs_of_other_programs_do_not_take_the_place_of_a_study(tmp_path, runs, capsys):
    own = fabricate(tmp_path / "results", GRID, range(3), plain_score)
    (tmp_path / "study.yaml").write_text(f"study: {own}")
    options = ["--runs", str(runs), "--study", str(tmp_path / "study.yaml")]
    for command in ([], ["export"]):
        assert run(tmp_path, *command, *options) == 2
        assert f"{own} is for the study {own} itself, not for runs of" in capsys.readouterr().err
    assert not (tmp_path / "results" / "figures").exists()
    assert run(tmp_path, "export", *options, "--to", str(tmp_path / "out")) == 0


def test_the_command_line_wins_over_the_file(tmp_path: Path, runs: Path) -> None:
    factors = {"ffn": ["no", "mlp"], "norm": ["rms", "ln"]}
    asked = described(tmp_path, factors=factors, reference={"norm": "ln", "ffn": "no"})
    lone = {"within": ("optim.lr",), "factors": ("norm", "ffn", "optim.lr")}
    study = read_csv(runs, asked._replace(reference=(("norm", "rms"),), **lone))
    assert study.manifest.reference == {"norm": "rms", "ffn": "no"}
    assert study.manifest.factors == {"norm": ["rms", "ln"], "ffn": ["no", "mlp"], "optim.lr": [0.001, 3e-05]}


def shuffled(tmp_path: Path, factors: dict[str, list[Any]], design: str) -> tuple[Study, Path]:
    """A native study, and its runs in another order and without labels."""
    native = load_study(tmp_path, fabricate(tmp_path, factors, design=design, seeds=range(4)))
    table = native.runs[[*factors, "seed", "test/loss"]].sample(frac=1, random_state=1)
    return native, write_csv(table, tmp_path / "shuffled.csv")


def test_the_order_of_steps_comes_from_the_file_whatever_that_of_the_rows(tmp_path: Path) -> None:
    native, file = shuffled(tmp_path, GRID, "cumulative")
    asked = described(tmp_path, design="cumulative", factors=GRID)
    pandas.testing.assert_frame_equal(effects(native), effects(read_csv(file, asked)))
    assert list(evidence.effects(native)["kind"]) == ["step"] * 3 + ["cell"]


@pytest.mark.parametrize("design", ["one_at_a_time", "leave_one_out"])
def test_the_reference_is_what_all_cells_differ_from_in_one_factor(tmp_path: Path, design: str) -> None:
    native, file = shuffled(tmp_path, GRID, design)
    foreign = read_csv(file, described(tmp_path, design=design))
    assert foreign.manifest.reference == native.manifest.reference
    one, other = (effects(study).set_index("label").sort_index() for study in (native, foreign))
    pandas.testing.assert_frame_equal(one, other, check_exact=False)
    assert set(foreign.runs["label"]) & {"norm=ln", "norm=rms"}


BOMB = "claims: {a: &a0 [x], "
BOMB += ", ".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)) + "}"

REST = "norm: [ln, rms], optim.lr: [0.001, 3e-5]"
MISTAKES: list[tuple[str, str]] = [
    ("a: [b", "study.yaml is not readable as YAML (expected ',' or ']'"),
    ("claims: {a: 1, a: 2}", "study.yaml is not readable as YAML (a is given twice, line 1)"),
    ('question: "a \\e[31m"', "(holds \\x1b, an invisible character, line 1)"),
    (BOMB, "more than a file can hold"),
    (f"claims: {'[' * 900}{']' * 900}", "study.yaml"),
    ("&a [*a]", "study.yaml is not readable as YAML (it refers to itself"),
    ("", "must be a mapping; write keys and values"),
    ("seeds: 5", "seeds: no such key for runs of other programs; the keys are study, question, factors, reference"),
    ("study: ../up", "study: cannot be read; write a name for its folder"),
    ("question: {a: b}", "question: cannot be read; write a text"),
    ("design: grd", "design: no such design: grd: did you mean grid?"),
    ("design: ladder", "design: no such design: ladder"),
    ("design: cumulative", "design: cumulative: ln + no + optim.lr=0.001 is no change of one factor of the"),
    ("design: one_at_a_time", "one_at_a_time: ln + no + optim.lr=3e-05 does not differ in one factor from the ref"),
    ("factors: [norm, ffn]", "factors: cannot be read; write {ffn: [mlp, swiglu]}"),
    ("factors: {ffn: [no, no]}", "factors.ffn: has a level twice"),
    (
        "factors: {norm: [ln, rms], ffn: [mlp, no], optim.lr: [3e-5, .00003, 0.001]}",
        "factors.optim.lr: has 3e-05 twice, spelled differently",
    ),
    ("claims: {a: {less: [{ffn: [no, no]}, {ffn: mlp}]}}", "claims.a: less: ffn has no twice; write each level once"),
    ("factors: {fn: [mlp, no]}", "factors.fn: there is no such column: did you mean ffn?"),
    (f"factors: {{{REST}, ffn: [mlp, glu, no]}}", "factors.ffn: no run has the level glu; there are mlp, no"),
    (f"factors: {{{REST}, ffn: [mlp]}}", "factors.ffn: runs have the level no, too; add it"),
    ("reference: norm", "reference: cannot be read; write {norm: rms}"),
    ("reference: {norm: [ln]}", "reference: cannot be read; write {norm: rms}"),
    ("reference: {nrm: ln}", "study.yaml: reference: nrm is no factor of these runs; the factors are norm, ffn"),
    ("reference: {norm: bn}", "study.yaml: reference norm=bn: there is no such level; there are ln and rms"),
    ("margin: 2 %", "margin: 2 % is a share of the training steps, which only a study of ablate with step_equi"),
    ("margin: -1", "margin: must be > 0"),
    ("margin: nan", "margin: must be > 0"),
    ("claims: [1]", "claims: must be a mapping; write claims: {NAME: {less: [SIDE, SIDE]}}"),
    ("claims: {a: {less: [{ffn: glu}, {ffn: mlp}]}}", "claims.a: less: ffn has no level glu; there are mlp, no"),
    ("claims: {a: {less: [{fn: mlp}, {ffn: no}]}}", "claims.a: less: fn is not a factor of this study; did you mean"),
    ("claims: {a: {less: [{ffn: no}, {ffn: mlp}], metric: quality}}", "the name of quality does not say whether less"),
    ("claims: {a: {less: [{ffn: no}, {ffn: no}], metric: [test/loss, test/los]}}", "no column test/los: did you"),
    ("claims: {a: {equivalent: [{ffn: no}, {ffn: mlp}], margin: 3 %}}", "claims.a: margin: 3 % is a share of the tr"),
    ("claims: {a: {wins: no}, b: 1}", "claims.a: no such key: wins; there are less, greater"),
    ("claims: {a: {less: [{ffn: no}, {norm: ln}]}}", "claims.a: both sides hold ln + no"),
    ("at: {norm: bn}", "study.yaml: at: norm has no level bn"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[said[:30] for _, said in MISTAKES])
def test_a_mistake_is_one_line(tmp_path: Path, runs: Path, text: str, said: str) -> None:
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(Refused) as refused:
        read_csv(runs, Request(described=read_study_file(tmp_path / "study.yaml")))
    assert said in str(refused.value) and "study.yaml" in str(refused.value) and "\n" not in str(refused.value)


def test_a_level_that_could_be_either_of_two_is_none(tmp_path: Path) -> None:
    rows = [f"{norm},{seed},{i + seed / 10}" for i, norm in enumerate(["RMS", "Rms", "LN"]) for seed in range(5)]
    (tmp_path / "runs.csv").write_text("\n".join(["norm,seed,loss", *rows]))
    sides = {"less": [{"norm": "Rms"}, {"norm": "ln"}]}
    claims = read_csv(
        tmp_path / "runs.csv", described(tmp_path, claims={"a": sides}, reference={"norm": "LN"})
    ).manifest.claims
    assert claims["a"].claim.as_json() == {"less": [{"norm": "Rms"}, {"norm": "LN"}]}
    unclear = described(tmp_path, claims={"a": {"less": [{"norm": "rms"}, {"norm": "ln"}]}}, reference={"norm": "LN"})
    with pytest.raises(Refused, match="norm has no level rms; did you mean"):
        read_csv(tmp_path / "runs.csv", unclear)


def test_what_is_no_study_file_is_one_line(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bytes").write_bytes(b"a: \xff")
    (tmp_path / "mine.yaml").write_text("margin: -1")
    for options, said in [
        (["--runs", str(runs), "--study", str(tmp_path / "mine.yaml")], "mine.yaml: margin: must be > 0"),
        (["--runs", str(runs), "--study", "none.yaml"], "none.yaml cannot be read (No such file or directory)"),
        (["--runs", str(runs), "--study", str(tmp_path)], "cannot be read (Is a directory)"),
        (["--runs", str(runs), "--study", str(tmp_path / "bytes")], "is not readable as YAML (unacceptable character"),
        (["--study", "mine"], "--study mine is for runs of other programs and needs --runs or --wandb; name a study"),
    ]:
        assert run(tmp_path, *options) == 2
        shown = capsys.readouterr()
        assert said in shown.err and shown.err.count("\n") == 1 and shown.out == "", shown
        assert not (tmp_path / "results").exists()


FIRST = {"norm": "ln", "ffn": "mlp"}


def test_claims_about_cells_without_a_design_say_what_to_name(tmp_path: Path) -> None:
    lines = ["norm,ffn,seed,loss"]
    for (norm, ffn), seed in itertools.product([("ln", "mlp"), ("rms", "mlp"), ("rms", "glu")], range(3)):
        lines.append(f"{norm},{ffn},{seed},{plain_score({'norm': norm, 'ffn': ffn}, seed)}")
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    claim = {"less": [{"ffn": "glu"}, {"ffn": "mlp"}]}
    with pytest.raises(Refused, match=r"ffn is not a factor of this study.* a single factor, variant: use its levels"):
        read_csv(tmp_path / "runs.csv", described(tmp_path, claims={"a": claim}, reference=FIRST))
    claim = {"less": [{"variant": "rms + glu"}, {"variant": "ln + mlp"}]}
    assert (
        len(evidence.claims(read_csv(tmp_path / "runs.csv", described(tmp_path, claims={"a": claim}, reference=FIRST))))
        == 1
    )
    with pytest.raises(Refused, match=r"design: grid: no run has ln \+ glu"):
        read_csv(tmp_path / "runs.csv", described(tmp_path, design="grid"))
    asked = described(tmp_path, design="cumulative", claims={"a": {"less": [{"ffn": "glu"}, {"ffn": "mlp"}]}})
    study = read_csv(tmp_path / "runs.csv", asked)
    assert list(evidence.effects(study)["kind"]) == ["step", "step", "cell"] and len(evidence.claims(study)) == 1
