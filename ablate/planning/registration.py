"""When a claim, a margin or a criterion was written: before any comparison existed that it speaks of, or after."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ablate.config.claim_relations import Claim, sides_of
from ablate.config.typed_json import plain
from ablate.results.records import (
    Cell,
    ClaimEntry,
    ClaimText,
    CriterionEntry,
    CriterionText,
    MarginEntry,
    MarginText,
)

E = TypeVar("E", MarginEntry, CriterionEntry)


class Registered(NamedTuple):
    """What a manifest says of claims: those that stand, those that were taken out, the hash of the former."""

    claims: dict[str, ClaimEntry]
    withdrawn: dict[str, ClaimEntry]
    claims_hash: str | None


def register(
    claims: dict[str, Claim],
    before: dict[str, ClaimEntry],
    cells: list[Cell],
    scored: dict[int, set[str]],
    when: str,
) -> Registered:
    """Claims with when each was written, beside what was said of them `before`, those that were taken out included.

    A claim is registered when no seed had cells of more than one side scored as it was written; `scored` holds the
    cells by seed.  An unchanged one keeps what was said of it; an edited one keeps its earlier text; of one that is
    taken out it is kept when, and whether its results were `seen` by then.
    """
    entries = {}
    for name, claim in claims.items():
        old = before.get(name)
        if old and old.claim == claim:
            entries[name] = dataclasses.replace(old, withdrawn=None, seen=None)
            continue
        seen = _seen(claim, cells, scored)
        entries[name] = ClaimEntry(claim=claim, written=when, registered=not seen, earlier=texts(old))
    gone = {name: entry for name, entry in before.items() if name not in claims}
    withdrawn = {name: taken_out(entry, cells, scored, when) for name, entry in gone.items()}
    text = json.dumps(plain(claims), sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()[:16] if claims else None
    return Registered(entries, withdrawn, digest)


def taken_out(entry: ClaimEntry, cells: list[Cell], scored: dict[int, set[str]], when: str) -> ClaimEntry:
    """The entry of a claim that is no longer there: when it went, and whether its results could be seen by then."""
    if entry.seen is not None:
        return entry
    return dataclasses.replace(entry, withdrawn=when, seen=_seen(entry.claim, cells, scored))


def _seen(claim: Claim, cells: list[Cell], scored: dict[int, set[str]]) -> bool:
    """Whether a seed has cells of more than one side scored; of a claim that names no cells here that is not known."""
    sides = sides_of(claim, cells)
    return not all(sides) or any(sum(bool(side & done) for side in sides) > 1 for done in scored.values())


def dated(
    kind: type[E], text: Callable[..., Any], value: Any, old: E | None, scored: dict[int, set[str]], when: str
) -> E | None:
    """The manifest's entry of a margin or criterion: its value, when it was written, if before any comparison existed.

    `scored` holds the cells that have a result by seed: who saw two of them in one seed has seen a difference.  An
    unchanged value keeps what was said of it; a changed or withdrawn one keeps its earlier values, oldest first.
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


registered_margin = functools.partial(dated, MarginEntry, MarginText)
registered_criterion = functools.partial(dated, CriterionEntry, CriterionText)


def texts(old: ClaimEntry | None) -> list[ClaimText]:
    """The texts that an edited claim had, and when each was written; oldest first."""
    last = [ClaimText(claim=old.claim, written=old.written, registered=old.registered)] if old else []
    return [*(old.earlier if old else []), *last]
