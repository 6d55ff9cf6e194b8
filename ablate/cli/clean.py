"""Frees space in a results folder: shows what it would remove, and removes it only with --yes.

Without options that are the leftovers of interrupted writes, the files that were set aside as corrupt, and the files of
git revisions.  Runs in training, unreadable studies and what lies behind a symbolic link are not touched.
Exit codes: 0 shown or removed; 1 something could not be removed; 2 no results folder.
"""

import contextlib
import re
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from ablate.config.errors import Refused
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting import counted, first_of, grouped
from ablate.formatting.streams import echo
from ablate.program.revisions import remove_unused_tree, trees_of
from ablate.runs.folder import Run
from ablate.runs.manifest import manifest_of

OLD = 3600  # seconds after which a temporary file counts as a leftover
LEFTOVERS = "leftovers of interrupted writes"
DAMAGED = "files set aside as corrupt"
WEIGHTS = "weights of runs"
ORPHANS = "runs that no study refers to"
REVISIONS = "files of git revisions, which are checked out again when they are needed"
OPTIONS = {WEIGHTS: "--weights", ORPHANS: "--orphans"}
NAMED = 3  # items of each kind that are listed


@dataclass(frozen=True)
class Item:
    """A removable file or folder: its size in bytes, and the run that must not be in use."""

    kind: str
    path: Path
    size: int
    run: Run | None = None


def item_of(kind: str, path: Path, run: Run | None = None) -> Item:
    """A file or folder with its size."""
    return Item(kind, path, size_of(path), run)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    size = 0
    for file in [path, *path.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # a temporary file that has just been renamed
            size += 0 if file.is_dir() else file.lstat().st_size
    return size


def total(items: Iterable[Item]) -> str:
    """The size of items."""
    return decimal(sum(item.size for item in items))


def survey(results: Path, without: Collection[str] = ()) -> tuple[list[Item], list[str]]:
    """What can be removed, as if there were no studies `without`, and lines on what is not touched.  Raises Refused."""
    runs = runs_in(results)
    studies = sorted({file.parent for file in results.glob("studies/*/manifest.json*")})
    if not runs and not studies:
        raise Refused(f"{results} is no results folder: it holds no study and no run; name one with --results-dir")
    used: set[str] = set()
    items: list[Item] = []
    untouched: list[str] = []
    for study in studies:
        if study.name in without:
            continue
        try:
            manifest = manifest_of(results, study.name)
        except Refused as error:
            untouched.append(f"untouched: {error}")
            continue
        used.update(run.path for run in manifest.runs)
        if not study.is_symlink():
            items += leftovers(study)
    orphans = []
    for run in runs:
        if run.holder() is not None:
            untouched.append(f"untouched: {run.folder} is in use")
        elif run.path not in used:
            orphans.append(run)
        else:
            items += leftovers(run.folder, run)
            if run.weights_file.exists():
                items.append(item_of(WEIGHTS, run.weights_file, run))
    if orphans and untouched:  # a command at work may have had its manifest replaced by another one
        reason = "a running command or an unreadable study may use them"
        untouched.append(f"untouched: {counted(len(orphans), 'run')} of no readable study: {reason}")
    else:
        items += [item_of(ORPHANS, run.folder, run) for run in orphans]
    items += [item_of(REVISIONS, tree) for tree in trees_of(results)]
    return items, untouched


def runs_in(results: Path) -> list[Run]:
    """The runs of a results folder that lie in it, not behind a link."""
    runs = []
    for folder in sorted(results.glob("runs/*/s*-*")):
        path = f"{folder.parent.name}/{folder.name}"
        is_here = folder.resolve() == results.resolve() / "runs" / path
        if is_here and folder.is_dir() and re.match(r"s\d+-", folder.name):
            runs.append(Run(results, path))
    return runs


def leftovers(folder: Path, run: Run | None = None) -> Iterator[Item]:
    """Temporary and damaged files in the folder of a run or a study."""
    for file in sorted(folder.iterdir()):
        if file.is_symlink() or not file.is_file():
            continue
        # Weights that were set aside and not replaced are the only sign that the run must be retrained.
        is_a_sign = run and file.name.startswith(run.weights_file.name) and not run.weights_file.exists()
        if re.fullmatch(r".+\.corrupt(-\d+)?", file.name) and not is_a_sign:
            yield item_of(DAMAGED, file, run)
        if re.fullmatch(r"\..+\.tmp", file.name) and time.time() - file.stat().st_mtime > OLD:
            yield item_of(LEFTOVERS, file, run)


def remove(item: Item) -> bool:
    """Remove an item unless its run is in use; returns whether it was removed."""
    try:
        if item.kind == REVISIONS:
            return remove_unused_tree(item.path)
        if item.run is None:
            remove_path(item.path)
            return True
        with item.run.lock(lambda: False) as is_mine:
            if is_mine:
                remove_path(item.path)
        return is_mine
    except OSError:
        return False


def remove_path(path: Path) -> None:
    """Remove a file or folder.  What locks a run and what makes a folder a study go last, so that nobody else takes
    the run meanwhile, and the same command finishes an interrupted removal."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for inner in sorted(path.iterdir(), key=lambda inner: inner.name in ("lock", "manifest.json")):
        if inner.is_dir() and not inner.is_symlink():
            shutil.rmtree(inner)
        else:
            inner.unlink(missing_ok=True)
    path.rmdir()
    if path.parent.parent.name == "runs":
        with contextlib.suppress(OSError):  # fails if the configuration has other seeds
            path.parent.rmdir()


def main(arguments: list[str] | None = None) -> int:
    """Show or remove; returns the exit code."""
    parser = Parser("ablate clean", "Free space: shows what it would remove; --yes removes it.")
    parser.add_argument("--yes", action="store_true", help="remove it; without this nothing is touched")
    parser.add_argument("--weights", action="store_true", help="trained weights, too: no tests at new lengths then")
    parser.add_argument("--orphans", action="store_true", help="runs that no study refers to, too, with their results")
    options = parser.parse_args(arguments)
    kinds = [LEFTOVERS, DAMAGED, REVISIONS]
    kinds += [kind for kind, option in OPTIONS.items() if getattr(options, option[2:])]
    return conclude(parser.prog, options.json, lambda: clean(options.results_dir, kinds, options.yes))


def clean(results: Path, kinds: list[str], sure: bool) -> Outcome:
    """Show the items of these and other kinds, and remove these if `sure`.  Raises Refused."""
    items, remarks = survey(results)
    others = [item for item in items if item.kind not in kinds]
    for kind, kept in grouped((item.kind, item) for item in others).items():
        remarks.append(f"kept: {kind}: {len(kept)}, {total(kept)}; {OPTIONS[kind]} removes them")
    chosen = [item for item in items if item.kind in kinds]
    if sure:
        for item in chosen:
            remove(item)
    return report(results, chosen, sure, remarks, kept=as_json(others))


def report(results: Path, items: list[Item], sure: bool, remarks: list[str], **more: object) -> Outcome:
    """Print what was removed, or would be unless `sure`, and remarks; `--json` has the items and `more`."""
    failed = [item for item in items if sure and item.path.exists()]
    gone = [item for item in items if item not in failed]
    verb = "removed" if sure else "would remove"
    lines = [f"{results}: {verb} {total(gone) if gone else 'nothing'}"]
    for kind, some in grouped((item.kind, item) for item in gone).items():
        names = first_of((str(item.path) for item in some), NAMED)
        lines.append(f"  {kind}: {len(some)}, {total(some)}: {names}")
    lines += [f"not removed, in use or not writable: {item.path}" for item in failed]
    lines += remarks
    if gone and not sure:
        lines.append("nothing was removed; add --yes to remove it")
    echo("\n".join(lines))
    removed = as_json(gone)
    result = {"removed": removed if sure else [], "removable": [] if sure else removed, "not_removed": as_json(failed)}
    return Outcome(1 if failed else 0, result | more)


def as_json(items: list[Item]) -> list[dict[str, Any]]:
    """Items for `--json`."""
    return [{"kind": item.kind, "path": str(item.path), "bytes": item.size} for item in items]
