"""The committed figures, tables and pages are what the committed tables give: without torch, in two CPU-minutes."""

import sys
import time

import pytest
from conftest import ROOT
from gallery import studies, write

from analysis import figures
from analysis.figures.kind import page_of
from analysis.figures.stamp import read_stamp, table_hash


def test_what_is_committed_is_what_the_committed_tables_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # whoever imports it from here on fails
    started, files = time.process_time(), studies.study_files(ROOT)
    wanted = {file: text.encode() for file, text in write.texts(ROOT, files).items()}
    made = [file for file, data in wanted.items() if not file.exists() or file.read_bytes() != data]
    for each in [each for file in files for each in file.trained]:
        folder, page = each.case.folder / studies.FIGURES, page_of(each.manifest, figures.edits(each.case))
        pictures = {folder / f"{name}.png": table_hash(each.plotted[name], page) for name in each.plotted}
        made += [
            file for file, table in pictures.items() if (read_stamp(file.read_bytes()) or {}).get("table") != table
        ]
        made += {*folder.glob("*")} - {*pictures, *wanted}
    assert not made, f"not what the tables in experiments/results give; run make figures: {[*map(str, made)]}"
    assert time.process_time() - started < 120
