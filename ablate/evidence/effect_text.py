"""An effect in words, with its verdict."""

import math
from typing import Any

from ablate import formatting
from ablate.evidence.claim_text import sized
from ablate.evidence.confounds import also_words
from ablate.evidence.worth import worth_text
from ablate.formatting import ESTIMATE_ONLY
from ablate.runs import naming
from ablate.runs.records import Manifest


def verdict_word(row: Any) -> str:
    """The verdict of an effect in a word; empty for an estimate."""
    if row.verdict == ESTIMATE_ONLY:
        return ""
    return "no verdict" if row.verdict == "withheld" else str(row.verdict)


def effect_sentence(manifest: Manifest, row: Any) -> str:
    """An effect in words, with its notes: "swiglu lowers test loss by 0.055 [0.038, 0.071] nats per byte"."""
    notes = "; ".join(effect_notes(row))
    return f"{finding(manifest, row)} ({notes})" if notes else finding(manifest, row)


def effect_notes(row: Any) -> list[str]:
    """What else differs between the sides of an effect, what it is worth, and why there is no verdict."""
    notes = [also_words(row.also), worth_text(row, "steps")]
    if row.n != 1:  # that one seed concludes nothing is said once, not in every row
        notes.append(row.note)
    if row.verdict == "withheld" and row.diverged + row.diverged_reference:
        notes.append(f"diverged runs ranked worst: {formatting.ranks(row)}")
    return [note for note in notes if note]


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
    return f"{level} {verb} {metric} by {sized(manifest, row)}{where}"
