"""A study's manifest on disk: finding, reading, checking and renewing it, and logging looks in it."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ablate.config.claims import weighed
from ablate.config.designs import DESIGNS, RUNG
from ablate.config.errors import Corrupt, Refused, Unreadable
from ablate.config.key_checks import fraction_of
from ablate.config.schema import OWNED
from ablate.config.typed_json import unread
from ablate.formatting import SPEED, instead
from ablate.runs.files import no_link, read_record, set_aside, write_json
from ablate.runs.lock import take
from ablate.runs.naming import measured_as
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
    for wrong in flaws(manifest):
        raise Corrupt(f"{file} {wrong}")
    return manifest


def newer(manifest: Manifest) -> list[str]:
    """A note if a newer version wrote the manifest, with the entries that are ignored; empty ones say nothing."""
    own = tuple(f"config.{section}" for section in OWNED)  # may hold arguments of user classes
    entries = {name: entry for name, entry in unread(manifest).items() if not name.endswith(own)}
    names = ", ".join(name for name, entry in entries.items() if entry)
    note = f"the manifest of {manifest.study} was written by a newer ablate" + f"; ignored: {names}" * bool(names)
    return [note] * bool(names or (manifest.format or 0) > FORMAT)


def write_manifest(results: Path, manifest: Manifest) -> None:
    """Write a study's manifest, atomically."""
    write_json(study_folder(results, manifest.study) / "manifest.json", manifest.as_json())


def renew_manifest(results: Path, manifest: Manifest) -> None:
    """Write the manifest of a new plan; looks logged since planning are kept, and a damaged manifest is set aside."""
    folder = study_folder(results, manifest.study)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", opener=no_link) as file:
        take(file, lambda: True)
        known: list[Look] = []
        try:
            known = read_manifest(results, manifest.study).looks
        except FileNotFoundError:
            pass
        except Unreadable:
            raise
        except Corrupt:
            set_aside(folder / "manifest.json")
        since = [look for look in known if look.study is None and look not in manifest.looks]
        write_manifest(results, dataclasses.replace(manifest, looks=manifest.looks + since))


def log_look(results: Path, manifest: Manifest, when: str) -> None:
    """Log in the manifest on disk that results of these seeds have been seen, so that the seeds stay in the study."""
    with open(study_folder(results, manifest.study) / "lock", "w", opener=no_link) as file:
        take(file, lambda: True)
        current = read_manifest(results, manifest.study)  # which another command may have written meanwhile
        sequence = manifest.sequential  # of seeds=auto: this look is one of its looks
        look = Look(seeds=manifest.seeds, planned=sequence.looks if sequence else None, when=when)
        if any(dataclasses.replace(known, when=when) == look for known in current.looks):
            return
        at = current.sequential
        if at and sequence and at.looks == sequence.looks:
            at = dataclasses.replace(at, at=max(at.at, sequence.at))
        # A run that was replanned meanwhile, for example for other code, replaces this one.
        known = {(run.cell, run.seed) for run in current.runs}
        runs = current.runs + [run for run in manifest.runs if (run.cell, run.seed) not in known]
        looks, seeds = [*current.looks, look], sorted({*current.seeds, *manifest.seeds})
        write_manifest(results, dataclasses.replace(current, looks=looks, sequential=at, seeds=seeds, runs=runs))


def newest_study(results: Path) -> str | None:
    """The study whose manifest was written last, or None."""
    manifests = (Path(results) / "studies").glob("*/manifest.json")
    return max(((path.stat().st_mtime, path.parent.name) for path in manifests), default=(0.0, None))[1]


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


def flaws(manifest: Manifest) -> Iterator[str]:
    """The inconsistencies of a manifest, each as the end of a sentence."""
    yield from (f"has no {name}" for name in ("cells", "runs") if not getattr(manifest, name))
    named = (manifest.study, manifest.confirms, manifest.tunes, manifest.exchange_of, manifest.exchange)
    yield from (f"names the study {name!r}" for name in named if name is not None and not is_name(name))
    for task in manifest.tasks.values():
        yield from [f"has no metrics of its task {task.name}"] * (not task.metrics)
        yield from [f"has no train_tokens of its task {task.name}"] * (task.train_tokens == 0)
    if manifest.design not in DESIGNS:
        yield f"has the design {manifest.design!r}, which is none of {', '.join(DESIGNS)}"
    if manifest.design == "ladder" and RUNG not in manifest.factors:
        yield "is a ladder without rungs"
    if manifest.sequential and not manifest.sequential.looks:
        yield "has no looks in its sequential"
    if manifest.margin and isinstance(manifest.margin.value, str) and fraction_of(manifest.margin.value) is None:
        yield f"has the margin {manifest.margin.value!r}, which is no number and no share of the steps"
    factors, components = manifest.factors, manifest.components
    yield from (f"has no levels of its factor {name}" for name, levels in factors.items() if not levels)
    yield from (f"has a component {name}, which is no factor of it" for name in components if name not in factors)
    wrong = [(name, level) for name, level in manifest.reference.items() if level not in factors.get(name, ())]
    yield from (f"has the reference {name}={level}, which is no level of its factors" for name, level in wrong)
    measured = {name for task in manifest.tasks.values() for name in task.metrics}
    for name, entry in [*manifest.claims.items(), *manifest.withdrawn.items()]:
        for claim in (entry.claim, *(old.claim for old in entry.earlier)):
            yield from [f"has a claim {name} that {claim.flaw}"] if claim.flaw else []
        if name in manifest.claims and not all(weighed(entry.claim, manifest.cells)):
            yield f"has a claim {name} that its cells cannot test"
        for metric in entry.claim.metrics:
            if measured_as(metric) not in measured and metric not in SPEED:
                yield f"has a claim {name} about {metric}, which none of its tasks measures"
    if criterion := manifest.replicated.value if manifest.replicated else None:
        names, needed = criterion.of, criterion.needed
        lost = [name for name in names if name not in manifest.claims]
        yield from (f"has a replication criterion with an unknown claim {name}" for name in lost)
        yield from [f"counts as replicated by {needed} of {len(names)} claims"] * (not 1 <= needed <= len(names))
    seeds = (*manifest.seeds, *(run.seed for run in manifest.runs))
    yield from (f"has the invalid seed {seed}" for seed in seeds if not 0 <= seed < 2**63)
    for cell in manifest.cells:
        if not is_name(cell.name):
            yield f"has a cell with the name {cell.name!r}, which can name no folder"
        for size in ("params", "flops_per_token", "tokens_per_step"):
            if not 0 <= (getattr(cell, size) or 0) < math.inf:
                yield f"has a cell {cell.label} with the {size} {getattr(cell, size)}"
        if manifest.factors.keys() - cell.levels:
            yield f"has no levels of its cell {cell.label}"
        if cell.task not in manifest.tasks:
            yield f"has no task of its cell {cell.label}"
    for run in manifest.runs:
        parts = run.path.split("/")  # <cell>/<run>, which cannot lead elsewhere
        if len(parts) != 2 or not all(map(is_name, parts)):
            yield f"has a run whose path is {run.path!r}, no folder of its results"
    known = {cell.id for cell in manifest.cells}
    yield from (f"has a run of an unknown cell {run.cell}" for run in manifest.runs if run.cell not in known)


def is_name(text: str) -> bool:
    """Whether a text is a valid name of a file or folder, without path separators."""
    return text not in ("", ".", "..") and not set(text) & set("/\\\0")


def outside(results: Path, paths: list[str]) -> str | None:
    """The first of these runs whose folder is outside of the results by a symbolic link, or None."""
    base, runs = os.path.realpath(results), results / "runs"

    def leads_out(path: str) -> bool:
        return not os.path.realpath(runs / path).startswith(base + os.sep)

    cells = {cell for cell in {path.partition("/")[0] for path in paths} if leads_out(cell)}  # once each: it takes time
    linked = (path for path in paths if path.partition("/")[0] in cells or (runs / path).is_symlink())
    return next(filter(leads_out, linked), None)
