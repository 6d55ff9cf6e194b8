"""What the columns of logged runs are: seed, step, metric or factor; named by the user, else by name and values."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import pandas

from ablate import formatting
from ablate.config.errors import Refused
from ablate.formatting import nearest
from ablate.runs.logs import lower_is_better, words_of
from ablate.runs.records import STATUSES
from analysis.sources import Request
from analysis.sources.logged import AXES, KEYS, Logged, note, typed

SEEDS = ("seed", "random_seed", "seed.value", "train_seed", "global_seed", "data_seed")
# Counts of training steps, as programs call them, in order of preference; W&B's own _step counts calls of its log.
STEPS = ("step", "steps", "global_step", "trainer/global_step", "train/global_step", "iter", "iters", "iteration")
WANDB_STEP = "_step"
EPOCHS = ("epoch", "epochs", "train/epoch", "trainer/epoch")
NAMES = ("name", "run", "run_name", "run_id")
# Columns that say which run this is, where or when it ran, or how large it was: factors only if nothing else varies.
FACTS = {*NAMES, "cell", "id", "exp", "experiment", "exp_name", "commit", "sha", "file", "tags", "note", "notes"}
FACTS |= {"comment", "description", "host", "gpu", "device", "out_dir", "init_from", "date", "time", "duration"}
FACTS |= {"n_params", "memory_gb"}
# Columns of ablate's own tables that are neither factors nor metrics.
OURS = ("tokens", "seconds", "match", "chosen", "chosen_value", "match_difference", "overfits")
SPLITS = ({"test"}, {"val", "valid", "validation", "eval", "dev", "heldout"}, set[str](), {"train", "training"})
# What programs call the end of a run, in lower case; autoresearch keeps or discards a commit.
ENDED = {
    "done": ("", "done", "finished", "completed", "success", "keep", "discard"),
    "diverged": ("diverged",),
    "failed": ("failed", "crashed", "crash", "killed", "error", "timeout"),
    "missing": ("missing", "running", "pending", "preempted"),
}
STATUS_OF = {word: status for status in STATUSES for word in ENDED[status]}
MOST = 20  # columns that a message lists


class Roles(NamedTuple):
    """The columns by their roles; `seed` and `step` are "" where there is none.  The first metric is the one that is
    compared; `lower`: whether less of it is better."""

    seed: str
    step: str
    metrics: list[str]
    lower: bool
    factors: list[str]


def choose_roles(logged: Logged, request: Request, doubts: list[str]) -> tuple[pandas.DataFrame, Roles, list[str]]:
    """The runs with a seed, the roles of the columns, and notes.  Adds to `doubts` what nobody named and could be
    otherwise.  Raises `Refused` where there is no column for a role."""
    step = choose_step(logged.rows, request)
    runs, seed, without_seed = choose_seeds(with_names(logged, request), logged, step, request)
    runs = with_status(runs)
    metrics = choose_metrics(logged.rows, step, request, doubts)
    lower = lower_is_better(metrics[0]) if request.lower is None else request.lower
    if lower is None:
        doubts.append(f"{metrics[0]}: its name does not say whether less of it is better; add --lower or --higher")
        lower = True
    factors, no_factors = choose_factors(runs, step, metrics, request)
    return runs, Roles(seed, step, metrics, lower, factors), [*logged.notes, *without_seed, *no_factors]


def some(names: Iterable[str], meant: str = "") -> str:
    """Columns or levels for a message, and which of them a misspelt one could be."""
    names = list(names)
    near = nearest(meant, names)
    hint = f"; did you mean {near}?" if near else ""
    return (formatting.first_of(names, MOST) or "none") + hint


def plain(name: str) -> str:
    """A column's name without case, surrounding marks and W&B's `config.`."""
    return name.casefold().strip("_ ").removeprefix("config.").replace(" ", "_")


def with_status(runs: pandas.DataFrame) -> pandas.DataFrame:
    """The runs with their ends as one of `STATUSES` in the column `status`; by default a run is done.  Raises `Refused`
    at an end that is not known."""
    for name in runs:
        if plain(name) not in ("status", "state"):
            continue
        ends = runs[name].astype(object).fillna("").astype(str).str.lower()
        unknown = ends[~ends.isin(STATUS_OF)]
        if len(unknown):
            statuses = ", ".join(STATUSES)
            raise Refused(f"{unknown.index[0]}: {name} is “{unknown.iloc[0][:20]}”, which is not one of {statuses}")
        return runs.drop(columns=name).assign(status=ends.map(STATUS_OF))
    return runs.assign(status="done")


def with_names(logged: Logged, request: Request) -> pandas.DataFrame:
    """The runs with the {fields} of --names as columns, empty where the pattern does not fit; * stands for any text.
    Raises `Refused` if it fits no name."""
    if not request.names:
        return logged.runs
    if not logged.names:
        raise Refused(f"--names {request.names}: no column has the names of runs, such as name or run")
    pattern = ""
    for part in re.split(r"(\{[^{}]*\}|\*)", request.names):
        if part == "{seed}":
            pattern += r"(?P<seed>\d+)"
        elif part.startswith("{"):
            pattern += f"(?P<{part[1:-1]}>.+)"
        else:
            pattern += ".*" if part == "*" else re.escape(part)
    try:
        fields = pandas.Series(logged.names, logged.runs.index, dtype=str).str.extract(f"^{pattern}$")
    except (re.error, ValueError) as error:
        raise Refused(f"--names {request.names}: {error}") from None
    if fields.isna().all(axis=None):
        raise Refused(f"--names {request.names}: it fits none of the runs' names, which are {some(logged.names)}")
    return logged.runs.drop(columns=[*fields], errors="ignore").join(typed(fields))


def choose_column(table: pandas.DataFrame, candidates: list[str], option: str, named: str, request: Request) -> str:
    """The column that is named, else the only candidate; "" if there is none.  Raises `Refused` if several candidates
    differ in their values."""
    if named and named not in table:
        flag = option.replace("_", "-")
        raise Refused(f"--{flag} {named}: there is no such column; there are {some(table, named)}")
    columns = [named] if named else candidates
    # Columns of equal values are one: whichever is read, the result is the same.
    distinct = list(table[columns].T.drop_duplicates().index)
    if len(distinct) > 1:
        why = f"each of {formatting.listed(distinct)} could be the {option.removesuffix('_from')}"
        raise request.refusal(why, **{option: distinct[0]})
    return distinct[0] if distinct else ""


def choose_step(rows: pandas.DataFrame, request: Request) -> str:
    """The column that counts training steps, "" if there is none.  Raises `Refused` if several could."""
    columns = [name for name in rows if plain(name) in STEPS and name != WANDB_STEP]
    if not columns:
        columns = [name for name in rows if name == WANDB_STEP]
    if not columns:
        columns = [name for name in rows if plain(name) in EPOCHS]
    candidates = ["step"] if "step" in columns else columns
    return choose_column(rows, candidates, "step_from", request.step_from, request)


def seed_columns(columns: Iterable[str]) -> list[str]:
    """The columns that could hold the seed, by their names; the one called `seed` alone if there is one."""
    candidates = [name for name in columns if plain(name) in SEEDS]
    return ["seed"] if "seed" in candidates else candidates


def choose_seeds(
    runs: pandas.DataFrame, logged: Logged, step: str, request: Request
) -> tuple[pandas.DataFrame, str, list[str]]:
    """The runs that have a seed, with it as a whole number in the column `seed`; the column that it is from, "" if runs
    are counted; and a note on runs without.  Raises `Refused` if no run has one, or if several columns could be it."""
    columns = seed_columns(runs)
    varying = [name for name in columns if runs[name].nunique() > 1]
    column = choose_column(runs, varying or columns[:1], "seed_from", request.seed_from, request)
    if column:
        seeds = pandas.to_numeric(runs[column].astype(str), errors="coerce")  # True is none
        is_seed = (seeds % 1 == 0) & (seeds.abs() < 2**63)
    elif request.unpaired and (logged.names or not step):
        # With steps, the rows of a name are one run; without, each row is a run, also of a name that recurs.
        whose = logged.names if step else runs.index
        seeds = pandas.Series(pandas.factorize(pandas.Series(whose))[0], runs.index)
        is_seed = seeds >= 0
    else:
        is_seed = pandas.Series(False, runs.index)
    if not is_seed.any():
        there = some(runs, "seed")
        why = f"no run has a seed, of which each needs one; there are {there}; name its column: --seed-from COLUMN"
        near = nearest("seed", runs)
        if near:
            raise request.refusal(why, seed_from=near)
        if logged.is_table:
            raise request.refusal(f"{why}, or, where each row is a run of its own that shares no seed", unpaired=True)
        why = f"{why}, or read it from the runs' names, which are {some(logged.names)}"
        raise request.refusal(why, names="{variant}-s{seed}")
    notes = note(runs.index[~is_seed], "without a seed left out")
    sources = [name for name in (*columns, column) if name not in ("", "seed")]
    runs = runs.drop(columns=sources)[is_seed].assign(seed=seeds[is_seed].astype("int64"))
    return runs, column, notes


def choose_metrics(rows: pandas.DataFrame, step: str, request: Request, doubts: list[str]) -> list[str]:
    """The metrics, the one that is compared first: that of --metric, else the loss of the test split, else that of the
    validation split; the training loss where nothing else was logged.  Adds to `doubts` if another could be meant.
    Raises `Refused` if there is none."""
    for name in request.metrics:
        if name in (*KEYS, "cell") or name not in rows:
            there = some([column for column in rows if column not in KEYS], name)
            raise Refused(f"--metric {name}: there is no such metric; there are {there}")
    ranks = {}
    for name in rows:
        if name in (*KEYS, *AXES, *OURS, step) or plain(name) in FACTS:
            continue
        split = next((rank for rank, words in enumerate(SPLITS) if words & {*words_of(name)}), 2)
        is_unclear = lower_is_better(name) is None
        is_metric = split < 2 or not is_unclear
        if is_metric and rows[name].str.contains(r"\d").any():  # a note on a loss has no number
            ranks[name] = (split, is_unclear, "loss" not in words_of(name))
    ranked = sorted(ranks, key=lambda name: ranks[name])
    metrics = list(dict.fromkeys([*request.metrics, *ranked]))
    if not metrics:
        raise request.refusal(f"no column is a metric by its name; there are {some(rows)}", metrics=("NAME",))
    rivals = [name for name in ranked if "@" not in name and ranks[name] == ranks[ranked[0]]]
    if not request.metrics and len(rivals) > 1:
        doubts.append(f"each of {some(rivals)} could be the metric")
    return metrics


def choose_factors(
    runs: pandas.DataFrame, step: str, metrics: list[str], request: Request
) -> tuple[list[str], list[str]]:
    """The factors, and a note on the columns that vary and are none: those that are named, else the columns that tell
    configurations apart.  Raises `Refused` if there is none."""
    there = [name for name in runs if name not in (*KEYS, *metrics, step)]
    for name in request.factors:
        if name not in runs or name in ("seed", "status", step, *metrics):
            raise Refused(f"factors: {name} is no column that can be compared; there are {some(there, name)}")
    if request.factors:
        return list(request.factors), []
    no_settings = {*OURS, *STEPS, *EPOCHS}
    varying = [name for name in there if plain(name) not in no_settings and count(runs, [name]) > 1]
    settings = [name for name in varying if plain(name) not in FACTS]
    factors = needed(runs, settings or varying, step)
    if not factors:
        why = f"no column is a factor, of which a comparison needs two values; there are {some(there)}"
        raise Refused(f"{why}; name one: --factors COLUMN, or of logs --names '{{variant}}-s{{seed}}'")
    reasons: dict[str, list[str]] = {}
    for name in varying:
        if name in factors:
            continue
        reason = "not needed to tell configurations apart"
        if count(runs, [*factors, name]) == count(runs, factors):
            reason = "changes with the factors"
        elif count(runs, ["seed", name]) == count(runs, ["seed"]):
            reason = "follows the seed"
        reasons.setdefault(reason, []).append(name or "(unnamed)")
    words = [f"{some(names)} ({reason})" for reason, names in reasons.items()]
    return factors, [f"columns that are no factors: {'; '.join(words)}"] if words else []


def needed(runs: pandas.DataFrame, columns: list[str], step: str) -> list[str]:
    """The columns without which two runs of one seed, or rows of one step, could not be told apart.

    Left out first are columns whose values have few seeds, as GPUs and measurements do, then those with many values, as
    names of configurations have.
    """
    steps_recur = step in runs and 2 * count(runs, [step]) <= len(runs)
    keys = ["seed", step] if steps_recur else ["seed"]
    most = runs.groupby(keys).size().max()
    if most == 1:  # each run has a seed of its own
        keys.remove("seed")
        most = len(runs) // 2
    order = {}
    for name in reversed(columns):
        values = count(runs, [name])
        if values <= most:  # else it has a value per run
            order[name] = (count(runs, [name, "seed"]) / values, -values)
    factors = [name for name in columns if name in order]
    for name in sorted(order, key=lambda name: order[name]):
        fewer = [column for column in factors if column != name]
        if [*fewer, *keys] and count(runs, [*fewer, *keys]) == count(runs, [*factors, *keys]):
            factors = fewer
    return factors


def count(runs: pandas.DataFrame, columns: list[str]) -> int:
    """The number of different combinations in these columns."""
    return len(runs[columns].drop_duplicates())
