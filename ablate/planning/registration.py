"""When a claim, a margin or a criterion was written: before any comparison existed that it is about, or after."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ablate.config.claim_relations import Claim, sides_of
from ablate.config.typed_json import plain
from ablate.planning.earlier_runs import Earlier, status_of
from ablate.planning.study import CheckedStudy
from ablate.results import records
from ablate.results.records import Cell, ClaimEntry, ClaimText, CriterionEntry, Manifest, MarginEntry, PlannedRun
from ablate.results.run import now

E = TypeVar("E", MarginEntry, CriterionEntry)


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
