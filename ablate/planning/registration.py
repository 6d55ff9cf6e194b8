"""When a claim or a margin was written: before any comparison existed that it speaks of, or after."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ablate.config.claim_relations import sides_of

LEAVING = ("withdrawn", "seen")  # what an entry says while its claim is taken out


def register(
    claims: dict[str, Any], earlier: dict[str, Any], cells: list[dict[str, Any]], scored: dict[int, set[str]], when: str
) -> dict[str, Any]:
    """The manifest's entries `claims`, `withdrawn` and `claims_hash`: each claim with when it was written.

    A claim is registered when no seed had cells of more than one side scored as it was written; `scored` holds the
    cells by seed.  An unchanged one keeps what was said of it; an edited one keeps its earlier text; of one that is
    taken out it is kept when, and whether its results were `seen` by then.
    """
    before = {**earlier.get("withdrawn", {}), **earlier.get("claims", {})}
    entries = {}
    for name, claim in claims.items():
        old = before.get(name)
        if old and old["claim"] == claim:
            entries[name] = {key: old[key] for key in old if key not in LEAVING}
            continue
        seen = _seen(claim, cells, scored)
        entries[name] = {"claim": claim, "written": when, "registered": not seen, "earlier": history(old, "claim")}
    withdrawn = {
        name: entry if "seen" in entry else entry | {"withdrawn": when, "seen": _seen(entry["claim"], cells, scored)}
        for name, entry in before.items()
        if name not in claims
    }
    text = json.dumps(claims, sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()[:16] if claims else None
    return {"claims": entries, "withdrawn": withdrawn, "claims_hash": digest}


def _seen(claim: dict[str, Any], cells: list[dict[str, Any]], scored: dict[int, set[str]]) -> bool:
    """Whether a seed has cells of more than one side scored; of a claim that names no cells here that is not known."""
    sides = sides_of(claim, cells)
    return not all(sides) or any(sum(bool(side & done) for side in sides) > 1 for done in scored.values())


def registered_margin(
    margin: Any, earlier: dict[str, Any] | None, scored: dict[int, set[str]], when: str
) -> dict[str, Any] | None:
    """The manifest's entry `margin`: its value, when it was written, whether that was before any comparison existed.

    `scored` holds the cells that have a result by seed: who saw two of them in one seed has seen a difference.  An
    unchanged margin keeps what was said of it; a changed or withdrawn one keeps its earlier values, oldest first.
    """
    old = earlier if isinstance(earlier, dict) else None
    if old is None and margin is None:
        return None
    if old and old["value"] == margin:
        return old
    seen = any(len(cells) > 1 for cells in scored.values())
    return {"value": margin, "written": when, "registered": not seen, "earlier": history(old, "value")}


def history(old: dict[str, Any] | None, what: str) -> list[dict[str, Any]]:
    """The texts that an edited entry of a manifest had, under `what`, and when each was written; oldest first."""
    return [*old["earlier"], {key: old[key] for key in (what, "written", "registered")}] if old else []
