"""A folder with a small program, the current one."""

from pathlib import Path

import pytest
from small_program import TRAIN


@pytest.fixture(autouse=True)
def program(tmp_path, monkeypatch) -> Path:
    """A folder with train.py, the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ABLATE_RESULTS", raising=False)
    file = tmp_path / "train.py"
    file.write_text(TRAIN)
    return file
