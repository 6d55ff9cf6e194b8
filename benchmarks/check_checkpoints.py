"""A run with a large state that is killed while a checkpoint is written, stopped after another one and continued.

python benchmarks/check_checkpoints.py [--folder FOLDER] [KEY=VALUE …]

It ends with exit code 1 if numbers or weights differ from those of the run in one go.  By default the state has 1.5 GB
and each of the two runs takes about ten minutes on one core.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from ablate import load

ROOT = Path(__file__).resolve().parents[1]
WORDS = ["model.layers=13", "model.heads=12", "model.dim=768", "data.context=32", "train.batch_size=2"]
WORDS += ["train.steps=450", "train.eval_every=450", "norm=rms", "seeds=1", "train.parallel=1", "train.average=ema"]
WORDS += ["model.dropout=0.1", "train.log_every=1", "eval.tokens=1024", "track=none", "train.compile=false"]
POLL = 0.002  # seconds


def main() -> None:
    """Compare the run with one in one go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    options, more = parser.parse_known_args()
    by_key = {word.partition("=")[0]: word for word in [*WORDS, *more]}
    words = list(by_key.values())
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        whole = Path(folder) / "whole"
        cut = Path(folder) / "cut"
        run(words, whole)
        run(words, cut, signal.SIGKILL, is_writing_another)
        run(words, cut, signal.SIGTERM, has_new_checkpoint)
        run(words, cut)
        expected = load(next(whole.glob("runs/*/*")))
        continued = load(next(cut.glob("runs/*/*")))
        is_equal = rows(expected) == rows(continued) and expected.result.final == continued.result.final
        weights = continued.weights()
        for name, weight in expected.weights().items():
            is_equal = is_equal and torch.equal(weight, weights[name])
    outcome = "the same rows, metrics and weights as in one go" if is_equal else "other numbers than in one go"
    print(f"resumed {continued.result.resumed} times; {outcome}")
    sys.exit(0 if is_equal and continued.result.resumed == 2 else 1)


def is_writing_another(folder: Path, started: float) -> bool:
    """Whether a checkpoint is being written beside an earlier one."""
    writing = any(folder.glob("runs/*/*/.checkpoint.pt.*.tmp"))
    return writing and any(folder.glob("runs/*/*/checkpoint.pt"))


def has_new_checkpoint(folder: Path, started: float) -> bool:
    """Whether a checkpoint was written since a time."""
    return any(file.stat().st_mtime > started for file in folder.glob("runs/*/*/checkpoint.pt"))


def run(
    words: list[str],
    folder: Path,
    number: int = 0,
    is_due: Callable[[Path, float], bool] = lambda folder, started: False,
) -> None:
    """Run a command to its end, or send it a signal when that is due; SIGKILL goes to all its processes."""
    started = time.time()
    command = [sys.executable, "-m", "ablate", *words, f"results_dir={folder}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment, start_new_session=True)
    is_sent = False
    while process.poll() is None:
        if not is_sent and is_due(folder, started):
            is_sent = True
            for pid in session(process.pid) if number == signal.SIGKILL else [process.pid]:
                os.kill(pid, number)
        time.sleep(POLL)
    while session(process.pid):
        time.sleep(POLL)
    print(f"exit code {process.returncode} after {time.time() - started:.0f} s")


def session(leader: int) -> list[int]:
    """The processes of a session that have not ended."""
    lines = subprocess.check_output(["ps", "-eo", "sid,pid,stat"], text=True).splitlines()[1:]
    pids = []
    for line in lines:
        sid, pid, state = line.split()
        if int(sid) == leader and not state.startswith("Z"):
            pids.append(int(pid))
    return pids


def rows(run: object) -> list[dict]:
    """What a run logged, without times."""
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.metrics]


if __name__ == "__main__":
    main()
