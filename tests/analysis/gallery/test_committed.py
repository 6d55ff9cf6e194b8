"""The committed figures, tables and pages are what the committed tables give: without torch, in two CPU-minutes."""

import subprocess
import sys

import pytest
from conftest import ROOT

CODE = """\
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
from pathlib import Path
from analysis import figures
from analysis.figures.draw.page import page_of
from analysis.figures.stamp import read_stamp, table_hash
from analysis.gallery import studies, write
root = Path(sys.argv[1])
files = studies.study_files(root)
wanted = {file: text.encode() for file, text in write.texts(root, files).items()}
made = [file for file, data in wanted.items() if not file.exists() or file.read_bytes() != data]
for each in [each for file in files for each in file.trained]:
    folder, page = each.case.folder / studies.FIGURES, page_of(each.manifest, figures.edits(each.case))
    pictures = {folder / f"{name}.png": table_hash(each.plotted[name], page) for name in each.plotted}
    made += [file for file, table in pictures.items() if (read_stamp(file.read_bytes()) or {}).get("table") != table]
    made += {*folder.glob("*")} - {*pictures, *wanted}
print(*made, sep="\\n")
sys.exit("torch was loaded" if "torch" in sys.modules else 0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits CPU time")
def test_what_is_committed_is_what_the_committed_tables_give() -> None:
    done = subprocess.run([sys.executable, "-c", CODE, str(ROOT)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stdout.strip(), f"not what the tables in experiments/results give; run make figures:\n{done.stdout}"
