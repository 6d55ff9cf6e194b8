"""The child process of a plan: a new interpreter that loads user code, so that the planning process never does.

It answers one call after another with plain data.  It leads a process group, which is killed with it; it reads nothing
from the terminal, prints to standard error, and ignores Ctrl-C, which ends it through the planning process.
"""

import base64
import contextlib
import json
import math
import os
import pickle
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ablate.config.errors import one_line
from ablate.config.import_path import program
from ablate.data.corpus import Unwritable, written_at_end
from ablate.execution.pool import POLL_SECONDS, how_it_died
from ablate.formatting.streams import prepare
from ablate.planning.reporting import listeners, report
from ablate.runs.user_files import compile_from_source, forget_local_modules

EXIT_SECONDS = 60.0  # for a child to write corpora and exit
PARENT_SECONDS = 1.0  # between checks whether the parent lives


class Failed(Exception):
    """User code raised an exception, or its process died or took too long; the message says how."""


def start() -> subprocess.Popen[bytes]:
    """Start an interpreter that calls `main`, and leads a process group."""
    command = program("ablate.planning.checks.child")
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)


class Child:
    """A child process and the lines that it has printed."""

    def __init__(self) -> None:
        self.process = start()
        self.lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self.read_lines, daemon=True).start()

    def read_lines(self) -> None:
        """Put each line into the queue, since a queue can be waited for with a timeout, unlike a pipe."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.put(line)

    def ask(self, call: Callable[[], Any], seconds: float) -> Any:
        """What `call` returns in the child.  Raises Failed, also after so many seconds without an answer."""
        assert self.process.stdin
        begun = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it has died, as is seen below
            self.process.stdin.write(base64.b64encode(pickle.dumps(call)) + b"\n")
            self.process.stdin.flush()
        try:
            message, about = self.receive(begun, seconds)
        except BaseException:  # it has died, takes too long, or Ctrl-C ends the plan
            self.kill()
            raise
        if "error" in message:
            raise Failed(f"{about}{message['error']}")
        return message["value"]

    def receive(self, begun: float, seconds: float) -> tuple[dict[str, Any], str]:
        """The answer to a call, and whose user code the call ran last."""
        about = ""
        while time.monotonic() < begun + seconds:
            try:
                message = json.loads(self.lines.get(timeout=POLL_SECONDS))
            except queue.Empty:
                code = self.process.poll()
                if code is not None and self.lines.empty():
                    raise Failed(f"{about}{how_it_died(code, 'its process')}") from None
                if about:
                    report(f"running {about.removesuffix(': ')}; Ctrl-C stops it")
                continue
            if "report" in message:
                report(message["report"])
            elif "about" in message:
                about = f"{message['about']}: "
            else:
                return message, about
        raise Failed(f"{about}it took longer than {seconds:.0f} s")

    def exit(self) -> None:
        """Have the child write what it has prepared, and wait until it has exited."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self.process.stdin.close()
            self.process.wait(EXIT_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill the child and the processes that it has started."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


SUBNORMAL = 5e-324  # processors can be set to take it for 0
settings: dict[str, Any] = {}  # as a child had them before it ran user code
loads_user_code = False  # whether this process may
channel: Any = None  # of a child, to its parent
current: Child | None = None  # the child of this process


@contextlib.contextmanager
def one_child() -> Iterator[None]:
    """Have all calls for user code inside of the block share a child process, which ends with it."""
    global current
    try:
        yield
        if current:
            current.exit()
    finally:
        if current:
            current.kill()
        current = None


def run_in_child(call: Callable[[], Any], seconds: float = math.inf) -> Any:
    """What `call` returns, as plain data, from the child process, which is started if there is none.  Raises Failed if
    it raises or dies, or after so many seconds."""
    global current
    if loads_user_code:
        return call()
    if current is None or current.process.poll() is not None:
        current = Child()
    return current.ask(call, seconds)


def main() -> None:
    """Carry out calls until standard input ends."""
    prepare()
    serve()


def serve() -> None:
    """Carry out calls from standard input, and answer on standard output."""
    global channel, loads_user_code
    loads_user_code = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calls = os.fdopen(os.dup(0), "rb")
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    threading.Thread(target=exit_with_parent, args=(os.getppid(),), daemon=True).start()
    import torch

    torch.set_num_threads(1)
    settings.update(read_settings())
    listeners.append(lambda text: send({"report": text}))
    compile_from_source()
    # If the plan is refused, this process is killed before it writes.
    with contextlib.suppress(Unwritable), written_at_end():
        for line in calls:
            answer(pickle.loads(base64.b64decode(line)))
    os._exit(0)  # whatever threads user code has left


def answer(call: Callable[[], Any]) -> None:
    """Call, and send the result or the error."""
    process = os.getpid()
    try:
        message = {"value": call()}
    except BaseException as error:  # also SystemExit and KeyboardInterrupt, which only user code raises here
        message = {"error": one_line(error)}
    if os.getpid() != process:  # a component forked this process
        os._exit(1)
    send(message)


def send(message: dict[str, Any]) -> None:
    """Write a message to the parent, as a line."""
    channel.write(json.dumps(message, default=lambda number: number.item()) + "\n")  # a number of numpy or torch
    channel.flush()


def begin(about: str) -> None:
    """In a child, tell the parent whose user code runs from now on, and have local modules imported anew."""
    if channel:
        send({"about": about})
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
