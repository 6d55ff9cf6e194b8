"""Classification of the columns of a table of runs: factors, metrics with their direction, or neither."""

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pandas

from ablate import formatting
from ablate.config.errors import Refused
from ablate.formatting import instead, show
from analysis.sources.request import Request

SHAPE = ("params", "flops_per_token")
RUNS = ("seed", "step", "status")  # identify a run or its end: never factors, even on request
STEPS = {"step", "steps", "global_step", "trainer/global_step", "iteration", "epoch", "tokens"}
KEYS = ("cell", *RUNS, "batches", *SHAPE, "label", "path", "error")
# Columns that vary within a run, or that ablate's own tables have besides factors: factors only on request.
NEITHER = {*STEPS, "seconds", "match", "chosen", "chosen_value", "match_difference", "overfits"}
LOWER = {"loss", "bpb", "bpc", "perplexity", "ppl", "error", "err", "nll", "mse", "rmse", "mae", "wer", "cer", "fid"}
HIGHER = {"accuracy", "acc", "exact", "em", "f1", "bleu", "rouge", "auc", "auroc", "reward", "success", "mcc"}
MOST = 50  # inferred factors; more must be a mistake
SHOWN = 20  # columns that a message lists
NAMED = 6  # runs that a message lists
WHOLE = re.compile(r"[+-]?\d{1,15}")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")


def some(names: Iterable[str]) -> str:
    """A list of columns for a message, shortened if long."""
    return formatting.first_of(names, SHOWN) or "none"


def few(names: Iterable[str]) -> str:
    """A list of runs for a message, shortened if long."""
    return formatting.few(names, NAMED)


def direction(metric: str) -> bool | None:
    """Whether lower values of a metric are better, by the words in its name; None if these do not tell."""
    words = set(re.split(r"[^a-z0-9]+", metric.split("@")[0].lower()))
    low, high = bool(words & LOWER), bool(words & HIGHER)
    return low if low != high else None


def is_neither(name: str) -> bool:
    """Whether a column's name, without case and surrounding marks, rules out a factor: `_Step`, `overfits`."""
    return name not in KEYS and plain(name) in NEITHER


def plain(name: str) -> str:
    """A column's name without case and surrounding marks: `_Step` as `step`."""
    return name.casefold().strip("_ ")


def levels(texts: Iterable[str]) -> list[Any]:
    """A factor's levels: all integers, all floats, all booleans, else texts; an empty one is None.  Numbers that would
    become equal when parsed or shown stay texts, as ids of 19 digits do."""
    column = list(texts)
    given = {text for text in column if text != ""}
    read: Any = str
    if all(WHOLE.fullmatch(text) for text in given):
        read = int
    elif all(NUMBER.fullmatch(text) for text in given):
        read = float if len(set(map(Decimal, given))) == len({show(float(text)) for text in given}) else str
    elif {text.lower() for text in given} <= {"true", "false"}:
        read = {text: text.lower() == "true" for text in given}.__getitem__
    known = {text: read(text) for text in given} | {"": None}
    return [known[text] for text in column]


def choose_metrics(names: list[str], request: Request) -> list[str]:
    """The metric columns, the endpoint first: those of --metric, else the test loss, else the test split's first.
    Columns that claims name are metrics, too.  Raises Refused if there is none."""
    for name in request.metrics:
        if name not in names:
            there = some(column for column in names if column not in KEYS)
            raise Refused(f"--metric {name}: there is no such column; there are {there}")
    for name in (*request.metrics, *request.described.metrics):
        if name in KEYS and name in names:
            what = "identifies a run, its status or its size, and is no metric"
            raise Refused(f"--metric {name}: {name} {what}")
    by_name = (name for name in names if name not in KEYS and not is_neither(name))
    found = [name for name in by_name if "/" in name or direction(name) is not None]
    order = [*request.metrics, *(name for part in ("test/loss", "test", "val", "") for name in found if part in name)]
    order += [name for name in request.described.metrics if name in names]
    if not order:
        raise Refused(f"no column is a metric by its name; write --metric NAME; there are {some(names)}")
    return list(dict.fromkeys(order))


def choose_factors(runs: pandas.DataFrame, metrics: list[str], request: Request) -> tuple[list[str], list[str]]:
    """The factors: those of the command line, else of the study file, else inferred; and a note on columns left out.
    Raises Refused if a named column cannot be a factor, or if no column is one."""
    names, described = list(runs), request.described
    there = [name for name in names if name == "cell" or name not in (*KEYS, *metrics)]
    if lost := [name for name in described.factors if name not in names]:
        raise Refused(f"{described.file}: factors.{lost[0]}: there is no such column: {instead(lost[0], there)}")
    wanted = list(request.factors or described.factors)
    for name in wanted:
        what = (
            "there is no such column"
            if name not in names
            else f"{name} identifies a run or its status"
            if name in RUNS
            else f"{name} is a metric, by its name or --metric"
            if name in metrics
            else ""
        )
        if what:
            raise Refused(f"--factors {name}: {what}; there are {some(there)}")
    found, left = (wanted, []) if wanted else _found_factors(runs, metrics)
    if not found:
        raise Refused(f"no column is a factor; name those that are with --factors; there are {some(names)}")
    return found, [f"columns that are neither factor nor metric, left out: {some(left)}"] * bool(left)


def _found_factors(table: pandas.DataFrame, metrics: list[str]) -> tuple[list[str], list[str]]:
    """The columns that are factors, and those that vary but are neither factor nor metric.

    A factor has at least two values, and no more values than there are cells (the largest number of rows with the same
    seed and step).  Of columns that always change together the first counts.  Raises Refused.
    """
    names = list(table.columns)
    most = int(table.groupby([name for name in ("seed", "step") if name in names]).size().max())
    most = most if most > 1 else len(table) // 2  # every run has a different seed
    found: dict[tuple[int, ...], str] = {}
    left = []
    for name in (name for name in names if name not in (*KEYS, *metrics)):
        codes = tuple(pandas.factorize(pandas.Series(levels(table[name]), dtype=object), use_na_sentinel=False)[0])
        count = len(set(codes))
        in_cells = "cell" not in table or len({*zip(table["cell"], codes, strict=True)}) == table["cell"].nunique()
        if 2 <= count <= most and in_cells:  # a named cell has one level
            found.setdefault(codes, name)
        if count > 1 and name not in found.values():
            left.append(name or "(unnamed)")
    if len(found) > MOST:
        raise Refused(f"{len(found)} columns could be factors: {some(found.values())}; name those that are: --factors")
    return list(found.values()) or ["cell"] * ("cell" in names), left
