"""Runs as another program has logged them: two tables, and texts as numbers."""

import io
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas

from ablate import formatting
from ablate.config.errors import Refused
from ablate.formatting import flat, visible
from ablate.runs.readers import Texts, as_texts

warnings.simplefilter("ignore", pandas.errors.PerformanceWarning)  # of tables with more than 100 columns
RUN = ["cell", "seed"]  # what tells runs apart in a study
SHAPE = ("params", "flops_per_token")
KEYS = ("seed", "step", "status", "label", "path", "error", "batches", *SHAPE, "created")  # factors only on request
AXES = ("step", "tokens", "seconds")
ABSENT = ["", "NA", "N/A", "n/a", "None", "null", "NULL", "-", "–", "—"]  # spellings of no value
LARGEST = 1e100  # squares of larger numbers overflow
NAMED = 6  # runs that a note lists


class Run(NamedTuple):
    """A run: `config` nested or not, `rows` what it logged, in order; `facts` are columns of `Logged.runs` that are no
    settings; `id` tells runs of one name apart."""

    name: str
    config: Mapping[str, Any]
    rows: list[dict[str, Any]]
    facts: Mapping[str, Any] = {}
    id: str = ""


class Logged(NamedTuple):
    """Runs as another program has logged them.  The index of both tables is what messages call a run.

    runs        a row per run: its settings, and where known its `status`, when it was `created` (of equal runs the
                newest counts), `params`, `batches`, …
    rows        a row per logged step of each run: what was logged, as texts
    names       the names of the runs, which may hold seed and factors
    notes       what was left out
    is_table    the rows of `runs` are those of a table, of which several may be steps of one run
    """

    runs: pandas.DataFrame
    rows: pandas.DataFrame
    names: list[str]
    notes: list[str]
    is_table: bool = False


def logged(runs: list[Run], notes: list[str]) -> Logged:
    """The two tables of these runs."""
    settings = []
    names = []
    labels = []
    for run in runs:
        name = visible(run.name)
        names.append(name)
        labels.append(f"{name} ({visible(run.id)})" if run.id else name)
        config = {key: value for key, value in flat(run.config).items() if not key.startswith("_")}
        settings.append(config | dict(run.facts))
    whose = np.repeat(labels, [len(run.rows) for run in runs])
    rows = as_table([as_texts(row) for run in runs for row in run.rows], list(whose))
    table = typed(as_table([as_texts(row) for row in settings], labels))
    return Logged(table, rows, names, notes)


def as_table(rows: list[Texts], index: list[str]) -> pandas.DataFrame:
    """Rows of texts as a table, with "" where a row has no value."""
    return pandas.DataFrame(rows, index, dtype=object).fillna("")


def typed(texts: pandas.DataFrame) -> pandas.DataFrame:
    """Texts as numbers, booleans, texts, or NaN where there is no value: column by column, as pandas reads a CSV."""
    if texts.columns.empty:
        return texts
    table = pandas.read_csv(
        io.StringIO(texts.to_csv(index=False)),
        keep_default_na=False,
        na_values=ABSENT,
        skip_blank_lines=False,
        low_memory=False,
    )
    return table.set_axis(texts.columns, axis=1).set_axis(texts.index)


def numbers(texts: pandas.Series) -> pandas.Series:
    """Texts as numbers: NaN where there is no value, infinite where one is not finite or too large to be squared.
    Raises `Refused` at the first other text."""
    values = pandas.to_numeric(texts, errors="coerce").astype(float)
    is_nan = texts.str.lower().isin(["nan", "+nan", "-nan"])
    is_odd = values.isna() & ~is_nan & ~texts.isin([*ABSENT, "none"])
    if is_odd.any():
        where = is_odd.idxmax()
        text = texts[is_odd].iloc[0][:20]
        how = "a number; write a decimal point and no other sign"
        raise Refused(f"{where}: {texts.name} is “{text}”, which is not {how}")
    return values.mask(is_nan | (values.abs() >= LARGEST), math.inf)


def note(names: Iterable[str], why: str, noun: str = "run") -> list[str]:
    """A note on runs, if there are any: 2 runs without a seed left out: a, b."""
    names = list(names)
    if not names:
        return []
    return [f"{formatting.counted(len(names), noun)} {why}: {formatting.first_of(names, NAMED)}"]
