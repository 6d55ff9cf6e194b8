"""`docs/what-helps.md`: every variant of the tuned catalogue, its effect at two sizes, and what it costs."""

import math
import statistics
from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.evidence.estimates import in_each_seed
from ablate.formatting import number
from ablate.runs import naming
from ablate.runs.records import Manifest
from ablate.runs.tables import named_rows
from analysis.writing.tables import Table, markdown
from gallery.studies import StudyFile, Trained

SMALL = "catalogue_tuned"
LARGE = "catalogue_size"
ANSWER = """\
# What helps

{answer}

- Each change was made alone, in one component of the same reference model, and trained at its own learning rate.
- *helps*: better at both sizes. Other verdicts are those at {small}; most changes were trained there alone.
- *worse*: worse at {small}. *not shown*: the interval includes zero, which is no evidence of equality.
- Intervals are simultaneous over all changes of one size. They ignore the noise of tuning.
- The models are small ({small} and {large} parameters), and see {seen} of one corpus, {corpus}.
- The top estimates are probably too large, because they were selected. Two changes are not compared with each other.
- Costs are multiples of the reference's. Costs of inference, such as the memory of keys and values, were not measured.
- What each variant is: [catalogue](catalogue.md). The studies: {studies}.
- Larger models: [compute_ladder](../experiments/findings/compute_ladder.md) and
  [rms_norm](../experiments/findings/rms_norm.md); 20 tokens a parameter:
  [worth_in_steps](../experiments/findings/worth_in_steps.md)."""
DETAILS = """\
## How this was measured

The reference ({levels}; {layers} layers of width {width}, {steps} steps, windows of {context} bytes)
reaches, at {small}, a test loss of {loss} nats per byte (mean ± SD over {seeds} seeds) at learning rate {rate}. All
differences at {small} share these runs. Variants have the settings that their papers pair with them (FFN {matched}).

{tuning_seeds} seeds chose the smallest learning rate within one standard error of the best, as registered before any
result; that is the best itself in {best} of {cells} configurations. A neighbouring rate costs {cost} in the median, so
that chance seldom decides ([how often it does](how-to/fair-comparisons.md#tuned-learning-rates-or-any-other-key)).

*At {rate} for both* is the difference with both sides at the reference's rate, and *lower at* counts the rates of
{rates} at which the change is lower: on the validation split, over the tuning seeds, without intervals. A verdict that
is not found there rests on the choice of rates. CPU time includes evaluations, on cores that other runs shared. Rates,
costs and these differences are those at {small}. Written by `make figures`."""


def what_helps(files: list[StudyFile]) -> str:
    """The page; empty while one of the two studies has no tables."""
    studies = {study.name: study for file in files for study in file.trained}
    if SMALL not in studies or LARGE not in studies:
        return ""
    small = studies[SMALL]
    large = studies[LARGE]
    changes = changes_of(small, large)
    facts = facts_of(small, large)
    answer = ANSWER.format(answer=answer_of(changes, facts["small"]), **facts)
    notes = naming.notes(small.manifest.cells)
    return "\n\n".join(
        [
            answer,
            markdown(verdict_table(changes, facts["small"], facts["large"])).rstrip("\n"),
            DETAILS.format(**facts),
            markdown(detail_table(changes, facts["rate"], notes)),
        ]
    )


def changes_of(small: Trained, large: Trained) -> list[dict[str, str]]:
    """A row of texts for each change, from the best to the worst."""
    manifest = small.manifest
    at_large = {row.label: row for row in named_rows(evidence.headline(large.case.effects))}
    cells = small.case.cells.set_index("cell")
    contrast_of = {contrast.label: contrast for contrast in evidence.contrasts(manifest)}
    assert manifest.tuning
    scores = pandas.DataFrame({cell: entry.scores for cell, entry in manifest.tuning.cells.items()}, dtype=float)
    reference_rate = reference_rate_index(manifest)
    raw_small = raw_differences(small)
    raw_large = raw_differences(large)
    effects = evidence.headline(small.case.effects).sort_values("mean", kind="stable", na_position="last")
    changes = []
    for row in named_rows(effects):
        contrast = contrast_of[row.label]
        cell = cells.loc[next(iter(contrast.side(1)))]
        larger = at_large.get(row.label)
        at_rates = in_each_seed(scores, contrast.weights)  # with both at the same rate
        rate = formatting.setting(cell["tuned_value"])
        change = {
            "name": naming.named(manifest, row.level, row.factor),
            "key": f"{row.factor}={row.level}",
            "verdict": verdict(row.verdict, larger.verdict if larger else ""),
            "small": difference(row, raw_small[row.label]),
            "large": difference(larger, raw_large[row.label]) if larger else "–",
            "at one rate": number(at_rates[reference_rate], 3, signed=True),
            "lower at": f"{(at_rates < 0).sum()} of {len(at_rates)}",
            "rate": f"{rate} (edge)" if cell["tuned_at_edge"] else rate,
            "FFN width": formatting.show(cell["chosen_value"]) if "chosen_value" in cell else "–",
            "FLOPs": ratio(row.flops_ratio, 2),
            "time": ratio(row.seconds_ratio, 1),
            "also": row.also,
        }
        changes.append(change)
    return changes


def verdict(small: str, large: str) -> str:
    """A change's verdict over the two sizes; `large` is empty if it was trained at the smaller one alone."""
    if small == large == "better":
        return "helps"
    words = {"undecided": "not shown", "withheld": "no verdict"}.get(small, small)
    if small == "better" or large in ("better", "worse"):
        return f"{words} ({large or 'not trained'} at the larger size)"
    return words


def answer_of(changes: list[dict[str, str]], params: str) -> str:
    """The page in two sentences."""
    helps = [change["name"] for change in changes if change["verdict"] == "helps"]
    others = [change["verdict"] for change in changes if change["verdict"] != "helps"]
    counts = [f"{others.count(words)} {words}" for words in dict.fromkeys(others)]
    first = f"Better at both sizes tried: {formatting.listed(helps) or 'none'}."
    return f"**{first}** The others, at {params}: {', '.join(counts)}."


def verdict_table(changes: list[dict[str, str]], small: str, large: str) -> Table:
    """Each change with its verdict, both differences, and its cost."""
    head = ["change", "verdict", f"difference in test loss at {small} [95 %]", f"at {large} [95 %]", "CPU time"]
    rows = [[change[key] for key in ("name", "verdict", "small", "large", "time")] for change in changes]
    return Table("what-helps", "", pandas.DataFrame(rows, columns=head))


def detail_table(changes: list[dict[str, str]], rate: str, notes: list[str]) -> Table:
    """How each change does at common learning rates, and what else its configuration has."""
    keys = ("name", "key", "at one rate", "lower at", "rate", "FFN width", "FLOPs", "also")
    head = ["change", "key", f"at {rate} for both", "lower at", "learning rate", "FFN width", "training FLOPs"]
    head.append("also set")
    rows = [[change[key] for key in keys] for change in changes]
    return Table("details", "", pandas.DataFrame(rows, columns=head), notes)


def facts_of(small: Trained, large: Trained) -> dict[str, Any]:
    """What the texts of the page state about the two studies."""
    manifest = small.manifest
    tuning = manifest.tuning
    assert tuning
    reference = reference_of(manifest)
    config = reference.planned_config
    scores = small.case.cells.set_index("cell").loc[reference.id]
    links = [f"[{study.name}](../experiments/findings/{study.name}.md)" for study in (small, large)]
    return {
        "small": formatting.size(reference.params),
        "large": formatting.size(reference_of(large.manifest).params),
        "seen": formatting.epochs(manifest.passes(reference)),
        "corpus": naming.scope(manifest, [reference.id], []).partition(",")[0],
        "studies": " and ".join(links),
        "levels": ", ".join(naming.named(manifest, level, factor) for factor, level in manifest.reference.items()),
        "layers": config.model.layers,
        "width": config.model.dim,
        "steps": config.train.steps,
        "context": config.data["context"],
        "loss": f"{number(scores['mean'], 3)} ± {number(scores['sd'], 3)}",
        "seeds": scores["n"],
        "rate": formatting.setting(scores["tuned_value"]),
        "rates": len(tuning.values),
        "matched": naming.matched(manifest),
        "tuning_seeds": tuning.seeds,
        "cells": len(manifest.cells),
        **tuning_facts(small),
    }


def reference_of(manifest: Manifest) -> Any:
    """The cell that all changes are compared with."""
    return next(cell for cell in manifest.cells if cell.reference)


def reference_rate_index(manifest: Manifest) -> int:
    """The place of the reference's learning rate among those tried."""
    assert manifest.tuning
    return manifest.tuning.values.index(manifest.tuning.cells[reference_of(manifest).id].value)


def tuning_facts(study: Trained) -> dict[str, Any]:
    """How many configurations have the rate of the best mean, and what the nearer neighbour of that rate costs."""
    tuning = study.manifest.tuning
    assert tuning
    order = sorted(range(len(tuning.values)), key=lambda i: float(str(tuning.values[i])))
    sd_of_run = study.case.cells.set_index("cell")["sd"]
    best = 0
    costs = []
    costs_in_sd = []
    for name, cell in tuning.cells.items():
        scores = []
        for i in order:
            score = cell.scores[i]
            scores.append(math.inf if score is None else float(score))
        lowest = scores.index(min(scores))
        if tuning.values[order[lowest]] == cell.value:
            best += 1
        neighbours = scores[max(0, lowest - 1) : lowest] + scores[lowest + 1 : lowest + 2]
        cost = min(neighbours) - scores[lowest]
        costs.append(cost)
        costs_in_sd.append(cost / float(sd_of_run[name]))
    cost_text = f"{number(statistics.median(costs), 3)}, {statistics.median(costs_in_sd):.2g} SD of a run,"
    return {"best": best, "cost": cost_text}


def raw_differences(study: Trained) -> dict[str, float]:
    """By label the difference of means, which an effect without verdict lacks."""
    means = study.case.cells.set_index("cell")["mean"]
    differences = {}
    for contrast in evidence.contrasts(study.manifest):
        level = next(iter(contrast.side(1)))
        reference = next(iter(contrast.side(-1)))
        differences[contrast.label] = means[level] - means[reference]
    return differences


def difference(row: Any, raw: float) -> str:
    """A difference with its interval; without a verdict, the difference of means with the counts of seeds."""
    if math.isnan(row.mean):
        return f"{number(raw, 3, signed=True)} ({formatting.ranks(row)})"
    return formatting.span(row.mean, row.low, row.high, formatting.decimals([(row.high - row.low) / 2]))


def ratio(value: float, places: int) -> str:
    """A cost as a multiple of the reference's: "×1.07"."""
    return f"×{number(value, places)}" if formatting.known(value) else "–"
