"""Sentences on the effects of a study: each with its interval, grounds, worth in steps, and scope.

`templates/sentences` holds the words; this module provides the names of what is compared.
"""

from functools import partial
from typing import Any

from ablate import evidence, formatting
from ablate.runs import naming
from ablate.runs.naming import level_name, scope
from ablate.runs.records import Manifest
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.prose import prose


def sentences(case: Case) -> list[str]:
    """A sentence per headline row of effects."""
    manifest = case.study.manifest
    contrasts = {contrast.label: contrast for contrast in evidence.contrasts(manifest)}
    return [sentence(manifest, row, contrasts[row.label]) for row in named_rows(evidence.headline(case.effects))]


def sentence(manifest: Manifest, row: Any, contrast: evidence.Contrast) -> str:
    """One row of effects in words: "swiglu in place of mlp lowers the test loss by 0.053 [0.027, …] nats per byte
    (…)."  `contrast` gives the compared cells, which add the cost in parameters and the scope."""
    grounds = prose("sentences/grounds.txt", row=row, costs=costs(manifest, contrast))
    where = scope(manifest, contrast.weights, contrast.side(-1))
    about = filter(None, (evidence.also_words(row.also), ", ".join(grounds), where))
    return f"{finding(manifest, row)} ({'; '.join(about)})."


def finding(manifest: Manifest, row: Any) -> str:
    """The effect and its verdict in words, without grounds."""
    factorial = row.kind == "main" and manifest.design == "grid"
    others = [name for name in manifest.factors if factorial and name in manifest.reference and name != row.factor]
    words: dict[str, Any] = {"averaged": [naming.named(manifest, name) for name in others]}
    words |= {"pair": paired(manifest, row), "level": partial(level_name, manifest)}
    return " ".join(prose("sentences/finding.txt", m=manifest, row=row, **words))


def paired(manifest: Manifest, row: Any) -> dict[str, str]:
    """Of an interaction a change (`one`), the `difference` that it makes, and the levels `other` and `base` between
    which that is compared; empty for other effects."""
    if row.kind != "interaction":
        return {}
    factors, levels, bases = row.factor.split(" x "), formatting.levels_of(row), formatting.levels_of(row, "reference")
    if {len(factors), len(levels), len(bases)} != {2}:
        return {}
    if factors[1] not in manifest.reference:  # a setting: describe the component's effect at its levels
        factors, levels, bases = factors[::-1], levels[::-1], bases[::-1]
    other, one = (level_name(manifest, *each) for each in zip(factors, levels, strict=True))
    base, before = level_name(manifest, factors[0], bases[0]), naming.named(manifest, bases[1], factors[1])
    difference = f"the difference that {one} in place of {before} makes"
    return {"one": one, "difference": difference, "other": other, "base": base}


def costs(manifest: Manifest, contrast: evidence.Contrast) -> str:
    """How many more parameters the level's side has: "+0.4 % parameters"; "" if unknown."""
    if contrast.kind in formatting.CROSSED:
        return ""
    params = {cell.id: cell.params for cell in manifest.cells if cell.params is not None}
    sides = [contrast.side(sign) for sign in (1, -1)]
    if not params.keys() >= contrast.weights.keys():
        return ""
    own, base = (sum(weight * params[cell] for cell, weight in side.items()) for side in sides)
    if not base:
        return ""
    return f"{formatting.percent(own / base - 1)} parameters" if own != base else "equal parameters"
