"""A few inputs of each part of `benchmarks/fuzz.py`: none ends in a traceback, hangs or has anything executed."""

import sys
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import fuzz

# Study file 72 was a traceback.
SLICES = {"command_lines": range(2), "study_files": range(72, 73), "figures_yaml": range(4), "stamps": range(4)}


@pytest.mark.parametrize("part", fuzz.PARTS)
def test_every_input_is_accepted_or_refused_in_lines(part: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    found = fuzz.tried(part, 0, SLICES[part], tmp_path)
    assert found.total() == len(SLICES[part])
    assert set(found) <= {"accepted", "refused"}, capfd.readouterr().out
