"""Sentences on the effects of a study: each with its interval, what it rests on, and where it holds."""

from typing import Any

from ablate import evidence, formatting
from ablate.formatting import ESTIMATE_ONLY, MINUS, listed
from ablate.runs import naming
from ablate.runs.naming import level_name, named
from ablate.runs.records import Manifest
from ablate.runs.tables import named_rows
from analysis.case import Case


def sentences(case: Case) -> list[str]:
    """A sentence per headline row of effects."""
    manifest = case.study.manifest
    contrasts = {contrast.label: contrast for contrast in evidence.contrasts(manifest)}
    return [sentence(manifest, row, contrasts[row.label]) for row in named_rows(evidence.headline(case.effects))]


def sentence(manifest: Manifest, row: Any, contrast: evidence.Contrast) -> str:
    """One row of effects in words: "SwiGLU in place of ReLU MLP lowers the test loss by 0.053 [0.027, …] nats per byte
    (…)."  `contrast` gives the compared configurations, which add the cost in parameters and the scope."""
    seeds = formatting.counted(row.n, "seed") if row.paired else formatting.over(row)
    grounds = [seeds, formatting.p_words(row.p_bonferroni, "Bonferroni")]
    if row.unadjusted:
        grounds.append("unadjusted for interim analyses")
    if row.verdict == "undecided" and formatting.known(row.smallest):
        smallest = formatting.number(row.smallest, formatting.decimals([row.smallest]))
        grounds.append(f"smallest effect found with 80 % power: {smallest}")
    if row.verdict in ("better", "worse", "negligible", "equivalent"):
        grounds.append(row.note)
    grounds += [evidence.worth_text(row, "steps"), costs(manifest, contrast)]
    where = naming.scope(manifest, contrast.weights, contrast.side(-1))
    about = [evidence.also_words(row.also), ", ".join(filter(None, grounds)), where]
    return f"{finding(manifest, row)} ({'; '.join(filter(None, about))})."


def finding(manifest: Manifest, row: Any) -> str:
    """The effect and its verdict in words, without grounds."""
    name = effect_name(manifest, row)
    if row.verdict == "withheld" or not row.n:
        word = "no verdict" if row.verdict == "withheld" else row.verdict
        lost = row.diverged + row.diverged_reference
        ranks = f"; diverged ranked worst: {formatting.ranks(row)}" if lost else ""
        return f"{name}: {word}, {row.note}{ranks}"
    if row.verdict in ("better", "worse", "negligible"):
        return decided(manifest, row, name)
    word = row.verdict
    if word == "equivalent":
        word = f"equivalent within {formatting.margin(row)}"
    elif word != ESTIMATE_ONLY:
        word = f"undecided ({row.note})" if row.note else "undecided"
    return f"{name}: {word}, {evidence.spread(manifest, row)}{meaning(manifest, row)}"


def decided(manifest: Manifest, row: Any, name: str) -> str:
    """A decided effect: what it does to the metric, by how much."""
    metric = f"the {naming.metric_words(manifest, row.metric)}"
    size = evidence.sized(manifest, row)
    is_lower = row.mean < 0
    within = ""
    if row.verdict == "negligible":
        within = f", a difference within {formatting.margin(row)}: negligible"
    if row.kind in formatting.CROSSED:
        way = "lower" if is_lower else "higher"
        return f"{name}: the difference in {metric} is {way} by {size}{meaning(manifest, row)}{within}"
    against = f" against {row.reference}" if row.kind == "cell" else ""
    averaged = averaged_over(manifest, row)
    over = f", averaged over {listed(averaged)}" if averaged else ""
    return f"{name} {'lowers' if is_lower else 'raises'} {metric} by {size}{against}{over}{within}"


def effect_name(manifest: Manifest, row: Any) -> str:
    """What an effect is called: "SwiGLU in place of ReLU MLP", "interaction of RMSNorm and SwiGLU"."""
    where = f" at {row.stratum}" if row.stratum else ""
    if row.kind == "main":
        level = level_name(manifest, row.factor, row.level)
        return f"{level} in place of {named(manifest, row.reference, row.factor)}{where}"
    if row.kind == "cell" and row.verdict in ("better", "worse", "negligible"):
        return f"{row.level}{where}"
    if row.kind == "trend":
        factor, setting = row.factor.split(" x ")
        level = level_name(manifest, factor, row.level.split(", ")[0])
        reference = named(manifest, row.reference, factor)
        return f"trend of {level} in place of {reference} over {named(manifest, setting)}{where}"
    if row.kind == "interaction":
        return f"interaction of {listed(levels(manifest, row, 'level')) or row.label}{where}"
    return str(row.label)


def levels(manifest: Manifest, row: Any, column: str) -> list[str]:
    """The names of the levels that an interaction combines, or of those that it is compared with."""
    factors = row.factor.split(" x ")
    texts = formatting.levels_of(row, column)
    if len(factors) != len(texts):
        return []
    return [level_name(manifest, factor, text) for factor, text in zip(factors, texts, strict=True)]


def meaning(manifest: Manifest, row: Any) -> str:
    """What the number of a trend or an interaction is; "" for other effects."""
    if row.kind == "trend":
        setting = row.factor.split(" x ")[-1]
        return f" {row.level.split(', ')[-1]} of {named(manifest, setting)}"
    if row.kind != "interaction":
        return ""
    changes = levels(manifest, row, "level")
    bases = levels(manifest, row, "reference")
    if len(changes) != 2 or len(bases) != 2:
        return " beyond what the changes alone add up to"
    return (
        f": what {changes[1]} in place of {bases[1]} changes with {changes[0]}, {MINUS} what it changes with {bases[0]}"
    )


def averaged_over(manifest: Manifest, row: Any) -> list[str]:
    """The factors over whose levels a main effect of a grid is averaged."""
    if row.kind != "main" or manifest.design != "grid":
        return []
    return [named(manifest, name) for name in manifest.factors if name in manifest.reference and name != row.factor]


def costs(manifest: Manifest, contrast: evidence.Contrast) -> str:
    """How many more parameters the level's side has: "+0.4 % parameters"; "" if unknown."""
    params = {cell.id: cell.params for cell in manifest.cells if cell.params}
    if contrast.kind in formatting.CROSSED or not params.keys() >= contrast.weights.keys():
        return ""
    level = sum(weight * params[cell] for cell, weight in contrast.side(1).items())
    reference = sum(weight * params[cell] for cell, weight in contrast.side(-1).items())
    return "equal parameters" if level == reference else f"{formatting.percent(level / reference - 1)} parameters"
