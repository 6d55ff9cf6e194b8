"""The committed figures, tables and pages are what the committed tables give."""

import sys
import time
from pathlib import Path

import pytest
import scipy.stats  # noqa: F401 (while it is imported it looks into sys.modules["torch"])
from conftest import ROOT
from gallery import write
from gallery.studies import FIGURES, RESULTS, Trained, study_files, trained_in

from analysis import figures
from analysis.figures.kind import page_of
from analysis.figures.stamp import read_stamp, table_hash

SOME = ("glu_variants", "mqar_tuned")  # two small ones: of a text and of a task, with claims


def stale(study: Trained) -> list[Path]:
    """The files beside a study's tables that are not what the tables give."""
    folder = study.case.folder / FIGURES
    page = page_of(study.manifest, figures.edits(study.case))
    texts = write.texts_of(study)
    pictures = {folder / f"{name}.png": table_hash(table, page) for name, table in study.plotted.items()}
    files = differing(texts)
    for file, table in pictures.items():
        stamp = read_stamp(file.read_bytes()) or {}
        if stamp.get("table") != table:
            files.append(file)
    return [*files, *{*folder.glob("*")} - {*pictures, *texts}]


def differing(texts: dict[Path, str]) -> list[Path]:
    """The files that do not hold these texts."""
    return [file for file, text in texts.items() if not file.exists() or file.read_bytes() != text.encode()]


@pytest.mark.parametrize("name", SOME)
def test_figures_and_tables_of_a_study_are_what_its_committed_tables_give(name):
    assert not stale(trained_in(ROOT / RESULTS / name)), "run make figures"


@pytest.mark.slow  # every committed study: half a CPU-minute
def test_what_is_committed_is_what_the_committed_tables_give(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # whoever imports it from here on fails
    started = time.process_time()
    study_files_here = study_files(ROOT)
    texts = write.texts(ROOT, study_files_here)
    files = differing(texts)
    for study_file in study_files_here:
        for study in study_file.trained:
            files += [file for file in stale(study) if file not in texts]
    assert not files, f"not what the tables in experiments/results give; run make figures: {[*map(str, files)]}"
    assert time.process_time() - started < 120
