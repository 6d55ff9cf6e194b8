"""Tables from the files of runs: logged steps, results, speed, losses by document."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections import namedtuple
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ablate.formatting import SPEED, counted, grouped
from ablate.runs.records import Cell, Commit, Documents, Manifest, Metrics, Result

if TYPE_CHECKING:
    import pandas

EACH_STEP = ("step", "tokens", "seconds", "lr", "grad_norm")  # logged between evaluations, too, like train/…

Row = dict[str, Any]
_named = functools.lru_cache(maxsize=256)(functools.partial(namedtuple, "row", rename=True))


def named_rows(table: pandas.DataFrame) -> Iterator[Any]:
    """The rows of a table as named tuples, like `itertuples` in a tenth of the time."""
    row = _named(("Index", *map(str, table.columns)))
    cells = table.to_numpy(object).tolist()
    return (row(place, *values) for place, values in zip(table.index, cells, strict=True))


def parse_lines(lines: list[bytes]) -> tuple[list[Row], int]:
    """The JSON objects in these lines, in order, and how many torn lines were skipped."""
    rows = []
    torn = 0
    for line in lines:
        if not line.strip():
            continue
        row = None
        with contextlib.suppress(ValueError, RecursionError):
            row = msgspec.json.decode(line)
        if isinstance(row, dict):
            rows.append(row)
        else:
            torn += 1
    return rows, torn


def table_of(rows: list[Row]) -> pandas.DataFrame:
    """What a run has logged; null is a number that was not finite."""
    import pandas

    columns = {}
    for name in dict.fromkeys(itertools.chain(*rows)):
        values = [row.get(name) for row in rows]
        columns[name] = [math.nan if value is None else value for value in values]
    return pandas.DataFrame(columns)


def curves_of(runs: list[tuple[Row, pandas.DataFrame]]) -> pandas.DataFrame:
    """A row per logged row of all runs, each given by the columns that identify it and what it has logged."""
    import pandas

    if not runs:
        return pandas.DataFrame(columns=["cell", "seed", "step"])
    owners = pandas.DataFrame([owner for owner, _ in runs])
    logged = pandas.concat(
        [table.drop(columns=owners.columns, errors="ignore") for _, table in runs], keys=owners.index
    )
    owner_of_row = owners.loc[logged.index.get_level_values(0)]
    return logged.reset_index(drop=True).join(owner_of_row.reset_index(drop=True))


def curve_column(factor: str) -> str:
    """The column of curves with a factor's levels: `step_variant` for `step`, whose name the logged step has."""
    return f"{factor}_variant" if factor in EACH_STEP else factor


def run_row(cell: Cell, result: Result | None, evaluation: Metrics | None) -> Row:
    """The row of a run of `cell` in the table of runs; `result` is None if the run has not ended."""
    known = result or Result(status="failed", final={})  # of which nothing else is known
    git = known.git or Commit()
    row = {
        **cell.levels,
        "params": cell.params,
        "flops_per_token": cell.flops_per_token,
        "batches": cell.batches,
        "status": result.status if result else "missing",
        "error": known.error.message if known.error else None,
        "steps": known.steps,
        "seconds": (known.seconds or {}).get("total"),
        "cpu_seconds": known.cpu_seconds,
        "device": known.device,
        "overfits": known.overfits.times if known.overfits else None,
        "torch": (known.versions or {}).get("torch"),
        "ended": known.ended,
        "commit": git.commit,
        "dirty": git.dirty,
    }
    if known.vectors_seconds is not None:
        row["vectors_seconds"] = known.vectors_seconds
    if known.status == "done":
        row |= known.final | (evaluation or {})
    return row


def class_name(target: Any) -> str:
    """The last part of a `_target_`, so that code that moved counts as the same."""
    return str(target).rpartition(".")[2]


def mixed(runs: pandas.DataFrame) -> Iterator[str]:
    """A sentence for each property that runs of a study should share but do not: torch's version, kind of device."""
    torch = runs["torch"].dropna().astype(str)
    device = runs["device"].dropna().astype(str)
    device = device.str.replace(r"^\d+ × ", "", regex=True).str.split().str[0]  # "cpu" of "2 × cpu x86_64"
    for what, kinds in (("the version of torch", torch), ("the device", device)):
        counts = kinds.value_counts()
        if len(counts) > 1:
            numbers = ", ".join(f"{name} ({counted(count, 'run')})" for name, count in counts.items())
            yield f"runs differ in {what}: {numbers}"


def is_timed(manifest: Manifest) -> bool:
    """Whether the runs of a study are timed in isolation, so that their speed can be compared."""
    return manifest.timing == "isolated"


def speed_of(manifest: Manifest, result: Result | None) -> Row:
    """The columns with speed and sitting of a run in a timed study; empty for other studies."""
    if not is_timed(manifest):
        return {}
    if result is None or result.timing != "isolated":
        return dict.fromkeys((*SPEED, "sitting"))
    row: Row = {metric: getattr(result, metric.removeprefix("train/")) for metric in SPEED}
    row["sitting"] = result.sitting
    if result.sitting and result.resumed:  # in several sittings, as no partner was
        row["sitting"] = f"{result.sitting}, continued {result.started}"
    return row


def in_one_sitting(runs: pandas.DataFrame) -> tuple[pandas.DataFrame, list[str]]:
    """Runs without the speed of seeds whose cells were not all trained in one sitting, and a note on these seeds."""
    if "sitting" not in runs:
        return runs, []
    sittings = runs.groupby("seed")["sitting"].nunique()
    seeds = sittings.index[sittings > 1]
    runs = runs.drop(columns="sitting")
    if seeds.empty:
        return runs, []
    runs.loc[runs["seed"].isin(seeds), list(SPEED)] = None
    which = f"{counted(len(seeds), 'seed')} ({', '.join(map(str, seeds))})"
    return runs, [
        f"the runs of {which} were not timed in one go, for the study was interrupted; their speed is left out"
    ]


CellSeed = tuple[str, int]  # a cell and a seed
DOCUMENT = ("text", "name", "tokens")


def by_document(tested: dict[CellSeed, Documents]) -> pandas.DataFrame:
    """Mean losses (documents × runs): a row per `text`, `name` and scored `tokens`, a column per cell and seed.  Runs
    tested on other documents have rows of their own, with another `text`.  NaN: not tested on, or not finite."""
    import pandas

    runs = pandas.MultiIndex.from_tuples(tested, names=("cell", "seed"))
    texts = grouped(((tuple(documents.name), tuple(documents.tokens)), run) for run, documents in tested.items())
    tables: list[pandas.DataFrame] = []
    for (names, tokens), tested_on_it in texts.items():
        index = pandas.MultiIndex.from_arrays([[len(tables)] * len(names), names, tokens], names=DOCUMENT)
        losses = {run: tested[run].loss for run in tested_on_it}
        tables.append(pandas.DataFrame(losses, index, dtype=float).reindex(columns=runs))
    if not tables:
        return pandas.DataFrame(index=pandas.MultiIndex.from_tuples([], names=DOCUMENT), columns=runs, dtype=float)
    return pandas.concat(tables)
