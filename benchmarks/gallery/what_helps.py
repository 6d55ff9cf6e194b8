"""`docs/what-helps.md`: every variant of the tuned catalogue, its effect at two sizes, and what it costs."""

from typing import Any

from ablate import evidence, formatting
from ablate.results import naming
from ablate.results.tables import named_rows
from analysis.writing.sheet import Sheet, markdown
from gallery.studies import StudyFile, Trained

SMALL, LARGE = "catalogue_tuned", "catalogue_size"
TEXT = """\
# What helps

Each variant of each component alone against one reference, at its own learning rate and with what its paper gives it
beside, sorted by the estimate at {params} parameters ({steps} steps; {matched}), withheld ones last.
Written by `make figures` from the tables of {studies}; what was found, in words, is there.

The reference ({levels}) ends there at a test loss of {loss} nats per byte (mean ± SD over {seeds} seeds), at learning
rate {rate}, on {task}. All differences at {params} share these runs and this rate.

{verdicts}
- *worse*: worse at {params}. *not shown*: the interval at {params} includes zero, which is no evidence of equality.
- *withheld*: the differences over seeds are not normal, so that no t interval is right (by chance for 1 in 20 sound
  rows), or the two sides lost different numbers of runs. The counts say in how many seeds the change was lower or
  higher.
- Intervals are simultaneous over all changes of one size, over seeds. They do not cover the choice of learning rates:
  at {params} by {tuning} seeds, of values within one standard error of the best the smallest. By simulation with equal
  variants, up to 9 of 48 verdicts are false that way on average, where a neighbouring rate costs 1.5 SD of a run,
  hardly any where it costs 4 (`benchmarks/bench_tuning.py`). So the difference with both sides at the reference's rate
  stands beside it, on the validation split, over those {tuning} seeds: a verdict whose sign differs there rests on the
  choice of rates. Where both have this rate anyway, it says nothing new.
- The order is that of estimates. Two changes are not compared with each other, and what is first is likely too good.
- Costs are multiples of the reference's. CPU time includes evaluations, on cores that other runs shared."""
ONE_SIZE = "- *better*: better at {params}; a larger size has not been trained."
TWO_SIZES = """\
- **helps**: better at both sizes. *better, larger …*: better at {params}, and what the larger size says.
- Rates, costs and the difference at one rate are those at {params}; at the larger size each change has the rate of its
  best mean."""


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
    rates = {cell: formatting.setting(value) for cell, value in cells["tuned_value"].items()}
    at_edge = {cell for cell, edge in cells["tuned_at_edge"].items() if edge}
    alike = {label: dict(text.split(" ", 1) for text in row) for label, *row in evidence.common_rows(manifest)[1]}
    head = ["change", "verdict", *map(_heading, studies), f"at {rates[reference.id]} for both", "learning rate"]
    rows = []
    for row in sorted(tables[0].values(), key=lambda row: (row.mean != row.mean, row.mean)):
        there, cell = [table.get(row.label) for table in tables], level_of[row.label]
        ratios = ((row.flops_ratio, 2), (row.seconds_ratio, 1))
        costs = [f"×{formatting.number(ratio, places)}" if formatting.known(ratio) else "–" for ratio, places in ratios]
        words = verdict(*(each.verdict if each else "" for each in there))
        rate = rates[cell] + " (edge)" * (cell in at_edge)
        same = alike.get(row.label, {}).get(rates[reference.id], "–")
        rows.append([row.label, words, *map(_difference, there), same, rate, *costs, row.also])
    params, at = formatting.size(reference.params), cells.loc[reference.id]
    places = formatting.decimals([at["sd"]])
    facts = {
        "params": params,
        "steps": reference.config.train.steps,
        "matched": naming.matched(manifest),
        "studies": " and ".join(f"[{each.name}](../experiments/FINDINGS.md#{each.name})" for each in studies),
        "levels": ", ".join(naming.named(manifest, level, factor) for factor, level in manifest.reference.items()),
        "loss": f"{formatting.number(at['mean'], places)} ± {formatting.number(at['sd'], places)}",
        "seeds": at["n"],
        "rate": rates[reference.id],
        "task": ", ".join(task.title for task in manifest.tasks.values()),
        "tuning": evidence.tuning_seeds(tuning),
        "verdicts": (ONE_SIZE if len(studies) == 1 else TWO_SIZES).format(params=params),
    }
    doubt = next((row.assumes for table in tables for row in table.values() if row.assumes), "")
    notes = [f"Verdicts hold {doubt}: the check raised a doubt about one of the family."] * bool(doubt)
    sheet = Sheet("what-helps", "", [*head, "training FLOPs", "CPU time", "beside it"], rows, notes)
    return f"{TEXT.format(**facts)}\n\n{markdown(sheet)}"


def verdict(small: str, large: str | None = None) -> str:
    """A change's verdict over the sizes; `large` is "" where it was not trained at the larger one, None if none was."""
    if small != "better":
        return "not shown" if small == "undecided" else small
    return small if large is None else "helps" if large == "better" else f"better, larger {large or 'not trained'}"


def _heading(study: Trained) -> str:
    params = next(cell.params for cell in study.manifest.cells if cell.reference)
    return f"test loss at {formatting.size(params)}, difference [95 %]"


def _difference(row: Any) -> str:
    if row is None:
        return "–"
    if row.mean != row.mean:
        return row.note.rpartition("; ")[2]  # the reason is explained above the table
    return formatting.span(row.mean, row.low, row.high, formatting.decimals([(row.high - row.low) / 2]))
