"""What every part is given, and how parts make cells, trainers and commands."""

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


class Given(NamedTuple):
    """The device, whether to go through everything at a toy size, and a folder of the part's own."""

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
        """A command line on this device and a small text, in which later words replace earlier ones of their key."""
        where = [f"train.device={self.device}", f"results_dir={self.folder / 'results'}", "track=none"]
        given = [*where, *text(self), *(TOY if self.toy else ()), *more]
        data = [word for word in given if word.startswith("data=")]
        if data[-1] not in ("data=text", "data=mlm", "data=stdlib"):
            given = [word for word in given if not word.startswith(("data.path=", "data.context="))]
        if data[-1] == "data=stdlib":
            given = [word for word in given if not word.startswith("data.path=")]
        return list({word.partition("=")[0]: word for word in given}.values())


class Findings:
    """What a part found: figures by name, and what did not hold."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        self.failures: list[str] = []

    def tell(self, **values: Any) -> None:
        """Add figures."""
        self.told |= values

    def expect(self, holds: Any, said: str) -> None:
        """Note what does not hold; the part goes on."""
        if not holds:
            self.failures.append(said)


def text(given: Given) -> list[str]:
    """Words for a text that is on every machine: some modules of the standard library."""
    file = given.folder / "text.txt"
    if not file.exists():
        library = Path(os.__file__).parent
        file.write_text("\n".join((library / name).read_text(encoding="utf-8") for name in TEXTS), encoding="utf-8")
    return ["data=text", f"data.path={file}"]


def one_cell(words: list[str]) -> Any:
    """The cell of a command line, checked and counted.  Raises ValueError where it does not pass."""
    from ablate.config.command import read_command
    from ablate.planning.checks.validate import Validator
    from ablate.planning.plan import compose_cells

    [cell] = compose_cells(*read_command(tuple(words), None)).cells
    passed, problems = Validator().validate([cell.config])
    if problems:
        raise ValueError("; ".join(map(str, problems)))
    return passed[0]


def on(config: Config, device: str, precision: str, compiled: bool = False) -> Config:
    """A resolved configuration on a device in a precision, eager or compiled."""
    train = dataclasses.replace(config.train, device=device, precision=precision, compile=compiled)
    return dataclasses.replace(config, train=train)


def trainer(given: Given, name: str, config: Config, seed: int = 0) -> Any:
    """A trainer of a resolved configuration, in a folder of its own, as a worker makes it."""
    from ablate.runs.folder import Run
    from ablate.training.devices import configure_torch
    from ablate.training.trainer import Trainer

    configure_torch()
    (given.folder / name / "runs" / "a" / "b").mkdir(parents=True)
    return Trainer(Run(given.folder / name, "a/b"), config, seed)


@contextlib.contextmanager
def of_task(task: Any) -> Iterator[None]:
    """Trainers that are made meanwhile train on this task instead of their configuration's."""
    from ablate.training import trainer as training

    build = training.build_task
    training.build_task = lambda _: task  # type: ignore[assignment]
    try:
        yield
    finally:
        training.build_task = build


def losses(made: Any, steps: int) -> list[float]:
    """Training losses of a trainer's next steps."""
    found = []
    for _ in range(steps):
        found.append(made.train_step(made.progress.step)[0]["loss"])
        made.progress.step += 1
    return [float(loss) for loss in found]


def timed_steps(given: Given, step: Callable[[int], Any], steps: int) -> float:
    """Seconds of a step, which is called with its number."""
    wait(given)
    start = time.perf_counter()
    for number in range(steps):
        step(number)
    wait(given)
    return (time.perf_counter() - start) / steps


def wait(given: Given) -> None:
    """Wait until the device has done all that it was told."""
    if given.device == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def compiler(given: Given) -> Iterator[None]:
    """Inductor; at a toy size AOTAutograd alone, which takes seconds instead of minutes."""
    compile_ = nn.Module.compile
    if given.toy:
        nn.Module.compile = lambda self, **_: compile_(self, backend="aot_eager")  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.compile = compile_  # type: ignore[method-assign]


def environment(**more: str) -> dict[str, str]:
    """The environment of a command of ours: it finds this checkout, and whatever this process finds."""
    found = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(found)} | more


def command(words: list[str], module: str = "ablate", **more: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Seconds of a command of ours, and how it ended."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        env=environment(**more),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - start, done


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The results below a folder, by the path of their run."""
    files = sorted(folder.glob("runs/*/*/result.json"))
    return {str(file.parent.relative_to(folder / "runs")): json.loads(file.read_text()) for file in files}
