"""The check for a GPU: every part at a toy size on the CPU; what fails, crashes or hangs ends no other part."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import gpu
import pytest
from conftest import ROOT


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the check as people do."""
    command = [sys.executable, "benchmarks/gpu.py", *arguments, "--out", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("part", [part.function for part in gpu.PARTS])
def test_every_part_passes_at_a_toy_size(part: str, tmp_path: Path) -> None:
    done = check(tmp_path, part, "--device", "cpu", "--toy", "--minutes", "60")
    page = (tmp_path / "gpu.md").read_text() if (tmp_path / "gpu.md").exists() else done.stderr
    assert done.returncode == 0, page
    [row] = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert (row["part"], row["status"]) == (part, "passed") and row["found"]


def test_without_a_gpu_nothing_is_checked_and_nothing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = check(tmp_path / "out")
    assert done.returncode == 0 and "there is no GPU here" in done.stdout
    assert not (tmp_path / "out").exists()


MODULE = """
import os, signal, time

def good(given, found):
    found.tell(size=given.pick(1, 2))

def bad(given, found):
    found.tell(size=3)
    found.expect(True, "all is well")
    found.expect(False, "2 is not 3")

def raising(given, found):
    raise ValueError("no such thing")

def crashing(given, found):
    os.kill(os.getpid(), signal.SIGSEGV)

def hanging(given, found):
    time.sleep(600)
"""


def test_parts_that_fail_end_no_other(tmp_path: Path) -> None:
    """With other parts in a copy of the runner."""
    names = ["bad", "raising", "crashing", "hanging", "good"]
    parts = ", ".join(f"Part('mine', {name!r}, {1 if name == 'hanging' else 60})" for name in names)
    copied = tmp_path / "benchmarks"
    shutil.copytree(ROOT / "benchmarks" / "gpu_parts", copied / "gpu_parts")
    (copied / "gpu_parts" / "mine.py").write_text(MODULE)
    (copied / "torch.py").write_text("device = nn = Tensor = None\n")  # none of these parts computes anything
    before, _, after = (ROOT / "benchmarks" / "gpu.py").read_text().partition("PARTS = [\n")
    (copied / "gpu.py").write_text(f"{before}PARTS = [{parts}]\n{after.partition(']' + chr(10))[2]}")
    command = [sys.executable, str(copied / "gpu.py"), "--device", "cpu", "--toy", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    rows = {row["part"]: row for row in json.loads((tmp_path / "out" / "gpu.json").read_text())["parts"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "bad": "failed",
        "raising": "failed",
        "crashing": "crashed",
        "hanging": "too long",
        "good": "passed",
    }
    assert rows["bad"]["failures"] == ["2 is not 3"] and rows["bad"]["found"] == {"size": 3}
    assert rows["raising"]["failures"] == ["ValueError: no such thing"] and "Traceback" in rows["raising"]["log"]
    page = (tmp_path / "out" / "gpu.md").read_text()
    assert "| [hanging](#hanging) | too long |" in page and "- **failed**: 2 is not 3" in page


def test_what_the_time_is_over_for_is_not_run_and_fails(tmp_path: Path) -> None:
    done = check(tmp_path, "card", "--device", "cpu", "--toy", "--minutes", "0")
    [row] = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert done.returncode == 1 and row["status"] == "not run"


def test_a_part_that_there_is_not_is_refused(tmp_path: Path) -> None:
    done = check(tmp_path, "crad")
    assert done.returncode == 2 and "crad: no such part; there are card, " in done.stderr
