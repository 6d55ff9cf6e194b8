"""`docs/what-helps.md`: every variant of the tuned catalogue, its effect at two sizes, and what it costs."""

import math
import statistics
from typing import Any

from ablate import evidence, formatting
from ablate.evidence.tuned import common
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis.writing.sheet import Sheet, markdown
from gallery.studies import StudyFile, Trained

SMALL, LARGE = "catalogue_tuned", "catalogue_size"
TEXT = """\
# What helps

{answer}

Each change alone, of one variant of one component, against the same reference, at its own learning rate and with the
settings that its paper pairs with it (FFN {matched}), sorted by the estimate at {params} parameters. Written by
`make figures` from the tables of {studies}, which are discussed there.
Larger models and budgets: [compute_ladder](../experiments/FINDINGS.md#compute_ladder) and
[rms_norm](../experiments/FINDINGS.md#rms_norm). What each variant is: [catalogue](catalogue.md).

The reference ({levels}; {layers} layers of width
{width}, {steps} steps on {task}, windows of {context} bytes, {seen}) reaches, at {params}, a test loss of {loss} nats
per byte (mean ± SD over {seeds} seeds) at learning rate {rate}. All differences at {params} share these runs and this
rate.

{verdicts}
- *worse*: worse at {params}. *not shown*: the interval at {params} includes zero, which is no evidence of equality.
- *no verdict*: the two sides lost different numbers of runs, or t does not hold. Means and counts of seeds are
  shown.
- Intervals are simultaneous over all changes of one size; they ignore tuning noise. At {params} {tuning} seeds chose
  the smallest rate within one standard error of the best, as registered before any result; that is the best itself in
  {best} of {cells} configurations. A neighbouring rate costs {cost} in the median, so that chance seldom decides
  ([how often it does](how-to/fair-comparisons.md#tuned-learning-rates-or-any-other-key)).
- Beside it stands the difference with both sides at the reference's rate, and at how many of the {rates} rates the
  change is lower: on the validation split, over the {tuning} tuning seeds, without intervals. A verdict that is not
  found there rests on the choice of rates.
- Two changes are not compared with each other. The top estimates are probably too large, because they were selected.
- Costs of training are multiples of the reference's. CPU time includes evaluations, on cores that other runs shared.
  Costs of inference, such as the memory of keys and values, were not measured."""
ONE_SIZE = "- *better*: better at {params}; in this study no larger size has been trained."
TWO_SIZES = """\
- **helps**: better at both sizes. Other verdicts are those at {params}; most changes were trained there alone.
- Rates, costs and the differences at common rates are those at {params}. At the larger size each change has the rate
  with the best mean over two seeds; its differences at common rates are in the tables of that study."""


def what_helps(files: list[StudyFile]) -> str:
    """The page; "" while the catalogue has no tables."""
    trained = {each.name: each for file in files for each in file.trained}
    if SMALL not in trained:
        return ""
    studies = [trained[name] for name in (SMALL, LARGE) if name in trained]
    manifest, cells = studies[0].manifest, studies[0].case.cells.set_index("cell")
    reference, tuning = next(cell for cell in manifest.cells if cell.reference), manifest.tuning
    assert tuning
    tables = [{row.label: row for row in named_rows(evidence.headline(each.case.effects))} for each in studies]
    level_of = {each.label: next(iter(each.side(1))) for each in evidence.contrasts(manifest)}
    raws = [_raw(each) for each in studies]
    alike, at = common(manifest), tuning.values.index(tuning.cells[reference.id].value)
    params, own = formatting.size(reference.params), cells.loc[reference.id]
    rate, edge = formatting.setting(own["tuned_value"]), cells["tuned_at_edge"]
    rows, found = [], dict[str, list[str]]()
    for row in sorted(tables[0].values(), key=lambda row: (row.mean != row.mean, row.mean)):
        there, cell = [table.get(row.label) for table in tables], cells.loc[level_of[row.label]]
        name = naming.named(manifest, row.level, row.factor)
        words = verdict(*(each.verdict if each else "" for each in there))
        found.setdefault(words, []).append(name)
        ratios = ((row.flops_ratio, 2), (row.seconds_ratio, 1))
        costs = [f"×{formatting.number(ratio, places)}" if formatting.known(ratio) else "–" for ratio, places in ratios]
        same = alike.get(row.label, [])
        lower = f"{sum(each < 0 for each in same)} of {len(same)}" if same else "–"
        rates = [formatting.number(same[at], 3, signed=True) if same else "–", lower]
        rates += [formatting.setting(cell["tuned_value"]) + " (edge)" * bool(edge[cell.name])]
        width = formatting.show(cell["chosen_value"]) if "chosen_value" in cell else "–"
        shown = [_difference(each, raw.get(row.label, math.nan)) for each, raw in zip(there, raws, strict=True)]
        rows.append([name, f"{row.factor}={row.level}", words, *shown, *rates, width, *costs, row.also])
    facts = {
        "answer": _answer(found, params, LARGE in trained),
        "params": params,
        "steps": reference.config.train.steps,
        "layers": reference.config.model.layers,
        "width": reference.config.model.dim,
        "context": reference.config.data["context"],
        "seen": formatting.epochs(manifest.passes(reference)),
        "matched": naming.matched(manifest),
        "studies": " and ".join(f"[{each.name}](../experiments/FINDINGS.md#{each.name})" for each in studies),
        "levels": ", ".join(naming.named(manifest, level, factor) for factor, level in manifest.reference.items()),
        "loss": " ± ".join(formatting.number(own[name], 3) for name in ("mean", "sd")),
        "seeds": own["n"],
        "rate": rate,
        "rates": len(tuning.values),
        "task": ", ".join(task.title for task in manifest.tasks.values()),
        "tuning": tuning.seeds,
        "verdicts": (ONE_SIZE if len(studies) == 1 else TWO_SIZES).format(params=params),
        "cells": len(cells),
    } | _tuned(studies[0])
    notes = naming.notes(manifest.cells)
    head = ["change", "key", "verdict", *map(_heading, studies), f"at {rate} for both", "lower at", "learning rate"]
    sheet = Sheet("what-helps", "", [*head, "FFN width", "training FLOPs", "CPU time", "also set"], rows, notes)
    return f"{TEXT.format(**facts)}\n\n{markdown(sheet)}"


def verdict(small: str, large: str | None = None) -> str:
    """A change's verdict over the sizes; `large` is "" where it was not trained at the larger one, None if none was."""
    if small == large == "better":
        return "helps"
    own = {"undecided": "not shown", "withheld": "no verdict"}.get(small, small)
    joined = large is not None and (small == "better" or large in ("better", "worse"))
    return own + f" ({large or 'not trained'} at the larger size)" * joined


def _answer(found: dict[str, list[str]], params: str, larger: bool) -> str:
    """The page in two sentences."""
    best = found.get("helps" if larger else "better", [])
    first = f"Better at {'both sizes tried' if larger else params}: {formatting.listed(best) or 'none'}."
    counts = [f"{len(names)} {words}" for words, names in found.items() if names is not best]
    return f"**{first}** The others, at {params}: {', '.join(counts)}."


def _tuned(study: Trained) -> dict[str, Any]:
    """How many configurations have the rate of the best mean, and what the nearer neighbour costs, also in SDs."""
    tuning = study.manifest.tuning
    assert tuning
    order = sorted(range(len(tuning.values)), key=lambda i: float(str(tuning.values[i])))
    spread = study.case.cells.set_index("cell")["sd"]
    best, costs, ratios = 0, list[float](), list[float]()
    for name, cell in tuning.cells.items():
        scores = [float("inf") if cell.scores[i] is None else float(cell.scores[i] or 0) for i in order]
        top = scores.index(min(scores))
        best += tuning.values[order[top]] == cell.value
        cost = min(scores[i] for i in (top - 1, top + 1) if 0 <= i < len(scores)) - scores[top]
        costs.append(cost)
        ratios.append(cost / float(spread[name]))
    cost = statistics.median(costs)
    return {"best": best, "cost": f"{formatting.number(cost, 3)}, {statistics.median(ratios):.2g} SD of a run,"}


def _raw(study: Trained) -> dict[str, float]:
    """By label the difference of means, which a withheld row lacks."""
    means = study.case.cells.set_index("cell")["mean"]
    sides = [(each, [next(iter(each.side(sign))) for sign in (1, -1)]) for each in evidence.contrasts(study.manifest)]
    return {each.label: means[one] - means[other] for each, (one, other) in sides}


def _heading(study: Trained) -> str:
    params = next(cell.params for cell in study.manifest.cells if cell.reference)
    return f"test loss at {formatting.size(params)}, difference [95 %]"


def _difference(row: Any, raw: float) -> str:
    """The difference with its interval; a withheld one without, with the counts of seeds."""
    if row is None:
        return "–"
    if row.mean != row.mean:
        return f"{formatting.number(raw, 3, signed=True)} ({formatting.ranks(row)})"
    return formatting.span(row.mean, row.low, row.high, formatting.decimals([(row.high - row.low) / 2]))
