"""A sentence per effect of a study: what was found, what it rests on, and where it holds."""

from typing import Any

from ablate import evidence, formatting
from ablate.runs import naming
from ablate.runs.records import Manifest
from ablate.runs.tables import named_rows
from analysis.case import Case


def sentences(case: Case) -> list[str]:
    """A sentence per headline row of effects."""
    manifest = case.study.manifest
    contrasts = {contrast.label: contrast for contrast in evidence.contrasts(manifest)}
    return [sentence(manifest, row, contrasts[row.label]) for row in named_rows(evidence.headline(case.effects))]


def sentence(manifest: Manifest, row: Any, contrast: evidence.Contrast) -> str:
    """One row of effects in words: "SwiGLU lowers test loss by 0.053 [0.027, 0.079] nats per byte: better (5 seeds;
    …)."  `contrast` gives the compared configurations, which add the cost in parameters and the scope."""
    seeds = formatting.counted(row.n, "seed") if row.paired else formatting.over(row)
    grounds = [*evidence.effect_notes(row), seeds, formatting.p_words(row.p_bonferroni, "Bonferroni")]
    averaged = averaged_over(manifest, row)
    if averaged:
        grounds.append(f"averaged over {formatting.listed(averaged)}")
    if row.unadjusted:
        grounds.append("unadjusted for interim analyses")
    if row.verdict == "undecided" and formatting.known(row.smallest):
        smallest = formatting.number(row.smallest, formatting.decimals([row.smallest]))
        grounds.append(f"smallest effect found with 80 % power: {smallest}")
    grounds += [costs(manifest, contrast), naming.scope(manifest, contrast.weights, contrast.side(-1))]
    verdict = evidence.verdict_word(row) or "estimate only"
    if row.kind in formatting.CROSSED:
        verdict = formatting.verdict_words(row)
    return f"{evidence.finding(manifest, row)}: {verdict} ({'; '.join(filter(None, grounds))})."


def averaged_over(manifest: Manifest, row: Any) -> list[str]:
    """The factors over whose levels a main effect of a grid is averaged."""
    if row.kind != "main" or manifest.design != "grid":
        return []
    names = [name for name in manifest.factors if name in manifest.reference and name != row.factor]
    return [naming.named(manifest, name) for name in names]


def costs(manifest: Manifest, contrast: evidence.Contrast) -> str:
    """How many more parameters the level's side has: "+0.4 % parameters"; "" if unknown."""
    params = {cell.id: cell.params for cell in manifest.cells if cell.params}
    if contrast.kind in formatting.CROSSED or not params.keys() >= contrast.weights.keys():
        return ""
    level = sum(weight * params[cell] for cell, weight in contrast.side(1).items())
    reference = sum(weight * params[cell] for cell, weight in contrast.side(-1).items())
    return "equal parameters" if level == reference else f"{formatting.percent(level / reference - 1)} parameters"
