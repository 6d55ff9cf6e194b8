"""Commands, and what they start, in the process of a test: an interpreter that loads torch costs two CPU-seconds.

Workers are here unless a test takes the fixture `worker_processes`; checks of user code are where it takes
`checks_here`.  A test whose subject is the process of a command starts one: `conftest.run_fresh`.
"""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ablate.cli.main import main
from ablate.config.errors import one_line
from ablate.execution import pool, worker
from ablate.execution.pool import Answer, Order, answer_of, line, order_of
from ablate.execution.signals import SIGNALS
from ablate.planning.checks.child import Failed

WorkerProcess = pool.Worker
one_model = threading.Lock()  # torch's settings and random numbers are those of the process


def command(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `python -m ablate WORDS` does in a folder, without a terminal: its exit code, output and error."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    code: object = 0
    with (
        contextlib.chdir(cwd),
        patch.dict(os.environ, environment),
        patch.multiple(sys, argv=["ablate", *words], path=[*sys.path], meta_path=[*sys.meta_path]),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    for number, handler in handlers.items():  # a command that ends ignores signals
        signal.signal(number, handler)
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(["ablate", *words], code, out.getvalue(), err.getvalue())


class WorkerHere:
    """As `ablate.execution.pool.Worker`, and by the same lines, but in this process; what must have a process of its
    own, such as user code, has one."""

    def __init__(self, environment: dict[str, str]):
        self.environment = environment
        self.stopped = threading.Event()
        self.process: WorkerProcess | None = None

    def train(self, order: Order) -> Answer:
        """Train a run, or run an order's program."""
        if order.program:
            variables = self.environment | order.program.environment
            return self.carry_out(replace(order, program=replace(order.program, environment=variables)))
        if worker.leaves_its_mark(order, "done"):
            self.process = WorkerProcess(self.environment)
            return self.process.train(order)
        with one_model:
            return self.carry_out(order)

    def carry_out(self, order: Order) -> Answer:
        """What a worker does between two lines."""
        answer = worker.carry_out(order_of(line(order)), self.stopped.is_set)
        received = answer_of(line(answer))
        assert received
        return received

    def ask_to_stop(self) -> None:
        """Have the run write a checkpoint and end."""
        self.stopped.set()
        if self.process:
            self.process.ask_to_stop()

    def stop(self, deadline: float) -> None:
        """Ask to stop, and end the process if there is one."""
        self.ask_to_stop()
        if self.process:
            self.process.stop(deadline)


class ChecksHere:
    """As the child process of `ablate.planning.checks.child`, but in this process, which user code must not harm."""

    about = ""  # whose user code runs

    def begin(self, about: str) -> None:
        """Note whose user code runs from now on."""
        self.about = f"{about}: "

    def run_in_child(self, call: Callable[[], Any]) -> Any:
        """What `call` returns, as it is read back from JSON.  Raises Failed if it raises."""
        self.about = ""
        try:
            return json.loads(json.dumps(call(), default=lambda number: number.item()))
        except Exception as error:
            raise Failed(f"{self.about}{one_line(error)}") from None
