"""Checkpoints of a large state: what they take, and a run that is killed while one is written, stopped and continued.

python benchmarks/bench_checkpoint.py [--steps 450] [--folder FOLDER] [KEY=VALUE …]

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
from ablate.planning.plan import check_study
from ablate.runs.folder import Run
from ablate.training.devices import configure_torch
from ablate.training.trainer import Trainer

ROOT = Path(__file__).resolve().parents[1]
LARGE = ["model.layers=13", "model.heads=12", "model.dim=768", "data.context=32", "train.batch_size=2"]
RUN = ["norm=rms", "seeds=1", "train.parallel=1", "train.average=ema", "model.dropout=0.1", "train.log_every=1"]
RUN += ["eval.tokens=1024", "track=none", "train.compile=false"]
POLL = 0.002  # seconds


def main() -> None:
    """Time single checkpoints, then two runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--folder", type=Path)
    given, more = parser.parse_known_args()
    steps = [f"train.steps={given.steps}", f"train.eval_every={given.steps}"]
    words = list({word.partition("=")[0]: word for word in (*LARGE, *RUN, *steps, *more)}.values())
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        cost = time_single(words, Path(folder))
        whole, cut = ([*words, f"results_dir={Path(folder) / name}"] for name in ("whole", "cut"))
        started = time.monotonic()
        code, spans = watched(whole, Path(folder) / "whole", lambda spans, writing: None)
        seconds = time.monotonic() - started
        print(f"one go: exit code {code}, {seconds:.0f} s, {len(spans)} checkpoints, written within ", end="")
        print(", ".join(f"{span:.1f}" for span in spans), f"s; they took {len(spans) * cost / seconds:.1%} of the time")
        kill = lambda spans, writing: signal.SIGKILL if spans and writing else None  # noqa: E731
        code, spans = watched(cut, Path(folder) / "cut", kill)
        print(f"killed while checkpoint {len(spans) + 1} was written: exit code {code}; {left(Path(folder) / 'cut')}")
        started = time.monotonic()
        stop = lambda spans, writing: signal.SIGTERM if spans and time.monotonic() - started > seconds / 4 else None  # noqa: E731
        code, spans = watched(cut, Path(folder) / "cut", stop)
        print(f"continued, then SIGTERM: exit code {code}; {left(Path(folder) / 'cut')}")
        code, _ = watched(cut, Path(folder) / "cut", lambda spans, writing: None)
        runs = [load(next((Path(folder) / name).glob("runs/*/*"))) for name in ("whole", "cut")]
        same = all(map(equal, *([rows(run), run.result.final, run.weights()] for run in runs)))
        print(f"continued to its end: exit code {code}, resumed {runs[1].result.resumed} times; ", end="")
        print("the same rows, metrics and weights as in one go" if same else "other numbers than in one go")
        print(f"peak memory: {runs[0].result.peak_memory / 1e9:.2f} GB in one go")
        sys.exit(0 if same and runs[1].result.resumed == 2 else 1)


def time_single(words: list[str], folder: Path) -> float:
    """Print how long training waits for a checkpoint, beside the time of a step.  Returns the mean seconds of one."""
    configure_torch()
    trainer = Trainer(Run(folder, "single/s0"), check_study(tuple(words), None).cells.rows[0].config, 0)
    step = 0
    for _ in range(3):
        began = time.monotonic()
        first = step
        while time.monotonic() < began + 5:
            trainer.train_step(step)
            step += 1
        seconds_of_step = (time.monotonic() - began) / (step - first)
        trainer.save()
        size = trainer.run.checkpoint_file.stat().st_size / 1e9
        waited = trainer.checkpointer.last_seconds
        print(f"a checkpoint of {size:.2f} GB: training waits {waited:.2f} s; a step takes {seconds_of_step:.2f} s")
    return trainer.checkpointer.total_seconds / 3


def watched(words: list[str], folder: Path, end: Callable) -> tuple[int, list[float]]:
    """Run a command to its end, or until `end` names a signal: its exit code, and the seconds for which each file of
    a checkpoint was being written.  SIGKILL is sent to all its processes, other signals to the command."""
    command = [sys.executable, "-m", "ablate", *words]
    where = {"cwd": folder.parent, "env": os.environ | {"PYTHONPATH": str(ROOT)}, "start_new_session": True}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **where)
    spans, began, sent = [], None, False
    while process.poll() is None:
        writing = any(folder.glob("runs/*/*/.checkpoint.pt.*.tmp"))
        if writing and began is None:
            began = time.monotonic()
        if began is not None and not writing:
            spans.append(time.monotonic() - began)
            began = None
        number = end(spans, writing)
        if number and not sent:
            sent, asked = True, time.monotonic()
            for pid in session(process.pid) if number == signal.SIGKILL else [process.pid]:
                os.kill(pid, number)
        time.sleep(POLL)
    if sent:
        print(f"  ended {time.monotonic() - asked:.1f} s after the signal")
    while session(process.pid):
        time.sleep(POLL)
    return process.returncode, spans


def session(pid: int) -> list[int]:
    """The processes of a session that a command leads."""
    lines = subprocess.run(["ps", "-eo", "sid,pid,stat"], capture_output=True, text=True).stdout.splitlines()[1:]
    return [int(each) for sid, each, state in map(str.split, lines) if sid == str(pid) and state[0] != "Z"]


def left(folder: Path) -> str:
    """The step of the checkpoint in a folder of results, and the last logged one."""
    [file] = folder.glob("runs/*/*/checkpoint.pt")
    step = torch.load(file, weights_only=True, mmap=True)["progress"]["step"]
    logged = Run(folder, str(file.parent.relative_to(folder / "runs"))).metrics()[0][-1]["step"]
    return f"left the checkpoint of step {step}, {logged} logged"


def rows(run: object) -> list[dict]:
    """What a run logged, without times."""
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.metrics]


def equal(one: object, other: object) -> bool:
    """Whether two values are the same to the bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


if __name__ == "__main__":
    main()
