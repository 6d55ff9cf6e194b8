"""The child process of a plan: a new interpreter that loads user code, so that the planning process never does.

It answers one call after another with plain data.  It leads a process group, which is killed with it; it reads nothing
from the terminal, prints to standard error, and ignores Ctrl-C, which ends it through the planning process.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from ablate.config.errors import one_line
from ablate.config.import_path import program
from ablate.execution.pool import POLL_SECONDS, how_it_died
from ablate.formatting.streams import prepare
from ablate.planning.reporting import listeners, report
from ablate.runs.user_files import compile_from_source, forget_local_modules

STANDARD_ERROR = 2
DEATH_SECONDS = 60.0  # for a child that has closed its pipe to be dead
PARENT_SECONDS = 1.0  # between checks whether the parent lives


class Failed(Exception):
    """User code raised an exception, or its process died; the message says how."""


class Child:
    """A child process, and this process's end of the pipe to it."""

    def __init__(self) -> None:
        """Start an interpreter that calls `main`, with its end of the pipe as standard input."""
        self.connection, end_of_child = Pipe()
        command = program("ablate.planning.checks.child")
        standard_input = end_of_child.fileno()
        self.process = subprocess.Popen(command, stdin=standard_input, stdout=STANDARD_ERROR, process_group=0)
        end_of_child.close()

    def ask(self, call: Callable[[], Any]) -> Any:
        """What `call` returns in the child.  Raises Failed if it raises or dies, even if a process that it started
        keeps the pipe open."""
        about = ""  # whose user code the call runs
        try:
            self.connection.send(call)
            while True:
                if self.connection.poll(POLL_SECONDS):
                    kind, content = json.loads(self.connection.recv_bytes())
                    if kind == "value":
                        return content
                    if kind == "error":
                        raise Failed(f"{about}{content}")
                    if kind == "about":
                        about = f"{content}: "
                    else:
                        report(content)
                elif self.process.poll() is not None:
                    raise EOFError
                elif about:
                    report(f"running {about.removesuffix(': ')}; Ctrl-C stops it")
        except (EOFError, ConnectionError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(DEATH_SECONDS)
            raise Failed(f"{about}{how_it_died(self.kill(), 'its process')}") from None

    def kill(self) -> int:
        """Kill the child and the processes that it has started; returns its exit code."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()


SUBNORMAL = 5e-324  # processors can be set to take it for 0
settings: dict[str, Any] = {}  # as a child had them before it ran user code
loads_user_code = False  # whether this process may
channel: Any = None  # of a child: its end of the pipe
current: Child | None = None  # the child of this process


@contextlib.contextmanager
def one_child() -> Iterator[None]:
    """Have all calls for user code inside of the block share a child process, which ends with it."""
    global current
    try:
        yield
    finally:
        if current:
            current.kill()
        current = None


def run_in_child(call: Callable[[], Any]) -> Any:
    """What `call` returns, as plain data, from the child process, which is started if there is none.  Raises Failed if
    it raises or dies."""
    global current
    if loads_user_code:
        return call()
    if current is None or current.process.poll() is not None:
        current = Child()
    return current.ask(call)


def main() -> None:
    """Carry out the calls of the process that started this one."""
    prepare()
    connection = Connection(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    serve(connection)


def serve(connection: Connection) -> None:
    """Carry out calls from a pipe, and answer there, until the parent kills this process."""
    global channel, loads_user_code
    loads_user_code = True
    channel = connection
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, args=(os.getppid(),), daemon=True).start()
    import torch

    torch.set_num_threads(1)
    settings.update(read_settings())
    listeners.append(lambda text: send("report", text))
    compile_from_source()
    while True:
        answer(connection.recv())


def answer(call: Callable[[], Any]) -> None:
    """Call, and send the result or the error."""
    process = os.getpid()
    kind = "value"
    try:
        content = call()
    except BaseException as error:  # also SystemExit and KeyboardInterrupt, which only user code raises here
        kind = "error"
        content = one_line(error)
    if os.getpid() != process:  # a component forked this process
        os._exit(1)
    send(kind, content)


def send(kind: str, content: Any) -> None:
    """Send a message to the parent: JSON, since it must not unpickle what user code may have written."""
    message = json.dumps([kind, content], default=lambda number: number.item())  # a number of numpy or torch
    channel.send_bytes(message.encode())


def begin(about: str) -> None:
    """In a child, tell the parent whose user code runs from now on, and have local modules imported anew."""
    if channel:
        send("about", about)
        forget_local_modules()


def read_settings() -> dict[str, Any]:
    """The settings of this process on which every number depends: user code must not change them."""
    import torch

    return {
        "torch's default dtype": torch.get_default_dtype(),
        "torch's default device": torch.get_default_device(),
        "whether gradients are computed": torch.is_grad_enabled(),
        "torch's deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch's precision of matrix products": torch.get_float32_matmul_precision(),
        "torch's use of TF32 in cuDNN": torch.backends.cudnn.allow_tf32,
        "torch's use of oneDNN": torch.backends.mkldnn.enabled,
        "torch's number of threads": torch.get_num_threads(),
        "whether subnormal numbers are taken for 0": SUBNORMAL * 1.0 == 0.0,
    }


def changed_settings(cause: str) -> list[str]:
    """Sentences on the settings that user code has changed in a child."""
    changes = []
    for name, value in read_settings().items():
        if value != settings.get(name, value):
            change = f"{cause} changes {name} from {settings[name]} to {value}"
            changes.append(f"{change}, which would change all else that a run computes")
    return changes


def exit_with_parent(parent: int) -> None:
    """Exit once the parent has ended, however busy user code is."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)
