"""python -m analysis --runs FILE: runs of other programs, from a CSV."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from fake_studies import fabricate, plain_score

from ablate import evidence, formatting
from ablate.config.claims import holds
from ablate.config.errors import Refused
from ablate.runs.study import Study, load_study
from analysis import figures
from analysis.case import case_of
from analysis.cli.main import main
from analysis.figures.stamp import run_hashes
from analysis.sources import Request
from analysis.sources.files import read_runs as read_csv
from analysis.writing.chart import chart
from analysis.writing.tables import remarks, runs_csv, write_csv

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def exported(study: Study, file: Path) -> Path:
    """The runs of a native study as `python -m analysis export` writes them."""
    return write_csv(runs_csv(study), file)


def verdicts(table: pandas.DataFrame) -> list[str]:
    """Every row's verdict as people read it."""
    return [formatting.verdict(row) for row in table.itertuples()]


def effects(study: Study) -> pandas.DataFrame:
    """All that a CSV can say of effects: it has neither yardsticks, for what a collapse costs, nor steps."""
    return evidence.effects(study).drop(columns=["flops_ratio"])


def assert_equal_evidence(native: Study, foreign: Study) -> None:
    """The same effects to the last digit, and the same words."""
    one, other = effects(native), effects(foreign)
    pandas.testing.assert_frame_equal(one, other, check_exact=True)
    assert verdicts(one) == verdicts(other)
    left, right = evidence.cells(native), evidence.cells(foreign)
    same = [name for name in left if name not in ("shared_draws", "flops_per_token", "params_vs_reference")]
    pandas.testing.assert_frame_equal(left[same], right[same], check_exact=True)
    np.testing.assert_allclose(left["params_vs_reference"], right["params_vs_reference"], atol=1e-12)


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
def test_a_native_study_read_back_is_equal_to_the_last_digit(tmp_path: Path, more: dict[str, Any]) -> None:
    native = load_study(tmp_path, fabricate(tmp_path, GRID, **more))
    foreign = read_csv(exported(native, tmp_path / "runs.csv"), Request())
    assert foreign.notes == []
    assert_equal_evidence(native, foreign)


def value(i: int, seed: int) -> float:
    """A loss with an effect of the cell, and noise of its own."""
    return 2 + 0.1 * i + 0.01 * seed + 0.003 * ((seed * 7 + i * 3) % 5)


def table(head: str, row: str, cells: tuple[str, ...] = ("a", "b"), seeds: int = 5) -> str:
    """A CSV with a row for each cell and seed."""
    told = itertools.product(enumerate(cells), range(seeds))
    return "\n".join([head, *(row.format(c=c, s=s, v=value(i, s), i=i) for (i, c), s in told)]) + "\n"


def read(folder: Path, text: str | bytes, asked: Request | None = None) -> Study:
    (folder / "runs.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return read_csv(folder / "runs.csv", asked or Request())


PLAIN = table("ffn,seed,test/loss", "{c},{s},{v}")
FIRST = Request(reference=(("ffn", "a"),))


def test_a_cell_column_alone_is_one_factor(tmp_path: Path) -> None:
    text = table("cell,seed,val_loss", "{c},{s},{v}", ("0", "1", "2"), 4)
    found = evidence.effects(read(tmp_path, text))
    assert list(found["label"][found["family"]]) == ["cell: 1 − 0", "cell: 2 − 0"]
    expected = [np.mean([value(i, s) - value(0, s) for s in range(4)]) for i in (1, 2)]
    np.testing.assert_allclose(found["mean"][found["family"]], expected, atol=1e-12)
    other = evidence.effects(read(tmp_path, text, Request(reference=(("cell", "2"),))))
    assert list(other["label"][other["family"]]) == ["cell: 0 − 2", "cell: 1 − 2"]


def test_cells_that_no_design_relates_are_compared_with_the_reference(tmp_path: Path) -> None:
    text = table("norm,ffn,seed,loss", "{c},{s},{v}", ("ln,mlp", "rms,mlp", "rms,swiglu"), 3)
    asked = Request(reference=(("norm", "ln"), ("ffn", "mlp")))
    study = read(tmp_path, text, asked)
    found = evidence.effects(study)
    assert list(found["label"]) == ["variant: rms + mlp − ln + mlp", "variant: rms + swiglu − ln + mlp"]
    assert found["family"].all() and list(study.runs["norm"].unique()) == ["ln", "rms"]
    assert study.manifest.remarks[1] == "norm and ffn form no design; configurations are compared whole"


def test_higher_is_better_by_name_by_option_or_asked_for(tmp_path: Path) -> None:
    def verdict(asked: Request) -> object:
        text = table("ffn,seed,test/accuracy,quality", "{c},{s},{v},{v}")
        return evidence.effects(read(tmp_path, text, asked))["verdict"].item()

    assert verdict(Request()) == "better"
    with pytest.raises(Refused, match=r"quality: its name does not say .* --lower or --higher"):
        verdict(Request(metrics=("quality",)))
    assert verdict(Request(metrics=("quality",), lower=True)) == "worse"
    assert verdict(Request(metrics=("quality",), lower=False)) == "better"


def test_pairing(tmp_path: Path) -> None:
    assert evidence.effects(read(tmp_path, PLAIN))["paired"].all()
    assert not evidence.effects(read(tmp_path, PLAIN, Request(unpaired=True)))["paired"].any()
    own = "ffn,seed,loss\n" + "\n".join(f"{'ab'[i % 2]},{i},2.{i}" for i in range(12))
    study = read(tmp_path, own)
    assert "unpaired: no two configurations have a seed in common" in study.manifest.remarks[0]
    assert evidence.effects(study)["n"].item() == 6 and len(study.runs) == 12
    named = "ffn,batches,seed,loss\n" + "\n".join(
        f"{cell},{batches}{seed},{seed},{2 + seed / 10 + i / 7 + i * seed / 100}"
        for i, (cell, batches) in enumerate([("a", "x"), ("b", "x"), ("c", "y")])
        for seed in range(5)
    )
    assert list(evidence.effects(read(tmp_path, named, FIRST))["paired"]) == [True, False]


def test_curves_end_at_their_last_step_and_never_in_mid_schedule(tmp_path: Path) -> None:
    lines = ["ffn,seed,step,val/loss,test/loss"]
    for cell, seed, step in itertools.product("ab", range(4), (0, 10, 20)):
        if (cell, seed, step) == ("b", 3, 20):
            continue  # it was cut short
        value = 3 - step / 20 + (cell == "b") * 0.1 + seed * 0.01 + (cell == "b") * seed**2 * 0.001
        lines.append(f"{cell},{seed},{step},{value},{value if step == 20 or (cell, seed) == ('b', 3) else ''}")
    study = read(tmp_path, "\n".join([lines[0], *reversed(lines[1:])]))
    assert len(study.curves) == 23 and set(study.curves) >= {"cell", "label", "seed", "step", "val/loss", "test/loss"}
    runs = study.runs.set_index(["label", "seed"])
    assert runs.loc[("a", 2), "test/loss"] == 2.02
    assert runs.loc[("b", 3), "status"] == "missing" and math.isnan(runs.loc[("b", 3), "test/loss"])
    (note,) = study.notes
    assert note.startswith("1 run that stopped before the last step of their configuration") and "b seed 3" in note
    assert evidence.effects(study)["n"].item() == 3


@pytest.mark.parametrize("line", ["b,1,", ""], ids=["nothing", "no row"])
def test_a_run_without_a_number_is_named_counted_and_left_out(tmp_path: Path, line: str) -> None:
    kept = [f"{c},{s},{2 + 0.1 * (c == 'b') + 0.01 * s + 0.001 * s * s * (c == 'b')}" for c in "ab" for s in range(3)]
    text = "\n".join(["ffn,seed,loss", *kept[:4], line, *kept[5:]])
    study = read(tmp_path, text)
    assert any("counted as missing: b seed 1" in each for each in study.notes), study.notes
    lost = study.runs[(study.runs["label"] == "b") & (study.runs["seed"] == 1)]
    assert list(lost["status"]) == ["missing"] and lost["loss"].isna().all()
    assert len(study.runs) == 6 and evidence.effects(study)["n"].item() == 2


@pytest.mark.parametrize("last", ["nan", "inf", "-inf", "1e308", "-1e101"])
def test_a_loss_that_is_not_finite_has_diverged_whatever_its_status_says(tmp_path: Path, last: str) -> None:
    rows = [f"{ffn},{seed},{2 + 0.01 * seed}" for ffn in "ab" for seed in range(6)]
    study = read(tmp_path, "\n".join(["ffn,seed,loss", *rows[:-1], f"b,5,{last}"]))
    assert study.runs["status"].iloc[-1] == "diverged" and study.runs["loss"].isna().iloc[-1]
    assert "not finite and a status that does not say diverged, counted as diverged: b seed 5" in study.notes[0]
    assert evidence.effects(study)["verdict"].item() == "withheld"


def test_a_metric_without_a_split_is_drawn_like_any_other(tmp_path: Path) -> None:
    told = itertools.product("ab", range(4), (0, 10))
    lines = [f"{cell},{seed},{step},{0.5 + 0.01 * step + 0.02 * seed}" for cell, seed, step in told]
    study = read(tmp_path, "\n".join(["cell,seed,step,accuracy", *lines]))
    case = case_of(study, tmp_path)
    assert run_hashes(study).count(",") == 7
    drawn = figures.tables(case, figures.Edits(figures=["seeds", "curves"]))
    assert set(drawn["seeds"]["facet"]) == {"accuracy"}
    assert sorted(drawn["seeds"]["value"]) == sorted(study.runs["accuracy"])
    shown = drawn["curves"].set_index(["cell", "tokens"])["mean"]
    assert shown["a", 10] == pytest.approx(0.63) and set(drawn["curves"]["metric"]) == {"accuracy"}
    drawn_curves = chart(case)
    assert drawn_curves and drawn_curves["layout"]["yaxis"]["title"]["text"] == "accuracy"


def test_without_steps_nothing_says_when_a_task_was_solved(tmp_path: Path) -> None:
    study = read(tmp_path, table("ffn,seed,test/accuracy,val/accuracy", "{c},{s},{v},{v}"))
    case = case_of(study, tmp_path)
    assert study.runs["val/accuracy"].ge(0.99).all()
    assert "solved" not in figures.tables(case, figures.edits(case))


def test_statuses(tmp_path: Path) -> None:
    statuses = ["done", "diverged", "failed", "missing", "", "missing"]
    text = "ffn,seed,status,loss\n" + "\n".join(f"a,{seed},done,2.{seed}" for seed in range(6)) + "\n"
    text += "\n".join(f"b,{seed},{status},{'nan' if seed else 1.9}" for seed, status in enumerate(statuses))
    study = read(tmp_path, text)
    assert list(study.runs["status"][6:]) == ["done", "diverged", "failed", "missing", "diverged", "missing"]
    assert evidence.effects(study)["verdict"].item() == "withheld"  # one side diverged
    assert any("2 runs diverged: b seed 1 and b seed 4" in line for line in remarks(study))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace(",", ";"),
        lambda text: text.replace(",", "\t"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: '"ffn","seed","test/loss"\n' + text.partition("\n")[2],
        lambda text: text.replace(",", " , "),
        lambda text: text.replace("\n", "\n\n,,\n"),
    ],
    ids=["BOM", "semicolons", "tabs", "Windows", "quotes", "spaces", "blank lines"],
)
def test_separators_and_line_ends_are_found(tmp_path: Path, change: Callable[[str], str]) -> None:
    plain, study = read(tmp_path, PLAIN), read(tmp_path, change(PLAIN))
    assert study.notes == [] and study.manifest.factors == plain.manifest.factors
    assert study.runs["test/loss"].tolist() == plain.runs["test/loss"].tolist()


def test_what_is_no_factor_is_left_out_and_said(tmp_path: Path) -> None:
    lines = ["host,norm,dim,hidden,seed,loss,elapsed"]
    for i, (norm, dim, seed) in enumerate(itertools.product(["ln", "rms"], [32, 64], range(3))):
        lines.append(f"h{i},{norm},{dim},{dim * 4},{seed},{2 + i / 100},{17 + i / 7}")
    study = read(tmp_path, "\n".join(lines))
    assert study.manifest.factors == {"norm": ["ln", "rms"], "dim": [32, 64]}
    runs = "host (has a value per run), elapsed (has a value per run)"
    assert study.notes == [f"columns that are no factors: {runs} and hidden (changes with dim)"]
    assert study.manifest.design == "grid"


@pytest.mark.parametrize("name", ["_step", "Step", "trainer/global_step", "iter", "epoch", "tokens"])
def test_steps_under_the_names_of_other_programs(tmp_path: Path, name: str) -> None:
    """140 levels of `iter` would be compared as if somebody had chosen them, and so would those of a learning rate."""
    told = itertools.product(enumerate("ab"), range(5), (0, 9))
    rows = [f"{c},{s},{t},{0.1 - t / 100},{value(i, s) if t else 4}" for (i, c), s, t in told]
    text, asked = "\n".join([f"ffn,seed,{name},lr,test/loss", *rows]), Request(step_from=name * (name == "tokens"))
    study = read(tmp_path, text, asked)
    assert study.manifest.factors == {"ffn": ["a", "b"]} and study.curves["step"].tolist() == [0, 9] * 10
    assert evidence.effects(study)["n"].tolist() == [5] and len(study.runs) == 10
    assert study.notes == ["columns that are no factors: lr (follows the step)"]


def test_two_columns_that_could_count_steps_and_one_that_need_not(tmp_path: Path) -> None:
    rows = [f"{c},{s},{t},{t * 8},{value(i, s)}" for (i, c), s, t in itertools.product(enumerate("ab"), (0, 1), (1, 2))]
    text = "\n".join(["ffn,seed,iter,updates,test/loss", *rows]).replace(",8,", ",9,")
    with pytest.raises(Refused, match="each of iter and updates could count the steps; name one: --step-from iter"):
        read(tmp_path, text)
    assert read(tmp_path, text, Request(step_from="updates")).curves["step"].max() == 16
    # Of a row per run, the step at which it ended is no reason to leave it out.
    study = read(tmp_path, table("ffn,seed,global_step,test/loss", "{c},{s},{s}{i},{v}"))
    pandas.testing.assert_frame_equal(evidence.effects(study), evidence.effects(read(tmp_path, PLAIN)))
    assert study.notes == [] and study.curves.empty


def test_columns_without_numbers_are_left_out_and_said(tmp_path: Path) -> None:
    study = read(tmp_path, table("ffn,seed,test/loss,val_loss,loss_note", "{c},{s},,{v},{c}ood"))
    assert study.manifest.endpoint == "val_loss" and study.manifest.factors == {"ffn": ["a", "b"]}
    no_metric = "columns that are no factors: loss_note (changes with ffn)"
    assert study.notes == ["columns without a value, left out: test/loss", no_metric]
    assert not any("damaged" in line for line in remarks(study))


@pytest.mark.parametrize(
    ("levels", "shown"),
    [
        (("1e-3", "0.001", "1E-03", "0.01"), [0.001, 0.01]),
        (("64", "64.0", "6.4e1", "128"), [64.0, 128.0]),
        (("True", "TRUE", "true", "false"), [True, False]),
        (("0", "0", "0", "1"), [0, 1]),
    ],
)
def test_one_level_spelled_in_several_ways_is_one(tmp_path: Path, levels: tuple[str, ...], shown: list[object]) -> None:
    one, other, third, last = levels
    spelled = [one, other, third, one, one] + [last] * 5
    rows = [f"{level},{i % 5},{value(i // 5, i % 5)}" for i, level in enumerate(spelled)]
    study = read(tmp_path, "\n".join(["optim.x,seed,loss", *rows]))
    assert list(study.manifest.factors.values()) == [shown] and study.notes == []
    assert evidence.effects(study)["n"].tolist() == [5]


@pytest.mark.parametrize(
    "levels",
    [
        ("1234567890123456789", "1234567890123456790"),
        ("0.12345671", "0.12345674"),
        ("1e400", "2e400"),
        ("", "None", "null"),
    ],
    ids=["ids", "six digits", "infinite", "empty"],
)
def test_levels_that_are_alike_when_read_or_shown_stay_apart(tmp_path: Path, levels: tuple[str, ...]) -> None:
    study = read(tmp_path, table("x,seed,test/loss", "{c},{s},{v}", levels), Request(reference=(("x", levels[-1]),)))
    cells = study.manifest.cells
    assert len({cell.label for cell in cells}) == len(study.manifest.factors["x"]) == len(levels)
    for cell in cells:
        assert [other for other in cells if holds(other.levels, {"x": cell.levels["x"]})] == [cell]


@pytest.mark.parametrize("design", ["grid", ""])
def test_cells_whose_levels_read_alike_in_a_row_are_not_one(tmp_path: Path, design: str) -> None:
    pairs = ["a + b,c", "a,b + c", "a,d"] if not design else ["a + b,c", "a,b + c", "a,c", "a + b,b + c"]
    asked = Request(factors=("f", "g"), reference=(("f", "a + b"), ("g", "c")))
    study = read(tmp_path, table("f,g,seed,test/loss", "{c},{s},{v}", tuple(pairs)), asked)
    assert len({cell.label for cell in study.manifest.cells}) == len(pairs)
    assert [cell.reference for cell in study.manifest.cells].count(True) == 1
    assert 'f="a + b", g="c"' in [cell.label for cell in study.manifest.cells]
    assert ("variant" in study.manifest.factors) == (not design)


def test_cells_that_end_at_different_steps_are_compared_at_a_common_one(tmp_path: Path) -> None:
    rows = [
        f"{c},{s},{step},{value(i, s) + 1 / step}"
        for (i, c), s, step in itertools.product(enumerate("ab"), range(3), (1, 2))
    ]
    assert read(tmp_path, "\n".join(["ffn,seed,step,loss", *rows])).notes == []
    shorter = "\n".join(
        ["ffn,seed,step,loss", *(row for row in rows if not (row[0] == "b" and row.split(",")[2] == "2"))]
    )
    study = read(tmp_path, shorter)
    why = "compared at step 1, the last that all have; ends=own compares each at its own end"
    assert study.notes == [f"runs end at different steps, 1 to 2: {why}"]
    assert evidence.effects(study)["mean"].item() == pytest.approx(0.1, abs=1e-2)
    assert evidence.effects(read(tmp_path, shorter, Request(ends="own")))["mean"].item() == pytest.approx(0.6, abs=1e-2)


def test_columns_of_steps_and_texts_that_act(tmp_path: Path) -> None:
    study = read(tmp_path, table("ffn,seed,loss", "{c},{s},{v}", ("a", "a\x1b[31m", "a\u202eb", "\ufeffa")), FIRST)
    assert study.manifest.factors == {"ffn": ["a", "a\\x1b[31m", "a\\u202eb", "\\ufeffa"]}
    text = table("tokens,seed,loss", "{c},{s},{v}", ("1000", "2e3"))
    assert read(tmp_path, text, Request(factors=("tokens",))).manifest.factors == {"tokens": [1000.0, 2000.0]}
    with pytest.raises(Refused, match="no column is a factor"):
        read(tmp_path, text)
    sizes = read(tmp_path, text.replace("tokens", "params"), Request(factors=("params",)))
    assert sizes.manifest.factors == {"params": [1000.0, 2000.0]} and set(sizes.runs["params"]) == {1000, 2000}
    study = read(tmp_path, table("ffn,seed,step,test/loss", "{c},{s},,{v}"))
    pandas.testing.assert_frame_equal(evidence.effects(study), evidence.effects(read(tmp_path, PLAIN)))
    assert study.notes == [] and study.curves.empty


def test_seeds_keep_all_their_digits(tmp_path: Path) -> None:
    first = 1_700_000_000_123_456_789  # of a clock, in nanoseconds: as floats these would be one
    rows = [f"{c},{first + s},{value(i, s)}" for i, c in enumerate("ab") for s in range(5)]
    text = "\n".join(["ffn,seed,loss", *rows])
    study = read(tmp_path, text)
    assert study.manifest.seeds == [first + s for s in range(5)] and evidence.effects(study)["n"].item() == 5
    for large in (str(2**64), "9" * 400):
        with pytest.raises(Refused, match=r"line 2: seed is “.*”, which is not a whole number of 64 bits"):
            read(tmp_path, text.replace(str(first), large))


CHART = '"Step","mlp-s0 - test/loss","mlp-s0 - test/loss__MIN"\n1,2.5,2.5\n'
TIDY = "write a row per run (or per run and step) with the columns seed, cell or one per factor, and a metric"
FIELDS = "ffn,seed,loss\na,0,2.0\n\na,1,2.1\nb,0,2.2\n"  # with an empty line, which counts
REFUSED: list[tuple[str | bytes, str]] = [
    (PLAIN.replace("seed", "sed"), f"there is no column seed, but ffn, sed and test/loss; {TIDY}"),
    (CHART, "or read them from the runs' names: --names"),
    ("", "is no tidy CSV (No columns to parse from file); write a row per run"),
    (b"\x00\x01\x02PK\x03\x04", "write a row per run"),
    (b"a,\xff\n", "this is no table: it is not text in UTF-8 or UTF-16"),
    ("just words\nmore\n", "no column seed, but just words; write a row per run"),
    ("ffn,seed,loss\n", "there are no rows below the names of the columns"),
    ("ffn,seed,ffn,loss\na,0,b,1\n", "two columns are called ffn"),
    ("ffn,seed,value\na,0,1\nb,0,2\n", "no column is a metric by its name; write --metric NAME; there are ffn, seed"),
    ("ffn,seed,loss\na,0,2\n", "there is one variant, with the same ffn in each run; a comparison needs two"),
    ("ffn,seed,loss\na,0,\nb,0,\n", "there are ffn and seed; columns without a value, left out: loss"),
    ("seed,loss,note\n0,1,x\n1,2,y\n", "from runs' names); there are seed, loss and note\n"),
    *((f"{FIELDS}b,{seed},2", f"line 6: seed is “{seed}”, which is not a whole number") for seed in ("x", "", "1.5")),
    (f"{FIELDS}b,1,odd", "line 6: loss is “odd”, which is not a number"),
    (f"{FIELDS}b,1,2,3", "Expected 3 fields in line 6, saw 4"),
    (PLAIN.replace(",", ";").replace(".", ",,"), "line 2: test/loss is “2,,0”, which is not a number; write a decimal"),
    (table("ffn,seed,test/acc", "{c},{s},9{i}.{s}%"), "line 2: test/acc is “90.0%”, which is not a number; write a"),
    (table("ffn,seed,step,loss", "{c},{s},inf,{v}"), "line 2: step is “inf”, which is not a number"),
    (table("ffn,seed,status,loss", "{c},{s},odd,{v}"), "“odd”, which is not one of done, diverged, failed"),
    (PLAIN + PLAIN.splitlines()[1], "line 2 and line 12 are both a, seed 0; name the columns in which"),
    ("ffn,seed,loss\nb,0,2\n,0,1\n,0,2\n", "line 3 and line 4 are both ffn=null, seed 0; name the columns in which"),
    ("ffn,seed,step,loss\na,0,1,1\na,0,1,2\nb,0,1,1\n", "line 2 and line 3 are both a, seed 0, step 1"),
    (table("ffn,note,loss,train_seed", "{c},x,{v},{s}") + "a,x,1,0\n", "line 2 and line 12 are both a, seed 0"),
    (table("ffn,seed,loss", "{c},{s},{v}", ("a", "b" * 501)), "line 7: “bbbbbbbbbbbbbbbbbbbb…” has 501 characters"),
    (table(f"{'f' * 501},seed,loss", "{c},{s},{v}"), "“ffffffffffffffffffff…” has 501 characters; names and levels"),
    ("label,seed,loss\na,0,1\nb,0,2\n", "no column is a factor; name those that are with --factors"),
    ("cell,ffn,seed,loss\nx,a,0,1\ny,a,0,1\nz,b,0,1\n", "configurations x and y have the same factors"),
]


@pytest.mark.parametrize(("content", "said"), REFUSED, ids=[said[:30] for _, said in REFUSED])
def test_what_cannot_be_meant_is_one_line(tmp_path: Path, content: str | bytes, said: str) -> None:
    with pytest.raises(Refused) as refused:
        read(tmp_path, content)
    assert said in f"{refused.value}\n" and "runs.csv" in str(refused.value) and "\n" not in str(refused.value)


def test_columns_of_which_too_many_could_be_factors_are_one_line(tmp_path: Path) -> None:
    head = "ffn,seed,test/loss," + ",".join(f"c{j}" for j in range(1, 200))
    rows = [
        f"{'ab'[r % 2]},{r // 2},{2 + r / 9}," + ",".join("xy"[j >> r & 1] for j in range(1, 200)) for r in range(8)
    ]
    text = "\n".join([head, *rows])
    with pytest.raises(Refused, match=r"\d+ columns could be factors: ffn, c1, .* and \d+ more; name") as error:
        read(tmp_path, text)
    assert "\n" not in str(error.value)
    assert list(read(tmp_path, text, Request(factors=("ffn",))).manifest.factors) == ["ffn"]


OPTIONS = {
    "--factors nrm": "--factors nrm: there is no such column; there are ffn, cell, hits and note\n",
    "--factors status": "status identifies a run or its status; there are ffn, cell, hits and note\n",
    "--factors test/loss": "--factors test/loss: test/loss is a metric",
    "--factors ffn,hits --metric hits": "--factors hits: hits is a metric",
    "--metric bpb": "--metric bpb: there is no such column; there are ffn, hits, note and test/loss\n",
    **{f"--metric {name}": f"{name} identifies a run" for name in ("seed", "status", "cell", "params")},
    "--metric note": "note is “text”, which is not a number",
    "--metric hit": "there is no such column; there are ffn, hits, note and test/loss; did you mean hits?",
    "--reference ffn=c": "--reference ffn=c: there is no such level; there are a and b\n",
    "--reference ffn=aa": "--reference ffn=aa: there is no such level; there are a and b; did you mean a?",
    "--reference norm=c": "norm is no factor of these runs; the factors are ffn",
    "--within fn": "--within fn: it is no factor of these runs; the factors are ffn; did you mean ffn?",
    "--within ffn": "no factor is left to compare",
    "--step-from steps": "--step-from steps: there is no such column; there are ffn, cell, seed",
    "--seed-from sd": "there are ffn, cell, seed, params, status, hits, note and test/loss; did you mean seed?",
    "--names {ffn}": "--names {ffn}: it fits no run, as no column has names (name, run, …)",
    "--factors note --seed-from hits --names x": "--names x: it has no {field}; write as in --names",
    "STUDY": "STUDY and --runs are different runs",
}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--runs none.csv", "none.csv: it cannot be read (No such file or directory)"),
        ("--runs /proc/self/fd", "fd: there are no logs, a file per run; known are trainer_state.json, metrics.csv"),
        ("--factors ffn", "need --runs or --wandb"),
        *((f"--runs runs.csv {options}", said) for options, said in OPTIONS.items()),
    ],
)
def test_wrong_options_are_one_line(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    head = "ffn,cell,seed,params,status,hits,note,test/loss"
    Path("runs.csv").write_text(table(head, "{c},{c},{s},9,done,{s},text,{v}"))
    assert main(words.split()) == 2
    shown = capsys.readouterr()
    assert said in shown.err and shown.err.count("\n") == 1 and not shown.out, shown.err
    assert not Path("results").exists()


def test_what_every_run_has_can_be_the_metric(tmp_path: Path) -> None:
    study = read(tmp_path, table("ffn,seed,tokens", "{c},{s},{i}{s}"), Request(metrics=("tokens",), lower=True))
    assert study.manifest.endpoint == "tokens" and len(evidence.effects(study)) == 1


def test_columns_of_other_programs_named_as_ours_are_factors_or_nothing(tmp_path: Path) -> None:
    """A device or seconds that somebody swept is no time that ablate measured."""
    rows = [(device, 10 * (device + 1), seed, 2 + device / 10 + seed / 100) for device in (0, 1) for seed in range(6)]
    table = pandas.DataFrame(rows, columns=["device", "seconds", "seed", "test/loss"])
    file = write_csv(table.assign(cpu_seconds=table["seconds"]), tmp_path / "runs.csv")
    found = evidence.effects(read_csv(file, Request(factors=("device",))))
    assert found["n"].tolist() == [6] and found["seconds_ratio"].isna().all() and found["flops_ratio"].isna().all()
