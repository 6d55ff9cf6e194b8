"""A prompt that trains studies: what Ctrl-C leaves, that the same call continues, and that any thread may train."""

import os
import signal

import pytest
from conftest import latest, start_module
from crashing_norm import STARTED, wait_for

# Line by line, as `python -i` reads them: no module and no guard, as a notebook's kernel has none.
PROMPT = """
import code, sys
sys.argv = [""]
prompt = code.InteractiveConsole()
for line in {lines!r}.splitlines(): prompt.push(line)
"""
LINES = """
import ablate, threading, warnings
warnings.simplefilter("error", UserWarning)
words, studies = {words!r}, []
try: ablate.run("norm=ln", *words)
except KeyboardInterrupt: print("interrupted", flush=True)

study = ablate.run("norm=ln", *words)
print(list(study.runs["status"]), study.run(study.manifest.cells[0].id, 0).result.resumed)
thread = threading.Thread(target=lambda: studies.append(ablate.run("norm=rms", *words)))
thread.start(); thread.join()
print(studies[0].runs["status"].tolist(), ablate.run("norm=rms", *words).effects.shape[0])
"""


@pytest.mark.slow
def test_a_prompt_continues_an_interrupted_call_and_trains_in_another_thread(small, tmp_path):
    words = latest(*small, "train.steps=400", "train.eval_every=400", "train.parallel=1", "seeds=1")
    (tmp_path / "ablate_prompt.py").write_text(PROMPT.format(lines=LINES.format(words=words)))

    def is_training():
        return any(file.stat().st_size > 500 for file in tmp_path.glob("results/runs/*/*/metrics.jsonl"))

    process = start_module("ablate_prompt", cwd=tmp_path)
    STARTED.append(process.pid)
    wait_for(is_training)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert out.splitlines() == ["interrupted", "['done'] 1", "['done'] 0"], out + err
    assert process.returncode == 0
    assert "Traceback" not in err
