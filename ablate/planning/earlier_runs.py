"""Results of earlier commands that a new plan depends on: manifests, looks, seeds, runs.

Also registers claims, margins and criteria: were they written before any comparison that they are about existed?
"""

import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ablate.config.claims import Claim, sides_of
from ablate.config.errors import Corrupt
from ablate.config.schema import TUNING_SEEDS
from ablate.config.typed_json import plain
from ablate.planning.study import CheckedStudy
from ablate.runs.folder import Run, noted, now, untested, why_without
from ablate.runs.key import run_key
from ablate.runs.manifest import read_manifest, studies
from ablate.runs.records import Cell, ClaimEntry, ClaimText, Look, Manifest, PlannedRun, ValueEntry, ValueText

V = TypeVar("V")


@dataclasses.dataclass(frozen=True)
class Earlier:
    """A study's manifest as earlier commands left it, and access to the manifests of all other studies."""

    results: Path
    name: str
    manifest: Manifest | None  # None if there is none, or if it is damaged
    damage: str = ""  # why it cannot be read

    @property
    def notes(self) -> list[str]:
        """A note on a damaged manifest."""
        end = "it is set aside and written anew, and earlier interim analyses of this study are forgotten"
        return [f"{self.damage}; {end}"] * bool(self.damage)

    @property
    def looks(self) -> list[Look]:
        """The looks at this study, without those at other studies of its cells."""
        return [look for look in self.manifest.looks if look.study is None] if self.manifest else []

    @property
    def runs(self) -> list[PlannedRun]:
        """The runs that were planned."""
        return self.manifest.runs if self.manifest else []

    def companions(
        self, rows: list[Cell], runs: list[PlannedRun], requested: Iterable[str]
    ) -> tuple[dict[str, str], list[str]]:
        """Studies of earlier commands that accompany this one and still apply to its cells, by role, and notes.
        Each has a reference cell of this study, with runs of the present code.  `requested` ones are planned again."""
        references = {row.id: row for row in rows if row.reference}
        planned, found, notes = {run.path for run in runs}, dict[str, str](), list[str]()
        for role, name in self.manifest.beside().items() if self.manifest else ():
            manifest = read_earlier(self.results, name).manifest if role not in requested else None
            own = {cell.id for cell in manifest.cells if cell.reference} if manifest else set()
            if not manifest or not own or not own <= references.keys():
                continue
            others = [run for run in manifest.runs if run.cell in own and run.path not in planned]
            if all(_is_current(run, references[run.cell], name) for run in others):
                found[role] = name
            else:
                notes.append(f"{name} was trained by other code or versions than this study is now; it is not used")
        return found, notes


def read_earlier(results: Path, name: str) -> Earlier:
    """The manifest of a study as earlier commands left it."""
    try:
        return Earlier(results, name, read_manifest(results, name))
    except FileNotFoundError:
        return Earlier(results, name, None)
    except Corrupt as error:
        return Earlier(results, name, None, str(error))


def _is_current(run: PlannedRun, row: Cell, name: str) -> bool:
    """Whether a run would have the same key now, with reuse=same or, in the study `name`, with reuse=none."""
    private = dataclasses.replace(row.planned_config, reuse="none", study=name)
    configs = (dataclasses.replace(row.planned_config, reuse="same"), private)
    keys = {run_key(config, run.seed, row.task, row.user_code) for config in configs}
    return run.path.rpartition("/")[2] in keys


def begun(study: CheckedStudy) -> list[Manifest]:
    """The manifests of a study and of its rounds.  They hold choices that were measured once and must not be measured
    again when the study is continued."""
    names = [study.name, study.base, f"{study.base}-tune"]
    found = [read_earlier(study.results, name) for name in names]
    return [each.manifest for each in found if each.manifest]


def choose_seeds(study: CheckedStudy, earlier: Earlier) -> list[int]:
    """The seeds that the command asks for; a confirmation takes the first that these cells were never trained with."""
    confirm, seeds = study.settings.confirm, study.settings.seeds
    if not confirm:
        return list(range(seeds)) if isinstance(seeds, int) else sorted(seeds)
    if earlier.manifest:
        return list(earlier.manifest.seeds)
    confirmed = read_earlier(study.results, study.base).manifest
    used = set(confirmed.seeds if confirmed else ())
    for name in {row.name for row in study.cells.rows}:
        for folder in (study.results / "runs" / name).glob("s*-*"):
            used |= {int(number) for number in re.findall(r"^s(\d+)-", folder.name)}
    first = max((seed for seed in used if seed not in TUNING_SEEDS), default=-1) + 1
    return list(range(first, first + confirm))


def looks_so_far(study: CheckedStudy, earlier: Earlier) -> list[Look]:
    """The looks that a study has had, including the planned ones before the current number of seeds."""
    logged = [(look.seeds, look.planned) for look in earlier.looks]
    before = [list(range(n)) for n in study.looks if n < study.settings.seeds]
    missing = [seeds for seeds in before if (seeds, study.looks) not in logged]
    return earlier.looks + [Look(seeds=seeds, planned=study.looks, when=now()) for seeds in missing]


def other_looks(earlier: Earlier, runs: list[PlannedRun]) -> Iterator[Look]:
    """Looks of other studies at the cells of this one, after which adding seeds is not independent of the results.

    A look at only one of several cells, such as a common reference, saw no comparison.  A run that is trained again,
    with reuse=none, has been seen: its numbers are the same.
    """
    own = {run.path for run in runs} | {(run.cell, run.seed) for run in runs}
    least = min(2, len({run.cell for run in runs}))
    for name in studies(earlier.results):
        other = read_earlier(earlier.results, name)
        count = Counter(run.seed for run in other.runs if own & {run.path, (run.cell, run.seed)})
        shared = {seed for seed, cells in count.items() if cells >= least}
        for look in other.looks if name != earlier.name else ():
            if seeds := sorted(shared.intersection(look.seeds)):
                yield dataclasses.replace(look, seeds=seeds, study=name)


def status_of(results: Path, path: str) -> tuple[str, list[str]]:
    """The status of a run, or "missing", and a note on a corrupt result, which counts as missing."""
    result, damage = noted(Run(results, path).result)
    return result.status if result else "missing", [f"{error}; that run is trained again" for error in damage]


def to_test(study: CheckedStudy, manifest: Manifest, statuses: dict[str, str]) -> tuple[list[str], list[str]]:
    """The finished runs to be tested at further lengths, and notes on them and on finished runs without weights."""
    done = [Run(study.results, path) for path, status in statuses.items() if status == "done"]
    bare = {run.path: run for run in done if not run.weights_file.exists()}
    ended = bare.values() if study.settings.keep != "none" else ()
    reasons = Counter(why_without(run.result(), run.weights_file) for run in ended)
    end = "and are not trained again for them"
    notes = [f"{n} of these runs ended without weights ({why}), {end}" for why, n in reasons.items()]
    lack = untested(study.results, manifest, statuses)
    lost = [bare[path] for path in lack if path in bare]
    if testable := [path for path in lack if path not in bare]:
        notes.append(f"{len(testable)} of these runs are done; their weights are tested at new eval.lengths")
    for run in lost[:1]:
        why = f"{len(lost)} of these runs have no weights to test (the first "
        why += f"{why_without(run.result(), run.weights_file)})"
        how = f"leave lengths out, or move such runs away to train them again: {run.folder}"
        notes.append(f"eval.lengths: {why}; {how}")
    return testable, notes


def with_registrations(manifest: Manifest, study: CheckedStudy, earlier: Earlier, statuses: dict[str, str]) -> Manifest:
    """The manifest with its claims, margin and criterion, and their history from the earlier and the tuning's one."""
    known = earlier.manifest
    before = (known.withdrawn if known else {}) | study.written | (known.claims if known else {})
    margin, old = study.settings.margin, (known and known.margin) or study.entries.get("margin")
    criterion = (known and known.replicated) or study.entries.get("replicated")
    seen = scored(earlier, manifest.runs, statuses) if study.claims or before or margin or old or criterion else {}
    found = register(study.claims, before, study.cells.rows, seen, now())
    found |= {"margin": registered(margin, old, seen, now())}
    found |= {"replicated": registered(study.replicated, criterion, seen, now())}
    found |= {"effects": registered(study.entries.get("effects"), known.effects if known else None, seen, now())}
    return dataclasses.replace(manifest, **found)


def scored(earlier: Earlier, runs: list[PlannedRun], statuses: dict[str, str]) -> dict[int, set[str]]:
    """The cells of this study with a result, by seed; results of its earlier manifest and of other studies count."""
    found: dict[int, set[str]] = {}
    wanted = {(run.cell, run.seed) for run in runs}
    known = (run for name in studies(earlier.results) for run in read_earlier(earlier.results, name).runs)
    # Runs of any study with these cells and seeds count, also those of other code or with reuse=none.
    for run in [*runs, *earlier.runs, *(run for run in known if (run.cell, run.seed) in wanted)]:
        status = statuses.get(run.path) or status_of(earlier.results, run.path)[0]
        if status in ("done", "diverged", "untested"):
            found.setdefault(run.seed, set()).add(run.cell)
    return found


def register(
    claims: dict[str, Claim], before: dict[str, ClaimEntry], cells: list[Cell], scored: dict[int, set[str]], when: str
) -> dict[str, Any]:
    """The manifest's entries of claims, given those `before`, withdrawn ones included.

    A claim is registered if no seed had cells of more than one side `scored` when it was written.  An unchanged claim
    keeps its entry, an edited one its earlier texts; a withdrawn one gets the time, and whether its results were seen.
    """

    def seen(claim: Claim) -> bool:
        """Whether a seed has cells of more than one side scored; true if the claim names no cells here."""
        sides = sides_of(claim, cells)
        return not all(sides) or any(sum(bool(side & done) for side in sides) > 1 for done in scored.values())

    entries, withdrawn = {}, {}
    for name, claim in claims.items():
        old = before.get(name)
        if old and old.claim == claim:
            entries[name] = dataclasses.replace(old, withdrawn=None, seen=None)
            continue
        text = [ClaimText(claim=old.claim, written=old.written, registered=old.registered)] if old else []
        earlier = [*(old.earlier if old else []), *text]  # oldest first
        entries[name] = ClaimEntry(claim=claim, written=when, registered=not seen(claim), earlier=earlier)
    for name, entry in before.items():
        if name not in claims:
            first = entry.seen is None
            withdrawn[name] = dataclasses.replace(entry, withdrawn=when, seen=seen(entry.claim)) if first else entry
    digest = hashlib.sha256(json.dumps(plain(claims), sort_keys=True).encode()).hexdigest()[:16] if claims else None
    return {"claims": entries, "withdrawn": withdrawn, "claims_hash": digest}


def registered(
    value: V | None, old: ValueEntry[V] | None, scored: dict[int, set[str]], when: str
) -> ValueEntry[V] | None:
    """The manifest's entry of a margin or criterion; registered if no seed had two cells `scored`.  An unchanged value
    keeps its entry; a changed or withdrawn one its earlier values, oldest first."""
    if (old.value if old else None) == value:
        return old
    text = [ValueText(value=old.value, written=old.written, registered=old.registered)] if old else []
    seen = any(len(cells) > 1 for cells in scored.values())
    return ValueEntry(value=value, written=when, registered=not seen, earlier=[*(old.earlier if old else []), *text])
