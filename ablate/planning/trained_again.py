"""Notes on runs that are trained again although earlier commands have trained them."""

from pathlib import Path

from ablate.formatting import counted, first_of, grouped
from ablate.planning.earlier_runs import Earlier
from ablate.runs.folder import Run, noted
from ablate.runs.key import FORMAT, provenance, run_key
from ablate.runs.records import Cell, PlannedRun, Provenance

NAMED = 3  # definitions that a note names


def timing_notes(results: Path, runs: list[PlannedRun], cells: list[Cell], statuses: dict[str, str]) -> list[str]:
    """Notes on how timed runs are trained, and on finished runs that are trained again because they were not timed."""
    if cells[0].planned_config.timing != "isolated":
        return []
    notes = ["timing=isolated: one run at a time, a seed's configurations in turn; let nothing else use the machine"]
    by_id = {cell.id: cell for cell in cells}
    shared = 0
    for run in runs:
        cell = by_id[run.cell]
        untimed = cell.planned_config.with_value("timing", "shared")
        key = run_key(untimed, run.seed, cell.task, cell.user_code)
        if statuses[run.path] == "missing" and Run(results, f"{cell.name}/{key}").result_file.exists():
            shared += 1
    if shared:
        why = "with shared timing, which leaves their losses as they are and says nothing about speed; trained again"
        notes.append(f"{were_trained(shared, 'of these')} {why}")
    return notes


def were_trained(count: int, which: str) -> str:
    """The start of a note: "2 runs of this study were trained"."""
    return f"{counted(count, 'run')} {which} {'was' if count == 1 else 'were'} trained"


def trained_again(earlier: Earlier, runs: list[PlannedRun], cells: list[Cell], statuses: dict[str, str]) -> list[str]:
    """Notes on runs that are trained again, one per reason: this study had them, or their data have changed."""
    by_id = {cell.id: cell for cell in cells}
    paths = {run.path for run in runs}
    replaced = {(run.cell, run.seed): run.path for run in earlier.runs if run.path not in paths}
    of_study = []
    others = []
    for run in runs:
        if statuses[run.path] != "missing" or Run(earlier.results, run.path).provenance_file.exists():
            continue  # it has ended, or will resume
        cell = by_id[run.cell]
        planned = provenance(cell.planned_config, run.seed, cell.task, cell.user_code)
        old = Run(earlier.results, replaced.get((run.cell, run.seed), "none"))
        if old.provenance_file.exists() or old.result_file.exists():
            of_study.append((old, planned))
        else:
            others.append((run, planned))
    return replaced_notes(of_study) + moved_data_notes(earlier.results, others)


def replaced_notes(pairs: list[tuple[Run, Provenance]]) -> list[str]:
    """Notes on why a study's runs are not reused, given the provenance of those that replace them."""
    of_earlier_format = 0
    changes: dict[str, list[set[str]]] = {}  # of each run the definitions that changed, by the other reasons
    for old, planned in pairs:
        origin = noted(old.provenance)[0]
        if origin and origin.format != FORMAT:
            of_earlier_format += 1
        else:
            changes.setdefault(reason(origin, planned), []).append(changed_names(origin, planned))
    notes = []
    if of_earlier_format:
        verb = "is" if of_earlier_format == 1 else "are"
        notes.append(f"{counted(of_earlier_format, 'run')} of an earlier format {verb} not reused")
    for why, of_runs in changes.items():
        reasons = [why] if why else []
        names = sorted(set().union(*of_runs))
        if names:
            reasons.append(f"with other code ({first_of(names, NAMED)})")
        elif not why:
            reasons.append("with other code")
        notes.append(f"{were_trained(len(of_runs), 'of this study')} {' and '.join(reasons)}; trained again")
    return notes


def moved_data_notes(results: Path, runs: list[tuple[PlannedRun, Provenance]]) -> list[str]:
    """A note on runs of which there are some on data of the same path, but none on its present content."""
    by_name: dict[str, dict[tuple[str, str], list[Provenance]]] = {}
    count = 0
    for run, planned in runs:
        name = run.path.partition("/")[0]
        if name not in by_name:
            by_name[name] = provenances(results, name)
        similar = by_name[name].get((f"s{run.seed}", planned.numbers), [])
        if all(origin.data != planned.data for origin in similar):
            count += any(origin.source == planned.source for origin in similar)
    if not count:
        return []
    return [f"{were_trained(count, 'of these configurations')} before the data changed; trained again"]


def provenances(results: Path, name: str) -> dict[tuple[str, str], list[Provenance]]:
    """The provenance of the runs in a cell's folder, by seed, as in their names, and settings."""
    pairs = []
    for file in (results / "runs" / name).glob("s*-*/provenance.json"):
        origin = noted(Run(results, f"{name}/{file.parent.name}").provenance)[0]
        if origin:
            seed = file.parent.name.partition("-")[0]
            pairs.append(((seed, origin.numbers), origin))
    return grouped(pairs)


def changed_names(old: Provenance | None, new: Provenance) -> set[str]:
    """The definitions whose content occurs on one side only, even under another name; none if `old` is gone."""
    if old is None:
        return set()
    unique = {*old.definitions.values()} ^ {*new.definitions.values()}
    definitions = [*old.definitions.items(), *new.definitions.items()]
    return {name for name, digest in definitions if digest in unique}


def reason(old: Provenance | None, new: Provenance) -> str:
    """Why a run is not reused, apart from its code; "" if it differs in code only."""
    if old is None:
        return "with a provenance.json that is gone or damaged"
    if old.study != new.study:
        return f"under reuse={'none' if old.study else 'same'}"
    changes = []
    for library, version in new.versions.items():
        before = old.versions.get(library)
        if before != version:
            changes.append(f"{library} {before} (now {version})")
    return f"with {', '.join(changes)}" if changes else ""
