"""A repository of git in the current folder whose program prints a score with noise, and its commits."""

import subprocess
import sys
from pathlib import Path

COMMAND = f"{sys.executable} train.py {{seed}}"
PROGRAM = """\
import random, sys
GAIN = {gain}
seed = int(sys.argv[1])
noise = random.Random(seed * 1000 + {commit}).gauss(0, 0.01)
print("val_bpb:", 1 + random.Random(seed).gauss(0, 0.1) + noise - GAIN)
"""


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t", "-c", "init.defaultBranch=main", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, message: str) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def change(folder: Path, branch: str, files: dict[str, str | None]) -> None:
    """Commit files on a branch, with these texts or, for None, removed; main is checked out again."""
    git(folder, "checkout", "--quiet", branch)
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
    commit(folder, "changed")
    git(folder, "checkout", "--quiet", "main")


def start(folder: Path) -> None:
    """A repository with a program of no gain."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "--quiet")
    (folder / ".gitignore").write_text("*.bin\nresults\n")
    (folder / "train.py").write_text(PROGRAM.format(gain=0.0, commit=0))
    commit(folder, "start")


def step(folder: Path, gain: float, number: int, message: str) -> str:
    """A commit after which the program has this gain; returns its hash."""
    (folder / "train.py").write_text(PROGRAM.format(gain=gain, commit=number))
    return commit(folder, message)
