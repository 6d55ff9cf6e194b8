"""Results of earlier commands that a new plan depends on: manifests, looks, seeds, runs.

Also registers claims, margins and criteria: were they written before any comparison that they are about existed?
"""

import dataclasses
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

from ablate.config.claims import Claim, sides_of
from ablate.config.errors import Corrupt
from ablate.config.schema import TUNING_SEEDS
from ablate.config.typed_json import plain
from ablate.formatting import first_of
from ablate.planning.study import NAMED, PlannedStudy
from ablate.runs.folder import Run, noted, now, untested
from ablate.runs.key import settings
from ablate.runs.manifest import read_manifest, readable, studies
from ablate.runs.records import Cell, ClaimEntry, ClaimText, Look, Manifest, PlannedRun, ValueEntry, ValueText

V = TypeVar("V")
E = TypeVar("E", ClaimEntry, ValueEntry[Any])


@dataclasses.dataclass(frozen=True)
class Earlier:
    """The manifests that earlier commands left in a results folder: of one study, and of all others."""

    results: Path
    manifest: Manifest | None  # None if there is none, or if it is damaged
    others: list[Manifest]
    notes: list[str]  # on a damaged manifest


def own_looks(manifest: Manifest) -> list[Look]:
    """The looks at a study, without those at other studies of its cells."""
    return [look for look in manifest.looks if look.study is None]


def read_earlier(results: Path, name: str) -> Earlier:
    """The manifests of a study and of all others, as earlier commands left them."""
    manifest = None
    notes = []
    try:
        manifest = read_manifest(results, name)
    except FileNotFoundError:
        pass
    except Corrupt as error:
        lost = "earlier interim analyses of this study are forgotten"
        notes.append(f"{error}; it is set aside and written anew, and {lost}")
    others = []
    for study in studies(results):
        other = readable(results, study) if study != name else None
        if other:
            others.append(other)
    return Earlier(results, manifest, others, notes)


def begun(study: PlannedStudy) -> list[Manifest]:
    """The manifests of a study and of its rounds.  They hold choices that were measured once and must not be measured
    again when the study is continued."""
    manifests = []
    for name in (study.name, study.base, f"{study.base}-tune"):
        manifest = readable(study.results, name)
        if manifest:
            manifests.append(manifest)
    return manifests


def choose_seeds(study: PlannedStudy, earlier: Earlier) -> list[int]:
    """The seeds that the command asks for; a confirmation takes the first that these cells were never trained with."""
    confirm = study.settings.confirm
    seeds = study.settings.seeds
    if not confirm:
        return list(range(seeds)) if isinstance(seeds, int) else sorted(seeds)
    if earlier.manifest:
        return list(earlier.manifest.seeds)
    confirmed = readable(study.results, study.base)
    used = set(confirmed.seeds) if confirmed else set()
    for name in {cell.name for cell in study.rows}:
        for folder in (study.results / "runs" / name).glob("s*-*"):
            number = re.match(r"s(\d+)-", folder.name)
            if number:
                used.add(int(number[1]))
    first = max((seed for seed in used if seed not in TUNING_SEEDS), default=-1) + 1
    return list(range(first, first + confirm))


def looks_so_far(study: PlannedStudy, earlier: Earlier) -> list[Look]:
    """The looks that a study has had, including the planned ones before the current number of seeds."""
    looks = own_looks(earlier.manifest) if earlier.manifest else []
    logged = [(look.seeds, look.planned) for look in looks]
    for count in study.looks:
        seeds = list(range(count))
        if count < study.settings.seeds and (seeds, study.looks) not in logged:
            looks.append(Look(seeds=seeds, planned=study.looks, when=now()))
    return looks


def seeds_of_lower_rungs(seeds: list[int], looks: list[Look]) -> list[int]:
    """As many further seeds as a ladder's top rung has, for rungs that cost little; those that were looked at stay."""
    further: list[int] = []
    for planned in [*(look.seeds for look in looks), seeds]:
        further = [seed for seed in further if seed not in planned]
        first = max([*planned, *further], default=-1) + 1
        lacking = len(planned) - len(further)
        further += range(first, first + lacking)
    return further


def looks_of_others(earlier: Earlier, cells: list[Cell], runs: list[PlannedRun]) -> list[Look]:
    """Looks of other studies at the cells of this one, after which adding seeds is not independent of the results.

    A look at only one of several cells, such as a common reference, saw no comparison.
    """
    least = min(2, len({run.cell for run in runs}))
    ids = ids_by_configuration(cells)
    looks = []
    for other in earlier.others:
        of_other = own_looks(other)
        if not of_other:
            continue
        shared = Counter(run.seed for run in same_runs(other, ids, runs))
        for look in of_other:
            seeds = sorted(seed for seed in set(look.seeds) if shared[seed] >= least)
            if seeds:
                looks.append(dataclasses.replace(look, seeds=seeds, study=other.study))
    return looks


def status_of(results: Path, path: str) -> tuple[str, list[str]]:
    """The status of a run, or "missing", and a note on a corrupt result, which counts as missing."""
    result, damage = noted(Run(results, path).result)
    return result.status if result else "missing", [f"{error}; that run is trained again" for error in damage]


def to_test(study: PlannedStudy, manifest: Manifest, statuses: dict[str, str]) -> tuple[list[str], list[str]]:
    """The finished runs to be tested at further lengths, and notes on them and on those without weights."""
    testable = []
    without = []
    for path in untested(study.results, manifest, statuses):
        run = Run(study.results, path)
        if run.weights_file.exists():
            testable.append(path)
        else:
            without.append(run)
    notes = []
    if testable:
        notes.append(f"{len(testable)} of these runs are done; their weights are tested at new eval.lengths")
    if without:
        message = f"eval.lengths: {len(without)} of these runs have no weights to test (keep=none, or removed); leave"
        notes.append(f"{message} lengths out, or move such runs away to train them again: {without[0].folder}")
    return testable, notes


def with_registrations(manifest: Manifest, study: PlannedStudy, earlier: Earlier, statuses: dict[str, str]) -> Manifest:
    """The manifest with its claims, margin and criterion, and their history from the earlier or the tuning's one."""
    old = earlier.manifest
    claims = old.withdrawn | old.claims if old else study.written
    margin = old.margin if old else study.entries.get("margin")
    criterion = old.replicated if old else study.entries.get("replicated")
    requested = (study.claims, study.settings.margin, study.replicated)
    if not (any(requested) or claims or margin or criterion):
        return manifest
    rows = study.rows
    seen = scored(earlier, rows, manifest.runs, statuses)
    if old is None:
        # The tuning's manifest knows nothing of the scored seeds, of which another study may have results.
        claims = {name: not_if(is_seen(entry.claim, rows, seen), entry) for name, entry in claims.items()}
        margin = not_if(has_comparison(seen), margin) if margin else None
        criterion = not_if(has_comparison(seen), criterion) if criterion else None
    time = now()
    return dataclasses.replace(
        manifest,
        **register(study.claims, claims, rows, seen, time),
        margin=registered(study.settings.margin, margin, seen, time),
        replicated=registered(study.replicated, criterion, seen, time),
    )


def not_if(was_seen: bool, entry: E) -> E:
    """An entry of the tuning's manifest, no longer registered if its results were seen."""
    return dataclasses.replace(entry, registered=entry.registered and not was_seen)


def scored(
    earlier: Earlier, cells: list[Cell], runs: list[PlannedRun], statuses: dict[str, str]
) -> dict[int, set[str]]:
    """The cells of this study with a result, by seed; results of its earlier manifest and of other studies count."""
    candidates = [*runs, *(earlier.manifest.runs if earlier.manifest else [])]
    ids = ids_by_configuration(cells)
    for other in earlier.others:
        candidates += same_runs(other, ids, runs)
    by_seed: dict[int, set[str]] = {}
    for run in candidates:
        if is_scored(earlier.results, run, statuses):
            by_seed.setdefault(run.seed, set()).add(run.cell)
    return by_seed


def is_scored(results: Path, run: PlannedRun, statuses: dict[str, str]) -> bool:
    """Whether a run has a result that counts; those of tuning choose settings, and are never scored."""
    if run.seed in TUNING_SEEDS:
        return False
    status = statuses.get(run.path) or status_of(results, run.path)[0]
    return status in ("done", "diverged", "untested")


def ids_by_configuration(cells: list[Cell]) -> dict[str, str]:
    """The ids of a study's cells by their configurations."""
    return {configuration_text(cell): cell.id for cell in cells}


def configuration_text(cell: Cell) -> str:
    """All that a cell's numbers depend on, whatever its variants are called."""
    if cell.config is None:  # of a program
        return cell.id
    return json.dumps([settings(cell.planned_config), cell.task], sort_keys=True)


def same_runs(other: Manifest, ids: dict[str, str], runs: list[PlannedRun]) -> list[PlannedRun]:
    """The runs of another study with a configuration and a seed of these, with the `ids` that their cells have here.  A
    run of other code, with reuse=none, or of a variant of another name has been seen, too."""
    here = {cell_id: cell_id for cell_id in ids.values()}  # by the id that a cell has in the other study
    for cell in other.cells:
        if cell.id not in here:
            here[cell.id] = ids.get(configuration_text(cell), "")
    pairs = {(run.cell, run.seed) for run in runs}
    renamed = [dataclasses.replace(run, cell=here.get(run.cell, "")) for run in other.runs]
    return [run for run in renamed if (run.cell, run.seed) in pairs]


def post_hoc_notes(manifest: Manifest) -> list[str]:
    """A note on the claims that are post hoc, and on what registers them."""
    names = [name for name, entry in manifest.claims.items() if not entry.registered]
    if not names:
        return []
    verb = "is" if len(names) == 1 else "are"
    why = "there are results of these seeds"
    return [f"{first_of(names, NAMED)} {verb} post hoc: {why}; confirm=8 registers claims on fresh ones"]


def register(
    claims: dict[str, Claim], before: dict[str, ClaimEntry], cells: list[Cell], scored: dict[int, set[str]], when: str
) -> dict[str, Any]:
    """The manifest's entries of claims, given those `before`, withdrawn ones included.

    A claim is registered if no seed had cells of more than one side `scored` when it was written.  An unchanged claim
    keeps its entry, an edited one its earlier texts; a withdrawn one gets the time, and whether its results were seen.
    """
    entries = {}
    for name, claim in claims.items():
        old = before.get(name)
        if old and old.claim == claim:
            entries[name] = dataclasses.replace(old, withdrawn=None, seen=None)
            continue
        texts = []
        if old:
            texts = [*old.earlier, ClaimText(claim=old.claim, written=old.written, registered=old.registered)]
        is_registered = not is_seen(claim, cells, scored)
        entries[name] = ClaimEntry(claim=claim, written=when, registered=is_registered, earlier=texts)
    withdrawn = {}
    for name, entry in before.items():
        if name in claims:
            continue
        if entry.seen is None:
            entry = dataclasses.replace(entry, withdrawn=when, seen=is_seen(entry.claim, cells, scored))
        withdrawn[name] = entry
    digest = None
    if claims:
        digest = hashlib.sha256(json.dumps(plain(claims), sort_keys=True).encode()).hexdigest()[:16]
    return {"claims": entries, "withdrawn": withdrawn, "claims_hash": digest}


def is_seen(claim: Claim, cells: list[Cell], scored: dict[int, set[str]]) -> bool:
    """Whether a seed has cells of more than one side of a claim scored; true if the claim names no cells here."""
    sides = sides_of(claim, cells)
    if not all(sides):
        return True
    return any(sum(not side.isdisjoint(of_seed) for side in sides) > 1 for of_seed in scored.values())


def registered(
    value: V | None, old: ValueEntry[V] | None, scored: dict[int, set[str]], when: str
) -> ValueEntry[V] | None:
    """The manifest's entry of a margin or criterion; registered if no seed had two cells `scored`.  An unchanged value
    keeps its entry; a changed or withdrawn one its earlier values, oldest first."""
    if (old.value if old else None) == value:
        return old
    texts = []
    if old:
        texts = [*old.earlier, ValueText(value=old.value, written=old.written, registered=old.registered)]
    is_registered = not has_comparison(scored)
    return ValueEntry(value=value, written=when, registered=is_registered, earlier=texts)


def has_comparison(scored: dict[int, set[str]]) -> bool:
    """Whether a seed has two cells scored."""
    return any(len(cells) > 1 for cells in scored.values())
