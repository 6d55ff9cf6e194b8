"""What earlier commands left on disk that a new plan depends on: manifests, looks, seeds, results.

And when a claim, a margin or a criterion was written: before any comparison existed that it is about, or after.
"""

import dataclasses
import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ablate.config.claim_relations import Claim, sides_of
from ablate.config.errors import Corrupt
from ablate.config.schema import TUNING_SEEDS
from ablate.config.typed_json import plain
from ablate.planning.study import CheckedStudy
from ablate.results import records
from ablate.results.manifest import read_manifest
from ablate.results.records import (
    Cell,
    ClaimEntry,
    ClaimText,
    CriterionEntry,
    Look,
    Manifest,
    MarginEntry,
    PlannedRun,
)
from ablate.results.run import Run, now, untested, why_without
from ablate.results.run_key import run_key

E = TypeVar("E", MarginEntry, CriterionEntry)


@dataclasses.dataclass(frozen=True)
class Earlier:
    """What earlier commands left on disk of one study, and the manifests of all other studies."""

    results: Path
    name: str
    manifest: Manifest | None  # None where there is none, or a damaged one
    notes: list[str]  # about a damaged one

    @property
    def looks(self) -> list[Look]:
        """The looks that were taken at this study itself."""
        return [look for look in self.manifest.looks if look.study is None] if self.manifest else []

    @property
    def runs(self) -> list[PlannedRun]:
        """The runs that were planned."""
        return self.manifest.runs if self.manifest else []

    @property
    def studies(self) -> set[str]:
        """The names of all studies."""
        return {file.parent.name for file in self.results.glob("studies/*/manifest.json")}

    def companions(
        self, rows: list[Cell], runs: list[PlannedRun], requested: Iterable[str]
    ) -> tuple[dict[str, str], list[str]]:
        """Placebo and exchange studies of earlier commands that still belong to these cells, and notes on others.

        Each holds a reference cell of this study, unchanged, with runs that are of this study, or would be at their
        seeds: what was measured on others, or by other code, does not apply.  `requested` ones are planned anew.
        """
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
                notes.append(f"{name} was trained by other code or versions than this study is now; it is left aside")
        return found, notes

    def same_runs(self, runs: list[PlannedRun]) -> list[PlannedRun]:
        """Runs in any study's manifest of these cells with these seeds, of other code or under reuse=none, too."""
        wanted = {(run.cell, run.seed) for run in runs}
        known = (run for name in self.studies for run in read_earlier(self.results, name).runs)
        return [run for run in known if (run.cell, run.seed) in wanted]


def read_earlier(results: Path, name: str) -> Earlier:
    """What an earlier command of a study left."""
    try:
        return Earlier(results, name, read_manifest(results, name), [])
    except FileNotFoundError:
        return Earlier(results, name, None, [])
    except Corrupt as error:
        note = f"{error}; it is set aside and written anew, and earlier looks at this study are forgotten"
        return Earlier(results, name, None, [note])


def _is_current(run: PlannedRun, row: Cell, name: str) -> bool:
    """Whether a run would have its key today: one of any study, or under reuse=none of the study `name` alone."""
    private = dataclasses.replace(row.config, reuse="none", study=name)
    configs = (dataclasses.replace(row.config, reuse="same"), private)
    return run.path.rpartition("/")[2] in {run_key(config, run.seed, row.task) for config in configs}


def begun(study: CheckedStudy) -> tuple[list[Manifest], list[str]]:
    """The manifests of a study and of its rounds, with any of which it may have begun, and errors of unreadable ones.

    They keep choices that were measured once, and that continuing the study must not measure again.
    """
    found, errors = list[Manifest](), list[str]()
    for name in [study.name, study.base, f"{study.tuning_name}-tune", f"{study.base}-aa"]:
        try:
            found.append(read_manifest(study.results, name))
        except FileNotFoundError:
            continue
        except (OSError, Corrupt, ValueError) as error:
            errors.append(str(error))
    return found, errors


def choose_seeds(study: CheckedStudy, earlier: Earlier) -> list[int]:
    """The seeds that the command asks for; a confirmation takes the first that were never trained for these cells."""
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
    """The looks that a study has had; those of a sequence before this one happened, whether they were logged or not."""
    logged = [(look.seeds, look.planned) for look in earlier.looks]
    before = [list(range(n)) for n in study.looks if n < study.settings.seeds]
    missing = [seeds for seeds in before if (seeds, study.looks) not in logged]
    return earlier.looks + [Look(seeds=seeds, planned=study.looks, when=now()) for seeds in missing]


def other_looks(earlier: Earlier, runs: list[PlannedRun]) -> list[Look]:
    """Looks that other studies took at the cells of this one: seeds added after them were added after a look, too.

    A look at a single cell of several, such as a common reference, saw no comparison of this study.  A run that is
    trained again, under reuse=none say, has been seen: its numbers are the same.
    """
    own, found = {run.path for run in runs} | {(run.cell, run.seed) for run in runs}, []
    least = min(2, len({run.cell for run in runs}))
    for name in sorted(earlier.studies - {earlier.name}):
        other = read_earlier(earlier.results, name)
        count = Counter(run.seed for run in other.runs if own & {run.path, (run.cell, run.seed)})
        shared = {seed for seed, cells in count.items() if cells >= least}
        for look in other.looks:
            if seeds := sorted(shared.intersection(look.seeds)):
                found.append(dataclasses.replace(look, seeds=seeds, study=name))
    return found


def status_of(results: Path, path: str) -> tuple[str, str | None]:
    """How a run ended, or missing, and a note where its result is corrupt, which counts as missing."""
    try:
        result = Run(results, path).result()
    except Corrupt as error:
        return "missing", f"{error}; that run is trained again"
    return result.status if result else "missing", None


def without_weights(results: Path, statuses: dict[str, str]) -> list[str]:
    """A note for each reason that runs are done and have no weights."""
    done = [Run(results, path) for path, status in statuses.items() if status == "done"]
    bare = Counter(why_without(run.result(), run.weights_file) for run in done if not run.weights_file.exists())
    return [
        f"{n} of these runs ended without weights ({why}), and are not trained again for them"
        for why, n in bare.items()
    ]


def to_test(results: Path, manifest: Manifest, statuses: dict[str, str]) -> tuple[list[str], list[str]]:
    """The runs that are done and whose weights are to be tested at lengths that they lack, and notes on them."""
    lack = untested(results, manifest, statuses)
    bare = [path for path in lack if not Run(results, path).weights_file.exists()]
    testable = [path for path in lack if path not in bare]
    notes = [f"{len(testable)} of these runs are done; their weights are tested at new eval.lengths"] * bool(testable)
    if bare:
        first = Run(results, bare[0])
        notes.append(
            f"eval.lengths: {len(bare)} of these runs have no weights to test (the first "
            f"{why_without(first.result(), first.weights_file)}); leave lengths out, or move such runs away to train "
            f"them again: {first.folder}"
        )
    return testable, notes


class Registered(NamedTuple):
    """A manifest's entries of claims: those that stand, those that were taken out, the hash of the former."""

    claims: dict[str, ClaimEntry]
    withdrawn: dict[str, ClaimEntry]
    claims_hash: str | None


def with_registrations(manifest: Manifest, study: CheckedStudy, earlier: Earlier, statuses: dict[str, str]) -> Manifest:
    """The manifest with its claims, margin and criterion, and what the earlier one and the tuning's hold of them."""
    known = earlier.manifest
    before = (known.withdrawn if known else {}) | study.written | (known.claims if known else {})
    margin, old = study.settings.margin, (known and known.margin) or study.entries.get("margin")
    criterion = (known and known.replicated) or study.entries.get("replicated")
    seen = scored(earlier, manifest.runs, statuses) if study.claims or before or margin or old or criterion else {}
    entries = register(study.claims, before, study.cells.rows, seen, now())
    return dataclasses.replace(
        manifest,
        **entries._asdict(),
        margin=registered_margin(margin, old, seen, now()),
        replicated=registered_criterion(study.replicated, criterion, seen, now()),
        effects=registered_margin(study.entries.get("effects"), known.effects if known else None, seen, now()),
    )


def scored(earlier: Earlier, runs: list[PlannedRun], statuses: dict[str, str]) -> dict[int, set[str]]:
    """The cells of this study that have a result, by seed; those of its earlier manifest and other studies', too."""
    found: dict[int, set[str]] = {}
    for run in [*runs, *earlier.runs, *earlier.same_runs(runs)]:
        status = statuses.get(run.path) or status_of(earlier.results, run.path)[0]
        if status in ("done", "diverged", "untested"):
            found.setdefault(run.seed, set()).add(run.cell)
    return found


def register(
    claims: dict[str, Claim],
    before: dict[str, ClaimEntry],
    cells: list[Cell],
    scored: dict[int, set[str]],
    when: str,
) -> Registered:
    """Claims with when each was written, given their entries `before`, those that were taken out included.

    A claim is registered when no seed had cells of more than one side scored as it was written; `scored` holds the
    cells by seed.  An unchanged one keeps its entry; an edited one keeps its earlier text; the entry of one that is
    taken out holds when that was, and whether its results were `seen` by then.
    """

    def seen(claim: Claim) -> bool:
        """Whether a seed has cells of more than one side scored; unknown, so true, where it names no cells here."""
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
    return Registered(entries, withdrawn, digest)


def _registered(
    kind: type[E], text: Callable[..., Any], value: Any, old: E | None, scored: dict[int, set[str]], when: str
) -> E | None:
    """The manifest's entry of a margin or criterion: its value, when it was written, if before any comparison existed.

    `scored` holds the cells that have a result by seed: two of them in one seed show a difference.  An unchanged value
    keeps its entry; a changed or withdrawn one keeps its earlier values, oldest first.
    """
    if old is None and value is None:
        return None
    known: Any = old  # mypy narrows no union with a type variable
    if known and known.value == value:
        return old
    before: list[Any] = []
    if known:
        before = [*known.earlier, text(value=known.value, written=known.written, registered=known.registered)]
    seen = any(len(cells) > 1 for cells in scored.values())
    return kind(value=value, written=when, registered=not seen, earlier=before)


registered_margin = functools.partial(_registered, MarginEntry, records.MarginText)
registered_criterion = functools.partial(_registered, CriterionEntry, records.CriterionText)
