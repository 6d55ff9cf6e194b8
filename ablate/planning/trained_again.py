"""Notes on runs that are trained although runs of the same configuration and seed are on disk: what has changed."""

from collections import Counter
from pathlib import Path

from ablate.formatting import counted, first_of
from ablate.runs.folder import Run, noted
from ablate.runs.key import provenance
from ablate.runs.records import Cell, PlannedRun, Provenance

NAMED = 3  # definitions that a note names


def trained_again(results: Path, runs: list[PlannedRun], cells: list[Cell], statuses: dict[str, str]) -> list[str]:
    """A note for each reason for which runs are trained again."""
    by_id = {cell.id: cell for cell in cells}
    reasons: Counter[str] = Counter()
    for run in runs:
        cell = by_id[run.cell]
        folders = list((results / "runs" / cell.name).glob(f"s{run.seed}-*"))
        if statuses[run.path] != "missing" or not folders or Run(results, run.path).provenance_file.exists():
            continue  # it has ended, is new, or will resume
        planned = provenance(cell.planned_config, run.seed, cell.task, cell.user_code)
        differences: list[list[str]] = []
        for folder in folders:
            old = noted(Run(results, f"{cell.name}/{folder.name}").provenance)[0]
            # The same settings, and the same data or data from the same place.
            if old and old.numbers == planned.numbers and (old.data == planned.data or old.source == planned.source):
                differences.append(changes_between(old, planned))
        if differences:
            nearest = min(differences, key=len)
            reasons[" and ".join(nearest)] += 1
    notes = []
    for reason, count in reasons.items():
        verb = "was" if count == 1 else "were"
        notes.append(f"{counted(count, 'run')} of these configurations {verb} trained {reason}; trained again")
    return notes


def changes_between(old: Provenance, planned: Provenance) -> list[str]:
    """In what the provenance of a run differs from that of a planned one."""
    changes = []
    if old.data != planned.data:
        changes.append("before the data changed")
    for library, version in planned.versions.items():
        before = old.versions.get(library)
        if before != version:
            changes.append(f"with {library} {before} (now {version})")
    if old.code != planned.code or not changes:
        # The definitions, or files, whose content only one of them has; a renamed one has changed nothing.
        unique = {*old.definitions.values()} ^ {*planned.definitions.values()}
        definitions = [*old.definitions.items(), *planned.definitions.items()]
        names = sorted({name for name, digest in definitions if digest in unique})
        changes.append(f"with other code ({first_of(names, NAMED)})" if names else "with other code")
    return changes
