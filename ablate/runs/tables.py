"""Tables from the files of runs: logged steps, results, speed, losses by document; checks that a run is as planned."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ablate.config.errors import Corrupt
from ablate.config.files import parse_plain, read_regular
from ablate.config.schema import NO_NUMBERS, VARIED
from ablate.formatting import SPEED, counted, first_of
from ablate.runs.records import Cell, Commit, Documents, Manifest, Metrics, Result

if TYPE_CHECKING:
    import pandas

SEED = re.compile(rb"^seeds:\n- (\d+)\n", re.MULTILINE)
SECTIONS = (*VARIED, "model", "data", "train", "optim")
# Settings that may differ between two studies that share a run: see run_key.numbers.
CARRIED = {*NO_NUMBERS, "ffn.mult", "ffn.multiple_of", "optim.min_lr_ratio"}
NAMED = 4
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
    given, found = [line for line in lines if line.strip()], list[Row]()
    for line in given:
        with contextlib.suppress(ValueError, RecursionError):
            found += [row] if isinstance(row := msgspec.json.decode(line), dict) else []
    return found, len(given) - len(found)


def by_column(rows: list[Row]) -> dict[str, list[Any]]:
    """Logged rows by column, in a fifth of the memory; null is a number that was not finite."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [math.nan if (value := row.get(name)) is None else value for row in rows] for name in names}


def curves_of(runs: list[tuple[Row, dict[str, list[Any]]]]) -> pandas.DataFrame:
    """A row per logged row of all runs, each given by the columns that identify it and what it logged by column."""
    import numpy as np
    import pandas

    if not runs:
        return pandas.DataFrame(columns=["cell", "seed", "step"])
    counts = [max(map(len, logged.values()), default=0) for _, logged in runs]
    owners = pandas.DataFrame([owner for owner, _ in runs])
    owners = owners.take(np.repeat(np.arange(len(runs)), counts)).reset_index(drop=True)
    logged = [(logged, [math.nan] * count) for (_, logged), count in zip(runs, counts, strict=True)]
    names = dict.fromkeys(name for each, _ in logged for name in each if name not in owners)
    columns = {name: [value for each, lacking in logged for value in each.get(name, lacking)] for name in names}
    return pandas.DataFrame(columns, index=owners.index).join(owners)


def curve_column(factor: str) -> str:
    """The column of curves with a factor's levels: `step_variant` for `step`, whose name the logged step has."""
    return f"{factor}_variant" if factor in EACH_STEP else factor


def run_row(cell: Cell, result: Result | None, evaluation: Metrics | None) -> Row:
    """The row of a run of `cell` in the table of runs; `result` is None if the run has not ended."""
    known = result or Result(status="failed", final={})  # of which nothing else is known
    git = known.git or Commit()
    row: Row = cell.levels | {"params": cell.params, "flops_per_token": cell.flops_per_token, "batches": cell.batches}
    row |= {"status": result.status if result else "missing", "error": known.error.message if known.error else None}
    row |= {"steps": known.steps, "seconds": (known.seconds or {}).get("total"), "cpu_seconds": known.cpu_seconds}
    row |= {"device": known.device, "overfits": known.overfits.times if known.overfits else None}
    row |= {"torch": (known.versions or {}).get("torch"), "ended": known.ended}
    row |= {"commit": git.commit, "dirty": git.dirty}
    row |= {} if known.vectors_seconds is None else {"vectors_seconds": known.vectors_seconds}
    return row | (known.final | (evaluation or {}) if known.status == "done" else {})


class Planned:
    """Checks that runs on disk are those planned; a configuration that many seeds share is parsed once."""

    def __init__(self) -> None:
        self.read: dict[bytes, Row] = {}
        self.notes: list[str] = []

    def other(self, cell: Cell, seed: int, result: Result, file: Path) -> str:
        """How a result or its saved configuration differs from the planned run; "" if it does not."""
        text = b""
        with contextlib.suppress(OSError):
            text = read_regular(file)
        facts = {"params": (result.params, cell.params), "data_fingerprint": (result.data_fingerprint, cell.task)}
        facts["seed"] = (int(trained[1]) if (trained := SEED.search(text)) else None, seed)
        for name, (one, planned) in facts.items():
            if one is not None and one != planned:
                return f"its {name} is {one} where {planned} is planned"
        text = SEED.sub(b"", text)
        if text not in self.read:
            config = None
            try:
                config = parse_plain(text, str(file)) if text else {}
            except Corrupt as error:
                self.notes.append(f"{error}; its settings were not compared")
            self.read[text] = config if isinstance(config, dict) else {}
        settings = cell.config.as_json() if cell.config else {}
        for section in SECTIONS:
            parts = (self.read[text].get(section), settings.get(section))
            used, wanted = (part if isinstance(part, dict) else {} for part in parts)
            for name in used.keys() & wanted.keys():
                key = f"{section}.{name}"
                same = name == "_target_" and class_name(used[name]) == class_name(wanted[name])
                if not same and used[name] != wanted[name] and key not in CARRIED:
                    return f"its {key} is {used[name]} where {wanted[name]} is planned"
        return ""


def class_name(target: Any) -> str:
    """The last part of a `_target_`, so that code that moved counts as the same."""
    return str(target).rpartition(".")[2]


def mixed(runs: pandas.DataFrame) -> Iterator[str]:
    """A sentence for each property that runs of a study should share but do not: torch's version, kind of device."""
    for column, what in (("torch", "the version of torch"), ("device", "the device")):
        known = runs[column].dropna().astype(str)
        # "2 × cpu x86_64" is a run on two of what "cpu x86_64" is one of.
        kinds = known.str.replace(r"^\d+ × ", "", regex=True).str.split().str[0] if column == "device" else known
        counts = kinds.value_counts()
        if len(counts) > 1:
            odd = runs.loc[kinds[kinds != counts.index[0]].index]
            named = first_of((f"{run.label} seed {run.seed}" for run in named_rows(odd)), NAMED)
            each = ", ".join(f"{name} ({counted(count, 'run')})" for name, count in counts.items())
            yield f"runs differ in {what}: {each}; the fewer: {named}; kept"


def is_timed(manifest: Manifest) -> bool:
    """Whether the runs of a study are timed in isolation, so that their speed can be compared."""
    return manifest.timing == "isolated"


def speed_of(manifest: Manifest, result: Result | None) -> dict[str, Any]:
    """The columns with speed and sitting of a run in a timed study; empty for other studies."""
    if not is_timed(manifest):
        return {}
    timed = result if result and result.timing == "isolated" else None
    found = {metric: getattr(timed, metric.removeprefix("train/"), None) for metric in SPEED}
    own = f", continued {timed.started}" if timed and timed.resumed else ""  # in several sittings, as no partner was
    return found | {"sitting": f"{timed.sitting}{own}" if timed and timed.sitting else None}


def in_one_sitting(runs: pandas.DataFrame) -> tuple[pandas.DataFrame, list[str]]:
    """Runs without the speed of seeds whose cells were not all trained in one sitting, and a note on these seeds."""
    if "sitting" not in runs:
        return runs, []
    sittings = runs.groupby("seed")["sitting"].nunique()
    interrupted = [int(seed) for seed in sittings[sittings > 1].index]
    known = runs.drop(columns="sitting")
    known.loc[known["seed"].isin(interrupted), list(SPEED)] = None
    which = f"{counted(len(interrupted), 'seed')} ({', '.join(map(str, interrupted))})"
    note = f"the runs of {which} were not timed in one go, for the study was interrupted; their speed is left out"
    return known, [note] * bool(interrupted)


CellSeed = tuple[str, int]  # a cell and a seed
DOCUMENT = ("text", "name", "tokens")


def by_document(tested: dict[CellSeed, Documents]) -> pandas.DataFrame:
    """Mean losses (documents × runs): a row per `text`, `name` and scored `tokens`, a column per cell and seed.  Runs
    tested on other documents have rows of their own, with another `text`.  NaN: not tested on, or not finite."""
    import numpy as np
    import pandas

    texts: dict[tuple[tuple[str, ...], tuple[int, ...]], dict[CellSeed, Documents]] = {}
    for whose, found in tested.items():
        texts.setdefault((tuple(found.name), tuple(found.tokens)), {})[whose] = found
    rows = [(i, *each) for i, (names, tokens) in enumerate(texts) for each in zip(names, tokens, strict=True)]
    losses, start = np.full((len(rows), len(tested)), np.nan), 0
    places = {whose: i for i, whose in enumerate(tested)}
    for (names, _), runs in texts.items():
        for whose, found in runs.items():
            losses[start : start + len(names), places[whose]] = np.array(found.loss, dtype=float)
        start += len(names)
    index = pandas.MultiIndex.from_tuples(rows, names=DOCUMENT)
    return pandas.DataFrame(losses, index, pandas.MultiIndex.from_tuples(tested, names=("cell", "seed")))
