"""Python programs run by a fork of this process, which has loaded torch and pandas: seconds sooner than an interpreter.

A test whose subject is the process itself, such as what it imports, starts an interpreter: `conftest.run_fresh`.
"""

import atexit
import contextlib
import functools
import importlib
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("ablate.planning.checks.child", "ablate.execution.worker", "ablate.execution.tracking.sender")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


class Forked(subprocess.Popen):
    """`python -m module ...` or `python -P -c code ...` by a fork of this process."""

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any, *rest: Any
    ) -> None:
        pipes = rest[3:9]  # of stdin the ends to read and to write, then those of stdout and stderr
        start_new_session, process_group = rest[-2:]
        load_libraries()
        beginning, begins = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            if start_new_session:
                os.setsid()
            if process_group >= 0:
                os.setpgid(0, process_group)
            become(args, cwd, env, [pipes[0], pipes[3], pipes[5]])
        os.close(begins)
        os.read(beginning, 1)  # returns when the fork closes its end
        os.close(beginning)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class ForkedPrograms(Forked):
    """As `subprocess.Popen`, but the processes that check user code, train and track are forks."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        code = "".join(args[3:4]) if args[1:3] == ["-P", "-c"] else ""
        if any(f"from {module} import main" in code for module in PROGRAMS):
            super()._execute_child(args, *rest)
        else:
            super(Forked, self)._execute_child(args, *rest)  # type: ignore[misc]


@functools.cache
def load_libraries() -> None:
    """Load and parse once what every fork would load and parse for itself."""
    from ablate.runs.code_digest import code_of

    importlib.import_module("torch._dynamo")
    importlib.import_module("ablate.training.trainer")
    code_of({})


def become(args: Sequence[str], cwd: Any, env: Mapping[str, str] | None, streams: Sequence[int]) -> NoReturn:
    """Be the process of a command, from its first moment to its last."""
    code = 1
    try:
        prepare(cwd, env, streams)
        code = run(list(args[1:]))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def prepare(cwd: Any, env: Mapping[str, str] | None, streams: Sequence[int]) -> None:
    """Give this fork the streams, folder, environment and signals of a new process."""
    from ablate.runs.user_files import forget_local_modules

    atexit._clear()
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    for number, stream in enumerate(streams):
        if stream >= 0:
            os.dup2(stream, number)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):  # the files of this process lead nowhere: objects that have them may close them
        with contextlib.suppress(OSError):
            os.dup2(nowhere, max(int(name), 3))
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    if cwd is not None:
        os.chdir(cwd)
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    forget_local_modules()  # tests, which are no part of user code
    subprocess.Popen = ForkedPrograms  # type: ignore[misc]


def run(args: list[str]) -> int:
    """Carry out the arguments of Python, and return the exit code."""
    libraries = [path for path in sys.path if path.startswith(sys.prefix) or not path.startswith(str(ROOT))]
    found = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if "-P" in args:
        args.remove("-P")
    else:
        found.insert(0, os.getcwd())
    sys.path[:] = [*found, *libraries, str(ROOT)]
    sys.orig_argv[1:] = args
    option, program, *words = args
    sys.argv[:] = [option, *words]
    code: Any = 0
    try:
        if option == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            exec(program, {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1
