"""One run of a program: started in a process group of its own; its output is kept, and its result written."""

import collections
import contextlib
import dataclasses
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from ablate.config.errors import Corrupt
from ablate.config.import_path import SAFE
from ablate.execution.pool import Order, how_it_died, kill_group, readable
from ablate.execution.signals import raising_disk_full
from ablate.formatting import duration, first_of
from ablate.formatting.streams import say
from ablate.program.metric import NoMetric, Row, last_steps, read_metric, sources_of
from ablate.program.order import FILES, LAST_LINE, OUTPUT, Program
from ablate.program.revisions import changed_files, use_tree
from ablate.runs.files import no_link, set_aside
from ablate.runs.folder import MetricsWriter, Run, now
from ablate.runs.lock import LeaseLost
from ablate.runs.records import Provenance, Result, RunError

HEAD = 1_000_000  # bytes of output that are kept from its beginning
TAIL = 4_000_000  # and from its end
KEPT = 200_000_000  # bytes of the files in {out} that are kept; the largest go first
SHOWN = 5  # last lines of a failed run's output in its error
POLL = 0.2  # seconds
PATIENCE = 5.0  # seconds between SIGTERM and SIGKILL
AFTER = 1.0  # seconds for output of processes that a program left behind


class Output:
    """What a program prints: its beginning and its end, within a limit."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.tail: collections.deque[bytes] = collections.deque()
        self.tail_bytes = 0
        self.left_out = 0

    def add(self, data: bytes) -> None:
        """Append bytes; of many, those in the middle are left out."""
        room = HEAD - len(self.head)
        self.head += data[:room]
        data = data[room:] if room < len(data) else b""
        if data:
            self.tail.append(data)
            self.tail_bytes += len(data)
        while self.tail and self.tail_bytes - len(self.tail[0]) >= TAIL:
            dropped = len(self.tail.popleft())
            self.tail_bytes -= dropped
            self.left_out += dropped

    def content(self) -> bytes:
        """The bytes that are kept, with a line that says how many are not."""
        gap = f"\n[{self.left_out:,} bytes left out]\n".encode() if self.left_out else b""
        return bytes(self.head) + gap + b"".join(self.tail)


def run_program(order: Order, should_stop: Callable[[], bool]) -> str:
    """Run a program under the lock of its run, unless it has ended; returns done or failed with a result, interrupted,
    or busy if another process runs it.  Raises DiskFull."""
    run = Run(Path(order.results), order.path)
    with raising_disk_full(run.folder), run.lock(lambda: order.wait and not should_stop()) as is_locked:
        if not is_locked:
            return "interrupted" if should_stop() else "busy"
        try:
            result = run.result()
            if result and result.status == "done":
                return "done"
        except Corrupt as error:
            say(f"{error}; set aside as {set_aside(error.file or run.result_file).name}, run again")
        try:
            assert order.program
            return run_once(run, order.program, Path(order.results), should_stop)
        except LeaseLost as error:
            say(str(error))
            return "busy"


def run_once(run: Run, program: Program, results: Path, should_stop: Callable[[], bool]) -> str:
    """Run a program once and write its result, unless it is interrupted."""
    files = run.folder / FILES
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir(parents=True)
    started = time.monotonic()
    result = Result(status="failed", final={}, started=now())
    output = Output()
    rows: list[Row] = []
    try:
        ending = execute_in_tree(program, results, output, should_stop)
        if ending == "interrupted":
            return ending
        if ending:
            raise RuntimeError(ending)
        text = output.content().decode(errors="replace")
        sources = sources_of(text, files, program.metric, program.read)
        value, rows = read_metric(sources, program.metric, program.at, program.lower_is_better)
        result = dataclasses.replace(result, steps=last_steps(rows))
        if math.isfinite(value):
            result = dataclasses.replace(result, status="done", final={program.metric: value})
        else:
            error = RunError(type="Diverged", message=f"{program.metric} is {value}")
            result = dataclasses.replace(result, status="diverged", error=error)
    except (OSError, RuntimeError, NoMetric) as problem:
        result = dataclasses.replace(result, error=described(problem, output))
    for old in (run.result_file, run.metrics_file):  # a failed try is on record until the next one has ended
        old.unlink(missing_ok=True)
    provenance = run.write(run.provenance_file, Provenance(format=2, numbers=program.numbers, versions={}))
    with open(run.folder / OUTPUT, "wb", opener=no_link) as file:
        file.write(output.content())
    remove_large(files)
    sums = {run.provenance_file.name: provenance}
    if rows:
        writer = MetricsWriter(run)
        for row in rows:
            writer.write({name: int(value) if name == "step" else value for name, value in row.items()})
        writer.close()
        sums[run.metrics_file.name] = writer.written()
    seconds = {"total": round(time.monotonic() - started, 3)}
    run.write(run.result_file, dataclasses.replace(result, files=sums, seconds=seconds, ended=now()))
    return result.status


def execute_in_tree(program: Program, results: Path, output: Output, should_stop: Callable[[], bool]) -> str:
    """`execute` in the files of the program's revision, if it has one.  Raises OSError and GitError."""
    if program.tree is None:
        return execute(program, output, should_stop)
    with use_tree(program.tree, results) as tree:
        paths = [str(path.resolve()) for path in (tree, tree / "src") if path.is_dir()]
        if "PYTHONPATH" in os.environ:
            paths.append(os.environ["PYTHONPATH"])
        environment = {"PYTHONPATH": os.pathsep.join(paths)} | program.environment
        folder = str((tree / program.tree.folder).resolve())
        ending = execute(dataclasses.replace(program, folder=folder, environment=environment), output, should_stop)
        changed = changed_files(tree, program.tree.commit)
    if changed:
        say(f"runs change files of {tree.name}: {first_of(changed, SHOWN)}; they are put back once no run uses them")
    return ending


def execute(program: Program, output: Output, should_stop: Callable[[], bool]) -> str:
    """Run a program to its end; returns "" if it succeeded, "interrupted", or how it failed.  Raises OSError."""
    deadline = time.monotonic() + program.timeout if program.timeout else None
    environment = {"PYTHONUNBUFFERED": "1"} | os.environ | program.environment
    if environment.get("PYTHONSAFEPATH") == SAFE:  # the program may import from its folder
        del environment["PYTHONSAFEPATH"]
    process = subprocess.Popen(
        program.words,
        cwd=program.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout
    try:
        while process.poll() is None:
            if should_stop():
                end_group(process)
                return "interrupted"
            if deadline and time.monotonic() > deadline:
                end_group(process)
                drain(process.stdout, output)
                return "" if program.is_budget else f"it had not ended after {duration(program.timeout or 0)}"
            read_some(process.stdout, output, POLL)
        drain(process.stdout, output)
    finally:
        kill_group(process.pid)  # also what it left behind
        process.stdout.close()
    code = process.returncode
    return "" if code == 0 else how_it_died(code, "the program")


def read_some(stream: IO[bytes], output: Output, seconds: float) -> bool:
    """Read what a program has printed, waiting some seconds for it; returns whether there was anything."""
    if not readable(stream, seconds):  # type: ignore[arg-type]
        return False
    data = os.read(stream.fileno(), 1 << 16)
    output.add(data)
    if not data:  # it has closed its output, and goes on
        time.sleep(seconds)
    return bool(data)


def drain(stream: IO[bytes], output: Output) -> None:
    """Read the rest of what an ended program has printed; processes that it left behind may keep its output open."""
    deadline = time.monotonic() + AFTER
    while time.monotonic() < deadline and read_some(stream, output, 0):
        continue


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ask a program and the processes that it started to end, and kill them if they do not."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    kill_group(process.pid)
    process.wait()


def described(error: Exception, output: Output) -> RunError:
    """An error with the last lines of a program's output."""
    lines = output.content().decode(errors="replace").strip().splitlines()[-SHOWN:]
    message = str(error)
    if lines:
        message += f"{LAST_LINE}{lines[-1].strip()[:200]}"
    kind = "NoMetric" if isinstance(error, NoMetric) else "ProgramFailed"
    return RunError(type=kind, message=message, traceback="\n".join(lines))


def remove_large(folder: Path) -> None:
    """Remove the largest files of a run until at most `KEPT` bytes are left."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    files.sort(key=lambda file: file.stat().st_size)
    total = sum(file.stat().st_size for file in files)
    while total > KEPT:
        file = files.pop()
        total -= file.stat().st_size
        file.unlink()
