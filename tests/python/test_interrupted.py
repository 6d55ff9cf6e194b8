"""A cell of a notebook that is interrupted: what Ctrl-C leaves, and the same call continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from conftest import importing

DRIVER = """
import ablate, sys, warnings
warnings.simplefilter("error", UserWarning)
words = sys.argv[1:]
try:
    ablate.run("norm=ln", *words, seeds=1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    study = ablate.run("norm=ln", *words, seeds=1)
    print(list(study.runs["status"]), study.run(study.manifest.cells[0].id, 0).result.resumed)
"""


def test_an_interrupted_call_continues_from_its_checkpoint(small: list[str], tmp_path: Path) -> None:
    """From a program that is no module and has no guard, as a notebook's kernel has none; it goes on afterwards."""
    steps = ["train.steps=1000" if word.startswith("train.steps") else word for word in small]
    more = [word for word in steps if not word.startswith("train.eval_every")]
    command = [sys.executable, "-c", DRIVER, *more, "train.eval_every=1000", "train.parallel=1"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=importing(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    files = tmp_path / "results"
    while process.poll() is None and not any(
        file.stat().st_size > 500 for file in files.glob("runs/*/*/metrics.jsonl")
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and out.split("\n")[:2] == ["interrupted", "['done'] 1"], out + err
    assert "Traceback" not in err


def test_a_prompt_can_run_a_study(small: list[str], tmp_path: Path) -> None:
    """Line by line, as `python -i` reads them, in a thread that is not the main one, too."""
    lines = f"""
import ablate, threading
words = {[*small, "train.parallel=1", "seeds=1"]!r}
found = []
thread = threading.Thread(target=lambda: found.append(ablate.run("norm=rms", *words)))
thread.start(); thread.join()
found[0].runs["status"].tolist()
ablate.run("norm=rms", *words).effects.shape[0]
"""
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=lines,
        cwd=tmp_path,
        env=importing() | {"PYTHONSTARTUP": os.devnull},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split("\n")[:2] == ["['done']", "0"], done.stdout + done.stderr
