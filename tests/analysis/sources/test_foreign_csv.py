"""CSVs as other programs write them: read as what they mean, or refused in one line; nothing is lost in silence."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pandas
import pytest

from ablate import evidence
from ablate.config.claim_relations import holds
from ablate.config.errors import Refused
from ablate.results.study import Study
from analysis.cli.main import main
from analysis.sources.csv_file import read_csv
from analysis.sources.request import Asked


def value(i: int, seed: int) -> float:
    """A loss with an effect of the cell, and noise of its own."""
    return 2 + 0.1 * i + 0.01 * seed + 0.003 * ((seed * 7 + i * 3) % 5)


def table(head: str, row: str, cells: tuple[str, ...] = ("a", "b"), seeds: int = 5) -> str:
    """A CSV with a row for each cell and seed."""
    told = itertools.product(enumerate(cells), range(seeds))
    return "\n".join([head, *(row.format(c=c, s=s, v=value(i, s), i=i) for (i, c), s in told)]) + "\n"


def read(folder: Path, text: str | bytes, asked: Asked | None = None) -> Study:
    (folder / "runs.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return read_csv(folder / "runs.csv", asked or Asked())


PLAIN = table("ffn,seed,test/loss", "{c},{s},{v}")


@pytest.mark.parametrize("name", ["_step", "Step", "trainer/global_step", "global_step"])
def test_steps_under_other_names_are_never_compared(tmp_path: Path, name: str) -> None:
    """Two levels of a Step would be compared as if somebody had chosen them."""
    rows = [f"{c},{s},{t},{value(i, s)}" for (i, c), s, t in itertools.product(enumerate("ab"), range(5), (0, 9))]
    with pytest.raises(Refused, match=r"line 2 and line 3 are both a, seed 0; .* call it step"):
        read(tmp_path, "\n".join([f"ffn,seed,{name},test/loss", *rows]))


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
    study = read(tmp_path, table("x,seed,test/loss", "{c},{s},{v}", levels))
    cells = study.manifest.cells
    assert len({cell.label for cell in cells}) == len(study.manifest.factors["x"]) == len(levels)
    for cell in cells:
        assert [other for other in cells if holds(other.levels, {"x": cell.levels["x"]})] == [cell]


@pytest.mark.parametrize("design", ["grid", ""])
def test_cells_whose_levels_read_alike_in_a_row_are_not_one(tmp_path: Path, design: str) -> None:
    pairs = ["a + b,c", "a,b + c", "a,d"] if not design else ["a + b,c", "a,b + c", "a,c", "a + b,b + c"]
    study = read(tmp_path, table("f,g,seed,test/loss", "{c},{s},{v}", tuple(pairs)))
    assert len({cell.label for cell in study.manifest.cells}) == len(pairs)
    assert [cell.reference for cell in study.manifest.cells].count(True) == 1
    assert 'f="a + b", g="c"' in [cell.label for cell in study.manifest.cells]
    assert ("variant" in study.manifest.factors) == (not design)


def test_cells_that_end_at_different_steps_are_named(tmp_path: Path) -> None:
    rows = [
        f"{cell},{seed},{step},{value(i, seed)}" for i, cell in enumerate("ab") for seed in range(3) for step in (1, 2)
    ]
    told = "cells end at different steps, and are compared there: a 2, b 1"
    assert read(tmp_path, "\n".join(["ffn,seed,step,loss", *rows])).notes == []
    rows = [row for row in rows if not (row[0] == "b" and row.split(",")[2] == "2")]
    assert read(tmp_path, "\n".join(["ffn,seed,step,loss", *rows])).notes == [told]


def test_what_a_terminal_would_obey_is_spelled_out(tmp_path: Path) -> None:
    study = read(tmp_path, table("ffn,seed,loss", "{c},{s},{v}", ("a", "a\x1b[31m", "a\u202eb", "\ufeffa")))
    assert study.manifest.factors == {"ffn": ["a", "a\\x1b[31m", "a\\u202eb", "\\ufeffa"]}


def test_seeds_keep_all_their_digits(tmp_path: Path) -> None:
    first = 1_700_000_000_123_456_789  # of a clock, in nanoseconds: as floats these would be one
    text = "\n".join(
        ["ffn,seed,loss", *(f"{c},{first + s},{value(i, s)}" for i, c in enumerate("ab") for s in range(5))]
    )
    study = read(tmp_path, text)
    assert study.manifest.seeds == [first + s for s in range(5)] and evidence.effects(study)["n"].item() == 5
    for large in (str(2**64), "9" * 400):
        with pytest.raises(Refused, match=r"line 2: seed is “.*”, which is not a whole number of 64 bits"):
            read(tmp_path, text.replace(str(first), large))


CHART = '"Step","mlp-s0 - test/loss","mlp-s0 - test/loss__MIN"\n1,2.5,2.5\n'
TABLE = '"Name","State","config.ffn","config.seed","test/loss"\n"r0","finished","mlp","0","2.5"\n'
TIDY = "write a row per run (or per run and step) with the columns seed, cell or one per factor, and a metric"
FIELDS = "ffn,seed,loss\na,0,2.0\n\na,1,2.1\nb,0,2.2\n"  # with an empty line, which counts
REFUSED: list[tuple[str | bytes, str]] = [
    (PLAIN.replace("seed", "Seed"), f"there is no column seed, but ffn, Seed, test/loss; {TIDY}"),
    (CHART, f"there is no column seed, but Step, mlp-s0 - test/loss, mlp-s0 - test/loss__MIN; {TIDY}"),
    (TABLE, "of runs on W&B write --wandb ENTITY/PROJECT"),
    ("", "is no tidy CSV (Could not determine delimiter); write a row per run"),
    ("\n \n", "is no tidy CSV"),
    (b"\x00\x01\x02PK\x03\x04", "write a row per run"),
    (b"\xff\xfea\x00,\x00", "is no CSV: it is not text in UTF-8"),
    ("just words\nmore\n", "no column seed, but just, words; write a row per run"),
    ("ffn,seed,loss\n", "there are no rows below the names of the columns"),
    ("ffn,seed,ffn,loss\na,0,b,1\n", "two columns are called ffn"),
    ("ffn,seed,value\na,0,1\nb,0,2\n", "no column is a metric by its name; write --metric NAME; there are ffn, seed"),
    ("seed,loss,note\n0,1,x\n1,2,y\n", "is a factor; name those that are with --factors; there are seed, loss, note\n"),
    (table("epoch,seed,loss", "{c},{s},{v}", ("1", "2")), "no column is a factor; name those that are with --factors"),
    *((f"{FIELDS}b,{seed},2", f"line 6: seed is “{seed}”, which is not a whole number") for seed in ("x", "", "1.5")),
    (f"{FIELDS}b,1,odd", "line 6: loss is “odd”, which is not a number"),
    (f"{FIELDS}b,1,2,3", "Expected 3 fields in line 6, saw 4"),
    (PLAIN.replace(",", ";").replace(".", ","), "line 2: test/loss is “2,0”, which is not a number; write a decimal"),
    (table("ffn,seed,test/acc", "{c},{s},9{i}.{s}%"), "line 2: test/acc is “90.0%”, which is not a number; write a"),
    (table("ffn,seed,loss,params", '{c},{s},{v},"1,234"'), "line 2: params is “1,234”, which is not a number"),
    (table("ffn,seed,step,loss", "{c},{s},inf,{v}"), "line 2: step is “inf”, which is not a number"),
    (table("ffn,seed,status,loss", "{c},{s},finished,{v}"), "“finished”, which is not one of done, diverged, failed"),
    (PLAIN + PLAIN.splitlines()[1], "line 2 and line 12 are both a, seed 0; name the columns in which"),
    ("ffn,seed,step,loss\na,0,1,1\na,0,1,2\nb,0,1,1\n", "line 2 and line 3 are both a, seed 0, step 1"),
    (table("ffn,seed,loss", "{c},{s},{v}", ("a", "b" * 501)), "line 7: “bbbbbbbbbbbbbbbbbbbb…” has 501 characters"),
    (table(f"{'f' * 501},seed,loss", "{c},{s},{v}"), "“ffffffffffffffffffff…” has 501 characters; names and levels"),
    (table("ffn,seed,epoch,loss", "{c},{s},1,{v}\n{c},{s},2,{v}1"), "; if epoch counts what was trained, call it step"),
    ("cell,ffn,seed,loss\nx,a,0,1\ny,a,0,1\nz,b,0,1\n", "cells x and y have the same factors"),
]


@pytest.mark.parametrize(("content", "said"), REFUSED, ids=[said[:30] for _, said in REFUSED])
def test_what_cannot_be_meant_is_one_line(tmp_path, capsys, content, said):
    (tmp_path / "runs.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    assert main(["--runs", str(tmp_path / "runs.csv"), "--to", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and said in shown.err, shown.err
    assert "runs.csv" in shown.err and not (tmp_path / "out").exists()


def test_a_column_is_a_factor_by_what_it_holds_whatever_its_name(tmp_path: Path) -> None:
    study = read(tmp_path, table("lr,host,seed,loss", "{c},h{i}{s},{s},{v}", ("1e-3", "1e-2")))
    assert study.manifest.factors == {"lr": [0.001, 0.01]}
    assert study.notes == ["columns that are neither factor nor metric, left out: host"]


def test_a_column_of_an_axis_is_a_factor_where_it_is_named(tmp_path: Path) -> None:
    text = table("tokens,seed,loss", "{c},{s},{v}", ("1000", "2e3"))
    assert read(tmp_path, text, Asked(factors=("tokens",))).manifest.factors == {"tokens": [1000.0, 2000.0]}
    with pytest.raises(Refused, match="no column is a factor"):
        read(tmp_path, text)


def test_a_text_of_several_lines_is_one(tmp_path: Path) -> None:
    study = read(tmp_path, PLAIN.replace("b,", '"b\r\n c",'))
    assert study.manifest.factors == {"ffn": ["a", "b c"]}


def test_a_step_column_without_steps_is_none(tmp_path: Path) -> None:
    study = read(tmp_path, table("ffn,seed,step,test/loss", "{c},{s},,{v}"))
    pandas.testing.assert_frame_equal(evidence.effects(study), evidence.effects(read(tmp_path, PLAIN)))
    assert study.notes == [] and study.curves.empty


def test_a_hundred_thousand_rows(tmp_path: Path) -> None:
    cells = [f"{norm},{ffn}" for norm in ("ln", "rms") for ffn in "abcde"]
    told = itertools.product(enumerate(cells), range(20), range(500))
    rows = [f"{c},{s},{t},{3 - t / 500 + i / 90 + (s * i % 7) / 99}" for (i, c), s, t in told]
    study = read(tmp_path, "\n".join(["norm,ffn,seed,step,val/loss", *rows]))
    assert len(study.curves) == 100_000 and len(study.runs) == 200 and study.notes == []
    assert set(evidence.effects(study)["n"]) == {20}


def wide(fields: tuple[str, ...], columns: int = 4_000) -> str:
    """A CSV of many columns beside a factor, a seed and a loss; each column takes these values in turn."""
    rows = [
        f"{c},{s},{value(i, s)},"
        + ",".join(fields[(j * (3 * s + i + 1) + j // 7) % len(fields)] for j in range(columns))
        for (i, c), s in itertools.product(enumerate("ab"), range(5))
    ]
    return "\n".join(["ffn,seed,test/loss," + ",".join(f"c{j}" for j in range(columns)), *rows])


def test_thousands_of_columns_cost_seconds_and_are_not_spelled_out(tmp_path: Path) -> None:
    start = time.process_time()
    study = read(tmp_path, wide(tuple(f".{i}" for i in range(10, 99))))
    assert time.process_time() - start < 8  # of the processor, which others' work does not add to
    assert list(study.manifest.factors) == ["ffn"] and max(map(len, study.notes)) < 300


def test_columns_of_which_too_many_could_be_factors_are_one_line(tmp_path: Path) -> None:
    head = "ffn,seed,test/loss," + ",".join(f"c{j}" for j in range(1, 200))
    rows = [
        f"{'ab'[r % 2]},{r // 2},{2 + r / 9}," + ",".join("xy"[j >> r & 1] for j in range(1, 200)) for r in range(8)
    ]
    text = "\n".join([head, *rows])
    with pytest.raises(Refused, match=r"\d+ columns could be factors: ffn, c1, .* and \d+ more; name") as error:
        read(tmp_path, text)
    assert "\n" not in str(error.value)
    assert list(read(tmp_path, text, Asked(factors=("ffn",))).manifest.factors) == ["ffn"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--runs", "none.csv"], "none.csv: it cannot be read (No such file or directory)"),
        (["--runs", "."], ".: it cannot be read (Is a directory)"),
        (["--runs", "runs.csv", "STUDY"], "STUDY and --runs are different runs"),
        (["--factors", "ffn"], "need --runs or --wandb"),
        *(
            (["--runs", "runs.csv", *options.split()], said)
            for options, said in {
                "--factors nrm": "--factors nrm: there is no such column; there are ffn, cell, hits, note\n",
                "--factors status": "status says which run it is or how it ended; there are ffn, cell, hits, note\n",
                "--factors test/loss": "--factors test/loss: test/loss is a metric",
                "--factors ffn,hits --metric hits": "--factors hits: hits is a metric",
                "--metric bpb": "--metric bpb: there is no such column; there are ffn, hits, note, test/loss\n",
                **{f"--metric {name}": f"{name} says which run" for name in ("seed", "status", "cell", "params")},
                "--metric note": "note is “text”, which is not a number",
                "--reference ffn=c": "--reference ffn=c: there is no such level; there are a, b",
                "--reference norm=c": "norm is no factor of these runs; the factors are ffn",
                "--within ffn": "no factor is left to compare",
            }.items()
        ),
    ],
)
def test_wrong_options_are_one_line(tmp_path, monkeypatch, capsys, options, said):
    monkeypatch.chdir(tmp_path)
    head = "ffn,cell,seed,params,status,hits,note,test/loss"
    Path("runs.csv").write_text(table(head, "{c},{c},{s},9,done,{s},text,{v}"))
    assert main(options) == 2
    shown = capsys.readouterr()
    assert said in shown.err and shown.err.count("\n") == 1 and not shown.out, shown.err
    assert not Path("results").exists()


@pytest.mark.parametrize("metric", ["seconds", "tokens"])
def test_what_every_run_has_can_be_the_metric(tmp_path: Path, metric: str) -> None:
    text = table(f"ffn,seed,{metric}", "{c},{s},{i}{s}")
    study = read(tmp_path, text, Asked(metrics=(metric,), lower=True))
    assert study.manifest.endpoint == metric and len(evidence.effects(study)) == 1
