"""What the columns of a table of runs are: factors, metrics with their direction, or neither."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pandas

from ablate.config.errors import Refused
from ablate.format import show

SHAPE = ("params", "flops_per_token")
KEYS = ("cell", "seed", "step", "status", "batches", "params", "flops_per_token", "label", "path", "error")
RUNS = ("seed", "step", "status")  # of KEYS, what can be no factor even if it is asked for
# Columns that people export beside them, no factor whatever they hold.
NEITHER = {
    *("tokens", "seconds", "time", "epoch", "lr", "grad_norm", "host", "id", "run", "run_id", "name", "note"),
    *("notes", "date", "timestamp", "created", "updated", "started", "ended", "state", "stratum", "placebo"),
    *("match", "chosen", "steps", "device", "torch", "commit", "dirty", "chosen_value", "match_difference"),
    *(
        "tuned",
        "tuned_value",
        "tuned_at_edge",
        "overfits",
        "runtime",
        "user",
        "sweep",
        "global_step",
        "trainer/global_step",
    ),
}
ALIASES = {  # what else the columns that every table needs are called, without case, dots and underscores
    "seed": ("seed", "randomseed", "rngseed"),
    "step": ("step", "globalstep", "iteration"),
    "status": ("status", "state"),
}
LOWER = {"loss", "bpb", "bpc", "perplexity", "ppl", "error", "err", "nll", "mse", "rmse", "mae", "wer", "cer", "fid"}
HIGHER = {"accuracy", "acc", "exact", "em", "f1", "bleu", "rouge", "auc", "auroc", "reward", "success", "mcc"}
WHOLE = re.compile(r"[+-]?\d{1,15}")
MOST = 50  # factors that are guessed; nobody crosses as many
SHOWN = 20  # columns that are spelled out
SECTION = re.compile(r"^(config|hparams|trainer)[./]")  # that a tracking service puts before a setting's name
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")


def some(names: Iterable[str]) -> str:
    """The names of columns, the first of many, in a row."""
    known = list(names)
    return (", ".join(known[:SHOWN]) or "none") + f" and {len(known) - SHOWN} more" * (len(known) > SHOWN)


def direction(metric: str) -> bool | None:
    """Whether less of a metric is better, by the words of its name; None where they do not say."""
    words = set(re.split(r"[^a-z0-9]+", metric.split("@")[0].lower()))
    low, high = bool(words & LOWER), bool(words & HIGHER)
    return low if low != high else None


def called(names: list[str]) -> dict[str, str]:
    """The columns that stand for seed, step and status under other names: `Seed`, `_step`, `config.seed`.

    Raises Refused where two columns do.
    """
    plain: dict[str, list[str]] = {}
    for name in names:
        plain.setdefault(re.sub(r"[^a-z0-9]", "", SECTION.sub("", name.casefold())), []).append(name)
    found: dict[str, str] = {}
    for wanted in (wanted for wanted in ALIASES if wanted not in names):
        likely = next((plain[alias] for alias in ALIASES[wanted] if alias in plain), [])
        if len(likely) > 1:
            raise Refused(f"columns {likely[0]} and {likely[1]} may both be the {wanted}; call one {wanted}")
        found |= dict.fromkeys(likely, wanted)
    return found


def is_neither(name: str) -> bool:
    """Whether a column is of those that people export beside factors and metrics: `host`, `_timestamp`, `Created`."""
    return name.casefold().strip("_ ") in NEITHER


def looks_like_metric(name: str) -> bool:
    """Whether a column is a metric by its name: `test/loss`, `val_acc`, `perplexity`."""
    return name not in KEYS and not is_neither(name) and ("/" in name or direction(name) is not None)


def number(text: str) -> float | None:
    """The number that a text is, NaN and infinities included, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def levels(texts: list[str]) -> list[Any]:
    """A factor's levels: all whole numbers, all numbers, all true or false, else texts; an empty one is null.

    Numbers that would be the same once read, or shown, are texts: ids of 19 digits, say.
    """
    given = {text for text in texts if text != ""}
    read: Any = str
    if all(WHOLE.fullmatch(text) for text in given):
        read = int
    elif all(NUMBER.fullmatch(text) for text in given):
        read = float if len(set(map(Decimal, given))) == len({show(float(text)) for text in given}) else str
    elif {text.lower() for text in given} <= {"true", "false"}:
        read = _is_true
    known = {text: read(text) for text in given} | {"": None}
    return [known[text] for text in texts]


def _is_true(text: str) -> bool:
    return text.lower() == "true"


def choose_metrics(names: list[str], asked: list[str], claimed: list[str]) -> list[str]:
    """The metric columns, the endpoint first: those asked for, else the loss of the test split, else its first metric.

    Columns that claims name are metrics, too.  Raises Refused where there is none.
    """
    if lost := [name for name in asked if name not in names]:
        there = some(name for name in names if name not in KEYS)
        raise Refused(f"--metric {lost[0]}: there is no such column; there are {there}")
    found = [name for name in names if looks_like_metric(name)]
    if lost := [name for name in (*asked, *claimed) if name in KEYS and name in names]:
        what = "says which run it is, how it ended or how large it is, and measures nothing"
        raise Refused(f"--metric {lost[0]}: {lost[0]} {what}")
    order = [*asked, *(name for part in ("test/loss", "test", "val", "") for name in found if part in name)]
    order += [name for name in claimed if name in names]
    if not order:
        raise Refused(f"no column is a metric by its name; write --metric NAME; there are {some(names)}")
    return list(dict.fromkeys(order))


def choose_factors(
    table: pandas.DataFrame, metrics: list[str], asked: list[str], tracked: bool = False
) -> tuple[list[str], list[str]]:
    """The columns that are factors, and those that are neither factor nor metric although they vary.

    Without `asked`, a factor is a column with at least two values and no more than there are cells, the most rows that
    one seed has at one step; of two columns that always change together the first.  What is `tracked` has no columns
    beside settings and metrics.  Raises Refused.
    """
    names = list(table.columns)
    if asked:
        there = some(name for name in names if name == "cell" or name not in (*KEYS, *metrics))
        if lost := [name for name in asked if name not in names]:
            raise Refused(f"--factors {lost[0]}: there is no such column; there are {there}")
        if lost := [name for name in asked if name in RUNS]:
            raise Refused(f"--factors {lost[0]}: {lost[0]} says which run it is or how it ended; there are {there}")
        if lost := [name for name in asked if name in metrics]:
            raise Refused(f"--factors {lost[0]}: {lost[0]} is a metric, by its name or --metric; there are {there}")
        return asked, []
    most = int(table.groupby([name for name in ("seed", "step") if name in names]).size().max())
    most = most if most > 1 else len(table) // 2  # where each run has a seed of its own
    found: dict[tuple[int, ...], str] = {}
    left = []
    for name in (name for name in names if name not in (*KEYS, *metrics) and (tracked or not is_neither(name))):
        codes = _codes(table[name])
        count = max(codes, default=0) + 1
        if 2 <= count <= most and _within(table, codes):
            found.setdefault(codes, name)
        if count > 1 and name not in found.values():
            left.append(name or "(unnamed)")
    if len(found) > MOST:
        raise Refused(f"{len(found)} columns could be factors: {some(found.values())}; name those that are: --factors")
    return list(found.values()) or ["cell"] * ("cell" in names), left


def _codes(column: pandas.Series) -> tuple[int, ...]:
    """Levels as numbers in the order in which they appear: 64 and 64.0 are one, 1e-3 and .001, too."""
    known: dict[Any, int] = {}
    return tuple(known.setdefault(level, len(known)) for level in levels(list(column)))


def _within(table: pandas.DataFrame, codes: tuple[int, ...]) -> bool:
    """Whether a column has one level in each cell, where cells are named."""
    return "cell" not in table or len({*zip(table["cell"], codes, strict=True)}) == table["cell"].nunique()
