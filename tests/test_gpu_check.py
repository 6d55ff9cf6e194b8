"""The check for a GPU: every part at a toy size on the CPU; what fails, crashes or hangs ends no other part."""

import json
import subprocess
import sys

import gpu
import pytest
from conftest import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("part", [part.function for part in gpu.PARTS])
def test_every_part_passes_at_a_toy_size(part, tmp_path):
    command = [sys.executable, "benchmarks/gpu.py", part, "--device", "cpu", "--toy", "--minutes", "60"]
    done = subprocess.run([*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    page = (tmp_path / "gpu.md").read_text() if (tmp_path / "gpu.md").exists() else done.stderr
    assert done.returncode == 0, page
    [row] = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert (row["part"], row["status"]) == (part, "passed")
