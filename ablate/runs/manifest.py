"""A study's manifest on disk: finding, reading, checking and renewing it, and logging looks in it."""

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ablate.config.errors import Corrupt, Refused, Unreadable
from ablate.formatting import instead
from ablate.runs.files import no_link, read_record, set_aside, write_json
from ablate.runs.lock import take
from ablate.runs.records import FORMAT, Look, Manifest


def study_folder(results: Path, study: str) -> Path:
    """The folder of a study."""
    return Path(results) / "studies" / study


def read_manifest(results: Path, study: str) -> Manifest:
    """A study's manifest, checked.  Raises FileNotFoundError and `Corrupt`."""
    path = study_folder(results, study) / "manifest.json"
    manifest = manifest_in(path)
    if leading := outside(Path(results), [run.path for run in manifest.runs]):
        raise Corrupt(f"{path} has a run {leading}, which a link leads out of {results}")
    return dataclasses.replace(manifest, study=study)  # a copied study takes the name of its folder


def readable(results: Path, study: str) -> Manifest | None:
    """A study's manifest, or None if it cannot be read."""
    with contextlib.suppress(Corrupt, OSError):
        return read_manifest(results, study)
    return None


def manifest_in(file: Path) -> Manifest:
    """The manifest in a file, checked for consistency.  Raises FileNotFoundError and `Corrupt`."""
    manifest = read_record(Manifest, file)
    problem = flaw(manifest)
    if problem:
        raise Corrupt(f"{file} {problem}")
    return manifest


def newer(manifest: Manifest) -> list[str]:
    """A note if a newer version wrote the manifest, whose further entries are ignored."""
    is_newer = (manifest.format or 0) > FORMAT
    return [f"the manifest of {manifest.study} was written by a newer ablate"] if is_newer else []


def write_manifest(results: Path, manifest: Manifest) -> None:
    """Write a study's manifest, atomically."""
    write_json(study_folder(results, manifest.study) / "manifest.json", manifest.as_json())


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let no other process change a study's manifest meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", opener=no_link) as file:
        take(file, lambda: True)
        yield


def renew_manifest(results: Path, manifest: Manifest) -> None:
    """Write the manifest of a new plan; looks logged since planning are kept, and a damaged manifest is set aside."""
    folder = study_folder(results, manifest.study)
    with locked(folder):
        looks = list(manifest.looks)
        try:
            for look in read_manifest(results, manifest.study).looks:
                if look.study is None and look not in looks:
                    looks.append(look)
        except FileNotFoundError:
            pass
        except Unreadable:
            raise
        except Corrupt:
            set_aside(folder / "manifest.json")
        write_manifest(results, dataclasses.replace(manifest, looks=looks))


def log_look(results: Path, manifest: Manifest, when: str) -> None:
    """Log in the manifest on disk that results of these seeds have been seen, so that the seeds stay in the study."""
    looked = manifest.sequential
    look = Look(seeds=manifest.seeds, planned=looked.looks if looked else None, when=when)
    with locked(study_folder(results, manifest.study)):
        current = read_manifest(results, manifest.study)  # which another command may have written meanwhile
        if any(dataclasses.replace(earlier, when=when) == look for earlier in current.looks):
            return
        sequential = current.sequential
        if sequential and looked and sequential.looks == looked.looks:
            sequential = dataclasses.replace(sequential, at=max(sequential.at, looked.at))
        planned = {(run.cell, run.seed) for run in current.runs}  # perhaps again, for other code
        further = [run for run in manifest.runs if (run.cell, run.seed) not in planned]
        changed = dataclasses.replace(
            current,
            looks=[*current.looks, look],
            sequential=sequential,
            seeds=sorted({*current.seeds, *manifest.seeds}),
            runs=[*current.runs, *further],
        )
        write_manifest(results, changed)


def newest_study(results: Path) -> str | None:
    """The study whose manifest was written last, or None."""
    manifests = list((Path(results) / "studies").glob("*/manifest.json"))
    if not manifests:
        return None
    return max(manifests, key=lambda file: (file.stat().st_mtime, file.parent.name)).parent.name


def studies(results: Path) -> list[str]:
    """Names of the studies on disk."""
    return sorted(path.parent.name for path in (results / "studies").glob("*/manifest.json"))


def choose_study(results: Path, name: str | None, more: Iterable[str] = ()) -> str:
    """The name of a study on disk or in `more`; without a `name`, that of the newest study.  Raises Refused."""
    if not results.is_dir():
        raise Refused(f"no results folder at {results}: run a sweep first, or name the folder with --results-dir")
    newest = newest_study(results)
    if newest is None:
        raise Refused(f"no study in {results}: run a sweep first, or name another folder with --results-dir")
    there = sorted({*studies(results), *more})
    if name is None or name in there:
        return name or newest
    raise Refused(f"no study {name} in {results}: {instead(name, there)}")


@contextlib.contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Turn errors of reading a study's manifest and results into `Refused`."""
    manifest = folder / "manifest.json"
    try:
        yield
    except Corrupt as error:
        raise Refused(str(error)) from None
    except OSError as error:
        raise Refused(f"{manifest} cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Refused(f"{manifest}, or a result of its runs, is damaged ({type(error).__name__}: {error})") from None


def manifest_of(results: Path, study: str) -> Manifest:
    """A study's manifest.  Raises Refused."""
    with refusing(study_folder(results, study)):
        return read_manifest(results, study)


def flaw(manifest: Manifest) -> str:
    """What is wrong with the names in a manifest, and with what refers to them, as the end of a sentence; or empty."""
    names = [manifest.study, manifest.confirms, manifest.tunes, manifest.exchange_of, manifest.exchange]
    names += [cell.name for cell in manifest.cells]
    for run in manifest.runs:
        names += run.path.split("/")
    for name in names:
        if name is not None and not is_name(name):
            return f"has the name {name!r}, which can name no study and no folder of its results"
    if not manifest.cells or not manifest.runs:
        return "has no cells or no runs"
    for factor, level in manifest.reference.items():
        if level not in manifest.factors.get(factor, ()):
            return f"has the reference {factor}={level}, which is no level of its factors"
    cells = {cell.id for cell in manifest.cells}
    for run in manifest.runs:
        if run.path.count("/") != 1 or run.cell not in cells or not 0 <= run.seed < 2**63:
            return f"has a run {run.path} of no cell, or with no seed"
    for cell in manifest.cells:
        task = manifest.tasks.get(cell.task)
        if task is None or not task.metrics or manifest.factors.keys() - cell.levels:
            return f"has no task or no levels of its cell {cell.label}"
    return ""


def is_name(text: str) -> bool:
    """Whether a text is a valid name of a file or folder, without path separators."""
    return text not in ("", ".", "..") and not set(text) & set("/\\\0")


def outside(results: Path, paths: list[str]) -> str | None:
    """The first of these runs whose folder is outside of the results by a symbolic link, or None."""
    base = os.path.realpath(results) + os.sep
    for path in paths:
        if not os.path.realpath(results / "runs" / path).startswith(base):
            return path
    return None
