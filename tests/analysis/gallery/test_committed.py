"""The committed figures, tables and pages are what the committed tables give: without torch, in two CPU-minutes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from analysis.figures.stamp import read_stamp

MADE_OF = ("experiments", "tests/recorded", "docs/gallery.md", "README.md", "ablate/evidence/noise_atlas.csv")
CODE = """\
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
from analysis.cli.main import main
code = main(["gallery", sys.argv[1]])
sys.exit("torch was loaded" if "torch" in sys.modules else code)
"""


def kept(root: Path) -> dict[str, Path]:
    """Every file that tables, figures and pages are in, by its path."""
    files = [file for name in MADE_OF for file in [root / name, *(root / name).rglob("*")] if file.is_file()]
    return {file.relative_to(root).as_posix(): file for file in files}


def content(file: Path) -> object:
    """What of a file is the same wherever it was made: of a figure, what it plots."""
    data = file.read_bytes()
    stamped = read_stamp(data) if file.suffix == ".png" else None
    return stamped["table"] if stamped else data


@pytest.mark.skipif(sys.platform == "win32", reason="limits CPU time")
def test_what_is_committed_is_what_the_committed_tables_give(tmp_path: Path) -> None:
    for name, file in kept(ROOT).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tmp_path / name)
    done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ours, made = kept(ROOT), kept(tmp_path)
    names = sorted(ours.keys() ^ made.keys())
    names += [name for name in ours.keys() & made.keys() if content(ours[name]) != content(made[name])]
    assert not names, f"{', '.join(names)}: not what the tables in experiments/results give: run make figures"
