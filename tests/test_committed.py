"""The committed figures, tables and pages are what the committed tables give."""

import math
import sys
import time
from pathlib import Path

import numpy as np
import pandas
import pytest
from conftest import ROOT
from finding_numbers import GUESS, above, lowest, optimum, sensitivity
from gallery import write
from gallery.studies import FIGURES, RESULTS, Trained, study_files, trained_in

from analysis import figures
from analysis.figures.kind import page_of
from analysis.figures.stamp import read_stamp, table_hash

SOME = ("glu_variants", "mqar_tuned")  # two small ones: of a text and of a task, with claims


def stale(each: Trained) -> list[Path]:
    """The files beside a study's tables that are not what the tables give."""
    folder, page = each.case.folder / FIGURES, page_of(each.manifest, figures.edits(each.case))
    wanted = {file: text.encode() for file, text in write.texts_of(each).items()}
    made = [file for file, data in wanted.items() if not file.exists() or file.read_bytes() != data]
    pictures = {folder / f"{name}.png": table_hash(each.plotted[name], page) for name in each.plotted}
    made += [file for file, table in pictures.items() if (read_stamp(file.read_bytes()) or {}).get("table") != table]
    return [*made, *{*folder.glob("*")} - {*pictures, *wanted}]


@pytest.mark.parametrize("name", SOME)
def test_figures_and_tables_of_a_study_are_what_its_committed_tables_give(name: str) -> None:
    assert not stale(trained_in(ROOT / RESULTS / name)), "run make figures"


@pytest.mark.slow  # every committed study: half a CPU-minute
def test_what_is_committed_is_what_the_committed_tables_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # whoever imports it from here on fails
    started, files = time.process_time(), study_files(ROOT)
    wanted = {file: text.encode() for file, text in write.texts(ROOT, files).items()}
    made = [file for file, data in wanted.items() if not file.exists() or file.read_bytes() != data]
    made += [file for each in files for one in each.trained for file in stale(one) if file not in wanted]
    assert not made, f"not what the tables in experiments/results give; run make figures: {[*map(str, made)]}"
    assert time.process_time() - started < 120


def test_numbers_of_findings_are_right_on_a_known_bowl() -> None:
    """A parabola over log2 of the rate, whose run at the largest rate diverged for the second of two seeds."""
    rates = [2.0**-i for i in (9, 8, 7, 6, 5)]
    losses = [2 + 0.1 * (math.log2(rate) + 7.3) ** 2 for rate in rates]
    table = pandas.DataFrame([losses, [*losses[:-1], math.nan]], columns=rates)
    assert optimum(table) == pytest.approx([-7.3, -7.3])
    octaves, gain = lowest(losses)
    assert (octaves, gain) == pytest.approx((-0.3, 0.1 * 0.3**2))
    both = losses, [*losses[:-1], GUESS]
    assert sensitivity(table) == pytest.approx([np.mean(each) - min(losses) for each in both])
    assert above(table) == pytest.approx([sum(loss - losses[2] for loss in each[2:]) / 5 for each in both])
    falling = pandas.DataFrame([losses[::-1]], columns=rates).iloc[:, 2:]
    assert optimum(falling) == pytest.approx([math.log2(rates[int(np.argmin(losses[::-1][2:])) + 2])])
