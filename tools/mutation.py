"""The share of small random mistakes in a package that the package's tests catch.

python tools/mutation.py PACKAGE [-n 40] [--commit HEAD] [--folder DIR]

The commit is cloned, cosmic-ray lists every mutant of ablate/PACKAGE, and n of them are drawn.  Each is tried against
tests/PACKAGE until a test fails, or until the tests have used five times the CPU time that they take without a mutant,
which counts as caught.  Results are kept in the folder: the same command goes on where it was interrupted.  The commit
is the seed of the draw.
"""

import argparse
import ast
import os
import random
import resource
import shlex
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from importlib.metadata import version
from math import ceil
from pathlib import Path
from xml.etree import ElementTree

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_and_test, mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.testing import run_tests
from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkItem, WorkResult
from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ".venv/bin/python -m pytest -x -n 0 -p no:cacheprovider -m 'not slow'"
LIMIT = 5  # times the CPU time that the tests take without a mutant; on a busy machine, time itself says nothing


def clone(commit: str, folder: Path) -> None:
    """Clone the checkout, with an environment that imports the clone and the libraries of this one."""
    subprocess.run(["git", "clone", "-q", "--no-checkout", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "checkout", "-q", "--detach", commit], cwd=folder, check=True)
    venv.create(folder / ".venv")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (site,) = folder.glob(".venv/lib/python*/site-packages")
    (site / "clone.pth").write_text("\n".join([str(folder), *libraries]))
    # Bytecode that is checked by the hash of its source is never that of another mutant.
    compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "ablate", "tests"]
    subprocess.run(compiling, cwd=folder, check=True)


def unmutated(package: str, folder: Path) -> ElementTree.Element:
    """pytest's times of the tests without a mutant, which must pass; the CPU time beside them."""
    file = folder / f"{package}.xml"
    if not file.exists():
        outcome, output = run_tests(f"{PYTEST} tests/{package} --junit-xml={file}", None)
        if outcome != TestOutcome.SURVIVED:
            file.unlink(missing_ok=True)
            sys.exit(f"{output}\nthe tests of {package} fail without a mutant")
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        (folder / f"{package}-cpu.txt").write_text(str(usage.ru_utime + usage.ru_stime))
    return ElementTree.parse(file).getroot()


def test_command(package: str, module: Path, times: ElementTree.Element) -> str:
    """The tests of a package, those whose file names the module first, then the quick files."""
    seconds: Counter[str] = Counter()
    for case in times.iter("testcase"):
        seconds[case.attrib["classname"]] += float(case.attrib["time"])
    name = module.parent.name if module.stem == "__init__" else module.stem
    files = sorted(Path("tests", package).rglob("test_*.py"))
    files.sort(key=lambda file: (name not in file.stem, seconds[".".join(file.with_suffix("").parts)]))
    return f"{PYTEST} {shlex.join(map(str, files))}"


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


def mutants(package: str) -> list[WorkItem]:
    """Every mutant of a package that cosmic-ray offers."""
    items = []
    operators = [name for name in operator_names() if not get_operator(name).arguments()]
    for path in sorted(Path("ablate", package).rglob("*.py")):
        nodes = list(ast_nodes(get_ast_from_path(path)))
        for name in operators:
            operator = get_operator(name)()
            positions = [position for node in nodes for position in operator.mutation_positions(node)]
            for occurrence, (start, end) in enumerate(positions):
                mutation = MutationSpec(path, name, occurrence, start, end)
                items.append(WorkItem.single(f"{path} {name} {occurrence}", mutation))
    return items


def draw(package: str, count: int, seed: str) -> list[WorkItem]:
    """Mutants of a package, each as likely as any other."""
    items = sorted(mutants(package), key=lambda item: item.job_id)
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
    parser.add_argument("package", help="evidence, for ablate/evidence and tests/evidence")
    parser.add_argument("-n", type=int, default=40, help="number of mutants")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "ablate-mutation")
    asked = parser.parse_args()
    package = asked.package
    commit = subprocess.check_output(["git", "rev-parse", asked.commit], cwd=ROOT, text=True).strip()
    folder = asked.folder.resolve() / commit[:10]
    if not (folder / "clone").exists():
        clone(commit, folder / "clone")
    os.chdir(folder / "clone")
    subprocess.run(["git", "checkout", "-q", "."], check=True)  # a mutant that an interrupted call left
    results = WorkDB(folder / f"{package}.sqlite", WorkDB.Mode.create)
    if results.num_work_items < asked.n:
        listed = {item.job_id for item in results.work_items}
        drawn = draw(package, asked.n, commit)
        results.add_work_items([item for item in drawn if item.job_id not in listed])
    times = unmutated(package, folder)
    limit = LIMIT * ceil(float((folder / f"{package}-cpu.txt").read_text()))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))  # of each process that it starts
    for item in results.pending_work_items:
        command = test_command(package, item.mutations[0].module_path, times)
        result = mutate_and_test(item.mutations, command, None)
        if result.diff is None:
            sys.exit(result.output)
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
    print(f"| {package} | {count} | {caught} | {caught / count:.0%} | {interval.low:.0%} to {interval.high:.0%} |")


if __name__ == "__main__":
    main()
