"""A prompt that trains studies: what Ctrl-C leaves, that the same call continues, and that any thread may train."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from conftest import importing

PROMPT = """
import ablate, threading, warnings
warnings.simplefilter("error", UserWarning)
words, found = {words!r}, []
try: ablate.run("norm=ln", *words)
except KeyboardInterrupt: print("interrupted", flush=True)

study = ablate.run("norm=ln", *words)
print(list(study.runs["status"]), study.run(study.manifest.cells[0].id, 0).result.resumed)
thread = threading.Thread(target=lambda: found.append(ablate.run("norm=rms", *words)))
thread.start(); thread.join()
print(found[0].runs["status"].tolist(), ablate.run("norm=rms", *words).effects.shape[0])
"""


def test_a_prompt_continues_an_interrupted_call_and_trains_in_another_thread(small: list[str], tmp_path: Path) -> None:
    """Line by line, as `python -i` reads them: no module and no guard, as a notebook's kernel has none."""
    few = {"train.steps=": "train.steps=400", "train.eval_every=": "train.eval_every=400"}
    words = [next((new for key, new in few.items() if word.startswith(key)), word) for word in small]
    process = subprocess.Popen(
        [sys.executable, "-i", "-q"],
        cwd=tmp_path,
        env=importing() | {"PYTHONSTARTUP": os.devnull},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    process.stdin.write(PROMPT.format(words=[*words, "train.parallel=1", "seeds=1"]))
    process.stdin.flush()
    while process.poll() is None and not any(
        file.stat().st_size > 500 for file in tmp_path.glob("results/runs/*/*/metrics.jsonl")
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert out.split("\n")[:3] == ["interrupted", "['done'] 1", "['done'] 0"], out + err
    assert process.returncode == 0 and "Traceback" not in err
