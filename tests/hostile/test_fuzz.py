"""A few inputs of each part of `benchmarks/fuzz.py`: none ends in a traceback, hangs or has anything executed."""

from pathlib import Path

import fuzz
import pytest

# Study file 72 was a traceback.
NUMBERS = {"command_lines": range(2), "study_files": range(72, 73), "figures_yaml": range(4), "stamps": range(4)}


@pytest.mark.parametrize("part", fuzz.PARTS)
def test_every_input_is_accepted_or_refused_in_lines(part: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    outcomes = fuzz.tried(part, 0, NUMBERS[part], tmp_path)
    assert outcomes.total() == len(NUMBERS[part])
    assert set(outcomes) <= {"accepted", "refused"}, capfd.readouterr().out
