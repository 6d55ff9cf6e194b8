"""Sentences on the effects of a study: each with its interval, grounds, worth in steps, and scope."""

from typing import Any, NamedTuple

import pandas

from ablate import evidence, formatting
from ablate.formatting import leaning, listed, p_words
from ablate.results import naming
from ablate.results.naming import scope
from ablate.results.records import Manifest
from ablate.results.tables import named_rows
from analysis.case import Case

ALONE = "the two alone add up to"  # not "the main effects", which contain a share of the interaction
NEEDS_FACTOR = ("none", "null", "true", "false")  # levels that are meaningless without their factor


def sentences(case: Case, table: pandas.DataFrame | None = None) -> list[str]:
    """A sentence per row of effects; by default of the headline rows."""
    manifest = case.study.manifest
    shown = evidence.headline(case.effects) if table is None else table
    sides = {contrast.label: contrast for contrast in evidence.contrasts(manifest)}
    return [sentence(manifest, row, sides.get(row.label)) for row in named_rows(shown)]


def sentence(manifest: Manifest, row: Any, contrast: evidence.Contrast | None = None) -> str:
    """One row of effects in words: "swiglu in place of mlp lowers the test loss by 0.053 [0.027, …] nats per byte
    (…)."  `contrast` gives the compared cells, which add the cost in parameters and the scope."""
    also = evidence.also_words(row.also)
    grounds = "; ".join(filter(None, (also, ", ".join(grounds_of(row, manifest, contrast)), where(manifest, contrast))))
    return f"{finding(manifest, row)} ({grounds})."


def where(manifest: Manifest, contrast: evidence.Contrast | None) -> str:
    """The scope of a finding: of the compared cells, or of the whole study if these are unknown."""
    if contrast is None:
        return scope(manifest, [cell.id for cell in manifest.cells])
    return scope(manifest, contrast.weights, contrast.side(-1))


def finding(manifest: Manifest, row: Any) -> str:
    """The effect and its verdict in words, without grounds."""
    about = subject(manifest, row)
    if row.verdict == "withheld" or not row.n:
        rank = f"; diverged ranked worst: {formatting.ranks(row)}" if row.diverged + row.diverged_reference else ""
        return f"{about}: {row.verdict}, {row.note}{rank}"
    word = leaning(row.verdict)
    if word in ("better", "worse", "negligible"):
        within = f", a difference within {formatting.margin(row)}: {row.verdict}" * (word == "negligible")
        return moved(manifest, row) + within
    if " among " in row.verdict:
        return f"{about}: {formatting.conditional(row)}, {evidence.spread(manifest, row)}{beyond(manifest, row)}"
    why = f" ({row.note})" * bool(row.note and row.verdict == "undecided")
    words = {"none": "no verdict", "equivalent": f"{row.verdict} within {formatting.margin(row)}", "descriptive": word}
    return f"{about}: {words.get(word, 'undecided')}{why}, {evidence.spread(manifest, row)}{beyond(manifest, row)}"


def moved(manifest: Manifest, row: Any) -> str:
    """A decided effect in words: how the metric changes or, for interactions and trends, how a difference changes."""
    metric = f"the {naming.metric_words(manifest, row.metric)}"
    by = f"{'lower' if row.mean < 0 else 'higher'} by {evidence.sized(manifest, row)}"
    if row.kind == "trend":
        return f"{subject(manifest, row)}: the difference to {metric} is {by}{beyond(manifest, row)}"
    if row.kind != "interaction":
        other = f" against {row.reference}" if row.kind == "cell" else averaged(manifest, row)
        verb = "lower" if row.mean < 0 else "raise"
        verb = f"{verb}s" if row.verdict == leaning(row.verdict) else f"seems to {verb}"  # an exploratory one
        return f"{subject(manifest, row)} {verb} {metric} by {evidence.sized(manifest, row)}{other}"
    pair = paired(manifest, row)
    what = f"{pair.difference} to {metric}" if pair else metric
    than = f"with {pair.other} than with {pair.base}" if pair else f"than {ALONE}"
    return f"{subject(manifest, row)}: {what} is {by} {than}"


def beyond(manifest: Manifest, row: Any) -> str:
    """The explanation of the number of an interaction or a trend; "" for other effects."""
    if row.kind == "trend":
        return f" {row.level.split(', ')[-1]} of {naming.named(manifest, row.factor.split(' x ')[-1])}"
    pair = paired(manifest, row) if row.kind == "interaction" else None
    if pair:
        return f": {pair.difference} with {pair.other}, minus that with {pair.base}"
    return f" beyond what {ALONE}" * (row.kind == "interaction")


def subject(manifest: Manifest, row: Any) -> str:
    """What is compared, with its stratum: "swiglu in place of mlp", "interaction of rms and swiglu", "rms + swiglu"."""
    where = f" at {row.stratum}" * bool(row.stratum)
    if row.kind == "main":
        base = naming.named(manifest, row.reference, row.factor)
        return f"{level_name(manifest, row.factor, row.level)} in place of {base}{where}"
    if row.kind == "trend":
        (factor, setting), level = row.factor.split(" x "), row.level.split(", ")[0]
        one = f"{level_name(manifest, factor, level)} in place of {naming.named(manifest, row.reference, factor)}"
        return f"trend of {one} over {naming.named(manifest, setting)}{where}"
    if row.kind == "interaction":
        pair = paired(manifest, row)
        return f"interaction of {f'{pair.other} and {pair.one}{where}' if pair else row.label}"
    if row.kind == "cell" and leaning(row.verdict) in ("better", "worse", "negligible"):
        return f"{row.level}{where}"
    return str(row.label)


class Pair(NamedTuple):
    """Two interacting changes: `one`, the `difference` that it makes, and the levels `other` and `base` between which
    that is compared."""

    one: str
    difference: str
    other: str
    base: str


def paired(manifest: Manifest, row: Any) -> Pair | None:
    """The two changes of an interaction; None if several interactions are aliased."""
    factors, levels, bases = row.factor.split(" x "), row.level.split(", "), row.reference.split(", ")
    if evidence.ALIASED in row.note or {len(factors), len(levels), len(bases)} != {2}:
        return None
    if factors[1] not in manifest.reference:  # a setting: describe the component's effect at its levels
        factors, levels, bases = factors[::-1], levels[::-1], bases[::-1]
    other, one = (level_name(manifest, *each) for each in zip(factors, levels, strict=True))
    base, before = level_name(manifest, factors[0], bases[0]), naming.named(manifest, bases[1], factors[1])
    return Pair(one, f"the difference that {one} in place of {before} makes", other, base)


def level_name(manifest: Manifest, factor: str, level: str) -> str:
    """A level for use in a sentence: SwiGLU, learning rate 3e-3; norm=none where keys are shown."""
    shown = naming.named(manifest, level, factor)
    alone = factor in manifest.components and (level not in NEEDS_FACTOR or shown != level)
    return shown if alone else naming.assigned(manifest, factor, level)


def averaged(manifest: Manifest, row: Any) -> str:
    """The other factors that a main effect of a factorial design is averaged over."""
    if row.kind != "main" or manifest.design not in ("grid", "fractional"):
        return ""
    others = [name for name in manifest.factors if name in manifest.reference and name != row.factor]
    return f", averaged over {listed(naming.named(manifest, name) for name in others)}" if others else ""


def grounds_of(row: Any, manifest: Manifest, contrast: evidence.Contrast | None) -> list[str]:
    """The grounds of an effect: seeds, p, worth in steps, parameters."""
    seeds = formatting.counted(row.n, "seed") if row.paired else formatting.over(row)
    p = p_words(row.p_holm, "Holm") if row.family else p_words(row.p_bh, "BH")
    found = ["exploratory" * (not row.family), seeds, evidence.assuming(row, ""), p]
    found += ["unadjusted for looks"] if row.unadjusted else []
    if row.verdict == "undecided" and formatting.known(row.smallest):
        size = formatting.number(row.smallest, formatting.decimals([row.smallest]))
        found.append(f"a fresh study would find {size} four times in five")
    decided = leaning(row.verdict) in ("better", "worse", "negligible", "equivalent")
    found += [row.note if decided else "", row.given if row.verdict not in ("withheld", "none") else ""]
    return [part for part in [*found, evidence.worth_text(row, "steps"), costs(manifest, contrast)] if part]


def costs(manifest: Manifest, contrast: evidence.Contrast | None) -> str:
    """How many more parameters the level's side has: "+0.4 % parameters"; "" if unknown."""
    if contrast is None or contrast.kind in formatting.CROSSED:
        return ""
    params = {cell.id: cell.params for cell in manifest.cells}
    sides = [contrast.side(sign) for sign in (1, -1)]
    if not all(formatting.known(params[cell]) for side in sides for cell in side):
        return ""
    own, base = (sum(weight * params[cell] for cell, weight in side.items()) for side in sides)
    if not base:
        return ""
    return f"{formatting.percent(own / base - 1)} parameters" if own != base else "equal parameters"
