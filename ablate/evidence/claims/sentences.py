"""Claims in sentences, as the summary, the tables and the report say them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas

from ablate.config.claim_relations import BOUNDED, Claim, Side, levels_of, weighed
from ablate.config.margin import fraction_of
from ablate.evidence.claims.replication import replication
from ablate.evidence.normality import FOOTNOTE, footnoted, own_assumption
from ablate.evidence.step_wording import worth_told
from ablate.format import (
    MINUS,
    bounds,
    counted,
    decimals,
    ends,
    leaning,
    number,
    over,
    p_words,
    plus,
    said_metric,
    show,
    span,
)
from ablate.results.naming import named, no_evidence, scope, unit
from ablate.results.records import ClaimEntry, ClaimText, Manifest

OPPOSITE, UNEQUAL = "opposite sign here: ", "not so at this scale: "  # of a difference, and of the lack of one


def claim_lines(manifest: Manifest, table: pandas.DataFrame) -> list[str]:
    """The overall verdict, a sentence per claim with the texts that it had before, the claims that were taken out."""
    if no_evidence(manifest):
        return []
    overall = replication(manifest, table)
    lines = [overall.sentence] if overall else []
    for row in table.itertuples(index=False):
        lines += [row.sentence, *(f"  {_earlier(old)}" for old in manifest.claims[row.name].earlier)]
    lines += [FOOTNOTE] * footnoted(table)
    for name, entry in manifest.withdrawn.items():
        when = f" {_day(entry.withdrawn)}" if entry.withdrawn else ""
        known = "registered" if entry.registered else "post hoc"
        late = ", after its results could be seen" if entry.seen is not False else ", before any result"
        lines.append(f"{name} ({known}): withdrawn{when}{late}; it said {claim_words(entry.claim)}")
    return lines


def _earlier(old: ClaimText) -> str:
    known = "registered" if old.registered else "post hoc"
    return f"edited: from {_day(old.written)} on ({known}) it said {claim_words(old.claim)}"


def _day(when: str) -> str:
    return when.replace("T", " ").removesuffix("+00:00")


def claim_words(claim: Claim) -> str:
    """A claim as it was written: "less: ffn=swiglu against ffn=mlp, gelu; margin 0.01; at norm=ln"."""
    sides = [
        " with ".join(_pairs(show, side)) if isinstance(side, dict) else ", ".join(map(str, side))
        for side in getattr(claim, claim.relation)
    ]
    rest = [f"metric {' against '.join(claim.metrics)}"] * bool(claim.metrics)
    rest += [f"margin {claim.margin}"] * (claim.margin is not None)
    rest += [f"at {' with '.join(_pairs(show, claim.at))}"] if claim.at else []
    return "; ".join([f"{claim.relation}: {sides[0]} against {sides[1]}", *rest])


def side_words(manifest: Manifest, side: Side) -> str:
    """A side of a claim: "geglu, swiglu", or "ffn=swiglu with optim.lr=0.001"."""
    if len(side) == 1:
        ((key, asked),) = side.items()
        levels = _levels(partial(named, manifest), asked)
        if "." not in key and levels not in ("none", "null", "true", "false"):
            return levels
    return " with ".join(_pairs(partial(named, manifest), side))


def at_words(manifest: Manifest, claim: Claim) -> str:
    """What a claim fixes: "norm=ln, optim.lr=0.001"."""
    return ", ".join(_pairs(partial(named, manifest), claim.at))


def _pairs(call: Callable[[Any], str], side: Side) -> list[str]:
    """Factors with the levels that are asked of them, by what people call them: "ffn=mlp, gelu"."""
    return [f"{call(key)}={_levels(call, asked)}" for key, asked in side.items()]


def _levels(call: Callable[[Any], str], asked: Any) -> str:
    return ", ".join(map(call, levels_of(asked)))


def claim_sentence(manifest: Manifest, entry: ClaimEntry, row: Any) -> str:
    """One claim: "gated (registered): supported. swiglu lowers the test loss by 0.053 nats per byte [0.027, …] (…)."""
    parts = [", ".join(_grounds(row)), row.note, _where(manifest, entry.claim)]
    grounds = "; ".join(filter(None, parts))
    return f"{row.name} ({_standing(entry)}): {row.verdict}. {row.says} ({grounds})."


def claim_says(manifest: Manifest, claim: Claim, row: Any) -> str:
    """What was found of a claim, without what it rests on."""
    fixed = f" at {' with '.join(_pairs(partial(named, manifest), claim.at))}" if claim.at else ""
    other = UNEQUAL if row.relation in BOUNDED or claim.margin is not None else OPPOSITE
    asked = _asked(claim, row) if row.relation in EDGES else ""
    return other * (leaning(row.verdict) == "contradicted") + SAID[row.relation](manifest, claim, row) + fixed + asked


def _standing(entry: ClaimEntry) -> str:
    edited = bool(entry.earlier)
    if entry.registered:
        return "registered" + ", edited before any result" * edited
    return "post hoc" + ", edited after results" * edited


def _where(manifest: Manifest, claim: Claim) -> str:
    sides = weighed(claim, manifest.cells)
    return scope(manifest, [cell for side in sides for cell in side], sides[-1])


def _grounds(row: Any) -> list[str]:
    seeds = counted(row.n, "seed") if row.paired else over(row)
    p = p_words(row.p_holm, "Holm") if row.family else p_words(row.p_bh, "BH")
    parts = [seeds, own_assumption(row), p, "unadjusted for looks" * bool(row.unadjusted), worth_told(row)]
    return [part for part in parts if part]


def moved(manifest: Manifest, row: Any, side: str, against: str, plural: bool = False) -> str:
    """A decided difference: "swiglu lowers the test loss by 0.053 nats per byte [0.027, 0.079] against mlp".

    An exploratory one "seems to lower" it.
    """
    verb, third = "lower" if row.mean < 0 else "raise", "s" * (not plural)
    verb = f"{verb}{third}" if row.verdict == leaning(row.verdict) else f"seem{third} to {verb}"
    return f"{side} {verb} the {said_metric(row.metric)} by {sized(manifest, row)}{against}"


def sized(manifest: Manifest, row: Any) -> str:
    """A difference without its sign: "0.053 nats per byte [0.027, 0.079]"."""
    places = decimals([(row.high - row.low) / 2])
    near, far = sorted((abs(row.low), abs(row.high)))
    measure = unit(manifest, row.metric).removeprefix(",")
    return f"{number(abs(row.mean), places)}{measure} [{ends(near, far, places)}]"


def spread(manifest: Manifest, row: Any) -> str:
    """A difference as it is: "test loss −0.053 nats per byte [−0.079, −0.027]", alone where there is no interval."""
    return f"{said_metric(row.metric)} {_signed(manifest, row)}"


def _signed(manifest: Manifest, row: Any) -> str:
    measure = unit(manifest, row.metric).removeprefix(",")
    mean, bracket, rest = span(row.mean, row.low, row.high, decimals([(row.high - row.low) / 2])).partition(" [")
    return f"{mean}{measure}{bracket}{rest}"


def _directed(manifest: Manifest, claim: Claim, row: Any) -> str:
    """`less`, `greater`, and their like: which way the metric moves, or the interval; with a margin what was asked."""
    if len(claim.metrics) > 1 or not math.isfinite(row.low) or (row.verdict == "undecided" and claim.margin is None):
        return _differs(manifest, claim, row)
    if row.low <= 0 <= row.high or (row.verdict == "undecided" and claim.relation in BOUNDED):
        return _differs(manifest, claim, row)
    several = any(isinstance(level, list) and len(level) > 1 for level in claim.sides[0].values())
    return moved(manifest, row, row.side, f" against {row.against}", several)


def _asked(claim: Claim, row: Any) -> str:
    """What a margin asks of a difference, and where an undecided one misses it: " (criterion: > +0.3)"."""
    if claim.margin is None:
        return ""
    sign, side = EDGES[claim.relation]
    edge, which = sign * float(claim.margin), "<" if side == "below" else ">"
    end = row.high if side == "below" else row.low
    asked = f"criterion: {which} {plus(edge, 'g')}"
    if leaning(row.verdict) != "undecided" or not math.isfinite(row.low):
        return f" ({asked})"
    if (row.high < edge) if side == "below" else (row.low > edge):
        return f" ({asked}: inconclusive)"
    misses = "exceeds" if side == "below" else "is below"
    places = decimals([(row.high - row.low) / 2])
    bound = f"{'upper' if side == 'below' else 'lower'} bound {number(end, places, signed=True)}"
    return f" ({asked}; {bound} {misses} it: inconclusive)"


def _differs(manifest: Manifest, claim: Claim, row: Any) -> str:
    between = f"{row.side} against {row.against}"
    if not math.isfinite(row.low):  # withheld, or of one seed: a number alone would be taken for a finding
        return between
    of_two = len(claim.metrics) > 1  # which its sides name
    between = f"{row.side} {MINUS} {row.against}" if of_two and claim.sides[0] == claim.sides[1] else between
    return f"{between}: {_signed(manifest, row) if of_two else spread(manifest, row)}"


def _equivalent(manifest: Manifest, claim: Claim, row: Any) -> str:
    asked = claim.margin
    share = f"{asked} of the training steps" if fraction_of(asked) is not None else ""
    known = bounds(float(f"{row.margin:.3g}"), math.nan)
    margin = f"{known} ({share})" if known and share else known or f"±{share}"
    held = leaning(row.verdict).partition(" ")[0]  # whom it holds for stands beside
    how = {"supported": "inside", "contradicted": "all outside", "undecided": "not all inside"}[held]
    how = how if math.isfinite(row.low) else "to be inside"
    return f"{_differs(manifest, claim, row)}, {how} {margin}"


def _diverges(manifest: Manifest, claim: Claim, row: Any) -> str:
    how = {"supported": "diverges more often than", "undecided": "is not shown to diverge more or less often than"}
    return f"{row.side} {how.get(leaning(row.verdict), 'diverges less often than')} {row.against}"


def _ranks(manifest: Manifest, claim: Claim, row: Any) -> str:
    published = ", ".join(plus(value, "g").removeprefix("+") for value in claim.published)
    hows = {"supported": "rank", "contradicted": "rank against", "undecided": "are not shown to rank"}
    how = hows[leaning(row.verdict)]
    ranked = f"{row.side} {how} as published ({published}) in the {said_metric(row.metric)}"
    known = row.n > 1 and math.isfinite(row.mean)
    return f"{ranked}: Spearman {span(row.mean, row.low, row.high, 2)} over the seeds" if known else ranked


# The sign of the margin that a relation is about, and on which side of it the difference is claimed to lie.
EDGES = {"less": (-1, "below"), "greater": (1, "above"), "not_greater": (1, "below"), "not_less": (-1, "above")}
SAID: dict[str, Callable[[Manifest, Claim, Any], str]] = {
    **dict.fromkeys(EDGES, _directed),
    "equivalent": _equivalent,
    "diverges_more": _diverges,
    "rank_correlates": _ranks,
}
