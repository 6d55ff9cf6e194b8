"""What claims say and what was found, in sentences for the summary, the tables and the report."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas

from ablate import formatting
from ablate.config.claims import BOUNDED, Claim, Criterion, Side, levels_of, weighed
from ablate.config.key_checks import fraction_of
from ablate.evidence.ladder import times
from ablate.evidence.scores import lower_is_better
from ablate.evidence.worth import worth_text
from ablate.formatting import ESTIMATE_ONLY, MINUS, SPEED, counted, listed, number, p_words, plain, plus, show, span
from ablate.runs.naming import assigned, metric_words, named, no_evidence, scope, unit
from ablate.runs.records import ClaimEntry, CriterionEntry, Manifest
from ablate.runs.tables import named_rows

# On which side of its signed margin a relation claims the difference to lie.
# How a relation is written between its sides, and the sign of its margin.
SIGNS = {
    "less": ("<", MINUS),
    "greater": (">", "+"),
    "equivalent": ("=", "±"),
    "not_greater": ("<", "+"),
    "not_less": (">", MINUS),
}
CLAIMED = {"less": "below −", "greater": "above +", "not_greater": "below +", "not_less": "above −"}
VERBS = {
    "diverges_more": {
        "supported": "diverges more often than",
        "contradicted": "diverges less often than",
        "undecided": "is not shown to diverge more or less often than",
        ESTIMATE_ONLY: "against",
    },
    "rank_correlates": {
        "supported": "rank",
        "contradicted": "rank against",
        "undecided": "are not shown to rank",
        ESTIMATE_ONLY: "ranked",
    },
}


def claim_lines(manifest: Manifest, table: pandas.DataFrame) -> list[str]:
    """The overall verdict, a sentence per claim with its earlier versions, and the withdrawn claims."""
    if no_evidence(manifest):
        return []
    lines = []
    overall = replication(manifest, table)
    if overall:
        lines.append(overall.sentence)
    for row in named_rows(table):
        lines.append(row.sentence)
        for version in manifest.claims[row.name].earlier:
            since = f"from {_date(version.written)} on ({_registration(version.registered)})"
            lines.append(f"  edited: {since} it said {as_written(version.claim)}")
    for name, entry in manifest.withdrawn.items():
        when = f" {_date(entry.withdrawn)}" if entry.withdrawn else ""
        seen = "before any result" if entry.seen is False else "after its results could be seen"
        status = f"{name} ({_registration(entry.registered)}): withdrawn{when}, {seen}"
        lines.append(f"{status}; it said {as_written(entry.claim)}")
    return lines


def claim_label(manifest: Manifest, name: str) -> str:
    """What a claim is called: its label in figures.yaml, else its name in the study file."""
    return manifest.shown.get(f"claims.{name}", name)


def claim_formula(manifest: Manifest, claim: Claim, row: Any) -> str:
    """What a claim says, in the fewest words: "SwiGLU < ReLU MLP", "GELU MLP = SiLU MLP ± 0.02"."""
    if claim.relation == "rank_correlates":
        text = f"{row.side} rank as published"
    elif claim.relation == "diverges_more":
        text = f"{row.side} diverges more than {row.against}"
    elif claim.relation == "multiplier":
        bound, sign = claim.bound
        text = f"{row.side} {'>' if sign > 0 else '<'} {bound:g} × {row.against}"
    else:
        relation, margin_sign = SIGNS[claim.relation]
        text = f"{row.side} {relation} {row.against}"
        if fraction_of(claim.margin) is not None:
            text += f" {margin_sign} {claim.margin} of the steps"
        elif claim.margin is not None:
            text += f" {margin_sign} {plain(float(claim.margin))}"
    return f"at {' with '.join(pairs(manifest, claim.fixed))}, {text}" if claim.fixed else text


def edited_and_withdrawn(manifest: Manifest) -> str:
    """A sentence on the registered claims that were edited or withdrawn; "" if there are none."""
    late = 0
    early = 0
    for entry in manifest.withdrawn.values():
        if entry.registered or any(version.registered for version in entry.earlier):
            late += entry.seen is not False
            early += entry.seen is False
    edited = 0
    for entry in manifest.claims.values():
        edited += not entry.registered and any(version.registered for version in entry.earlier)
    counts = {
        "withdrawn after results could be seen": late,
        "edited after results": edited,
        "withdrawn before any result": early,
    }
    parts = [f"{count} {'was' if count == 1 else 'were'} {what}" for what, count in counts.items() if count]
    if not parts:
        return ""
    text = f"Of the registered claims, {listed(parts)}"
    if late + edited:
        text += "; p is corrected for what was changed after results, too"
    return f"{text}."


def as_written(claim: Claim) -> str:
    """A claim as in a study file: "{less: [{ffn: swiglu}, {ffn: mlp}]}"."""
    return str(claim.as_json()).replace("'", "")


def _registration(registered: Any) -> str:
    return "registered" if registered else "post hoc"


def _date(when: str) -> str:
    return when.replace("T", " ").removesuffix("+00:00")


def side_words(manifest: Manifest, side: Side) -> str:
    """A side of a claim: "geglu, swiglu", or "ffn=swiglu with optim.lr=0.001"."""
    if len(side) == 1 and not manifest.shown:
        ((key, values),) = side.items()
        values = ", ".join(map(show, levels_of(values)))
        if "." not in key and values not in ("none", "null", "true", "false"):
            return values
    return " with ".join(pairs(manifest, side))


def pairs(manifest: Manifest, side: Side) -> list[str]:
    """Factors with their values: "ReLU MLP, GELU MLP", "learning rate 1e-3"; "ffn=mlp, gelu" where keys are shown."""
    texts = []
    for key, values in side.items():
        first, *others = levels_of(values)
        texts.append(", ".join([assigned(manifest, key, first), *(named(manifest, value, key) for value in others)]))
    return texts


def claim_sentence(manifest: Manifest, entry: ClaimEntry, row: Any) -> str:
    """A claim's verdict: "gated (registered): supported. swiglu is 0.053 [0.027, 0.079] nats per byte better … (…)."""
    status = _registration(entry.registered)
    if entry.earlier:
        status += ", edited before any result" if entry.registered else ", edited after results"
    grounds = [counted(row.n, "seed") if row.paired else formatting.over(row), p_words(row.p_holm, "Holm")]
    if row.unadjusted:
        grounds.append("unadjusted for interim analyses")
    grounds.append(worth_text(row))
    parts = [", ".join(filter(None, grounds)), row.note, _scope(manifest, entry.claim)]
    return (
        f"{claim_label(manifest, row.name)} ({status}): {row.verdict}. {row.says} ({'; '.join(filter(None, parts))})."
    )


def _scope(manifest: Manifest, claim: Claim) -> str:
    cells = [cell for side in weighed(claim, manifest.cells) for cell in side]
    return scope(manifest, cells, cells)


def claim_says(manifest: Manifest, claim: Claim, row: Any) -> str:
    """The finding of a claim, without its grounds."""
    finding = FINDINGS[row.relation](manifest, claim, row)
    return f"at {' with '.join(pairs(manifest, claim.fixed))}, {finding}" if claim.fixed else finding


def _difference(manifest: Manifest, claim: Claim, row: Any) -> str:
    """A difference between sides with its interval: "ln and rms are equivalent: test loss +0.002 […], margin ±0.05"."""
    sides = f"{row.side} against {row.against}"
    if not math.isfinite(row.low):  # a bare number could be mistaken for a finding
        return sides + _claimed(claim, row)
    if _is_directed(claim, row):
        return _better_or_worse(manifest, claim, row)
    if len(claim.metrics) > 1:
        if claim.sides[0] == claim.sides[1]:
            sides = f"{row.side} {MINUS} {row.against}"
        return f"{sides}: {_signed(manifest, row)}{_claimed(claim, row)}"
    if claim.relation == "equivalent" and row.verdict == "supported":
        sides = f"{row.side} and {row.against} are equivalent"
    if claim.relation == "equivalent" and row.verdict == "contradicted":
        sides = f"{row.side} and {row.against} are not equivalent"
    return f"{sides}: {spread(manifest, row)}{_claimed(claim, row)}"


def _is_directed(claim: Claim, row: Any) -> bool:
    """Whether a claim without a margin was decided by an interval that excludes zero."""
    plain_claim = claim.margin is None and len(claim.metrics) < 2 and not claim.than_at
    return plain_claim and row.verdict in ("supported", "contradicted") and not row.low <= 0 <= row.high


def _better_or_worse(manifest: Manifest, claim: Claim, row: Any) -> str:
    several = any(isinstance(level, list) and len(level) > 1 for level in claim.sides[0].values())
    verb = "are" if several else "is"
    way = direction(manifest, row.metric, row.mean)
    timed = row.metric in SPEED and _unit(manifest, row)
    metric = "" if timed else f" in {metric_words(manifest, row.metric)}"
    return f"{row.side} {verb} {sized(manifest, row)} {way}{metric} than {row.against}"


def direction(manifest: Manifest, metric: str, difference: float) -> str:
    """The word for a difference in a metric: better or worse, faster or slower."""
    good, bad = ("faster", "slower") if metric in SPEED else ("better", "worse")
    return good if (difference < 0) == lower_is_better(manifest, metric) else bad


def _claimed(claim: Claim, row: Any) -> str:
    """What a margin asks of the difference: ", claimed: below −0.01", ", margin ±0.05"; empty without one."""
    if claim.margin is None:
        return ""
    if claim.relation != "equivalent":
        return f", claimed: {CLAIMED[claim.relation]}{plain(float(claim.margin))}"
    if fraction_of(claim.margin) is None:
        return f", margin ±{plain(float(claim.margin))}"
    return f", margin ±{claim.margin} of the training steps"


def sized(manifest: Manifest, row: Any) -> str:
    """A difference without its sign: "0.053 [0.027, 0.079] nats per byte"."""
    places = _places(row)
    near, far = sorted((abs(row.low), abs(row.high)))
    return f"{number(abs(row.mean), places)} [{formatting.ends(near, far, places)}]{_unit(manifest, row)}"


def spread(manifest: Manifest, row: Any) -> str:
    """A signed difference with its interval, if any: "test loss −0.053 [−0.079, −0.027] nats per byte"."""
    return f"{metric_words(manifest, row.metric)} {_signed(manifest, row)}"


def _signed(manifest: Manifest, row: Any) -> str:
    return span(row.mean, row.low, row.high, _places(row)) + _unit(manifest, row)


def _places(row: Any) -> int:
    return formatting.decimals([(row.high - row.low) / 2])


def _unit(manifest: Manifest, row: Any) -> str:
    return unit(manifest, row.metric).removeprefix(",")


def _divergence(manifest: Manifest, claim: Claim, row: Any) -> str:
    return f"{row.side} {VERBS[row.relation][row.verdict]} {row.against}"


def _ranking(manifest: Manifest, claim: Claim, row: Any) -> str:
    published = ", ".join(plus(value, "g").removeprefix("+") for value in claim.published)
    verb = VERBS[row.relation][row.verdict]
    text = f"{row.side} {verb} as published ({published}) in the {metric_words(manifest, row.metric)}"
    if row.n > 1 and math.isfinite(row.mean):
        text += f": Spearman {span(row.mean, row.low, row.high, 2)} over the seeds"
    return text


def _multiplier(manifest: Manifest, claim: Claim, row: Any) -> str:
    bound, sign = claim.bound
    claimed = f"claimed: {'above' if sign > 0 else 'below'} {bound:g}"
    if not math.isfinite(row.low):
        return f"{row.side} in compute of {row.against}, {claimed}"
    multiplier = times(row, "mean").replace("×", "")
    return f"{row.side} is worth {multiplier} times the compute of {row.against}, {claimed}"


FINDINGS: dict[str, Callable[[Manifest, Claim, Any], str]] = {
    "less": _difference,
    "greater": _difference,
    **dict.fromkeys(BOUNDED, _difference),
    "diverges_more": _divergence,
    "rank_correlates": _ranking,
    "multiplier": _multiplier,
}


@dataclass(frozen=True)
class Replication:
    """The verdict on a study by its criterion, met, refuted, open or none, with the reason, and both in a sentence."""

    verdict: str
    why: str
    sentence: str


def replication(manifest: Manifest, claims: pandas.DataFrame) -> Replication | None:
    """The overall verdict of a study: met, refuted or open by its criterion (see `criterion_verdict`), "none" if the
    criterion was withdrawn or written after results.  None without a criterion, or if the study is no evidence."""
    criterion = manifest.replicated
    if criterion is None or no_evidence(manifest):
        return None
    before = _earlier_criteria(criterion)
    if criterion.value is None:
        return Replication("none", "withdrawn", f"replicated: withdrawn {criterion.written}{before}.")
    verdicts = claims.set_index("name").loc[criterion.value.of]["verdict"].to_dict()
    why = _basis(criterion.value, verdicts)
    grounds = f"{why[0].upper()}{why[1:]}"
    if criterion.remark:
        grounds += f" ({criterion.remark})"
    grounds += before
    if criterion.registered:
        verdict = criterion_verdict(list(verdicts.values()))
        return Replication(verdict, why, f"replicated (registered): {verdict}. {grounds}.")
    status = "post hoc, edited after results" if criterion.earlier else "post hoc"
    return Replication("none", why, f"replicated ({status}): no verdict. {grounds}.")


def criterion_verdict(verdicts: list[str]) -> str:
    """met if all claims are supported, refuted if one is contradicted, else open."""
    if all(verdict == "supported" for verdict in verdicts):
        return "met"
    return "refuted" if "contradicted" in verdicts else "open"


def _basis(criterion: Criterion, verdicts: dict[str, str]) -> str:
    """How many claims are supported, and which are not: "2 of 3 claims are supported; contradicted: a"."""
    words = list(verdicts.values())
    if len(words) == 1:
        return f"its claim, {criterion.of[0]}, is {words[0]}"
    supported = words.count("supported")
    text = f"{supported} of {len(words)} claims {'is' if supported == 1 else 'are'} supported"
    parts = [text]
    for verdict in ("contradicted", "undecided", ESTIMATE_ONLY):
        names = [name for name, word in verdicts.items() if word == verdict]
        if names:
            parts.append(f"{verdict}: {listed(names)}")
    return "; ".join(parts)


def _earlier_criteria(entry: CriterionEntry) -> str:
    texts = []
    for version in entry.earlier:
        since = f"from {version.written or 'an unknown time'} on ({_registration(version.registered)})"
        basis = f"{listed(version.value.of)}" if version.value else "nothing"
        texts.append(f"; {since} it rested on {basis}")
    return "".join(texts)
