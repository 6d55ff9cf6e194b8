"""Seeds bugs, one at a time, in a copy of this checkout, and runs the tests that must catch each.

python benchmarks/seeded_bugs.py [WORD ...]     those whose description holds a word; without one all of them

The bugs are those of seeded_bugs.yaml.  Prints a line per bug and the share caught; exit code 1 where one survives, or
no longer fits the code.
"""

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("ablate", "analysis", "benchmarks", "conf", "docs", "experiments", "tests", "README.md", "pyproject.toml")


class Bug(NamedTuple):
    """A mistake: what it is, the text that is replaced, by what, and the names of the tests that must see it."""

    what: str
    old: str
    new: str
    tests: str


BUGS = [Bug(**said) for said in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))]


@functools.cache
def texts(folder: Path) -> dict[Path, str]:
    """The modules and templates below a folder, as they were when it was first asked for."""
    files = sorted([*folder.rglob("*.py"), *folder.rglob("templates/*/*.txt")])
    return {file: file.read_text(encoding="utf-8") for file in files}


def place_of(text: str, folder: Path) -> Path | None:
    """The one file of the code that holds a text, once; None where there is none such."""
    ours = texts(folder / "ablate") | texts(folder / "analysis")
    counts = {file: whole.count(text) for file, whole in ours.items()}
    found = [file for file, count in counts.items() if count]
    return found[0] if len(found) == 1 and counts[found[0]] == 1 else None


def nodes_of(names: str, folder: Path) -> list[str]:
    """The pytest nodes of tests by these names; nothing where one is not there."""
    found = {
        name: [f"{file}::{name}" for file, text in texts(folder / "tests").items() if f"\ndef {name}(" in text]
        for name in names.split()
    }
    return [node for nodes in found.values() for node in nodes] if all(found.values()) else []


def copied(folder: Path) -> None:
    """Copy what code and tests need of this checkout."""
    folder.mkdir()
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)


def passes(nodes: list[str], folder: Path) -> bool:
    """Whether tests pass in a copy of the checkout."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *nodes]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ended.returncode not in (0, 1):
        raise RuntimeError(ended.stdout + ended.stderr)
    return ended.returncode == 0


def tried(bug: Bug, folder: Path) -> str:
    """What becomes of a bug: caught, survived, or why it cannot be tried."""
    file, nodes = place_of(bug.old, folder), nodes_of(bug.tests, folder)
    if file is None or not nodes:
        return "not found: " + ("the code" if file is None else "the test")
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace(bug.old, bug.new), encoding="utf-8")
    try:
        return "survived" if passes(nodes, folder) else "caught"
    finally:
        file.write_text(whole, encoding="utf-8")


def main(words: list[str]) -> int:
    """Try every bug, or those that the words name; the exit code."""
    bugs = [bug for bug in BUGS if not words or any(word in bug.what for word in words)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "checkout"
        copied(folder)
        sound = sorted({node for bug in bugs for node in nodes_of(bug.tests, folder)})
        if not passes(sound, folder):
            print("the tests fail without any bug")
            return 1
        ends = []
        for bug in bugs:
            ends.append(tried(bug, folder))
            print(f"{ends[-1]:<9} {bug.what}", flush=True)
    caught = ends.count("caught")
    print(f"{caught} of {len(bugs)} caught")
    return int(caught < len(bugs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
