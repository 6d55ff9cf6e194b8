"""--runs FILE: runs of other programs, from a CSV."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from analysed_studies import refused_line
from fake_studies import fabricate, plain_score
from other_runs import analysed, loss, refused, table

from ablate import evidence
from ablate.runs.study import Study, load_study
from analysis.writing.tables import runs_csv, write_csv

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
NUMBERS = ["n", "mean", "low", "high", "p", "verdict", "paired", "diverged", "failed", "missing"]


def trouble(levels: dict[str, Any], seed: int) -> str:
    """One run diverged, one failed, one never ran."""
    return {("rms", 0): "diverged", ("ln", 1): "failed", ("rms", 2): "missing"}.get((levels["norm"], seed), "done")


@pytest.mark.parametrize(
    "more",
    [
        {"status": trouble, "seeds": range(6)},
        {"batches": lambda levels: str(levels["norm"]), "seeds": range(5)},
        {"score": lambda levels, seed: float(f"{plain_score(levels, seed):.17g}") * math.pi},
    ],
    ids=["trouble", "unpaired", "digits"],
)
def test_a_native_study_read_back_is_equal_to_the_last_digit(tmp_path, more):
    native = load_study(tmp_path, fabricate(tmp_path, GRID, **more))
    foreign = analysed(write_csv(runs_csv(native), tmp_path / "runs.csv"))
    ours = evidence.effects(native)
    theirs = evidence.effects(foreign)
    assert ours["label"].tolist() == theirs["label"].tolist()
    pandas.testing.assert_frame_equal(ours[NUMBERS], theirs[NUMBERS], check_exact=True)
    sizes = evidence.cells(native)["params_vs_reference"]
    np.testing.assert_allclose(sizes, evidence.cells(foreign)["params_vs_reference"], atol=1e-12)


def read(folder: Path, text: str, *words: str) -> Study:
    (folder / "runs.csv").write_text(text)
    return analysed(folder / "runs.csv", *words)


def test_higher_is_better_by_name_by_option_or_asked_for(tmp_path):
    file = table(tmp_path, "ffn,seed,test/reward,quality", lambda v, s, y: f"{v},{s},{y},{y}", seeds=6)

    def verdict(*words: str) -> object:
        return evidence.effects(analysed(file, *words))["verdict"].item()

    assert verdict() == "worse"
    assert "quality: its name does not say" in refused(file, "--metric", "quality")
    assert verdict("--metric", "quality", "--lower") == "better"
    assert verdict("--metric", "quality", "--higher") == "worse"


def test_seeds_pair_unless_asked_or_unless_no_two_sides_share_one(tmp_path):
    file = table(tmp_path, "ffn,seed,loss", lambda v, s, y: f"{v},{s},{y}")
    assert evidence.effects(analysed(file))["paired"].all()
    assert not evidence.effects(analysed(file, "--unpaired"))["paired"].any()
    own_seeds = "ffn,seed,loss\n" + "\n".join(f"{'ab'[i % 2]},{i},2.{i}" for i in range(12))
    study = read(tmp_path, own_seeds)
    assert "unpaired: no two configurations have a seed in common" in study.manifest.remarks[0]
    assert evidence.effects(study)["n"].item() == 6 and len(study.runs) == 12


def test_a_run_that_was_cut_short_has_no_result_unless_ends_are_its_own(tmp_path):
    lines = []
    for cell, seed, step in itertools.product("ab", range(4), (0, 10, 20)):
        if (cell, seed, step) != ("b", 3, 20):
            lines.append(f"{cell},{seed},{step},{3 - step / 20 + (cell == 'b') * 0.1 + seed * 0.01}")
    text = "\n".join(["ffn,seed,step,val/loss", *reversed(lines)])
    study = read(tmp_path, text)
    assert len(study.curves) == 23
    runs = study.runs.set_index(["label", "seed"])
    assert runs.loc[("a", 2), "val/loss"] == 2.02
    assert runs.loc[("b", 3), "status"] == "missing"
    assert math.isnan(runs.loc[("b", 3), "val/loss"])
    assert study.notes[0].startswith("1 run that stopped before the last step of their configuration")
    assert evidence.effects(study)["n"].item() == 3
    assert set(read(tmp_path, text, "ends=own").runs["status"]) == {"done"}


def test_a_run_without_a_row_is_named(tmp_path):
    rows = [f"{cell},{seed},{loss(i, seed)}" for i, cell in enumerate("ab") for seed in range(3)]
    study = read(tmp_path, "\n".join(["ffn,seed,loss", *rows[:-1]]))
    assert study.notes == ["1 run without a row: b seed 2"] and evidence.effects(study)["n"].item() == 2


@pytest.mark.parametrize("line", ["b,1,", "b,1,NA", "b,1,-"])
def test_a_run_without_a_number_is_named_counted_and_left_out(tmp_path, line):
    lines = [f"{cell},{seed},{loss(i, seed)}" for i, cell in enumerate("ab") for seed in range(3)]
    lines[4] = line
    study = read(tmp_path, "\n".join(["ffn,seed,loss", *lines]))
    assert any("counted as missing: b seed 1" in note for note in study.notes), study.notes
    lost = study.runs.set_index(["label", "seed"]).loc[("b", 1)]
    assert lost["status"] == "missing"
    assert math.isnan(lost["loss"])
    assert len(study.runs) == 6
    assert evidence.effects(study)["n"].item() == 2


@pytest.mark.parametrize("last", ["nan", "-inf", "-1e101"])
def test_a_loss_that_is_not_finite_has_diverged_whatever_its_status_says(tmp_path, last):
    rows = [f"{ffn},{seed},{2 + 0.01 * seed}" for ffn in "ab" for seed in range(6)]
    study = read(tmp_path, "\n".join(["ffn,seed,loss", *rows[:-1], f"b,5,{last}"]))
    assert study.runs["status"].iloc[-1] == "diverged" and study.runs["loss"].isna().iloc[-1]
    assert "not finite and a status that does not say diverged, counted as diverged: b seed 5" in study.notes[0]
    assert evidence.effects(study)["verdict"].item() == "withheld"


@pytest.mark.parametrize("name", ["_step", "Step", "trainer/global_step", "epoch", "tokens"])
def test_steps_under_the_names_of_other_programs(tmp_path, name):
    """140 levels of `iter` would be compared as if somebody had chosen them, and so would those of a learning rate."""

    def rows(v: str, s: int, y: float) -> str:
        return f"{v},{s},0,0.1,4\n{v},{s},9,0.01,{y}"

    file = table(tmp_path, f"ffn,seed,{name},lr,test/loss", rows, "a b", 5)
    study = analysed(file, *(["--step-from", name] if name == "tokens" else []))
    assert study.manifest.factors == {"ffn": ["a", "b"]}
    assert study.curves["step"].tolist() == [0, 9] * 10
    assert evidence.effects(study)["n"].tolist() == [5]
    assert study.notes == ["columns that are no factors: lr (not needed to tell configurations apart)"]


@pytest.mark.parametrize(
    ("levels", "read_as"),
    [
        ("1e-3 0.001 1E-03 1e-3 0.01", [0.001, 0.01]),
        ("64 64.0 6.4e1 64 128", [64.0, 128.0]),
        ("True TRUE true true false", [True, False]),
        ("1234567890123456789 1234567890123456789 1234567890123456789 1234567890123456789 1234567890123456790",
         [1234567890123456789, 1234567890123456790]),
        ("None NA - null relu", [None, "relu"]),
    ],
)  # fmt: skip
def test_the_type_of_levels(tmp_path, levels, read_as):
    *spelled, other = levels.split()
    lines = [f"{level},{seed},{loss(0, seed)}" for seed, level in enumerate(spelled)]
    lines += [f"{other},{seed},{loss(1, seed)}" for seed in range(4)]
    study = read(tmp_path, "\n".join(["optim.x,seed,loss", *lines]))
    assert list(study.manifest.factors.values()) == [read_as] and study.notes == []
    assert evidence.effects(study)["n"].tolist() == [4]


@pytest.mark.parametrize("name", ["tokens", "params", "device"])
def test_a_column_that_is_seldom_a_factor_can_be_named_as_one(tmp_path, name):
    file = table(tmp_path, f"{name},seed,loss", lambda v, s, y: f"{v},{s},{y}", "1000 2000")
    study = analysed(file, "--factors", name)
    assert study.manifest.factors == {name: [1000, 2000]}
    assert evidence.effects(study)["seconds_ratio"].isna().all()


def test_a_margin_makes_verdicts_that_say_what_they_rest_on(tmp_path, capsys):
    file = table(tmp_path, "ffn,seed,loss", lambda v, s, y: f"{v},{s},{y}", seeds=6)
    assert evidence.effects(analysed(file))["verdict"].item() == "better"
    study = analysed(file, "--margin", "0.2")
    effect = evidence.effects(study).iloc[0]
    assert effect["verdict"] == "negligible" and "by a margin written after results" in effect["note"]
    told = "margin: ±0.2, post hoc: nothing tells that it was written before the results"
    assert evidence.margin_line(study) == told and "--margin 0.2" in study.manifest.command
    with pytest.raises(SystemExit):
        analysed(file, "--margin", "-1")
    assert "argument --margin: invalid positive_number value: '-1'" in capsys.readouterr().err


def test_runs_of_other_programs_do_not_take_the_place_of_a_study(tmp_path, capsys):
    name = fabricate(tmp_path / "results", GRID)
    file = table(tmp_path, "ffn,seed,loss", lambda v, s, y: f"{v},{s},{y}").rename(tmp_path / f"{name}.csv")
    said = refused_line(capsys, "export", "--runs", str(file), "--results-dir", str(tmp_path / "results"))
    assert f"{name} is for the study {name} itself, not for runs of" in said
    assert not (tmp_path / "results" / "figures").exists()


def test_seeds_keep_all_their_digits(tmp_path):
    first = 1_700_000_000_123_456_789  # of a clock, in nanoseconds: as floats these would be one
    study = analysed(table(tmp_path, "ffn,seed,loss", lambda v, s, y: f"{v},{first + s},{y}"))
    assert study.manifest.seeds == [first + s for s in range(4)] and evidence.effects(study)["n"].item() == 4


@pytest.mark.parametrize("seed", ["x", "", "1.5", "true", str(2**64)])
def test_a_row_without_a_whole_number_as_its_seed_is_left_out_and_said(tmp_path, seed):
    file = table(tmp_path, "ffn,seed,loss", lambda v, s, y: f"{v},{seed if (v, s) == ('ln', 1) else s},{y}")
    assert analysed(file).notes[0] == "1 run without a seed left out: line 3"


PAIRS = ["a + b,c", "a,b + c", "a,c", "a + b,b + c"]
ALIKE = "".join(f"{pair},{seed},{loss(i, seed)}\n" for i, pair in enumerate(PAIRS) for seed in (0, 1))
PLAIN = "ffn,seed,loss\na,0,2.0\na,1,2.1\nb,0,2.2\nb,1,2.4\n"
REFUSED = [
    (
        PLAIN.replace("seed", "sed"),
        "did you mean sed?; name its column: --seed-from COLUMN; write: ablate analyse --runs",
    ),
    (PLAIN.replace("seed", "run_seed"), "--seed-from run_seed"),
    ('"Step","mlp-s0 - test/loss","glu-s0 - test/loss"\n1,2.5,2.5\n', "write: ablate analyse --runs"),
    ("ffn,seed,value\na,0,1\nb,0,2\n", "no column is a metric by its name; there are ffn, seed and value; write: "),
    ("ffn,seed,loss\na,0,2\na,1,3\n", "no column is a factor, of which a comparison needs two values; there are ffn"),
    (f"{PLAIN}b,2,odd1\n", "line 6: loss is “odd1”, which is not a number; write a decimal point"),
    (PLAIN.replace("loss", "loss,status").replace(".1", ".1,odd"), "line 3: status is “odd”, which is not one of done"),
    (f"{PLAIN}a,0,2.0\n", "line 2 and line 6 are both a, seed 0; name the columns in which they differ"),
    (f"f,g,seed,loss\n{ALIKE}", "two configurations of f and g have the same name"),
    ("model,seed 1,seed 2\nbase,2.1,2.2\nbig,2.0,2.1\n", "no run has a seed, of which each needs one"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_what_cannot_be_meant_is_one_line(tmp_path, text, said):
    (tmp_path / "runs.csv").write_text(text)
    assert said in refused(tmp_path / "runs.csv")


OPTIONS = {
    "--factors nrm": "factors: nrm is no column that can be compared; there are ffn, cell, hits and note\n",
    "metric=bpb": "--metric bpb: there is no such metric; there are ffn, cell, hits, note and test/loss\n",
    "--metric seed": "--metric seed: there is no such metric",
    "--metric note": "note is “text”, which is not a number",
    "--reference ffn=aa": "there are a and b; did you mean a?",
    "--reference norm=c": "norm is no factor of these runs; the factors are ffn",
    "--step-from steps": "--step-from steps: there is no such column; there are ffn, cell, seed",
    "--seed-from sd": "there are ffn, cell, seed, params, status, hits, note and test/loss; did you mean seed?",
    "--names {ffn}": "--names {ffn}: no column has the names of runs, such as name or run",
    "STUDY": "STUDY and --runs are different runs",
}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--runs none.csv", "none.csv: it cannot be read (No such file or directory)"),
        ("--runs /proc/self/fd", "fd: there are no logs, a file per run; known are trainer_state.json, metrics.csv"),
        ("--factors ffn", "are for runs of other programs"),
        *((f"--runs runs.csv {options}", said) for options, said in OPTIONS.items()),
    ],
)
def test_wrong_options_are_one_line(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    head = "ffn,cell,seed,params,status,hits,note,test/loss"
    table(tmp_path, head, lambda v, s, y: f"{v},{v},{s},9,done,{s},text,{y}", "a b")
    assert said in refused_line(capsys, *words.split())
    assert not Path("results").exists()
