"""The metric of a run of any program: from lines of its output, or from the files that it wrote into its folder.

With `read='val_bpb: {value}'` it is what stands there in the last line that has it.  Otherwise both the output and the
files are looked at, and two sources that disagree are refused.
"""

import dataclasses
import difflib
import functools
import math
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ablate.formatting import first_of
from ablate.program.event_files import read_tensorboard, read_wandb
from ablate.runs.logs import ASSIGNED, VALUE, read_log
from ablate.runs.readers import FAULTS, read_table_log, read_trainer
from ablate.runs.tables import EACH_STEP

Row = dict[str, float]
LARGEST = 50_000_000  # bytes of a file that is read
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
LAST_CHARACTERS = 10_000  # of the output, in which names of other metrics are looked for
MOST_NAMES = 6  # names of other metrics that an error lists
AGREE = 1e-6  # the relative difference of two sources that print with different digits, and half a unit of the last


class NoMetric(Exception):
    """The metric is in no source, or two sources disagree."""


@dataclasses.dataclass(frozen=True)
class Source:
    """The logged steps that one source has."""

    name: str
    rows: list[Row]


def pattern_of(read: str) -> re.Pattern[str]:
    """The regular expression of `read='val_bpb: {value}'`: its text, with a number in place of the field."""
    before, _, after = read.partition("{value}")
    return re.compile(re.escape(before) + r"\s*" + VALUE + re.escape(after))


def sources_of(output: str, folder: Path, metric: str, read: str = "") -> list[Source]:
    """The sources that have a metric: the output, and the files in the folder of a run.  Raises NoMetric."""
    if read:
        pattern = pattern_of(read)
        rows = [{metric: float(match[1])} for match in pattern.finditer(output)]
        if not rows:
            raise NoMetric(f"it printed no line with {read}")
        return [Source(f"the lines with {read}", rows)]
    sources = [Source("its output", rows_of_output(output, metric))]
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.is_symlink() and file.stat().st_size <= LARGEST:
            rows = [with_metric(row, metric) for row in rows_in(file)]
            sources.append(Source(file.relative_to(folder).as_posix(), rows))
    having = [source for source in sources if any(metric in row for row in source.rows)]
    if having:
        return having
    rows = [numbers_in(row) for row in read_log(output + "\n").rows]
    for source in sources:
        rows += source.rows
    names = [name for row in rows for name in row if name not in EACH_STEP]
    if not names:
        names = [match[1] for match in ASSIGNED.finditer(output[-LAST_CHARACTERS:])]
    raise NoMetric(f"it printed no {metric}, and wrote none into its folder{what_it_has(metric, names)}")


def what_it_has(metric: str, names: list[str]) -> str:
    """The names of the numbers that a run has in place of a metric, and the nearest one; empty without any."""
    if not names:
        return ""
    names = list(dict.fromkeys(names))
    same_end = [name for name in names if words_in_name(name)[-1:] == words_in_name(metric)[-1:]]
    same_end.sort(key=lambda name: name.startswith("train"))
    near = same_end or difflib.get_close_matches(metric, names)
    hint = f"; did you mean metric={shlex.quote(near[0])}?" if near else ""
    return f"; it has {first_of(names, MOST_NAMES)}{hint}"


def rows_of_output(output: str, metric: str) -> list[Row]:
    """The steps that a program printed; if no line of a trainer has the metric, what stands behind its name: after a
    colon or an equals sign, but not at the end of another name, as `loss` in `train loss: 2`; or after a space where
    the name begins a line or a part of it."""
    rows = [with_metric(numbers_in(row), metric) for row in read_log(output + "\n").rows]
    if any(metric in row for row in rows):
        return rows
    name = r"[\s_/]+".join(re.escape(word) for word in words_in_name(metric))
    assigned = re.finditer(rf"(?:([^\s,;:|=(\[\])]+)[ \t]+)?(?<![\w/.]){name}\s*[:=]\s*{VALUE}", output)
    values = [match[2] for match in assigned if not (match[1] or "")[:1].isalpha()]
    if not values:
        values = re.findall(rf"(?:^|[,;:|(\[])[ \t]*{name}[ \t]+{VALUE}", output, re.MULTILINE)
    return [{metric: float(value)} for value in values]


def with_metric(row: Row, metric: str) -> Row:
    """A row in which the metric has the name that it was asked for by: val/loss, val_loss and val loss are one."""
    if metric in row:
        return row
    return {metric if words_in_name(name) == words_in_name(metric) else name: value for name, value in row.items()}


@functools.cache  # a log has few names, and many rows
def words_in_name(name: str) -> tuple[str, ...]:
    """The words of a metric's name."""
    return tuple(word for word in re.split(r"[\s_/]+", name) if word)


def rows_in(file: Path) -> list[Row]:
    """The numbers that a run wrote into a file, row by row; none if it is no table, or one that a crash cut short."""
    try:
        if file.name == "trainer_state.json":
            rows = read_trainer(file).rows
        elif file.suffix in TABLES:
            rows = read_table_log(file).rows
        elif file.name.startswith("events.out.tfevents."):
            rows = read_tensorboard(file)
        elif file.suffix == ".wandb":
            rows = read_wandb(file)
        else:
            rows = []
    except FAULTS:
        rows = []
    return [numbers_in(row) for row in rows]


def numbers_in(row: dict[str, Any]) -> Row:
    """The entries of a row that are numbers."""
    numbers = {}
    for name, value in row.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        try:
            numbers[str(name)] = float(value)
        except ValueError:
            continue
    return numbers


def read_metric(sources: list[Source], metric: str, at: str, lower_is_better: bool) -> tuple[float, list[Row]]:
    """A run's value of a metric, at its last or its best step, and the logged steps of the first source.

    Raises NoMetric.
    """
    values = {}
    for source in sources:
        logged = [row[metric] for row in source.rows if metric in row]
        finite = [value for value in logged if math.isfinite(value)]
        best = min if lower_is_better else max
        values[source.name] = best(finite) if at == "best" and finite else logged[-1]
    first, *others = values.values()
    if not all(agree(first, value) for value in others):
        listed = "; ".join(f"{value:g} in {name}" for name, value in values.items())
        raise NoMetric(f"{metric} is {listed}; say which by read='{metric}: {{value}}'")
    return first, sources[0].rows


def agree(left: float, right: float) -> bool:
    """Whether two values are one number, printed with different digits."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    places = min(decimals(left), decimals(right))
    return abs(left - right) <= 0.5 * 10.0**-places + AGREE * abs(left)


def decimals(value: float) -> int:
    """The digits behind the point with which a number was written, at most ten."""
    text = f"{value:.10f}".rstrip("0")
    return len(text.partition(".")[2])


def last_steps(rows: Iterable[Row]) -> int | None:
    """The last step in logged rows; None if they have none."""
    steps = [row["step"] for row in rows if "step" in row]
    return int(steps[-1]) if steps else None
