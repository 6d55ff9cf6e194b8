"""Changes one place of the code at a time by fixed operators, and runs the tests of its module, which should fail.

python benchmarks/mutants.py [WORD ...] [--sample 200] [--seed 0] [--folder DIR]

Of all mutants of the modules in `MAPPING`, or of those whose path holds a word, a sample is drawn.  Each is tried in a
copy of this checkout, against those tests of the mapped files that run the changed statement, quick ones first, until
one fails.  Which test runs what is noted once, while all of them pass without a mutant.  A test that does not end
counts as failing.  Prints a line for each mutant, the survivors, and the share caught with its Clopper-Pearson
interval (95 %), of all and without those that mutants.yaml calls equivalent, with a reason.  In `--folder` the copy,
the notes and what was tried stay, and the next call goes on from there.

All tests of a package are collected once; each mutant is a copy of that process, in which the functions of its module
run other code.  What only importing the module anew brings about is tried in a new process.
"""

import argparse
import ast
import builtins
import contextlib
import functools
import gc
import importlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest
import yaml
from scipy.stats import beta
from seeded_bugs import ROOT, copied

# module or package -> the tests of it
MAPPING = {
    "ablate/evidence": [
        "tests/evidence",
        "tests/planning/test_step_equivalents.py",
        "tests/planning/test_placebo.py",
        "tests/planning/test_tuning.py",
        "tests/test_recorded.py",
        "tests/analysis/test_pages.py",
    ],
    "analysis/writing": ["tests/analysis/writing", "tests/analysis/test_pages.py", "tests/analysis/stats"],
    "analysis/figures": [
        "tests/analysis/figures",
        "tests/analysis/test_pages.py",
        "tests/analysis/cli/test_verify.py",
        "tests/analysis/case/test_figures_yaml.py",
        "tests/analysis/cli/test_analyse.py",
    ],
    "ablate/execution/tracking": ["tests/execution/test_tracking.py", "tests/analysis/sources/test_wandb.py"],
    "ablate/planning/tuning.py": ["tests/planning/test_tuning.py"],
    "ablate/planning/rounds.py": [
        "tests/planning/test_tuning.py",
        "tests/planning/test_sequential_rounds.py",
        "tests/planning/test_step_equivalents.py",
        "tests/planning/test_placebo.py",
    ],
}
PROCESSES = "ablate/execution/tracking"  # whose tests start processes that run its code
LONG = ["tests/test_recorded.py::test_numbers_are_those_that_were_recorded[components]"]
OPTIONS = ["-p", "no:cacheprovider", "--assert=plain", "-m", "not slow"]
HERE = Path(__file__).resolve().parent
OPPOSITE = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPPOSITE |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
CLOSED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
ARITHMETIC |= {ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
EITHER = ("min", "max")  # whose arguments may change places
CHECKS = ("strict", "encoding")  # keywords that check the code itself, or name what is the default here
DEFAULTS = {ast.JoinedStr: "''", ast.List: "[]", ast.ListComp: "[]", ast.Dict: "{}", ast.Compare: "False"}
DEFAULTS |= {ast.BoolOp: "False", ast.BinOp: "0", ast.Tuple: "()"}
GRACE = 30.0  # CPU seconds that a mutant has beyond three times those of its tests
LIBRARIES = ["hydra.main", "msgspec", "pandas", "pyarrow", "scipy.stats", "scipy.optimize", "seaborn", "jinja2"]
LIBRARIES += ["torch._dynamo", "statsmodels.api", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf"]
LIBRARIES += ["pybtex.database", "rich.live", "hydra.core.override_parser.overrides_parser", "safetensors.torch"]


class Mutant(NamedTuple):
    """A changed place: bytes `start` to `end` of a file become `text`; `lines` are those of its statement."""

    path: str
    operator: str
    start: int
    end: int
    text: str
    lines: tuple[int, int]
    imported: bool
    old: str
    new: str

    @property
    def name(self) -> str:
        """What it is, wherever it stands in its file."""
        return f"{self.path}: {self.old}  ->  {self.new}"


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The operators that fit a node, and what each makes of it."""
    copy = functools.partial(_with, node)
    match node:
        case ast.Compare(ops=[first, *rest]):
            yield "comparison flipped", copy(ops=[OPPOSITE[type(first)](), *rest])
            if type(first) in CLOSED:
                yield "boundary", copy(ops=[CLOSED[type(first)](), *rest])
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            yield "arithmetic", copy(op=ARITHMETIC[type(op)]())
        case ast.BoolOp(op=op):
            yield "and/or", copy(op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not removed", operand
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "sign", operand
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", ast.Constant(value + 1)
            if value:
                yield "constant", ast.Constant(value // 2 if isinstance(value, int) else value / 2)
        case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test):
            yield "condition negated", copy(test=ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[first, *rest]):
            yield "condition negated", copy(ifs=[ast.UnaryOp(ast.Not(), first), *rest])
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "default returned", copy(value=ast.parse(DEFAULTS.get(type(value), "None"), mode="eval").body)
    if isinstance(node, ast.Call):
        match node.args:
            case [one, other, *rest] if not (
                {type(one), type(other)} & {ast.Starred} or ast.unparse(node.func) in EITHER
            ):
                yield "arguments swapped", copy(args=[other, one, *rest])
        for i, keyword in enumerate(node.keywords):
            if keyword.arg and keyword.arg not in CHECKS:
                yield "keyword dropped", copy(keywords=node.keywords[:i] + node.keywords[i + 1 :])


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    return ast.copy_location(type(node)(**(dict(ast.iter_fields(node)) | fields)), node)


def mutants_of(path: str) -> list[Mutant]:
    """All mutants of a file, but those of annotations, decorators and assertions."""
    source = Path(path).read_bytes()
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    found = []
    for node, above in _nodes(ast.parse(source), []):
        # Within an f-string Python 3.11 knows no places: all of the string is written anew.
        anchor = next((each for each in [*above, node] if isinstance(each, ast.JoinedStr)), node)
        while not hasattr(anchor, "lineno") or isinstance(anchor, ast.keyword):
            anchor = above[above.index(anchor) - 1] if anchor in above else above[-1]
        header = anchor.test if isinstance(anchor, ast.If | ast.While) else anchor
        start = begins[header.lineno - 1] + header.col_offset
        end = begins[header.end_lineno - 1] + header.end_col_offset
        statement = next(each for each in [node, *reversed(above)] if isinstance(each, ast.stmt))
        # Defaults of arguments are computed where the function is defined.
        inner = [*above[1:], node]
        imported = not any(
            isinstance(each, ast.FunctionDef | ast.Lambda) and not isinstance(within, ast.arguments)
            for each, within in zip(above, inner, strict=True)
        )
        body = getattr(statement, "body", None)
        last = max(statement.lineno, body[0].lineno - 1) if isinstance(body, list) else statement.end_lineno
        for operator, changed in changes(node):
            if ast.dump(changed) == ast.dump(node):
                continue
            with _replaced(node, changed, above):
                written = changed if anchor is node else anchor
                written = written.test if isinstance(written, ast.If | ast.While) else written
                text = ast.unparse(ast.fix_missing_locations(written))
            if isinstance(header, ast.expr):
                text = f"({text})"
            if isinstance(anchor, ast.JoinedStr) and not compiles(source[:start] + text.encode() + source[end:]):
                continue  # Python 3.11 cannot write every f-string
            first, final = begins[header.lineno - 1], begins[header.end_lineno]
            old = " ".join(source[first:final].decode().split())
            new = " ".join((source[first:start] + text.encode() + source[end:final]).decode().split())
            found.append(Mutant(path, operator, start, end, text, (statement.lineno, int(last)), imported, old, new))
    return found


def compiles(source: bytes) -> bool:
    """Whether Python can compile a source."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _nodes(node: ast.AST, above: list[ast.AST]) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    """Every node that may be changed, with those that it is part of."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            checks = isinstance(child, ast.keyword) and child.arg in CHECKS
            if isinstance(child, ast.AST) and not checks and not isinstance(child, ast.Assert):
                yield child, [*above, node]
                yield from _nodes(child, [*above, node])


@contextlib.contextmanager
def _replaced(node: ast.AST, changed: ast.AST, above: list[ast.AST]) -> Iterator[None]:
    """Have another node stand in a node's place."""
    parent = above[-1]
    for name, value in ast.iter_fields(parent):
        if value is node:
            setattr(parent, name, changed)
            yield
            setattr(parent, name, node)
            return
        if isinstance(value, list) and any(each is node for each in value):
            at = next(i for i, each in enumerate(value) if each is node)
            value[at] = changed
            yield
            value[at] = node
            return


class Ran:
    """A pytest plugin: which statements of the mapped modules each test runs, those of its fixtures included."""

    def __init__(self) -> None:
        self.running, self.fixtures = [set[str]()], defaultdict[Any, set[str]](set)
        self.tests: dict[str, list[str]] = defaultdict(list)
        self.seconds: dict[str, float] = {}

    def note(self, statement: str) -> None:
        self.running[-1].add(statement)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        self.running.append(set())
        try:
            return (yield)
        finally:
            found = self.running.pop()
            self.fixtures[fixturedef] |= found
            self.running[-1] |= found

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        forget()
        self.running, start = [set()], time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = round(time.process_time() - start, 3)
            for definitions in item._fixtureinfo.name2fixturedefs.values():
                self.running[0] |= self.fixtures[definitions[-1]]
            for statement in self.running[0]:
                self.tests[statement].append(item.nodeid)


def forget() -> None:
    """Empty the caches of tests and of mapped modules: or one test alone would run what all others need."""
    for module in list(sys.modules.values()):
        if (getattr(module, "__file__", None) or "").startswith(
            tuple(f"{os.getcwd()}/{name}" for name in ["tests", *MAPPING])
        ):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def noting(path: str, source: bytes) -> ast.Module:
    """A module in which each statement of a function says that it is run."""
    tree = ast.parse(source)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for node in ast.walk(function):
            for name in ("body", "orelse", "finalbody"):
                if isinstance(block := getattr(node, name, None), list) and block and not hasattr(block[0], "noted"):
                    calls = [ast.parse(f"__ran__({f'{path}:{each.lineno}'!r})").body[0] for each in block]
                    for call, each in zip(calls, block, strict=True):
                        ast.copy_location(call, each)
                        call.noted = True  # type: ignore[attr-defined]
                    setattr(node, name, [each for pair in zip(calls, block, strict=True) for each in pair])
    return ast.fix_missing_locations(tree)


def functions() -> dict[str, list[FunctionType]]:
    """The functions that are loaded, by their file."""
    gc.unfreeze()
    found = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType:
            found[each.__code__.co_filename].append(each)
    return found


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code of every function of a module, in order."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes(constant)


def run_instead(loaded: list[FunctionType], old: bytes, new: bytes | ast.Module, file: str) -> None:
    """Have the loaded functions of a module run the code of another source that has the same functions."""
    before, after = ([*codes(compile(source, file, "exec"))] for source in (old, new))
    if [each.co_qualname for each in before] != [each.co_qualname for each in after]:
        raise ValueError("other functions")
    instead = dict(zip(before, after, strict=True))
    for each in loaded:
        if each.__code__ in instead:
            each.__code__ = instead[each.__code__]


class Session:
    """A pytest plugin that, once all tests are collected, runs them for each mutant in a copy of the process."""

    def __init__(self, paths: list[str], mutants: list[Mutant], notes: Path, log: Path):
        self.paths, self.mutants, self.notes, self.log, self.said = paths, mutants, notes, log, os.dup(1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> bool:
        for path in self.paths:  # or what tests import late would keep its own code
            importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        items, loaded = {item.nodeid: item for item in session.items}, functions()
        if not self.notes.exists() and copied_process(lambda: self.record(session, loaded), 7200):
            raise RuntimeError("the tests fail without any mutant: see last.txt")
        known = json.loads(self.notes.read_text())
        for mutant in self.mutants:
            tests = tests_of(mutant, known)
            with mutated(mutant) as (old, new):
                file = str(Path(mutant.path).resolve())

                def run(tests: list[str] = tests, old: bytes = old, new: bytes = new, file: str = file) -> bool:
                    run_instead(loaded[file], old, new, file)
                    return fails(session, [items[test] for test in tests])

                limit = GRACE + 3 * sum(known["seconds"][test] for test in tests)
                begin = used()
                code = (fresh(tests, limit) if mutant.imported else copied_process(run, limit)) if tests else 0
                self.note(mutant, code, used() - begin, len(tests))
        return True

    def record(self, session: Any, loaded: dict[str, list[FunctionType]]) -> bool:
        ran = Ran()
        builtins.__ran__ = ran.note  # type: ignore[attr-defined]
        for path in self.paths:
            source, file = Path(path).read_bytes(), str(Path(path).resolve())
            run_instead(loaded[file], source, noting(path, source), file)
        session.config.pluginmanager.register(ran)
        if fails(session, session.items):
            return True
        self.notes.write_text(json.dumps({"tests": ran.tests, "seconds": ran.seconds}))
        return False

    def note(self, mutant: Mutant, code: int, seconds: float, tests: int) -> None:
        """Say what became of a mutant, and keep it."""
        end = "caught" if code else "survived"
        os.write(self.said, f"{end:<9}{seconds:5.1f} s  {mutant.operator:<19} {mutant.name}\n".encode())
        line = {"name": mutant.name, "operator": mutant.operator, "end": end, "seconds": round(seconds, 1)}
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(json.dumps(line | {"tests": tests}) + "\n")


def fails(session: Any, items: list[Any]) -> bool:
    """Whether one of these tests fails; those after it are not run."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            with open(session.config.rootpath.parent / "last.txt", "a") as file:  # which capturing leaves alone
                print(item.nodeid, "failed", file=file)
            return True
    return False


def fresh(tests: list[str], limit: float) -> int:
    """What pytest ends with in a new process: of a change that only importing the module anew brings about."""
    command = [sys.executable, "-m", "pytest", "-x", *OPTIONS, *tests]
    return copied_process(lambda: os.execv(sys.executable, command), limit)


def copied_process(run: Callable[[], object], limit: float) -> int:
    """What a copy of this process ends with: 0 where `run` is false, −1 where it takes too long."""
    sys.stdout.flush()
    if not (pid := os.fork()):
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
        quiet()
        code = 3
        try:
            code = int(bool(run()))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    ends = time.monotonic() + 20 * limit
    while not (done := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < ends:
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if not done[0]:
        os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(done[1]) if done[0] else -1


def quiet() -> None:
    """Write what this process says into a file, beside the checkout."""
    with open("../last.txt", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)


@contextlib.contextmanager
def mutated(mutant: Mutant) -> Iterator[tuple[bytes, bytes]]:
    """Have a mutant in its file, which processes that tests start read; yields the source without and with it."""
    file = Path(mutant.path)
    old, times = file.read_bytes(), file.stat()
    new = old[: mutant.start] + mutant.text.encode() + old[mutant.end :]
    file.write_bytes(new)
    try:
        yield old, new
    finally:
        file.write_bytes(old)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def tests_of(mutant: Mutant, known: dict[str, Any]) -> list[str]:
    """The tests that run a mutant's statement, quick ones first.

    Of what importing runs, and of what is noted nowhere (a lambda), those that run its module; where tests start
    processes, all others of the package, too.
    """
    numbers = range(mutant.lines[0], mutant.lines[1] + 1)
    statements = [f"{mutant.path}:{number}" for number in numbers]
    if mutant.imported or not any(each in known["tests"] for each in statements):
        statements = [each for each in known["tests"] if each.startswith(f"{mutant.path}:")]
    found = {test for each in statements for test in known["tests"].get(each, [])}
    every = set(known["seconds"]) if mutant.path.startswith(PROCESSES) else found
    return sorted(every, key=lambda test: (test not in found, known["seconds"][test], test))


def used() -> float:
    """CPU seconds of the processes that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def bounds(count: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a proportion (Clopper & Pearson 1934)."""
    low = float(beta.ppf(0.025, count, n - count + 1)) if count else 0.0
    return low, float(beta.ppf(0.975, count + 1, n - count)) if count < n else 1.0


def report(ends: dict[str, str], reasons: dict[str, str]) -> None:
    """Print the share caught and the survivors."""
    survivors = [name for name, end in ends.items() if end != "caught"]
    equivalent = [name for name in survivors if name in reasons]
    print("\nsurvivors:", *(f"  {name}" for name in survivors if name not in reasons), sep="\n")
    print("\nequivalent:", *(f"  {name}\n    {reasons[name]}" for name in equivalent), sep="\n")
    caught = len(ends) - len(survivors)
    for words, n in (("all", len(ends)), ("all but the equivalent", len(ends) - len(equivalent))):
        low, high = bounds(caught, n)
        print(f"{caught} of {n} caught, of {words}: {100 * caught / n:.1f} % [{100 * low:.1f}, {100 * high:.1f}]")


def main() -> None:
    """Try a sample of mutants."""
    parser = argparse.ArgumentParser(description="Changes the code, one place at a time; the tests should fail")
    parser.add_argument("words", nargs="*", help="of paths; without one all")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the copy of the checkout, and what was tried, stay")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = (given.folder or Path(temporary)).resolve()
        place.mkdir(parents=True, exist_ok=True)
        folder, log = place / "checkout", place / "tried.jsonl"
        if not folder.exists():
            copied(folder)
        os.chdir(folder)
        paths = [str(file) for name in MAPPING for file in sorted(Path(name).rglob("*.py")) or [Path(name)]]
        every = [mutant for path in paths for mutant in mutants_of(path)]
        every = [mutant for mutant in every if not given.words or any(word in mutant.path for word in given.words)]
        sample = random.Random(given.seed).sample(every, min(given.sample, len(every)))
        print(f"{len(sample)} of {len(every)} mutants, seed {given.seed}", flush=True)
        for name in LIBRARIES:
            importlib.import_module(name)
        for package, files in MAPPING.items():
            todo = [each for each in sample if each.path.startswith(package) and each.name not in ends_in(log)]
            options = [*OPTIONS, f"--basetemp={place / 'tmp'}", *(f"--deselect={test}" for test in LONG), *files]
            session = Session(paths, todo, place / f"{package.replace('/', '.')}.json", log)
            if todo and (pid := os.fork()) == 0:
                sys.path[:] = [
                    str(folder),
                    *(path for path in sys.path if Path(path or ".").resolve() not in (ROOT, HERE)),
                ]
                os._exit(int(pytest.main(options, plugins=[session])))
            elif todo and os.waitpid(pid, 0)[1]:
                sys.exit(f"pytest ended badly: {place / 'last.txt'}")
        ends = ends_in(log)
    known = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")) or []
    report({each.name: ends[each.name] for each in sample}, {each["mutant"]: each["why"] for each in known})


def ends_in(log: Path) -> dict[str, str]:
    """What became of the mutants that were tried."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return {line["name"]: line["end"] for line in map(json.loads, lines)}


if __name__ == "__main__":
    main()
