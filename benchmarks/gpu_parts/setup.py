"""What every part gets: the device, a folder, cells, trainers and commands."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ablate.config.schema import Config

ROOT = Path(__file__).resolve().parents[2]
TOY = ["model.dim=16", "model.layers=1", "model.heads=2", "data.context=16", "train.batch_size=4", "eval.tokens=256"]
TOY += ["train.steps=4", "train.eval_every=4", "optim.warmup=2"]
TEXTS = ("argparse.py", "ast.py", "inspect.py", "subprocess.py", "tarfile.py", "typing.py")  # of this Python


class Setup(NamedTuple):
    """The device, whether to go through everything at a toy size, and the part's folder."""

    device: str
    toy: bool
    folder: Path

    def pick(self, toy: Any, full: Any) -> Any:
        """One of two values, by size."""
        return toy if self.toy else full

    @property
    def torch_device(self) -> torch.device:
        """The device as torch names it."""
        return torch.device(self.device)

    def words(self, *more: str) -> list[str]:
        """A command line on this device and, unless it names other data, a small text; of two words with the same key
        the later one counts."""
        words = [f"train.device={self.device}", f"results_dir={self.folder / 'results'}", "track=none", "data=text"]
        if self.toy:
            words += TOY
        words += more
        by_key = {word.partition("=")[0]: word for word in words}
        if by_key["data"] in ("data=text", "data=mlm"):
            by_key["data.path"] = f"data.path={self.text()}"
        elif by_key["data"] != "data=tokens":  # a task whose length follows from its own settings
            by_key.pop("data.context", None)
        return list(by_key.values())

    def text(self) -> Path:
        """A text that is on every machine: some modules of the standard library."""
        file = self.folder / "text.txt"
        if not file.exists():
            library = Path(os.__file__).parent
            texts = [(library / name).read_text(encoding="utf-8") for name in TEXTS]
            file.write_text("\n".join(texts), encoding="utf-8")
        return file


class Report:
    """What a part measured, by name, and what did not hold."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.failures: list[str] = []

    def add(self, **values: Any) -> None:
        """Add measured values."""
        self.values |= values

    def expect(self, holds: Any, failure: str) -> None:
        """Note what does not hold; the part goes on."""
        if not holds:
            self.failures.append(failure)


def one_cell(words: list[str]) -> Any:
    """The cell of a command line, checked and counted.  Raises ValueError where it does not pass."""
    from ablate.config.command import read_command
    from ablate.planning.checks.validate import Validator
    from ablate.planning.plan import compose_study

    [draft] = compose_study(*read_command(tuple(words), None)).drafts
    passed, problems = Validator().validate([draft])
    if problems:
        raise ValueError("; ".join(map(str, problems)))
    return passed[0]


def on(config: Config, device: str, precision: str, compiled: bool = False) -> Config:
    """A resolved configuration on a device in a precision, eager or compiled."""
    train = dataclasses.replace(config.train, device=device, precision=precision, compile=compiled)
    return dataclasses.replace(config, train=train)


def trainer_of(setup: Setup, name: str, config: Config) -> Any:
    """A trainer of a resolved configuration, in a folder of its own, as a worker makes it."""
    from ablate.runs.folder import Run
    from ablate.training.devices import configure_torch
    from ablate.training.trainer import Trainer

    configure_torch()
    (setup.folder / name / "runs" / "a" / "b").mkdir(parents=True)
    return Trainer(Run(setup.folder / name, "a/b"), config, 0)


def losses(trainer: Any, steps: int) -> list[float]:
    """Training losses of a trainer's next steps."""
    tensors = []
    for _ in range(steps):
        tensors.append(trainer.train_step(trainer.progress.step)[0]["loss"])
        trainer.progress.step += 1
    return [float(loss) for loss in tensors]


def seconds_of(setup: Setup, action: Callable[[], Any]) -> float:
    """Seconds until the device has done an action."""
    wait(setup)
    start = time.perf_counter()
    action()
    wait(setup)
    return time.perf_counter() - start


def wait(setup: Setup) -> None:
    """Wait until the device has done everything."""
    if setup.device == "cuda":
        torch.cuda.synchronize()


def reason(error: Exception) -> str:
    """The first line of an error, with its type."""
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0]}"


@contextlib.contextmanager
def compiler(setup: Setup) -> Iterator[None]:
    """Inductor; at a toy size AOTAutograd alone, which takes seconds instead of minutes."""
    compile_ = nn.Module.compile
    if setup.toy:
        nn.Module.compile = lambda self, **_: compile_(self, backend="aot_eager")  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.compile = compile_  # type: ignore[method-assign]


def environment(**more: str) -> dict[str, str]:
    """The environment of a command of this checkout, which imports whatever this process can import."""
    paths = [str(ROOT)]
    if "PYTHONPATH" in os.environ:
        paths.append(os.environ["PYTHONPATH"])
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | more


def run_command(report: Report, words: list[str], **more: str) -> float:
    """Seconds of `ablate` with these words, which is expected to end well."""
    command = [sys.executable, "-m", "ablate", *words]
    start = time.perf_counter()
    ended = subprocess.run(
        command, env=environment(**more), cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    output = (ended.stdout + ended.stderr)[-400:]
    report.expect(ended.returncode == 0, f"{words} ended with {ended.returncode}: {output}")
    return time.perf_counter() - start


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The results below a folder, by the path of their run."""
    files = sorted(folder.glob("runs/*/*/result.json"))
    return {str(file.parent.relative_to(folder / "runs")): json.loads(file.read_text()) for file in files}
