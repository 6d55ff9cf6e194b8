"""Figures against a number: learning rate, depth, width, the length at evaluation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from analysed_studies import case as made
from fake_studies import TASK, fabricate
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.results.atomic import write_json
from ablate.results.manifest import read_manifest
from ablate.results.run import Run
from ablate.results.study import load_study
from analysis import figures
from analysis.case import Case, case_of
from analysis.figures.draw.page import page_of
from analysis.figures.kinds.extrapolation import trained_at

RATES = [1e-4, 1e-3, 1e-2]
KINDS = figures.KINDS


def valley(levels: dict[str, Any], seed: int) -> float:
    """A loss that is lowest at the middle rate, higher for rms."""
    away = abs(math.log10(levels.get("optim.lr", 1e-3)) + 3)
    return 2.0 + 0.3 * away + 0.01 * seed + 0.1 * (levels.get("norm") == "rms")


def table_of(name: str, case: Case) -> pandas.DataFrame:
    """The table of one figure."""
    return figures.tables(case, figures.Edits(figures=[name]))[name]


def draw(name: str, case: Case) -> Figure:
    return KINDS[name].draw(table_of(name, case), page_of(case.study.manifest, figures.Edits()))


def points(axis: Axes) -> list[list[tuple[float, float]]]:
    """What the lines of an axis join."""
    drawn = [np.column_stack([line.get_xdata(), line.get_ydata()]) for line in axis.lines]
    return [[tuple(point) for point in line if np.isfinite(point).all()] for line in drawn]  # type: ignore[misc]


def test_a_sweep_of_rates_is_a_line_per_variant_with_its_best_and_its_sensitivity(tmp_path: Path) -> None:
    case = made(tmp_path, {"norm": ["ln", "rms"], "optim.lr": RATES}, score=valley)
    table, drawn = table_of("sensitivity", case), draw("sensitivity", case)
    ln = table[table["label"].str.startswith("ln")]
    assert list(ln["x"]) == RATES and ln["mean"].tolist() == pytest.approx([2.31, 2.01, 2.31])
    assert (ln["high"] - ln["mean"]).tolist() == pytest.approx([0.01] * 3)
    assert list(ln["best"]) == [False, True, False] and drawn.axes[0].get_xscale() == "log"
    # min(l, l0) - l* is 0.3, 0, 0.3: all losses are below those at the start.
    assert set(ln["label"]) == {"ln (sensitivity 0.200)"}
    expected = list(zip(ln["x"], ln["mean"], strict=True))
    assert any(np.allclose(line, expected) for line in points(drawn.axes[0]) if len(line) == 3)


def test_a_diverged_run_counts_at_its_initial_loss_and_stands_at_the_top(tmp_path: Path) -> None:
    case = made(
        tmp_path,
        {"norm": ["ln", "rms"], "optim.lr": RATES},
        score=valley,
        status=lambda v, s: "diverged" if v["optim.lr"] == 1e-2 and v["norm"] == "rms" and s < 2 else "done",
    )
    table, drawn = table_of("sensitivity", case), draw("sensitivity", case)
    rms = table[table["label"].str.startswith("rms")]
    first = case.study.curves.query("step == 0").groupby("cell")["val/loss"].mean()[rms["cell"].iloc[-1]]
    expected = np.mean([0.3, 0, (2 * first + 2.42) / 3 - 2.11])
    assert set(rms["label"]) == {f"rms (sensitivity {formatting.number(expected, 3)})"}
    said = [text.get_text() for text in drawn.axes[0].texts]
    assert said == ["× 2 of 3"]
    assert [line for line in points(drawn.axes[0]) if len(line) == 1 and np.allclose(line, [(1e-2, 2.42)])]  # apart
    assert any(
        "there, and only there, a diverged run counts, at its initial loss" in line for line in table.attrs["caption"]
    )


def test_a_rate_without_an_ended_run_has_no_sensitivity(tmp_path: Path) -> None:
    failed = lambda levels, seed: "failed" if levels["optim.lr"] == 1e-2 else "done"  # noqa: E731
    table = figures.tables(made(tmp_path, {"optim.lr": RATES}, score=valley, status=failed))["sensitivity"]
    assert not table["label"].str.contains("sensitivity").any() and table["n"].tolist() == [3, 3, 0]


def test_a_best_rate_at_the_edge_is_flagged(tmp_path: Path) -> None:
    case = made(tmp_path, {"optim.lr": RATES}, score=lambda v, s: 2 + v["optim.lr"])
    table = table_of("sensitivity", case)
    assert table["label"].str.contains("best at the edge").all()
    assert "at the edge: wider values may be better" in " ".join(table.attrs["caption"])
    assert table["best"].tolist() == [True, False, False]


def test_a_tuned_study_shows_what_was_tried(tmp_path: Path) -> None:
    cells = {"c0": {"value": 1e-3, "scores": [2.2, 2.0, None], "edge": False}}
    cells["c1"] = {"value": 1e-2, "scores": [2.3, 2.1, 1.9], "edge": True}
    tuning = {"key": "optim.lr", "values": RATES, "seeds": 2, "study": "fabricated-tune", "cells": cells}
    case = made(tmp_path, {"norm": ["ln", "rms"]}, tuning=tuning)
    table = table_of("sensitivity", case)
    assert table["mean"].tolist()[:2] == [2.2, 2.0] and math.isnan(table["mean"][2])
    assert table.loc[table["best"], "x"].tolist() == [1e-3, 1e-2]
    assert table["label"].tolist() == ["ln"] * 3 + ["rms (best at the edge)"] * 3
    assert "nothing of it is scored" in table.attrs["caption"][0] and list(table.attrs["y"].values()) == [
        "val/loss, nats per byte"
    ]
    assert len(draw("sensitivity", case).axes[0].texts) == 1


def test_depth_and_width_have_figures_of_their_own(tmp_path: Path) -> None:
    factors = {"residual": ["pre", "post"], "model.layers": [2, 4, 8]}
    deep = made(tmp_path / "deep", factors, status=lambda v, s: "diverged" if v["model.layers"] == 8 else "done")
    assert set(figures.tables(deep)) >= {"depth"} and "sensitivity" not in figures.tables(deep)
    assert [text.get_text() for text in draw("depth", deep).axes[0].texts] == ["× 3 of 3"] * 2
    wide = made(tmp_path / "wide", {"ffn": ["mlp", "swiglu"], "model.dim": [32, 64], "data.context": [16, 32]})
    table = table_of("width", wide)
    assert set(table["facet"]) == {"data.context=16", "data.context=32"} and set(table["label"]) == {"mlp", "swiglu"}
    assert "sensitivity" not in figures.tables(wide) and len(draw("width", wide).axes) == 2


def test_a_study_without_numbers_has_none_of_them(tmp_path: Path) -> None:
    found = figures.tables(made(tmp_path, {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}))
    assert not {"sensitivity", "depth", "width", "extrapolation"} & set(found)


def test_lengths_are_lines_with_the_training_length_marked(tmp_path: Path) -> None:
    name = fabricate(tmp_path, {"position": ["rope", "alibi"]})
    for run in read_manifest(tmp_path, name).runs:
        far = 0.5 if run.path.startswith("ln-mlp-pre-rope") else 0.0
        metrics = {f"test/loss@{n}": 2 + far * (n > 64) + 0.01 * run.seed for n in (32, 64, 128, 256)}
        write_json(Run(tmp_path, run.path).evaluation_file, {"metrics": metrics})
    case = case_of(load_study(tmp_path, name), tmp_path)
    table, axis = table_of("extrapolation", case), draw("extrapolation", case).axes[0]
    rope = table[table["label"].str.startswith("rope")]
    assert rope["x"].tolist() == [32, 64, 128, 256]
    assert rope["mean"].tolist() == pytest.approx([2.01, 2.01, 2.51, 2.51])
    assert (rope["high"] - rope["low"]).tolist() == pytest.approx([0.02] * 4)
    assert [(64, 0), (64, 1)] in points(axis) and axis.get_xscale() == "log"
    assert any(
        np.allclose(line, list(zip(rope["x"], rope["mean"], strict=True))) for line in points(axis) if len(line) == 4
    )


def test_each_task_has_a_panel_with_its_own_metric(tmp_path: Path) -> None:
    """More accuracy is better, more loss is worse: at the same rates the best of one is the worst of the other."""
    tasks = {"f0": TASK, "f1": TASK | {"title": "dates", "metrics": {"accuracy": "max", "loss": "min"}}}
    task = lambda levels: {"stdlib": "f0", "dates": "f1"}[levels["data"]]  # noqa: E731
    for number, name in (("optim.lr", "sensitivity"), ("model.layers", "depth"), ("model.dim", "width")):
        factors = {
            "norm": ["ln", "rms"],
            number: RATES if number == "optim.lr" else [2, 4, 8],
            "data": ["stdlib", "dates"],
        }
        case = made(tmp_path / name, factors, score=valley, tasks=tasks, task=task)
        table, drawn = table_of(name, case), draw(name, case)
        panels = [axis for axis in drawn.axes if axis.get_visible()]
        assert [axis.get_title() for axis in panels] == ["data=stdlib", "data=dates"]
        assert [axis.get_ylabel() for axis in panels] == ["test/loss, nats per byte", "test/accuracy"]
        assert "test/loss or test/accuracy: mean over 3 seeds" in table.attrs["caption"][0]
        scored = evidence.scores(case.study)
        assert table["mean"].tolist() == pytest.approx([scored[cell].mean() for cell in table["cell"]])
        assert {label.split(" (")[0] for label in table["label"]} == {"ln", "rms"}
        if name == "sensitivity":
            best = table[table["best"]].set_index("facet")["x"]
            assert set(best["data=stdlib"]) == {1e-3} and set(best["data=dates"]) <= {1e-4, 1e-2}
            assert table["label"].str.contains("best at the edge at data=dates").all()


def test_the_length_of_training_is_in_what_lengths_count():
    assert [trained_at(data) for data in ({"context": 18, "length": 8}, {"context": 64}, {})] == [8, 64, None]
