"""Claims of a study file: what a plan says of mistakes in them, and when each was written.

Their grammar: ablate.grammar.  What results say of them: ablate.evidence.claims.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ablate import grammar
from ablate.grammar import near
from ablate.margins import history
from ablate.relations import sides_of
from ablate.schema import Problem

LEAVING = ("withdrawn", "seen")  # what an entry says while its claim is taken out


def claim_problems(claims: Any, factors: dict[str, list[Any]], at: Any = None) -> list[Problem]:
    """Everything wrong with the claims of a file over these factors; `at` is what the file fixes for all of them."""
    return [Problem(*told) for told in grammar.claim_problems(claims, factors, at)]


def applicable(claims: dict[str, Any], cells: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Problem]]:
    """The claims whose levels all have cells, no cell on two sides, and why the others are none of this study's."""
    kept, left = grammar.applicable(claims, cells)
    return kept, [Problem(*told) for told in left]


def metric_problems(claims: dict[str, Any], tasks: list[dict[str, str]], lengths: list[int]) -> list[Problem]:
    """Claims about metrics that no run of this study has; `tasks` holds each task's metrics, `lengths` eval.lengths."""
    known = {f"test/{name}" for metrics in tasks for name in metrics}
    known |= {"test/bpb"} if "test/loss" in known else set()
    found = []
    for name, claim in claims.items():
        metric = claim.get("metric") if isinstance(claim, dict) else None
        plain, _, length = str(metric).partition("@")
        if metric is not None and plain not in known:
            message = f"no such metric: {metric}{near(plain, sorted(known))}"
            found.append(Problem(f"claims.{name}", message))
        elif length and length not in map(str, lengths):
            message = f"metric: nothing is tested at length {length}; add it to eval.lengths"
            found.append(Problem(f"claims.{name}", message))
    return found


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
