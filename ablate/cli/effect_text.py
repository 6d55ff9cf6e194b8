"""The effects of a study in words with their verdicts, for the terminal and notebooks."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.formatting import CROSSED, columns, counted
from ablate.runs import naming
from ablate.runs.records import Manifest
from ablate.runs.tables import named_rows

ROWS = 16  # the most effects that are listed; `ablate analyse` has all


def effect_lines(manifest: Manifest, table: pandas.DataFrame) -> list[str]:
    """A study's effects with their verdicts under headings; [] without any."""
    shown = evidence.headline(table)
    design = shown[shown["kind"] != "cell"]
    cells = shown[shown["kind"] == "cell"]
    lines = []
    if len(design):
        intervals = "simultaneous 95 % intervals" if design["low"].notna().any() else "without intervals"
        lines += [f"effects, {intervals}", *effect_rows(manifest, design)]
    if len(cells):
        heading = "configurations against the reference, estimates only: 95 % intervals, not corrected"
        lines += [heading, *effect_rows(manifest, cells)]
    return lines


def effect_rows(manifest: Manifest, table: pandas.DataFrame) -> list[str]:
    """A line per effect, interactions after the others and what is decided first."""
    undecided = ~table["verdict"].isin(evidence.DECIDED) & (table["kind"] != "step")
    table = table.assign(crossed=table["kind"].isin(CROSSED), undecided=undecided)
    shown = evidence.foremost(table.sort_values(["crossed", "undecided"], kind="stable"), ROWS)
    rows = [(effect_sentence(manifest, row), verdict_word(row)) for row in named_rows(shown)]
    return [*indented(rows), *more(len(table) - len(shown), "effect")]


def verdict_word(row: Any) -> str:
    """The verdict of an effect in a word; empty for an estimate."""
    words = {"withheld": "no verdict", formatting.ESTIMATE_ONLY: ""}
    return words.get(row.verdict, row.verdict)


def effect_sentence(manifest: Manifest, row: Any) -> str:
    """An effect in words, with its notes: "swiglu lowers test loss by 0.055 [0.038, 0.071] nats per byte"."""
    notes = [evidence.also_words(row.also), evidence.worth_words(row, "steps")]
    if row.n != 1:  # that one seed concludes nothing is said once, not in every row
        notes.append(row.note)
    if row.verdict == "withheld" and row.diverged + row.diverged_reference:
        notes.append(f"diverged runs ranked worst: {formatting.ranks(row)}")
    notes = [note for note in notes if note]
    return _finding(manifest, row) + (f" ({'; '.join(notes)})" if notes else "")


def _finding(manifest: Manifest, row: Any) -> str:
    if row.verdict == "withheld" or not row.n:
        return str(row.label)
    difference = formatting.span(row.mean, row.low, row.high, formatting.decimals([(row.high - row.low) / 2]))
    if row.kind in CROSSED:
        none_seen = "none seen, " if row.verdict == "undecided" else ""
        return f"{row.label}: {none_seen}{difference}"
    level = row.level
    reference = row.reference
    if row.kind != "cell":
        level = naming.level_name(manifest, row.factor, row.level)
        reference = naming.named(manifest, row.reference, row.factor)
    where = f" at {row.stratum}" if row.stratum else ""
    if row.verdict in ("better", "worse", "negligible"):
        verb = "lowers" if row.mean < 0 else "raises"
        metric = naming.metric_words(manifest, row.metric)
        return f"{level} {verb} {metric} by {evidence.sized(manifest, row)}{where}"
    if row.verdict == "equivalent":
        return f"{level} and {reference} are equivalent within {formatting.margin(row)}{where}: {difference}"
    if row.verdict == "undecided" and math.isfinite(row.low):
        return f"{level} is not told apart from {reference}{where}: {difference}"
    return f"{level} − {reference}{where}: {difference}"


def indented(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows as lines of aligned columns, two spaces to the right."""
    return [f"  {line}" for line in columns(list(rows))]


def more(count: int, noun: str) -> list[str]:
    """A line that names how many are not listed; [] if none."""
    return [f"  … {counted(count, f'more {noun}')}: ablate analyse"] if count > 0 else []
