"""Frees space in a results folder: shows what it would remove, and removes it only with --yes.

Removes what is not needed: checkpoints of ended runs, leftovers of interrupted writes, files set aside as corrupt.
Runs in training and unreadable studies are not touched.
Exit codes: 0 shown or removed; 1 something could not be removed; 2 no results folder.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.filesize import decimal

from ablate.config.errors import Corrupt, Refused
from ablate.config.files import read_plain, regular
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.data.corpus import cache_folder
from ablate.formatting import counted
from ablate.runs.folder import Run
from ablate.runs.lock import take
from ablate.runs.manifest import manifest_of
from ablate.runs.records import Manifest

OLD = 3600  # seconds after which a temporary file counts as a leftover
CHECKPOINTS, LEFTOVERS = "checkpoints of ended runs", "leftovers of interrupted writes"
DAMAGED = "files set aside as corrupt"
STUDIES = "studies"
WEIGHTS, ORPHANS = "weights of runs", "runs that no study refers to"
CORPORA, VECTORS = "tokenised corpora", "trained vectors"
CACHED = (CORPORA, VECTORS)
CORPUS = r"(corpus-)?[0-9a-f]{32}(\.making)?"
ALWAYS = (CHECKPOINTS, LEFTOVERS, DAMAGED)


class Item(NamedTuple):
    """A removable file or folder: its size in bytes, and the run that must not be in use."""

    kind: str
    path: Path
    size: int
    run: Run | None = None


def survey(results: Path, without: Collection[str] = ()) -> tuple[list[Item], list[str]]:
    """What can be removed, as if there were no studies `without`, and lines on what cannot.  Raises Refused."""
    cells = sorted(results.glob("runs/*"))
    links = [folder for folder in (results / "runs", *cells) if folder.is_symlink()]
    cells = [cell for cell in cells if not {cell, cell.parent}.intersection(links)]
    made = [path for cell in cells for path in sorted(cell.glob("s*-*")) if re.match(r"s\d+-", path.name)]
    folders = [path for path in made if path.is_dir() and not path.is_symlink()]
    studies = sorted({file.parent for file in results.glob("studies/*/manifest.json*")})
    if not folders and not studies:
        raise Refused(f"{results} is no results folder: it holds no study and no run; name one with --results-dir")
    now, runs = time.time(), [Run(results, f"{path.parent.name}/{path.name}") for path in folders]
    busy = {run.path for run in runs if in_use(run)}
    manifests, untouched = dict[Path, Manifest](), list[str]()
    for study in [study for study in studies if study.name not in without]:
        try:
            manifests[study] = manifest_of(results, study.name)
        except Refused as error:
            untouched.append(str(error))
    used = {run.path for manifest in manifests.values() for run in manifest.runs}
    free = [run for run in runs if run.path not in busy]
    orphans = [run for run in free if run.path not in used]
    if orphans and (busy or untouched):  # a running command may use them under a replaced manifest
        whose = "a running command" if busy else "an unreadable study"
        untouched.append(f"{counted(len(orphans), 'run')} of no readable study: {whose} may use them")
        free, orphans = [run for run in free if run.path in used], []
    items: list[Item] = []
    for run in free:
        items += _leftovers(run.folder, now, run)
        if run.checkpoint_file.exists() and _ended(run):
            with contextlib.suppress(Corrupt):  # an unreadable configuration does not say what to keep
                config = read_plain(run.config_file)
                if isinstance(config, dict) and config.get("keep") not in ("all", None):
                    items.append(Item(CHECKPOINTS, run.checkpoint_file, size_of(run.checkpoint_file), run))
        if run.weights_file.exists():
            items.append(Item(WEIGHTS, run.weights_file, size_of(run.weights_file), run))
    items += [item for folder in manifests if not folder.is_symlink() for item in _leftovers(folder, now, None)]
    items += [Item(ORPHANS, run.folder, size_of(run.folder), run) for run in orphans]
    left = [folder for cell in cells for folder in sorted(cell.glob(".*s*-*.tmp"))]
    left += [path for kind in ("studies", "figures", "tensorboard") for path in sorted(results.glob(f"{kind}/.*.tmp"))]
    left = [folder for folder in left if results / "studies" / folder.name not in studies and not folder.is_symlink()]
    items += [Item(LEFTOVERS, folder, size_of(folder)) for folder in left]
    links += [study for study in studies if study.is_symlink()]
    untouched += [f"{link} is a link: what it holds lies elsewhere" for link in links]
    cache = cache_folder()
    folders = [path for path in sorted(cache.iterdir()) if re.fullmatch(CORPUS, path.name) and path.is_dir()]
    corpora = [path for path in folders if path.suffix != ".making" or not _locked(path.with_suffix(".lock"))]
    items += [Item(CORPORA, path, size_of(path)) for path in corpora]
    items += [Item(VECTORS, path, size_of(path)) for path in sorted((cache / "vectors").glob("*.npz"))]
    untouched = [f"{results / 'runs' / path} is in use" for path in sorted(busy)] + untouched
    return items, [f"untouched: {reason}" for reason in untouched]


def remove(items: Iterable[Item]) -> list[Item]:
    """Remove items that are not in use; returns those that could not be removed."""
    return [item for item in items if not _remove(item)]


def in_use(run: Run) -> bool:
    """Whether a process of this host has the run's lock, or a process of any host its lease; takes neither."""
    return run.holder() is not None or _locked(run.folder / "lock")


def _locked(lock: Path) -> bool:
    try:
        with open(lock, opener=regular) as file:
            return take(file, lambda: False, fcntl.LOCK_SH) is False
    except OSError as error:  # whose lock cannot be asked may be in use
        return not isinstance(error, FileNotFoundError)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    files = [path] if path.is_file() else [Path(where) / name for where, _, names in os.walk(path) for name in names]
    total = 0
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # a temporary file that has just been renamed
            total += file.lstat().st_size
    return total


def _leftovers(folder: Path, now: float, run: Run | None) -> Iterator[Item]:
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        if re.fullmatch(r".+\.corrupt(-\d+)?", file.name):
            # Weights that were set aside and not replaced are the only sign that the run must be retrained.
            weights = run and file.name.startswith(run.weights_file.name) and not run.weights_file.exists()
            if not weights:
                yield Item(DAMAGED, file, size_of(file), run)
        elif re.fullmatch(r"\..+\.tmp", file.name) and now - file.stat().st_mtime > OLD:
            yield Item(LEFTOVERS, file, size_of(file), run)


def _ended(run: Run) -> bool:
    with contextlib.suppress(Corrupt, OSError):
        return (result := run.result()) is not None and result.status in ("done", "diverged")
    return False


def _remove(item: Item) -> bool:
    """Remove an item unless its run is in use or has been restarted; returns whether it was removed."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as held:
        if run := item.run:
            mine = run.holder() is None and held.enter_context(run.lock(lambda: False))
            if not mine or (item.kind == CHECKPOINTS and not _ended(run)):
                return False
        if not item.path.is_dir():
            item.path.unlink(missing_ok=True)
            return True
        aside = tempfile.mkdtemp(".tmp", f".{item.path.name}.", item.path.parent)  # fails where nothing can be renamed
        if item.kind == STUDIES:  # a folder without it is no study, whatever becomes of the rest
            (item.path / "manifest.json").unlink(missing_ok=True)
        item.path.rename(aside)  # so that readers see all of it or nothing
        shutil.rmtree(aside)
        if item.run:
            with contextlib.suppress(OSError):  # fails if the cell has other seeds
                item.path.parent.rmdir()
        return True
    return False


ON_REQUEST = {
    ORPHANS: "--orphans removes them: their results, too, are lost",
    WEIGHTS: "--weights removes them: such runs cannot be tested at new lengths any more, nor their models loaded",
    CORPORA: "--cache removes them: they are made again when a study needs them",
    VECTORS: "--cache removes them: they are trained again when a run needs them",
}
NAMED = 3  # items of each kind that are listed
UNSURE = "nothing was removed; add --yes to remove it"


def main(arguments: list[str] | None = None) -> int:
    """Show or remove; returns the exit code."""
    parser = Parser("ablate clean", "Free space: shows what it would remove; --yes removes it.")
    parser.add_argument("--yes", action="store_true", help="remove it; without this nothing is touched")
    parser.add_argument("--weights", action="store_true", help="trained weights, too: no tests at new lengths then")
    parser.add_argument("--orphans", action="store_true", help="runs that no study refers to, too, with their results")
    parser.add_argument("--cache", action="store_true", help="tokenised corpora and trained vectors, too")
    given = parser.parse_args(arguments)
    more = {WEIGHTS: given.weights, ORPHANS: given.orphans} | dict.fromkeys(CACHED, given.cache)
    kinds = [*ALWAYS, *(kind for kind, wanted in more.items() if wanted)]
    return conclude(parser.prog, given.json, lambda: clean(given.results_dir, kinds, given.yes))


def clean(results: Path, kinds: list[str], sure: bool) -> Outcome:
    """Show the items of these and other kinds, and remove these if `sure`."""
    found, untouched = survey(results)
    chosen = [item for item in found if item.kind in kinds]
    whole = {item.path for item in chosen if item.kind == ORPHANS}
    chosen = [item for item in chosen if item.path in whole or not whole.intersection(item.path.parents)]
    left = remove(chosen) if sure else []
    gone = [item for item in chosen if item not in left]
    lines = listing(results, gone, kinds, sure)
    for kind, how in ON_REQUEST.items():
        some = [item for item in found if item.kind == kind and kind not in kinds]
        where = f" in {some[0].path.parent}" if some and kind in CACHED else ""
        lines += [f"kept: {kind}{where}: {len(some)}, {decimal(total(some))}; {how}"] if some else []
    kept = [item for item in found if item.kind not in kinds]
    return Outcome(1 if left else 0, report(lines, gone, left, untouched, sure, kept=kept))


def report(
    lines: list[str], gone: list[Item], left: list[Item], untouched: list[str], sure: bool, **more: list[Item]
) -> dict[str, Any]:
    """Print what is removed, or would be, and what is `left` or `untouched`; returns these and `more` for `--json`."""
    stays = [f"not removed, in use or not writable: {item.path}" for item in left] + untouched
    print("\n".join([*lines, *stays, *[UNSURE] * bool(gone and not sure)]))
    found = {"removed": gone if sure else [], "removable": [] if sure else gone, "not_removed": left} | more
    return {key: [{"kind": one.kind, "path": str(one.path), "bytes": one.size} for one in found[key]] for key in found}


def listing(results: Path, items: list[Item], kinds: Iterable[str], sure: bool) -> list[str]:
    """Lines on items that were removed, or would be: by kind their number, total size, and the first ones."""
    lines = [f"{results}: {'removed' if sure else 'would remove'} {decimal(total(items)) if items else 'nothing'}"]
    for kind in kinds:
        if some := [item for item in items if item.kind == kind]:
            paths = [item.path.relative_to(results) if results in item.path.parents else item.path for item in some]
            lines += [f"  {kind}: {len(some)}, {decimal(total(some))}", *(f"    {path}" for path in paths[:NAMED])]
            lines += [f"    and {len(paths) - NAMED} more"] * (len(paths) > NAMED)
    return lines


def total(items: Iterable[Item]) -> int:
    """The size of items in bytes."""
    return sum(item.size for item in items)
