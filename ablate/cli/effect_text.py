"""The effects of a study in words with their verdicts, for the terminal and notebooks."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.formatting import ESTIMATE_ONLY, columns, counted
from ablate.runs import naming
from ablate.runs.records import Manifest
from ablate.runs.tables import named_rows

ROWS = 16  # the most effects that are listed; `ablate analyse` has all


def effect_lines(manifest: Manifest, table: pandas.DataFrame) -> list[str]:
    """A study's effects with their verdicts under headings; [] without any."""
    rows = evidence.headline(table)
    effects = rows[rows["family"].astype(bool)]
    cells = rows[~rows["family"].astype(bool)]
    lines = []
    if len(effects):
        intervals = "simultaneous 95 % intervals" if effects["low"].notna().any() else "without intervals"
        lines += [f"effects, {intervals}", *effect_rows(manifest, effects)]
    if len(cells):
        lines.append("configurations against the reference, estimates only: 95 % intervals, not corrected")
        lines += effect_rows(manifest, cells)
    return lines


def effect_rows(manifest: Manifest, table: pandas.DataFrame) -> list[str]:
    """A line per effect, interactions after the others and what is decided first."""
    first = evidence.decided_first(table).head(ROWS)
    rows = [(effect_sentence(manifest, row), verdict_word(row)) for row in named_rows(first)]
    return [*indented(rows), *more(len(table) - ROWS, "effect")]


def verdict_word(row: Any) -> str:
    """The verdict of an effect in a word; empty for an estimate."""
    if row.verdict == ESTIMATE_ONLY:
        return ""
    return "no verdict" if row.verdict == "withheld" else str(row.verdict)


def effect_sentence(manifest: Manifest, row: Any) -> str:
    """An effect in words, with its notes: "swiglu lowers test loss by 0.055 [0.038, 0.071] nats per byte"."""
    notes = [evidence.also_words(row.also), evidence.worth_text(row, "steps")]
    if row.n != 1:  # that one seed concludes nothing is said once, not in every row
        notes.append(row.note)
    if row.verdict == "withheld" and row.diverged + row.diverged_reference:
        notes.append(f"diverged runs ranked worst: {formatting.ranks(row)}")
    in_words = "; ".join(filter(None, notes))
    return f"{finding(manifest, row)} ({in_words})" if in_words else finding(manifest, row)


def finding(manifest: Manifest, row: Any) -> str:
    """An effect with its interval; without a number where there is none."""
    if row.verdict == "withheld" or not row.n:
        return str(row.label)
    difference = formatting.span(row.mean, row.low, row.high, formatting.decimals([(row.high - row.low) / 2]))
    if row.kind in formatting.CROSSED and row.verdict == "undecided":
        return f"{row.label}: none seen, {difference}"
    if row.kind not in ("main", "step") or math.isnan(row.low) or row.verdict == ESTIMATE_ONLY:
        return f"{row.label}: {difference}"
    level = naming.level_name(manifest, row.factor, row.level)
    reference = naming.named(manifest, row.reference, row.factor)
    where = f" at {row.stratum}" if row.stratum else ""
    if row.verdict in ("undecided", "equivalent"):
        return f"{level} is not told apart from {reference}{where}: {difference}"
    verb = "lowers" if row.mean < 0 else "raises"
    metric = naming.metric_words(manifest, row.metric)
    return f"{level} {verb} {metric} by {evidence.sized(manifest, row)}{where}"


def indented(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows as lines of aligned columns, two spaces to the right."""
    return [f"  {line}" for line in columns(list(rows))]


def more(count: int, noun: str) -> list[str]:
    """A line that names how many are not listed; [] if none."""
    return [f"  … {counted(count, f'more {noun}')}: ablate analyse"] if count > 0 else []
