"""Notes on runs that are trained although runs of the same configuration and seed are on disk: what has changed."""

from collections import Counter
from pathlib import Path

from ablate.formatting import counted, first_of
from ablate.runs.folder import Run, noted
from ablate.runs.key import FORMAT, provenance
from ablate.runs.records import Cell, PlannedRun, Provenance

NAMED = 3  # definitions that a note names


def trained_again(results: Path, runs: list[PlannedRun], cells: list[Cell], statuses: dict[str, str]) -> list[str]:
    """A note for each reason for which runs are trained again."""
    by_id = {cell.id: cell for cell in cells}
    reasons: Counter[str] = Counter()
    for run in runs:
        if statuses[run.path] != "missing" or Run(results, run.path).provenance_file.exists():
            continue  # it has ended, or will resume
        cell = by_id[run.cell]
        planned = provenance(cell.planned_config, run.seed, cell.task, cell.user_code)
        changes = [changes_between(old, planned) for old in runs_on_disk(results, cell.name, run.seed, planned)]
        changes.sort(key=len)
        if changes:
            reasons[" and ".join(changes[0])] += 1
    notes = []
    for reason, count in reasons.items():
        verb = "was" if count == 1 else "were"
        notes.append(f"{counted(count, 'run')} of these configurations {verb} trained {reason}; trained again")
    return notes


def runs_on_disk(results: Path, name: str, seed: int, planned: Provenance) -> list[Provenance]:
    """The provenance of the runs with the settings and data, or the data's path, of a planned one."""
    same = []
    for file in (results / "runs" / name).glob(f"s{seed}-*/provenance.json"):
        old = noted(Run(results, f"{name}/{file.parent.name}").provenance)[0]
        if old and old.numbers == planned.numbers and (old.data == planned.data or old.source == planned.source):
            same.append(old)
    return same


def changes_between(old: Provenance, planned: Provenance) -> list[str]:
    """In what the provenance of a run differs from that of a planned one."""
    changes = []
    if old.format != FORMAT:
        changes.append("in an earlier format")
    if old.data != planned.data:
        changes.append("before the data changed")
    if old.study != planned.study:
        changes.append(f"under reuse={'none' if old.study else 'same'}")
    for library, version in planned.versions.items():
        before = old.versions.get(library)
        if before != version:
            changes.append(f"with {library} {before} (now {version})")
    if old.code != planned.code:
        names = changed_names(old, planned)
        changes.append(f"with other code ({first_of(names, NAMED)})" if names else "with other code")
    return changes


def changed_names(old: Provenance, planned: Provenance) -> list[str]:
    """The definitions whose content occurs on one side only, even under another name."""
    unique = {*old.definitions.values()} ^ {*planned.definitions.values()}
    definitions = [*old.definitions.items(), *planned.definitions.items()]
    return sorted({name for name, digest in definitions if digest in unique})
