"""The figures: what is drawn is what the tables hold, and the same tables give the same bytes."""

from __future__ import annotations

import hashlib
import itertools
import re
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from analysed_studies import case as shared_case
from fake_studies import a_manifest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ablate import evidence
from ablate.results.study import Study
from analysis import figures
from analysis.case import Case, case_of
from analysis.case.figures_yaml import Edits
from analysis.case.learning_curves import over_seeds
from analysis.figures.draw import style
from analysis.figures.draw.page import page_of

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
MANY = GRID | {"residual": ["pre", "post"], "attention": ["mha", "gqa"], "init": ["gpt2", "small"], "optim.lr": [1, 2]}
KINDS = figures.KINDS
FFN = ["mlp", "gelu", "silu", "glu", "bilinear", "reglu", "geglu", "swiglu"]


def made(results: Path, factors: dict[str, list[Any]] = GRID, **options: Any) -> Study:
    return shared_case(results, factors, **options).study


def texts(drawn: Figure) -> str:
    """All that is written in a figure."""
    return "\n".join(text.get_text() for text in drawn.findobj(matplotlib.text.Text))


def case(study: Study) -> Case:
    return case_of(study, Path("nowhere"))


def figure(name: str, study: Study, **edits: Any) -> Figure:
    """One figure of a study, with edits of its user."""
    given = Edits(figures=[name], caption=True, **edits)
    return KINDS[name].draw(figures.tables(case(study), given)[name], page_of(study.manifest, given))


def forest(study: Study, **edits: Any) -> Figure:
    return figure("effects", study, **edits)


def line(axis: Axes, x: np.ndarray) -> bool:
    return any(len(drawn.get_xdata()) == len(x) and np.allclose(drawn.get_xdata(), x) for drawn in axis.lines)


CASES: list[tuple[dict[str, list[Any]], dict[str, Any]]] = [
    (GRID, {}),
    (GRID, {"seeds": [0]}),
    (GRID, {"status": lambda levels, seed: "missing"}),
    (GRID, {"status": lambda levels, seed: "diverged"}),
    (GRID, {"status": lambda levels, seed: ["diverged", "failed", "running"][seed]}),
    ({}, {}),
    ({"ffn": [f"a-rather-long-name-of-a-variant-{i}" for i in range(12)]}, {}),
    ({"norm": ["ln", "rms", "bn"], "ffn": ["mlp", "gelu", "geglu", "swiglu"]}, {"seeds": range(5)}),
    ({"ffn": ["mlp", "swiglu"], "optim.lr": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]}, {}),
    (MANY, {"design": "one_at_a_time"}),
    (MANY, {"design": "cumulative", "status": lambda v, s: "diverged" if v["ffn"] == "swiglu" else "done"}),
    (MANY, {"design": "fractional"}),
]


QUICK = {4: 3.3, 5: 5.5, 6: 5.5, 10: 3.3}  # lost runs, one cell, long names, many steps; drawing all takes a minute
EACH = [
    pytest.param(*each, QUICK.get(i, (3.3, 5.5)[i % 2]), marks=[pytest.mark.slow] * (i not in QUICK))
    for i, each in enumerate(CASES)
]


@pytest.mark.parametrize(("factors", "options", "width"), EACH)
def test_no_figure_warns_and_no_text_leaves_it(tmp_path, factors, options, width):
    study = made(tmp_path, factors, **options)
    with warnings.catch_warnings(), matplotlib.rc_context(style.RC):
        warnings.simplefilter("error")
        given = Edits(width=width, caption=True)
        for name, table in figures.tables(case(study), given).items():
            drawn = KINDS[name].draw(table, page_of(study.manifest, given))
            canvas = FigureCanvasAgg(drawn)
            canvas.draw()
            used, height = drawn.get_tightbbox(canvas.get_renderer()), drawn.get_figheight()
            assert used.x0 >= -0.01 and used.y0 >= -0.01, name
            assert used.x1 <= width + 0.01 and used.y1 <= height + 0.01, name


def test_rows_of_a_forest_do_not_overlap(tmp_path: Path) -> None:
    study = made(tmp_path, {"ffn": [f"a-rather-long-name-of-a-variant-number-{i}" for i in range(12)]})
    with matplotlib.rc_context(style.RC):
        drawn = forest(study)
        FigureCanvasAgg(drawn).draw()
        boxes = [label.get_window_extent() for label in drawn.axes[0].get_yticklabels()]
    assert len(boxes) == 11
    assert all(upper.y0 >= lower.y1 for upper, lower in itertools.pairwise(boxes))


def test_the_same_tables_give_the_same_bytes(tmp_path: Path) -> None:
    study = made(tmp_path, status=lambda v, s: "diverged" if s == 2 and v["norm"] == "rms" else "done")
    digests = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "figures.yaml").write_text("subset: {figures: [effects]}\n")
        files = figures.write(case_of(study, folder), folder)
        digests.append([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])
    assert digests[0] == digests[1] and len(digests[0]) == 3
    pdf = (tmp_path / "one" / "effects.pdf").read_bytes()
    assert b"/CreationDate" not in pdf
    assert b"/CIDFontType2" in pdf or b"/TrueType" in pdf
    assert b"/Type3" not in pdf


def test_curves_are_means_of_the_validation_loss_over_seeds(tmp_path: Path) -> None:
    study = made(tmp_path)
    logged = study.curves[study.curves["cell"] == "c0"].dropna(subset="val/loss")
    expected = logged.groupby("tokens")["val/loss"].mean()
    made_of = figure("curves", study)
    whole, said = made_of.axes[0], texts(made_of)
    drawn = next(each for each in whole.lines if np.allclose(each.get_ydata(), expected.to_numpy()))
    assert np.allclose(drawn.get_xdata(), expected.index.to_numpy() / 1e3)
    assert "thousands" in said and "mean over 3 seeds, band ± 1 SD over seeds" in said


def test_the_band_is_one_standard_deviation_where_every_seed_was_evaluated(tmp_path: Path) -> None:
    study = made(tmp_path)
    rows = study.curves[study.curves["cell"] == "c1"].assign(status="done")
    rows = rows.assign(value=rows["val/loss"])
    rows = rows[~((rows["seed"] == 2) & (rows["step"] == 400))]
    table = over_seeds(rows, ["cell", "tokens"]).set_index("tokens")
    at = rows[rows["step"] == 800]["value"]
    assert table.loc[800 * 1024, "high"] == pytest.approx(at.mean() + at.std(ddof=1))
    assert 400 * 1024 not in table.index and 360 * 1024 in table.index


def test_diverged_runs_are_drawn_to_their_end_and_left_out_of_the_mean(tmp_path: Path) -> None:
    study = made(
        tmp_path, {"ffn": ["mlp", "swiglu"]}, status=lambda v, s: "diverged" if v["ffn"] == "swiglu" and s else "done"
    )
    drawn = figure("curves", study)
    whole = drawn.axes[0]
    crosses = [each for each in whole.lines if each.get_marker() == "x"]
    assert [each.get_xdata()[0] for each in crosses] == [400 * 1.024] * 2  # half of 800 steps, in thousands of tokens
    assert all(each.get_ydata()[0] <= whole.get_ylim()[1] for each in crosses)
    done = study.curves[(study.curves["cell"] == "c1") & (study.curves["seed"] == 0)]["val/loss"].to_numpy()
    assert any(len(each.get_ydata()) == len(done) and np.allclose(each.get_ydata(), done) for each in whole.lines)
    assert "swiglu (n = 1; 2 of 3 diverged)" in texts(drawn) and "× where a diverged run ended" in texts(drawn).replace(
        "\n", " "
    )


def test_the_forest_shows_the_intervals_of_the_table(tmp_path: Path) -> None:
    study = made(tmp_path, {"ffn": FFN[:4]}, seeds=range(5))
    table, axis = evidence.effects(study), forest(study).axes[0]
    for row in table.itertuples():
        assert line(axis, np.array([row.low, row.high])) and line(axis, np.array([row.mean]))
    assert line(axis, np.array([0, 0]))


def test_a_decided_effect_is_never_cut_off(tmp_path: Path) -> None:
    study = made(tmp_path, {"ffn": FFN}, seeds=range(8))
    swiglu = evidence.effects(study).query("level == 'swiglu'").iloc[0]
    axis = forest(study).axes[0]
    assert swiglu["verdict"] == "better" and line(axis, swiglu[["low", "high"]].to_numpy(float))
    assert axis.get_xlim()[0] <= swiglu["low"]


def test_one_wide_interval_does_not_press_the_others_flat(tmp_path: Path) -> None:
    study = made(
        tmp_path, {"ffn": FFN}, seeds=range(8), status=lambda v, s: "failed" if v["ffn"] == "glu" and s > 1 else "done"
    )
    table, axis = evidence.effects(study), forest(study).axes[0]
    wide = table.query("level == 'glu'").iloc[0]
    assert wide["n"] == 2 and axis.get_xlim()[1] < wide["high"]
    assert [each.get_marker() for each in axis.lines].count(">") == 1


def test_withheld_effects_have_no_point_and_say_why(tmp_path: Path) -> None:
    study = made(
        tmp_path,
        {"ffn": ["mlp", "swiglu"]},
        status=lambda v, s: "diverged" if v["ffn"] == "swiglu" and s == 0 else "done",
    )
    drawn = forest(study)
    assert "withheld: 1 run diverged against 0" in texts(drawn)
    assert len(drawn.axes[0].lines) == 1  # the zero line


def test_a_dot_per_run_and_lines_only_between_equal_batches(tmp_path: Path) -> None:
    factors = {"ffn": ["mlp", "swiglu"], "train.batch_size": [8, 16]}
    study = made(tmp_path, factors, batches=lambda levels: str(levels["train.batch_size"]))
    axis = figure("seeds", study).axes[0]
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["mlp + 8 (reference)", "swiglu + 8", "mlp + 16 (reference)", "swiglu + 16"]
    for y, (ffn, size) in enumerate([("mlp", 8), ("swiglu", 8), ("mlp", 16), ("swiglu", 16)]):
        runs = study.runs[(study.runs["ffn"] == ffn) & (study.runs["train.batch_size"] == size)]
        dots = axis.collections[0].get_offsets()
        assert sorted(dots[dots[:, 1] == y, 0]) == sorted(runs["test/loss"])
    joined = [each for each in axis.lines if len(each.get_xdata()) == 2]
    assert sorted(int(each.get_ydata()[0]) for each in joined) == [0, 0, 0, 2, 2, 2]
    first = study.runs[(study.runs["train.batch_size"] == 8) & (study.runs["seed"] == 0)]["test/loss"].tolist()
    assert any(np.allclose(each.get_xdata(), first) for each in joined)


def test_a_variant_keeps_its_colour_in_every_study() -> None:
    def colour(factor: str, levels: list[str], reference: str) -> dict[tuple[str, str], str]:
        return style.colours(a_manifest(factors={factor: levels}, reference={factor: reference}))

    alone = colour("ffn", ["mlp", "swiglu"], "mlp")
    assert colour("ffn", FFN, "gelu")["ffn", "swiglu"] == alone["ffn", "swiglu"]
    assert len(set(colour("ffn", FFN, "mlp").values())) == len(FFN)
    many = colour("ffn", [f"variant{i}" for i in range(9)], "variant3")
    assert len(set(many.values())) == 9 and many == colour("ffn", [f"variant{i}" for i in range(9)], "variant3")
    assert set(many.values()) <= set(style.PALETTE)
    assert many["ffn", "variant3"] == colour("ffn", ["variant3"], "variant3")["ffn", "variant3"]


def test_cells_of_a_grid_differ_in_colour_or_dash(tmp_path: Path) -> None:
    study = made(tmp_path, {"norm": ["ln", "rms", "bn"], "ffn": FFN})
    encodings = style.encodings(study.manifest, style.colours(study.manifest))
    assert len(set(encodings.values())) == 24
    assert (
        len({each.colour for each in encodings.values()}) == 8
        and len({str(each.dash) for each in encodings.values()}) == 3
    )


def test_further_factors_have_panels_of_their_own(tmp_path: Path) -> None:
    factors = {"norm": ["ln", "rms"], "ffn": ["mlp", "gelu", "swiglu"], "optim.lr": [1e-3, 3e-3]}
    drawn = figure("curves", made(tmp_path, factors))
    assert len(drawn.axes) == 4
    assert [axis.get_title(loc) for axis in drawn.axes for loc in ("left", "center") if axis.get_title(loc)] == [
        "optim.lr=0.001",
        "optim.lr=0.003",
    ]
    assert len(drawn.legends[0].get_texts()) == 6


def test_a_caption_is_a_text_of_its_own_and_in_the_image_only_where_it_is_asked_for(tmp_path: Path) -> None:
    study = made(tmp_path, seeds=range(5))
    for wanted in (False, True):
        folder = tmp_path / str(wanted)
        folder.mkdir()
        (folder / "figures.yaml").write_text(f"caption: {str(wanted).lower()}\nsubset: {{figures: [effects]}}\n")
        shown = case_of(study, folder)
        assert [file.suffix for file in figures.write(shown, folder)] == [".pdf", ".png", ".txt"]
        title, *lines = (folder / "effects.txt").read_text().splitlines()
        given = figures.edits(shown)
        drawn = texts(KINDS["effects"].draw(shown.drawn["effects"], page_of(study.manifest, given))).replace("\n", " ")
        assert title in drawn and "difference in test/loss" in drawn
        assert "simultaneous 95 % intervals" in lines[0] and all((line in drawn) == wanted for line in lines)


def test_captions_say_n_and_looks(tmp_path: Path) -> None:
    study = made(tmp_path, seeds=range(5), looks=[{"seeds": [0, 1, 2], "when": ""}])
    said = texts(forest(study))
    assert "simultaneous 95 % intervals (Bonferroni-t, family of 3), 5 seeds, paired" in said
    assert re.search(r"unadjusted: seeds were added\s+after a look", said)
    assert "one seed: differences without an interval, from which nothing can be concluded" in texts(
        forest(made(tmp_path / "one", seeds=[0]))
    )


def test_lost_runs_stand_at_the_margin_and_break_the_lines(tmp_path: Path) -> None:
    study = made(
        tmp_path,
        {"ffn": ["mlp", "gelu", "swiglu"]},
        status=lambda v, s: ["done", "diverged", "running"][s] if v["ffn"] == "gelu" else "done",
    )
    drawn = figure("seeds", study)
    assert "1 of 3 diverged; 1 of 3 missing" in texts(drawn)
    joined = [len(each.get_xdata()) for each in drawn.axes[0].lines if each.get_marker() != "|"]
    assert sorted(joined) == [2, 2, 3]  # gelu, below, has seed 0 only


def test_captions_say_the_margin_in_steps_and_which_rows_are_exploratory(tmp_path: Path) -> None:
    entry = {"written": "2026-01-01T00:00:00+00:00", "registered": True, "earlier": []}
    steps = made(tmp_path / "steps", {"norm": ["ln", "rms"]}, seeds=range(5), margin=entry | {"value": "5 %"})
    assert "filled: decided; margin: ±5 % of the training steps" in texts(forest(steps)).replace("\n", " ")
    both = {"norm": "rms", "ffn": "swiglu"}
    lost = made(tmp_path / "lost", seeds=range(5), status=lambda v, s: "diverged" if v == both else "done")
    said = texts(forest(lost)).replace("\n", " ")
    assert "exploratory 95 % intervals (false coverage rate 5 %), 5 seeds, paired" in said and "looks better" in said


def test_zero_finished_runs_say_so(tmp_path: Path) -> None:
    study = made(tmp_path, status=lambda levels, seed: "missing")
    assert "curves" not in figures.tables(case(study))
    assert "no finished run" in texts(figure("seeds", study))
    assert "undecided: no seed has every run it needs" in texts(forest(study))
