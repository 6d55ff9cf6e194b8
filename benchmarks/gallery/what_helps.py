"""`docs/what-helps.md`: every variant of the tuned catalogue, its effect at two sizes, and what it costs."""

from typing import Any

from ablate import evidence, formatting
from ablate.results.naming import key_name
from ablate.results.tables import named_rows
from analysis.writing.sheet import Sheet, markdown
from gallery.studies import StudyFile, Trained

SMALL, LARGE = "catalogue_tuned", "catalogue_size"
TEXT = """\
# What helps

Each variant of each component alone against one reference ({params} parameters, as many for each variant; {steps}
steps), at its own learning rate and with what its paper gives it beside, sorted by what it does to the test loss.
Written by `make figures` from the tables of [{small}](../experiments/FINDINGS.md#{small}){large}; what was found, in
words, is there.

- **helps**: better at both sizes. *better, …*: better at {params}, and what the larger size says.
- *worse*: worse at {params}. *not shown*: the interval includes zero, which is no evidence of equality.
- Intervals are simultaneous over all changes of one size, over seeds; they do not cover the choice of learning rates
  by a few seeds, another corpus, or other sizes.
- Costs are multiples of the reference's. CPU time includes evaluations, on cores that other runs shared."""


def what_helps(files: list[StudyFile]) -> str:
    """The page; "" while the catalogue has no tables."""
    trained = {each.name: each for file in files for each in file.trained}
    if SMALL not in trained:
        return ""
    studies = [trained[name] for name in (SMALL, LARGE) if name in trained]
    reference = next(cell for cell in studies[0].manifest.cells if cell.reference)
    tables = [{row.label: row for row in named_rows(evidence.headline(each.case.effects))} for each in studies]
    tuned = dict(zip(studies[0].case.cells["cell"], studies[0].case.cells["tuned_value"], strict=True))
    chosen = {each.label: tuned[next(iter(each.side(1)))] for each in evidence.contrasts(studies[0].manifest)}
    head = ["change", "verdict", *map(_heading, studies), "learning rate", "training FLOPs", "CPU time", "beside it"]
    rate = f"{key_name(studies[0].manifest, 'optim.lr')} "
    rows = []
    for row in sorted(tables[0].values(), key=lambda row: (row.mean != row.mean, row.mean)):
        there = [table.get(row.label) for table in tables]
        costs = [f"×{formatting.number(ratio, 2)}" for ratio in (row.flops_ratio, row.seconds_ratio)]
        others = "; ".join(part for part in row.also.split("; ") if not part.startswith(rate))
        words = verdict(*(each.verdict if each else "" for each in (*there, None)[:2]))
        rows.append([row.label, words, *map(_difference, there), formatting.setting(chosen[row.label]), *costs, others])
    facts = {"params": formatting.size(reference.params), "steps": reference.config.train.steps, "small": SMALL}
    large = f" and [{LARGE}](../experiments/FINDINGS.md#{LARGE})" if len(studies) > 1 else ""
    return f"{TEXT.format(**facts, large=large)}\n\n{markdown(Sheet('what-helps', '', head, rows, []))}"


def verdict(small: str, large: str) -> str:
    """A change's verdict over both sizes; `large` is "" where it was not trained."""
    if small != "better":
        return "not shown" if small == "undecided" else small
    return "helps" if large == "better" else f"better, larger {large or 'not trained'}"


def _heading(study: Trained) -> str:
    params = next(cell.params for cell in study.manifest.cells if cell.reference)
    return f"loss at {formatting.size(params)}, difference [95 %]"


def _difference(row: Any) -> str:
    if row is None:
        return "–"
    if row.mean != row.mean:
        return row.note
    return formatting.span(row.mean, row.low, row.high, formatting.decimals([(row.high - row.low) / 2]))
