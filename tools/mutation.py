"""The share of small random mistakes in a package that the package's tests catch.

python tools/mutation.py PACKAGE [PACKAGE …] [-n 40] [--commit HEAD] [--folder DIR]

The commit is cloned, cosmic-ray lists every mutant of the packages, and n of them are drawn.  The packages' tests run
once under coverage.  Each mutant is then tried against the tests that execute its statement, quick files first, then
against those that execute anything of its module, until one fails.  Using five times the CPU time that these take
without it counts as caught, too; a mutant survives when tests of `ENOUGH` seconds have passed, or none executes it.
Results are kept in the folder: the same command goes on where it was interrupted.  The commit is the seed of the draw.
"""

import argparse
import ast
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from importlib.metadata import version
from math import ceil
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_and_test, mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import MutationSpec, WorkItem, WorkResult
from coverage import CoverageData
from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ".venv/bin/python -m pytest -n 0 -p no:cacheprovider -m 'not slow'"
ENOUGH = 30  # CPU seconds of tests that a mutant has to survive
START = 10  # CPU seconds at most until the first test begins
LIMIT = 5  # times the CPU time that the tests take without a mutant; on a busy machine, time itself says nothing
# Processes that tests start are measured, too, and find the test that they belong to in their environment.
COVERAGE = """\
[run]
source = {source}
data_file = {data_file}
parallel = true
patch = _exit
context = $MUTATION_TEST
"""


def clone(commit: str, folder: Path) -> None:
    """Clone the checkout, with an environment that imports the clone and the libraries of this one."""
    subprocess.run(["git", "clone", "-q", "--no-checkout", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "checkout", "-q", "--detach", commit], cwd=folder, check=True)
    venv.create(folder / ".venv")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (site,) = folder.glob(".venv/lib/python*/site-packages")
    lines = [str(folder), *libraries, "import coverage; coverage.process_startup()"]
    (site / "clone.pth").write_text("\n".join(lines))
    # Bytecode that is checked by the hash of its source is never that of another mutant.
    compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([*compiling, "ablate", "analysis", "tests"], cwd=folder, check=True)


def source_of(package: str) -> Path:
    """The folder of a package."""
    return Path(package) if package == "analysis" else Path("ablate", package)


def measure(packages: list[str], folder: Path) -> tuple[CoverageData, dict[str, float]]:
    """The coverage of the packages by their tests, and the CPU seconds of each test that passes without a mutant."""
    data_file = folder / "coverage"
    seconds_file = folder / "seconds.json"
    if not seconds_file.exists():
        folder.mkdir(exist_ok=True)
        config = folder / "coveragerc"
        source = ",".join(str(source_of(package).resolve()) for package in packages)
        config.write_text(COVERAGE.format(source=source, data_file=data_file))
        tests = [f"tests/{package}" for package in packages]
        environment = os.environ | {
            "COVERAGE_PROCESS_START": str(config),
            "PYTHONPATH": str(ROOT / "tools"),
            "PYTHONDONTWRITEBYTECODE": "",
            "TEST_SECONDS": str(seconds_file),
        }
        subprocess.run([*shlex.split(PYTEST), "-p", "coverage_of_tests", *tests], env=environment)
        combining = [sys.executable, "-m", "coverage", "combine", "-q", f"--rcfile={config}"]
        subprocess.run(combining, check=True)
    data = CoverageData(str(data_file))
    data.read()
    return data, json.loads(seconds_file.read_text())


def statement_lines(code: str, line: int) -> range:
    """The lines of the innermost statement around a line; empty for what runs when the module is imported."""
    innermost: ast.stmt | None = None
    in_function = False
    for node in ast.walk(ast.parse(code)):  # breadth first: inner statements come later
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            in_function = in_function or isinstance(innermost, ast.FunctionDef)
            innermost = node
    if innermost is None or not in_function:
        return range(0)
    body = getattr(innermost, "body", None)
    last = innermost.end_lineno or line
    if body:  # of a compound statement, its first line alone
        last = max(line, body[0].lineno - 1)
    return range(innermost.lineno, last + 1)


def tests_of(mutation: MutationSpec, data: CoverageData, seconds: dict[str, float]) -> list[str]:
    """The tests that execute a mutant's statement, those of quick files first; after them the other tests that execute
    anything of the module, since they may read what was cached, or ran at import."""
    module = mutation.module_path
    lines = statement_lines(module.read_text(encoding="utf-8"), mutation.start_pos[0])
    executing: set[str] = set()
    touching: set[str] = set()
    for line, contexts in data.contexts_by_lineno(str(module.resolve())).items():
        touching |= set(contexts)
        if line in lines:
            executing |= set(contexts)
    if lines and not executing:
        return []
    touching &= seconds.keys()  # "" is the context of imports
    seconds_of_file: Counter[str] = Counter()
    for test in touching:
        seconds_of_file[file_of(test)] += seconds[test]

    def rank(test: str) -> tuple[bool, float, str]:
        return test not in executing, seconds_of_file[file_of(test)], test

    chosen = []
    total = 0.0
    for test in sorted(touching, key=rank):
        total += seconds[test]
        if total > ENOUGH and chosen:
            break
        chosen.append(test)
    return chosen


def file_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]


def attempt(item: WorkItem, data: CoverageData, seconds: dict[str, float], folder: Path) -> WorkResult:
    """Try a mutant against its tests."""
    [mutation] = item.mutations
    tests = tests_of(mutation, data, seconds)
    arguments = folder / "tests.txt"
    arguments.write_text("\n".join(tests))
    limit = ceil(LIMIT * (START + sum(seconds[test] for test in tests)))
    command = f"ulimit -t {limit}; exec {PYTEST} -x @{shlex.quote(str(arguments))}"
    if not tests:
        command = "echo no test executes it"
    result = mutate_and_test(item.mutations, shlex.join(["sh", "-c", command]), 4 * limit)
    if result.diff is None:
        sys.exit(result.output)
    return result


def without_hints(code: str) -> str:
    """The syntax tree of a module without annotations and docstrings."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
    return ast.dump(tree)


def matters(mutation: MutationSpec) -> bool:
    """Whether a mutant is valid Python, and more than a change of an annotation."""
    code = mutation.module_path.read_text(encoding="utf-8")
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    try:
        return without_hints(mutate_code(code, operator, mutation.occurrence)) != without_hints(code)
    except SyntaxError:
        return False


def mutants(packages: list[str]) -> list[WorkItem]:
    """Every mutant of the packages that cosmic-ray offers."""
    items = []
    operators = [name for name in operator_names() if not get_operator(name).arguments()]
    for path in sorted(file for package in packages for file in source_of(package).rglob("*.py")):
        nodes = list(ast_nodes(get_ast_from_path(path)))
        for name in operators:
            operator = get_operator(name)()
            positions = [position for node in nodes for position in operator.mutation_positions(node)]
            for occurrence, (start, end) in enumerate(positions):
                mutation = MutationSpec(path, name, occurrence, start, end)
                items.append(WorkItem.single(f"{path} {name} {occurrence}", mutation))
    return items


def draw(packages: list[str], count: int, seed: str) -> list[WorkItem]:
    """Mutants of the packages, each as likely as any other."""
    items = sorted(mutants(packages), key=lambda item: item.job_id)
    random.Random(seed).shuffle(items)
    drawn: list[WorkItem] = []
    for item in items:
        if len(drawn) == count:
            break
        if matters(item.mutations[0]):
            drawn.append(item)
    return drawn


def line(item: WorkItem, result: WorkResult) -> str:
    """What became of a mutant, where it is, its changed lines, and how pytest ended."""
    outcome = "caught" if result.is_killed else "survived"
    place = f"{item.mutations[0].module_path}:{item.mutations[0].start_pos[0]}"
    changed = [text for text in result.diff.splitlines()[3:] if text.startswith(("+", "-"))]
    ending = (result.output.strip() or "no output").splitlines()[-1]
    return f"{outcome}: {place}: {' → '.join(changed)}: {ending}"


def main() -> None:
    """Draw mutants, try those not yet tried, print a line for each, the survivors and a row of the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "packages", nargs="+", metavar="PACKAGE", help="evidence, for ablate/evidence and tests/evidence"
    )
    parser.add_argument("-n", type=int, default=40, help="number of mutants")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "ablate-mutation")
    options = parser.parse_args()
    packages = options.packages
    name = "+".join(packages)
    commit = subprocess.check_output(["git", "rev-parse", options.commit], cwd=ROOT, text=True).strip()
    folder = options.folder.resolve() / commit[:10]
    if not (folder / "clone").exists():
        clone(commit, folder / "clone")
    os.chdir(folder / "clone")
    subprocess.run(["git", "checkout", "-q", "."], check=True)  # a mutant that an interrupted call left
    data, seconds = measure(packages, folder / name)
    results = WorkDB(folder / name / "mutants.sqlite", WorkDB.Mode.create)
    if results.num_work_items < options.n:
        listed = {item.job_id for item in results.work_items}
        drawn = draw(packages, options.n, commit)
        results.add_work_items([item for item in drawn if item.job_id not in listed])
    for item in results.pending_work_items:
        result = attempt(item, data, seconds, folder / name)
        results.set_result(item.job_id, result)
        print(line(item, result), flush=True)
    survivors = [pair for pair in results.completed_work_items if not pair[1].is_killed]
    print("Survivors:")
    for item, result in survivors:
        print(line(item, result))
    count = results.num_work_items
    caught = count - len(survivors)
    interval = binomtest(caught, count).proportion_ci(method="exact")
    print(f"cosmic-ray {version('cosmic-ray')}, {commit[:8]}, 95 % interval of Clopper and Pearson:")
    print(f"| {name} | {count} | {caught} | {caught / count:.0%} | {interval.low:.0%} to {interval.high:.0%} |")


if __name__ == "__main__":
    main()
