"""Frees space in a results folder: shows what it would remove, and removes it only with --yes.

Removes what is not needed: checkpoints of ended runs, leftovers of interrupted writes, files set aside as corrupt.
Runs in training and unreadable studies are not touched.
Exit codes: 0 shown or removed; 1 something could not be removed; 2 no results folder.
"""

import contextlib
import dataclasses
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from ablate.config.errors import Corrupt, Refused
from ablate.config.files import read_plain, regular
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.data.corpus import cache_folder
from ablate.formatting import counted
from ablate.formatting.streams import echo
from ablate.runs.folder import Run
from ablate.runs.lock import take
from ablate.runs.manifest import manifest_of

OLD = 3600  # seconds after which a temporary file counts as a leftover
CHECKPOINTS = "checkpoints of ended runs"
LEFTOVERS = "leftovers of interrupted writes"
DAMAGED = "files set aside as corrupt"
STUDIES = "studies"
WEIGHTS = "weights of runs"
ORPHANS = "runs that no study refers to"
CORPORA = "tokenised corpora"
VECTORS = "trained vectors"
ALWAYS = (CHECKPOINTS, LEFTOVERS, DAMAGED)
CACHED = (CORPORA, VECTORS)
CORPUS = r"(corpus-)?[0-9a-f]{32}(\.making)?"
ON_REQUEST = {
    ORPHANS: "--orphans removes them: their results, too, are lost",
    WEIGHTS: "--weights removes them: such runs cannot be tested at new lengths any more, nor their models loaded",
    CORPORA: "--cache removes them: they are made again when a study needs them",
    VECTORS: "--cache removes them: they are trained again when a run needs them",
}
NAMED = 3  # items of each kind that are listed


@dataclasses.dataclass(frozen=True)
class Item:
    """A removable file or folder: its size in bytes, and the run that must not be in use."""

    kind: str
    path: Path
    size: int
    run: Run | None = None


def item_of(kind: str, path: Path, run: Run | None = None) -> Item:
    """A file or folder with its size."""
    return Item(kind, path, size_of(path), run)


def survey(results: Path, without: Collection[str] = ()) -> tuple[list[Item], list[str]]:
    """What can be removed, as if there were no studies `without`, and lines on what cannot.  Raises Refused."""
    links, runs = runs_in(results)
    studies = sorted({file.parent for file in results.glob("studies/*/manifest.json*")})
    if not runs and not studies:
        raise Refused(f"{results} is no results folder: it holds no study and no run; name one with --results-dir")
    used: set[str] = set()
    unreadable: list[str] = []
    items: list[Item] = []
    for study in studies:
        if study.name in without:
            continue
        try:
            manifest = manifest_of(results, study.name)
        except Refused as error:
            unreadable.append(str(error))
            continue
        used.update(run.path for run in manifest.runs)
        if not study.is_symlink():
            items += leftovers(study)
    busy = [run for run in runs if in_use(run)]
    orphans = [run for run in runs if run not in busy and run.path not in used]
    untouched = [f"{results / 'runs' / run.path} is in use" for run in busy] + unreadable
    may_be_used = bool(orphans) and (bool(busy) or bool(unreadable))
    if may_be_used:  # by a running command whose manifest was replaced, or by a study that cannot be read
        user = "a running command" if busy else "an unreadable study"
        untouched.append(f"{counted(len(orphans), 'run')} of no readable study: {user} may use them")
    for run in runs:
        if run in busy or (may_be_used and run in orphans):
            continue
        items += parts_of(run)
        if run in orphans:
            items.append(item_of(ORPHANS, run.folder, run))
    items += [item_of(LEFTOVERS, folder) for folder in cut_off(results, links) if folder not in studies]
    links += [study for study in studies if study.is_symlink()]
    untouched += [f"{link} is a link: what it holds lies elsewhere" for link in links]
    return items + cached(), [f"untouched: {reason}" for reason in untouched]


def runs_in(results: Path) -> tuple[list[Path], list[Run]]:
    """The links among the folders of runs, which lead elsewhere, and the runs in the others."""
    links = []
    runs = []
    if (results / "runs").is_symlink():
        return [results / "runs"], []
    for cell in sorted(results.glob("runs/*")):
        if cell.is_symlink():
            links.append(cell)
            continue
        for folder in sorted(cell.glob("s*-*")):
            if re.match(r"s\d+-", folder.name) and folder.is_dir() and not folder.is_symlink():
                runs.append(Run(results, f"{cell.name}/{folder.name}"))
    return links, runs


def cut_off(results: Path, links: list[Path]) -> list[Path]:
    """Folders whose removal was interrupted."""
    folders = []
    for pattern in ("runs/*/.*s*-*.tmp", "studies/.*.tmp", "figures/.*.tmp", "tensorboard/.*.tmp"):
        for folder in sorted(results.glob(pattern)):
            study = results / "studies" / folder.name
            if not (folder.is_symlink() or {*folder.parents} & {*links} or any(study.glob("manifest.json*"))):
                folders.append(folder)
    return folders


def cached() -> list[Item]:
    """The corpora and vectors in the cache that no process is making."""
    cache = cache_folder()
    items = []
    for path in sorted(cache.iterdir()):
        in_preparation = path.suffix == ".making" and is_locked(path.with_suffix(".lock"))
        if re.fullmatch(CORPUS, path.name) and path.is_dir() and not in_preparation:
            items.append(item_of(CORPORA, path))
    items += [item_of(VECTORS, path) for path in sorted((cache / "vectors").glob("*.npz"))]
    return items


def parts_of(run: Run) -> list[Item]:
    """What can be removed of a run."""
    items = list(leftovers(run.folder, run))
    if run.checkpoint_file.exists() and has_ended(run) and not keeps_checkpoint(run):
        items.append(item_of(CHECKPOINTS, run.checkpoint_file, run))
    if run.weights_file.exists():
        items.append(item_of(WEIGHTS, run.weights_file, run))
    return items


def leftovers(folder: Path, run: Run | None = None) -> Iterator[Item]:
    """Temporary and damaged files in the folder of a run or a study."""
    now = time.time()
    for file in sorted(folder.rglob("*")):
        if file.is_symlink() or not file.is_file():
            continue
        if re.fullmatch(r".+\.corrupt(-\d+)?", file.name):
            # Weights that were set aside and not replaced are the only sign that the run must be retrained.
            if run and file.name.startswith(run.weights_file.name) and not run.weights_file.exists():
                continue
            yield item_of(DAMAGED, file, run)
        elif re.fullmatch(r"\..+\.tmp", file.name) and now - file.stat().st_mtime > OLD:
            yield item_of(LEFTOVERS, file, run)


def keeps_checkpoint(run: Run) -> bool:
    """Whether a run's configuration keeps its checkpoint, or cannot be read."""
    try:
        config = read_plain(run.config_file)
    except Corrupt:
        return True
    return not isinstance(config, dict) or config.get("keep") in ("all", None)


def has_ended(run: Run) -> bool:
    """Whether a run is done or diverged, so that it is not trained again."""
    with contextlib.suppress(Corrupt, OSError):
        result = run.result()
        return result is not None and result.status in ("done", "diverged")
    return False


def in_use(run: Run) -> bool:
    """Whether a process of this host has the run's lock, or a process of any host its lease; takes neither."""
    return run.holder() is not None or is_locked(run.folder / "lock")


def is_locked(lock: Path) -> bool:
    """Whether a process of this host has locked a file; also if that cannot be found out."""
    try:
        with open(lock, opener=regular) as file:
            return not take(file, lambda: False, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    files = [path]
    if not path.is_file():
        files = [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    size = 0
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # a temporary file that has just been renamed
            size += file.lstat().st_size
    return size


def remove(items: Iterable[Item]) -> list[Item]:
    """Remove items that are not in use; returns those that could not be removed."""
    return [item for item in items if not remove_item(item)]


def remove_item(item: Item) -> bool:
    """Remove an item unless its run is in use or has been restarted; returns whether it was removed."""
    try:
        if item.run is None:
            remove_path(item)
            return True
        if item.run.holder() is not None:
            return False
        with item.run.lock(lambda: False) as is_mine:
            if not is_mine or (item.kind == CHECKPOINTS and not has_ended(item.run)):
                return False
            remove_path(item)
        return True
    except OSError:
        return False


def remove_path(item: Item) -> None:
    """Remove a file or folder; readers see all of a folder or nothing."""
    if not item.path.is_dir():
        item.path.unlink(missing_ok=True)
        return
    aside = tempfile.mkdtemp(".tmp", f".{item.path.name}.", item.path.parent)  # fails where nothing can be renamed
    if item.kind == STUDIES:  # a folder without it is no study, whatever becomes of the rest
        (item.path / "manifest.json").unlink(missing_ok=True)
    item.path.rename(aside)
    shutil.rmtree(aside)
    if item.run:
        with contextlib.suppress(OSError):  # fails if the configuration has other seeds
            item.path.parent.rmdir()


def main(arguments: list[str] | None = None) -> int:
    """Show or remove; returns the exit code."""
    parser = Parser("ablate clean", "Free space: shows what it would remove; --yes removes it.")
    parser.add_argument("--yes", action="store_true", help="remove it; without this nothing is touched")
    parser.add_argument("--weights", action="store_true", help="trained weights, too: no tests at new lengths then")
    parser.add_argument("--orphans", action="store_true", help="runs that no study refers to, too, with their results")
    parser.add_argument("--cache", action="store_true", help="tokenised corpora and trained vectors, too")
    options = parser.parse_args(arguments)
    kinds = [*ALWAYS]
    if options.weights:
        kinds.append(WEIGHTS)
    if options.orphans:
        kinds.append(ORPHANS)
    if options.cache:
        kinds += CACHED
    return conclude(parser.prog, options.json, lambda: clean(options.results_dir, kinds, options.yes))


def clean(results: Path, kinds: list[str], sure: bool) -> Outcome:
    """Show the items of these and other kinds, and remove these if `sure`.  Raises Refused."""
    try:
        items, untouched = survey(results)
    except Refused:
        if CORPORA not in kinds:
            raise
        items = cached()  # which belongs to no results folder
        untouched = []
    orphans = {item.path for item in items if item.kind == ORPHANS and ORPHANS in kinds}
    chosen = []
    for item in items:
        goes_with_its_run = not orphans.isdisjoint(item.path.parents)
        if item.kind in kinds and not goes_with_its_run:
            chosen.append(item)
    failed = remove(chosen) if sure else []
    gone = [item for item in chosen if item not in failed]
    kept = [item for item in items if item.kind not in kinds]
    lines = listing(results, gone, kinds, sure)
    for kind, how in ON_REQUEST.items():
        some = [item for item in kept if item.kind == kind]
        if some:
            where = f" in {some[0].path.parent}" if kind in CACHED else ""
            lines.append(f"kept: {kind}{where}: {len(some)}, {decimal(total(some))}; {how}")
    result = report(lines, gone, failed, untouched, sure)
    return Outcome(1 if failed else 0, result | {"kept": as_json(kept)})


def report(
    lines: list[str], gone: list[Item], failed: list[Item], untouched: list[str], sure: bool
) -> dict[str, list[dict[str, Any]]]:
    """Print what is removed, or would be unless `sure`, and what stays; returns the items for `--json`."""
    lines = [*lines, *(f"not removed, in use or not writable: {item.path}" for item in failed), *untouched]
    if gone and not sure:
        lines.append("nothing was removed; add --yes to remove it")
    echo("\n".join(lines))
    removed = as_json(gone)
    return {"removed": removed if sure else [], "removable": [] if sure else removed, "not_removed": as_json(failed)}


def as_json(items: list[Item]) -> list[dict[str, Any]]:
    """Items for `--json`."""
    return [{"kind": item.kind, "path": str(item.path), "bytes": item.size} for item in items]


def listing(results: Path, items: list[Item], kinds: Iterable[str], sure: bool) -> list[str]:
    """Lines on items that were removed, or would be: by kind their number, total size, and the first ones."""
    verb = "removed" if sure else "would remove"
    lines = [f"{results}: {verb} {decimal(total(items)) if items else 'nothing'}"]
    for kind in kinds:
        some = [item for item in items if item.kind == kind]
        if not some:
            continue
        lines.append(f"  {kind}: {len(some)}, {decimal(total(some))}")
        for item in some[:NAMED]:
            path = item.path.relative_to(results) if results in item.path.parents else item.path
            lines.append(f"    {path}")
        if len(some) > NAMED:
            lines.append(f"    and {len(some) - NAMED} more")
    return lines


def total(items: Iterable[Item]) -> int:
    """The size of items in bytes."""
    return sum(item.size for item in items)
