"""Sentences on claims for the summary, the tables and the report."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pandas

from ablate import formatting
from ablate.config.claims import BOUNDED, Claim, Criterion, Side, levels_of, sides_of, weighed
from ablate.config.key_checks import fraction_of
from ablate.evidence.normality import FOOTNOTE, assuming, footnoted
from ablate.evidence.scores import lower_is_better
from ablate.evidence.step_equivalents import worth_text
from ablate.formatting import ESTIMATE_ONLY, SPEED, counted, listed, number, p_words, plain, plus, show, span
from ablate.results.naming import assigned, metric_words, named, no_evidence, scope, unit
from ablate.results.records import ClaimEntry, CriterionEntry, Manifest
from ablate.results.tables import named_rows

OPPOSITE, UNEQUAL = "opposite sign here", "not so at this scale"  # for contradicted claims


def claim_lines(manifest: Manifest, table: pandas.DataFrame) -> list[str]:
    """The overall verdict, a sentence per claim with its earlier versions, and the withdrawn claims."""
    if no_evidence(manifest):
        return []
    overall = replication(manifest, table)
    lines = [overall.sentence] if overall else []
    for row in named_rows(table):
        lines.append(row.sentence)
        for old in manifest.claims[row.name].earlier:
            known = "registered" if old.registered else "post hoc"
            lines.append(f"  edited: from {_day(old.written)} on ({known}) it said {claim_words(old.claim)}")
    lines += [FOOTNOTE] * footnoted(table)
    for name, entry in manifest.withdrawn.items():
        when = f" {_day(entry.withdrawn)}" if entry.withdrawn else ""
        known = "registered" if entry.registered else "post hoc"
        late = ", after its results could be seen" if entry.seen is not False else ", before any result"
        lines.append(f"{name} ({known}): withdrawn{when}{late}; it said {claim_words(entry.claim)}")
    return lines


def _day(when: str) -> str:
    return when.replace("T", " ").removesuffix("+00:00")


def claim_words(claim: Claim) -> str:
    """A claim as it was written: "less: ffn=swiglu against ffn=mlp, gelu; margin 0.01; at norm=ln"."""
    given = getattr(claim, claim.relation)
    sides = [" with ".join(_typed(side)) if isinstance(side, dict) else ", ".join(map(str, side)) for side in given]
    rest = [f"metric {' against '.join(claim.metrics)}"] * bool(claim.metrics)
    rest += [f"margin {claim.margin}"] * (claim.margin is not None)
    rest += [f"{way} {bound:g}" for way, bound in (("above", claim.above), ("below", claim.below)) if bound is not None]
    places = (("at", claim.at), ("than at", claim.than_at))
    rest += [f"{place} {' with '.join(_typed(side))}" for place, side in places if side]
    return "; ".join([f"{claim.relation}: {sides[0]} against {sides[1]}", *rest])


def side_words(manifest: Manifest, side: Side) -> str:
    """A side of a claim: "geglu, swiglu", or "ffn=swiglu with optim.lr=0.001"."""
    if len(side) == 1 and not manifest.shown:
        ((key, wanted),) = side.items()
        levels = ", ".join(map(show, levels_of(wanted)))
        if "." not in key and levels not in ("none", "null", "true", "false"):
            return levels
    return " with ".join(pairs(manifest, side))


def pairs(manifest: Manifest, side: Side) -> list[str]:
    """Factors with their levels: "ReLU MLP, GELU MLP", "learning rate 1e-3"; "ffn=mlp, gelu" where keys are shown."""
    levels = {key: levels_of(wanted) for key, wanted in side.items()}
    return [
        ", ".join([assigned(manifest, key, first), *(named(manifest, other, key) for other in others)])
        for key, (first, *others) in levels.items()
    ]


def _typed(side: Side) -> list[str]:
    return [f"{key}={', '.join(map(show, levels_of(levels)))}" for key, levels in side.items()]


def claim_sentence(manifest: Manifest, entry: ClaimEntry, row: Any) -> str:
    """One claim: "gated (registered): supported. swiglu is 0.053 [0.027, 0.079] nats per byte better in …  (…)."""
    sides = weighed(entry.claim, manifest.cells)
    against = [cell for side in sides_of(entry.claim, manifest.cells)[1::2] for cell in side]
    where = scope(manifest, [cell for side in sides for cell in side], against if entry.claim.than_at else sides[-1])
    seeds = counted(row.n, "seed") if row.paired else formatting.over(row)
    parts = [seeds, assuming(row, ""), p_words(row.p_holm, "Holm")]
    parts += ["unadjusted for looks" * bool(row.unadjusted), worth_text(row)]
    grounds = "; ".join(filter(None, [", ".join(filter(None, parts)), row.note, where]))
    written, seen = ("registered", "before any result") if entry.registered else ("post hoc", "after results")
    status = written + f", edited {seen}" * bool(entry.earlier)
    return f"{row.name} ({status}): {row.verdict}. {row.says} ({grounds})."


def claim_says(manifest: Manifest, claim: Claim, row: Any) -> str:
    """The finding of a claim, without its grounds."""
    fixed = f"at {' with '.join(pairs(manifest, claim.fixed))}" if claim.fixed else ""
    other = ""
    if row.verdict == "contradicted" and row.relation != "equivalent":
        other = UNEQUAL if row.relation in (*BOUNDED, "multiplier") or claim.margin is not None else OPPOSITE
    before = ", ".join(filter(None, [other, fixed])) + (": " if other else ", " if fixed else "")
    return before + SENTENCES[row.relation](manifest, claim, row)


def sized(manifest: Manifest, row: Any) -> str:
    """A difference without its sign: "0.053 [0.027, 0.079] nats per byte"."""
    places = _places(row)
    near, far = sorted((abs(row.low), abs(row.high)))
    return f"{number(abs(row.mean), places)} [{formatting.ends(near, far, places)}]{_unit(manifest, row)}"


def spread(manifest: Manifest, row: Any) -> str:
    """A signed difference: "test loss −0.053 [−0.079, −0.027] nats per byte", with its interval, if any."""
    return f"{metric_words(manifest, row.metric)} {_signed(manifest, row)}"


def _signed(manifest: Manifest, row: Any) -> str:
    return span(row.mean, row.low, row.high, _places(row)) + _unit(manifest, row)


def _places(row: Any) -> int:
    return formatting.decimals([(row.high - row.low) / 2])


def _unit(manifest: Manifest, row: Any) -> str:
    return unit(manifest, row.metric).removeprefix(",")


def _directed(manifest: Manifest, claim: Claim, row: Any) -> str:
    """Directed relations: how much better or worse side one is, or the signed difference, with the criterion."""
    interval = math.isfinite(row.low) and not row.low <= 0 <= row.high
    undecided = row.verdict == "undecided" and (claim.margin is None or claim.relation in BOUNDED)
    open_ = undecided or row.verdict == ESTIMATE_ONLY
    if len(claim.metrics) > 1 or claim.than_at or not interval or open_:
        return _differs(manifest, claim, row) + _criterion(claim, row)
    several = any(isinstance(level, list) and len(level) > 1 for level in claim.sides[0].values())
    verb = "are" if several else "is"
    way, opposite = ways(manifest, row.metric, row.mean)
    what = "" if row.metric in SPEED and _unit(manifest, row) else f" in {metric_words(manifest, row.metric)}"
    found = f"{row.side} {verb} {sized(manifest, row)} {way}{what} than {row.against}"
    return found + _criterion(claim, row, opposite)


def ways(manifest: Manifest, metric: str, difference: float) -> tuple[str, str]:
    """The words for a difference in a metric and for its opposite: better and worse, or faster and slower."""
    good, bad = ("faster", "slower") if metric in SPEED else ("better", "worse")
    return (good, bad) if (difference < 0) == lower_is_better(manifest, metric) else (bad, good)


def _criterion(claim: Claim, row: Any, opposite: str = "") -> str:
    """The criterion that a margin sets, and the bound that misses it if undecided: " (criterion > +0.3)".  With
    `opposite`, the criterion has no sign, like the difference before it; the other direction is put in words."""
    if claim.margin is None:
        return ""
    sign, side = EDGES[claim.relation]
    edge, low, high = sign * float(claim.margin), row.low, row.high
    if opposite and row.mean < 0:
        edge, low, high, side = -edge, -high, -low, "above" if side == "below" else "below"
    if opposite and edge < 0:
        limit = f": {'more' if side == 'below' else 'less'} than {plain(-edge)} {opposite}"
    else:
        limit = f" {'<' if side == 'below' else '>'} {plain(edge) if opposite else plus(edge, 'g')}"
    if row.verdict != "undecided" or not math.isfinite(low):
        return f" (criterion{limit})"
    if (high < edge) if side == "below" else (low > edge):
        return f" (criterion{limit}, met by the interval alone: inconclusive)"  # too few seeds, or some collapsed
    which, misses, end = ("upper", "exceeds", high) if side == "below" else ("lower", "is below", low)
    bound = f"{which} bound {number(end, _places(row), signed=not opposite)} {misses} it"
    return f" (criterion{limit}; {bound}: inconclusive)"


def _differs(manifest: Manifest, claim: Claim, row: Any) -> str:
    between = f"{row.side} against {row.against}"
    if not math.isfinite(row.low):  # withheld, or one seed: a bare number could be mistaken for a finding
        return between
    of_two = len(claim.metrics) > 1  # then the sides name their metrics
    between = f"{row.side} {formatting.MINUS} {row.against}" if of_two and claim.sides[0] == claim.sides[1] else between
    return f"{between}: {_signed(manifest, row) if of_two else spread(manifest, row)}"


def _equivalent(manifest: Manifest, claim: Claim, row: Any) -> str:
    margin = claim.margin
    share = f"{margin} of the training steps" if fraction_of(margin) is not None else ""
    known = formatting.bounds(float(f"{row.margin:.3g}"), math.nan)
    within = f"{known} ({share})" if known and share else known or f"±{share}"
    if row.verdict == "supported" and len(claim.metrics) < 2:
        return f"{row.side} and {row.against} are equivalent within {within}: {spread(manifest, row)}"
    if row.verdict == "contradicted" and len(claim.metrics) < 2:
        return f"{row.side} and {row.against} are not equivalent: {spread(manifest, row)}, margin {within}"
    return f"{_differs(manifest, claim, row)}, margin {within}"


def _diverges(manifest: Manifest, claim: Claim, row: Any) -> str:
    hows = {"supported": "diverges more often than", "contradicted": "diverges less often than"}
    hows |= {"undecided": "is not shown to diverge more or less often than", ESTIMATE_ONLY: "against"}
    return f"{row.side} {hows[row.verdict]} {row.against}"


def _ranks(manifest: Manifest, claim: Claim, row: Any) -> str:
    published = ", ".join(plus(value, "g").removeprefix("+") for value in claim.published)
    hows = {"supported": "rank", "contradicted": "rank against", "undecided": "are not shown to rank"}
    how = hows.get(row.verdict, "ranked")
    ranked = f"{row.side} {how} as published ({published}) in the {metric_words(manifest, row.metric)}"
    known = row.n > 1 and math.isfinite(row.mean)
    return f"{ranked}: Spearman {span(row.mean, row.low, row.high, 2)} over the seeds" if known else ranked


def _multiplies(manifest: Manifest, claim: Claim, row: Any) -> str:
    edge, way = claim.bound
    bound = f"criterion {'>' if way > 0 else '<'} {edge:g}"
    if not math.isfinite(row.low):
        return f"{row.side} in compute of {row.against} ({bound})"
    found = f"{number(row.mean, 2)} [{formatting.ends(row.low, row.high, 2)}]"
    return f"{row.side} is worth {found} times the compute of {row.against} ({bound})"


# The sign of a relation's margin, and the side of it on which the difference is claimed to lie.
EDGES = {"less": (-1, "below"), "greater": (1, "above"), "not_greater": (1, "below"), "not_less": (-1, "above")}
SENTENCES: dict[str, Callable[[Manifest, Claim, Any], str]] = dict.fromkeys(EDGES, _directed)
SENTENCES |= {"equivalent": _equivalent, "diverges_more": _diverges}
SENTENCES |= {"rank_correlates": _ranks, "multiplier": _multiplies}


class Replication(NamedTuple):
    """The result of a study's criterion: met, refuted, open or none, the reason, and both in a sentence."""

    verdict: str
    why: str
    sentence: str


def replication(manifest: Manifest, claims: pandas.DataFrame) -> Replication | None:
    """The overall verdict of a study: met, refuted or open by its criterion (see `criterion_verdict`), "none" if the
    criterion was withdrawn or written after results.  None without a criterion, or if the study is no evidence."""
    criterion = manifest.replicated
    if criterion is None or no_evidence(manifest):
        return None
    earlier = _before(criterion)
    if criterion.value is None:
        return Replication("none", "withdrawn", f"replicated: withdrawn {criterion.written}{earlier}.")
    verdicts = claims.set_index("name").loc[criterion.value.of]["verdict"].to_dict()
    why = _basis(criterion.value, verdicts)
    remark = f" ({criterion.remark})" if criterion.remark else ""
    grounds = f"{why[0].upper()}{why[1:]}{remark}{earlier}"
    if criterion.registered:
        verdict = criterion_verdict(list(verdicts.values()), criterion.value.needed)
        return Replication(verdict, why, f"replicated (registered): {verdict}. {grounds}.")
    edited = ", edited after results" if criterion.earlier else ""
    return Replication("none", why, f"replicated (post hoc{edited}): no verdict. {grounds}.")


def criterion_verdict(verdicts: list[str], needed: int) -> str:
    """met if at least `needed` claims are supported, refuted if so many are contradicted that this cannot be reached
    any more, else open."""
    if verdicts.count("supported") >= needed:
        return "met"
    if verdicts.count("contradicted") > len(verdicts) - needed:
        return "refuted"
    return "open"


def _basis(criterion: Criterion, verdicts: dict[str, str]) -> str:
    """How many claims are supported, and which are not."""
    if len(verdicts) == 1:
        ((name, verdict),) = verdicts.items()
        return f"the claim that it rests on, {name}, is {verdict}"
    supported = list(verdicts.values()).count("supported")
    rests = f"of the {len(verdicts)} claims that it rests on"
    verbs = ["is" if count < 2 else "are" for count in (supported, criterion.needed)]
    enough = f", and {criterion.needed} {verbs[1]} enough" * (criterion.needed < len(verdicts))
    parts = [f"{rests} {supported or 'none'} {verbs[0]} supported{enough}"]
    for verdict in ("contradicted", "undecided", ESTIMATE_ONLY):
        names = [name for name, word in verdicts.items() if word == verdict]
        if names:
            parts.append(f"{verdict}: {listed(names)}")
    return "; ".join(parts)


def _before(entry: CriterionEntry) -> str:
    return "".join(
        f"; from {old.written or 'an unknown time'} on ({'registered' if old.registered else 'post hoc'}) it rested on "
        + (f"{old.value.needed} of {listed(old.value.of)}" if old.value else "nothing")
        for old in entry.earlier
    )
