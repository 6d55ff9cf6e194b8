"""The check for a GPU: every part at a toy size on the CPU; what fails, crashes or hangs ends no other part."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable

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


MODULE = """
import os, signal, time

def good(setup, report):
    report.add(size=setup.pick(1, 2))

def bad(setup, report):
    report.add(size=3)
    report.expect(True, "all is well")
    report.expect(False, "2 is not 3")

def raising(setup, report):
    raise ValueError("no such thing")

def crashing(setup, report):
    os.kill(os.getpid(), signal.SIGSEGV)

def hanging(setup, report):
    time.sleep(600)
"""


@pytest.fixture
def check(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A copy of the runner with these parts, none of which computes anything, so that it needs no torch."""
    names = ["bad", "raising", "crashing", "hanging", "good"]
    parts = ", ".join(f"Part('mine', {name!r}, {1 if name == 'hanging' else 60})" for name in names)
    copied = tmp_path / "benchmarks"
    shutil.copytree(ROOT / "benchmarks" / "gpu_parts", copied / "gpu_parts")
    (copied / "gpu_parts" / "mine.py").write_text(MODULE)
    (copied / "torch.py").write_text("device = nn = Tensor = None\nclass cuda:\n    is_available = lambda: False\n")
    before, _, after = (ROOT / "benchmarks" / "gpu.py").read_text().partition("PARTS = [\n")
    (copied / "gpu.py").write_text(f"{before}PARTS = [{parts}]\n{after.partition(']' + chr(10))[2]}")
    command = [sys.executable, str(copied / "gpu.py"), "--out", str(tmp_path / "out")]
    return lambda *arguments: subprocess.run([*command, *arguments], cwd=copied, capture_output=True, text=True)


@pytest.mark.slow
def test_parts_that_fail_end_no_other(check, tmp_path):
    done = check("--device", "cpu", "--toy")
    assert done.returncode == 1, done.stderr
    rows = {row["part"]: row for row in json.loads((tmp_path / "out" / "gpu.json").read_text())["parts"]}
    ended = {"bad": "failed", "raising": "failed", "crashing": "crashed", "hanging": "too long", "good": "passed"}
    assert {name: row["status"] for name, row in rows.items()} == ended
    assert rows["bad"]["failures"] == ["2 is not 3"] and rows["bad"]["values"] == {"size": 3}
    assert rows["raising"]["failures"] == ["ValueError: no such thing"] and "Traceback" in rows["raising"]["log"]
    page = (tmp_path / "out" / "gpu.md").read_text()
    assert "| [hanging](#hanging) | too long |" in page and "- **failed**: 2 is not 3" in page


@pytest.mark.slow
def test_what_there_is_no_time_no_gpu_or_no_part_for_is_not_run(check, tmp_path):
    done = check()
    assert done.returncode == 0 and "there is no GPU here" in done.stdout and not (tmp_path / "out").exists()
    done = check("godo")
    assert done.returncode == 2 and "godo: no such part; there are bad, " in done.stderr
    done = check("good", "--device", "cpu", "--toy", "--minutes", "0")
    [row] = json.loads((tmp_path / "out" / "gpu.json").read_text())["parts"]
    assert done.returncode == 1 and row["status"] == "not run"
