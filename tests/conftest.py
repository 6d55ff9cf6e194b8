"""What all tests share: a cache and a results folder of their own, a small text, and the real command line."""

import gc
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import ChecksHere, WorkerHere, WorkerProcess

from ablate.runs import user_files
from ablate.runs.files import read_json, write_json

torch.set_num_threads(1)  # as in runs; small products on several threads of a busy machine are up to 50 times slower
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell, whose children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
LONGEST = 1200  # seconds of a test
ROOT = Path(__file__).resolve().parents[1]
SHAPE = ["model.dim=16", "model.layers=1", "model.heads=2", "data.context=16", "train.batch_size=4"]
SHAPE += ["eval.tokens=256", "eval.val_share=1"]
STEPS = ["train.steps=6", "train.eval_every=3", "train.log_every=2", "optim.warmup=2", "track=none"]


def pytest_collection_finish() -> None:
    """The tests and their libraries stay until the end: let the collector look at what tests make alone, and seldom."""
    gc.freeze()
    gc.set_threshold(700, 10, 100)


def pytest_sessionfinish() -> None:
    """All that is left is freed with the process: pytest would look for cycles in it, five times."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory) -> Path:
    """A corpus cache that no other session has filled, one for all workers, and no tracking service's key."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "cache"
    folder.mkdir(exist_ok=True)
    os.environ |= {"ABLATE_CACHE": str(folder), "WANDB_MODE": "offline"}
    for name in ("ABLATE_RESULTS", "WANDB_API_KEY"):
        os.environ.pop(name, None)
    return folder


@pytest.fixture
def empty_cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of a test's own; hidden, so that no folder of texts has it as one."""
    folder = tmp_path / ".cache"
    monkeypatch.setenv("ABLATE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session", autouse=True)
def no_plan_cache() -> Iterator[None]:
    """Plans made in a test's own process take nothing from the cache and leave nothing there, since a test may replace
    what they find, but in tests that take `plan_cache`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablate.planning.cache.read_json", lambda file: {})
        patch.setattr("ablate.planning.cache.write_json", lambda file, record: None)
        yield


@pytest.fixture
def plan_cache(tmp_path, monkeypatch) -> Path:
    """The folder of an empty cache of what plans find, which this test uses."""
    monkeypatch.setattr("ablate.planning.cache.read_json", read_json)
    monkeypatch.setattr("ablate.planning.cache.write_json", write_json)
    monkeypatch.setattr("ablate.planning.cache.cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture(scope="session", autouse=True)
def no_test_is_user_code() -> Iterator[None]:
    """The modules of tests and tools, which the process of a command has not imported, are in no run's key."""
    folders = tuple(f"{ROOT / name}{os.sep}" for name in ("tests", "tools", "benchmarks"))
    is_local = user_files.is_local
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_files, "is_local", lambda file: not file.startswith(folders) and is_local(file))
        yield


@pytest.fixture(scope="session", autouse=True)
def workers_here() -> Iterator[None]:
    """Commands train in the process of a test, but in tests that take `worker_processes`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablate.execution.pool.Worker", WorkerHere)
        yield


@pytest.fixture
def worker_processes(monkeypatch) -> None:
    """Commands train in processes, as they do outside of tests."""
    monkeypatch.setattr("ablate.execution.pool.Worker", WorkerProcess)


@pytest.fixture
def checks_here(monkeypatch) -> None:
    """Plans check user code in the process of this test, not in a child process."""
    checks = ChecksHere()
    monkeypatch.setattr("ablate.planning.checks.child.begin", checks.begin)
    monkeypatch.setattr("ablate.planning.checks.child.run_in_child", checks.run_in_child)


@pytest.fixture(scope="session", autouse=True)
def plans_without_progress() -> Iterator[None]:
    """No plan made in a test's own process says that it takes long, however busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablate.cli.plan_progress.PATIENCE", 1e9)
        yield


@pytest.fixture(scope="session", autouse=True)
def disks_that_never_fail() -> Iterator[None]:
    """No file of a test has to survive the machine: to wait for the disk is a third of what it takes to write one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def fonts_without_layout() -> None:
    """PDFs embed fonts without the tables that lay text out, which nobody reads there: a quarter of an analysis."""
    if "matplotlib" in sys.modules:
        from fontTools.subset import Options

        Options._drop_tables_default = [*Options._drop_tables_default, "GSUB", "GPOS", "GDEF"]


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    """A text with structure to learn: sentences from a small grammar."""
    words = ["the", "a", "red", "blue", "dog", "cat", "sees", "likes", "tree", "house", "and", "or"]
    pick = random.Random(0)
    file = tmp_path_factory.mktemp("text") / "grammar.txt"
    file.write_text("\n".join(" ".join(pick.choices(words, k=9)) + "." for _ in range(600)))
    return file


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """A layer built without a generator draws the same numbers whatever tests ran before, in whichever worker."""
    torch.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A test that waits for what never comes fails, and says where it waited, instead of holding up all others."""
    before = signal.signal(signal.SIGALRM, _waited)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        for number, handler in HANDLERS.items():  # a command that ended in this process left them ignored, as would be
            signal.signal(number, handler)  # whatever is started from here on


def _waited(number: int, frame: Any) -> None:
    pytest.fail(f"this test has not ended in {LONGEST} s")  # no OSError, which who reads a terminal takes for its end


def pytest_runtest_teardown() -> None:
    """Whatever a test started and did not end, having failed say, ends with it."""
    hazard = sys.modules.get("crashing_norm")
    while hazard and hazard.STARTED:
        hazard.kill_session(hazard.STARTED.pop())


@pytest.fixture
def small(text, tmp_path) -> list[str]:
    """Overrides that make every run take a moment."""
    return [*SHAPE, *STEPS, "data=text", f"data.path={text}", f"results_dir={tmp_path / 'results'}"]


@pytest.fixture
def untried(monkeypatch) -> None:
    """Plans whose cells are not tried out on small copies, where a test is about what comes before or after that."""
    monkeypatch.setattr("ablate.planning.checks.inspect.try_out", lambda *_: [])


@pytest.fixture(scope="module")
def uncounted() -> Iterator[Callable[..., Any]]:
    """Plans that count no FLOPs, a quarter of what they cost."""
    from ablate.model import cost

    real = cost.forward_flops
    with pytest.MonkeyPatch.context() as patch:
        count_no_flops(patch)
        yield real


def count_no_flops(patch: pytest.MonkeyPatch) -> None:
    """Have plans count no FLOPs."""
    from ablate.model import cost
    from ablate.planning import cache

    patch.setattr(cost, "forward_flops", lambda model, inputs: (1e6, []))
    patch.setattr(cache, "results", {})


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Tables, texts and pages of an analysis alone: drawing takes longer than all the rest."""
    monkeypatch.setattr("analysis.figures.write", lambda case, folder: [])
    monkeypatch.setattr("gallery.write.draw", lambda study, pictures: [])


def latest(*overrides: str) -> list[str]:
    """Overrides without the earlier ones of a key that is given again: the command line refuses those."""
    return list({text.partition("=")[0]: text for text in overrides}.values())


@pytest.fixture
def plan(small) -> Callable[..., Any]:
    """Plans a command line on the small text, as a new process would."""
    from ablate.planning.plan import Plan, plan_study

    def planned(*overrides: str, config_dir: str | None = None) -> Plan:
        return plan_study(tuple(latest(*small, *overrides)), config_dir)

    return planned


@pytest.fixture(scope="session")
def faulty(tmp_path_factory) -> Iterator[str]:
    """The configuration folder of the package `mistakes_of_mine`, which is importable meanwhile."""
    from faulty_package import write

    folder = tmp_path_factory.mktemp("mistakes")
    sys.path.insert(0, str(folder))
    yield str(write(folder))
    sys.path.remove(str(folder))


@pytest.fixture
def refused(plan) -> Callable[..., list[str]]:
    """What is wrong with a command line on the small text, a line each."""
    from ablate.planning.plan import PlanError

    def told(*overrides: str, config_dir: str | None = None) -> list[str]:
        with pytest.raises(PlanError) as error:
            plan(*overrides, config_dir=config_dir)
        return [str(problem) for problem in error.value.problems]

    return told


def start_module(module: str, *arguments: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """A module's command line in a session of its own, with no terminal and nothing to read from.  The checkout is
    importable, and what PYTHONPATH adds."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env=importing(**environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_fresh(module: str, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """How such a process ended, where it is what a test is about; with PYTHONPATH="" only what lies in `cwd` can be
    imported."""
    process = start_module(module, *arguments, cwd=cwd, **environment)
    try:
        out, err = process.communicate(timeout=LONGEST)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def importing(**environment: str) -> dict[str, str]:
    """This process's environment and more, in which the checkout is importable, too, unless PYTHONPATH is empty."""
    path = environment.pop("PYTHONPATH", None)
    path = str(ROOT) if path is None else path and os.pathsep.join([str(ROOT), path])
    return os.environ | {"PYTHONPATH": path} | environment


def read_terminal(terminal: int) -> str:
    """All that a process writes to a terminal until it ends."""
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # how a terminal says that the other side is gone
            piece = b""
        if not piece:
            return shown.decode()
        shown += piece
