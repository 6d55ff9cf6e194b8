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

SEEDS = ("seed", "seed.init", "random_seed", "seed.seed", "seed.value", "train_seed", "global_seed", "data_seed")
# Counts of training steps, as programs call them, in order of preference; W&B's own _step counts calls of its log.
STEPS = (
    "step",
    "steps",
    "global_step",
    "trainer/global_step",
    "train/global_step",
    "iter",
    "iters",
    "iteration",
    "updates",
)
WANDB_STEP = "_step"
EPOCHS = ("epoch", "epochs", "train/epoch", "trainer/epoch")
NAMES = ("name", "run", "run_name", "run_id")
# Columns that say which run this is, where or when it ran, or how large it was: factors only if nothing else varies.
LABELS = ("cell", "id", "exp", "experiment", "exp_name", "commit", "sha", "file", "tags", "user")
REMARKS = ("note", "notes", "comment", "comments", "remark", "remarks", "description")
PLACES = (
    "host",
    "hostname",
    "node",
    "gpu",
    "gpu_type",
    "device",
    "job_id",
    "out_dir",
    "output_dir",
    "init_from",
    "resume",
)
TIMES = (
    "created",
    "date",
    "time",
    "timestamp",
    "runtime",
    "elapsed",
    "duration",
    "walltime",
    "wall_time",
    "wall_clock",
    "train_time",
    "training_time",
)
UNIT_OF_TIME = re.compile(r"[_ ]*[(\[][^()\[\]]*[)\]]$|_(ms|s|secs?|seconds|mins?|minutes|h|hours)$")
SIZES = ("n_params", "num_params", "parameters", "memory", "memory_gb")
FACTS = {*NAMES, *LABELS, *REMARKS, *PLACES, *TIMES, *SIZES}
# Columns of ablate's own tables that are neither factors nor metrics.
OURS = ("tokens", "seconds", "match", "chosen", "chosen_value", "match_difference", "overfits")
SPLITS = ({"test"}, {"val", "valid", "validation", "eval", "dev", "heldout"}, set[str](), {"train", "training"})
# What programs call the end of a run, in lower case; autoresearch keeps or discards a commit.
ENDED = {
    "done": ("", "done", "finished", "completed", "complete", "success", "succeeded", "ok", "keep", "discard"),
    "diverged": ("diverged",),
    "failed": ("failed", "crashed", "crash", "killed", "error", "oom", "timeout"),
    "missing": ("missing", "running", "pending", "queued", "preempting", "preempted"),
}
STATUS_OF = {word: status for status in STATUSES for word in ENDED[status]}
MOST = 20  # columns that a message lists
DENSE = 0.5  # the share of pairs of configuration and seed that have a run, above which seeds are crossed with them
SEED_IN_HEADING = re.compile(r"(?:seed|run|rep|trial)[ _-]?\d+", re.IGNORECASE)


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
    runs, seed, without_seed = choose_seeds(with_names(logged, request), logged.names, step, request)
    runs = with_status(runs)
    notes = [*logged.notes, *without_seed]
    metrics = choose_metrics(logged.rows, step, notes, request, doubts)
    lower = lower_is_better(metrics[0]) if request.lower is None else request.lower
    if lower is None:
        doubts.append(f"{metrics[0]}: its name does not say whether less of it is better; add --lower or --higher")
        lower = True
    factors, no_factors = choose_factors(runs, step, metrics, request)
    return runs, Roles(seed, step, metrics, lower, factors), [*notes, *no_factors]


def some(names: Iterable[str], meant: str = "") -> str:
    """Columns or levels for a message, and which of them a misspelt one could be."""
    names = list(names)
    near = nearest(meant, names)
    hint = f"; did you mean {near}?" if near else ""
    return (formatting.first_of(names, MOST) or "none") + hint


def plain(name: str) -> str:
    """A column's name without case, surrounding marks and W&B's `config.`."""
    return name.casefold().strip("_ ").removeprefix("config.").replace(" ", "_")


def is_fact(name: str) -> bool:
    """Whether a column's name says that it describes a run, such as `time (min)`, rather than a setting."""
    return plain(name) in FACTS or UNIT_OF_TIME.sub("", plain(name)) in TIMES


def with_status(runs: pandas.DataFrame) -> pandas.DataFrame:
    """The runs with their ends as one of `STATUSES` in the column `status`; by default a run is done.  Raises `Refused`
    at an end that is not known."""
    for name in runs:
        ends = runs[name].astype(object).fillna("").astype(str).str.lower()
        if name == "status" or (plain(name) in ("status", "state") and ends.isin(STATUS_OF).any()):
            unknown = ends[~ends.isin(STATUS_OF)]
            if len(unknown):
                known = ", ".join(STATUSES)
                raise Refused(f"{unknown.index[0]}: {name} is “{unknown.iloc[0][:20]}”, which is not one of {known}")
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
    why = f"it fits none of the runs' names, which are {some(logged.names)}"
    try:
        fields = pandas.Series(logged.names, logged.runs.index, dtype=str).str.extract(f"^{pattern}$")
    except (re.error, ValueError) as error:
        why = str(error)
        fields = pandas.DataFrame()
    if fields.isna().all(axis=None):
        why = f"--names {request.names}: {why}"
        pattern = example(logged.names)
        if pattern:
            raise request.refusal(why, names=pattern)
        raise Refused(f"{why}; these names have no number that could be the seed")
    return logged.runs.drop(columns=[*fields], errors="ignore").join(typed(fields))


def example(names: list[str]) -> str:
    """A pattern that reads seeds from such names: their last number, if several names have the same one; "" if none."""
    fits = [re.fullmatch(r"(.+?)([-_./ ]*(?:seed|s|run)?[-_=./ ]?)(\d+)(\D*)", name) for name in names]
    numbered = [fit for fit in fits if fit]
    if len({fit[1] for fit in numbered}) > 1 and len({fit[3] for fit in numbered}) < len(names):
        return f"{{variant}}{numbered[0][2]}{{seed}}{numbered[0][4]}"
    return "{variant}-s{seed}" if any("-s" in name for name in names) else ""


def choose_column(table: pandas.DataFrame, candidates: list[str], option: str, named: str, request: Request) -> str:
    """The column that is named, else the only candidate; "" if there is none.  Raises `Refused` if several candidates
    differ in their values."""
    if named and named not in table:
        flag = option.replace("_", "-")
        raise Refused(f"--{flag} {named}: there is no such column; there are {some(table, named)}")
    columns = [named] if named else candidates
    # Columns of equal values are one: whichever is read, the result is the same.
    distinct = list(table[columns].T.drop_duplicates().index)
    if not distinct:
        return ""
    if len(distinct) > 1:
        what = option.removesuffix("_from")
        why = f"each of {formatting.listed(distinct)} could be the {what}"
        raise request.refusal(why, **{option: distinct[0]})
    return distinct[0]


def choose_step(rows: pandas.DataFrame, request: Request) -> str:
    """The column that counts training steps, "" if there is none.  Raises `Refused` if several could."""
    columns: list[str] = []
    for names in (STEPS, (WANDB_STEP,), EPOCHS):
        columns = [name for name in rows if plain_step(name) in names]
        if columns:
            break
    candidates = ["step"] if "step" in columns else columns
    return choose_column(rows, candidates, "step_from", request.step_from, request)


def plain_step(name: str) -> str:
    """The name of a column of steps without capitals and underscores around it; W&B's own stays as it is."""
    return name if name == WANDB_STEP else name.casefold().strip("_ ")


def seed_columns(columns: Iterable[str]) -> list[str]:
    """The columns that could hold the seed, by their names; the one called `seed` alone if there is one."""
    candidates = [name for name in columns if plain(name) in SEEDS]
    return ["seed"] if "seed" in candidates else candidates


def choose_seeds(
    runs: pandas.DataFrame, names: list[str], step: str, request: Request
) -> tuple[pandas.DataFrame, str, list[str]]:
    """The runs that have a seed, with it as a whole number in the column `seed`; the column that it is from, "" if runs
    are counted; and a note on runs without.  Raises `Refused` if no run has one, or if several columns could be it."""
    columns = seed_columns(runs)
    varying = [name for name in columns if runs[name].nunique() > 1]
    column = choose_column(runs, varying or columns[:1], "seed_from", request.seed_from, request)
    if not column:
        refuse_column_per_seed(runs)
    if column:
        seeds = pandas.to_numeric(runs[column].astype(str), errors="coerce")  # True is none
        is_seed = (seeds % 1 == 0) & (seeds.abs() < 2**63)
    elif request.unpaired and (names or not step):
        # With steps, the rows of a name are one run; without, each row is a run, also of a name that recurs.
        whose = names if step else runs.index
        seeds = pandas.Series(pandas.factorize(pandas.Series(whose))[0], runs.index)
        is_seed = seeds >= 0
    else:
        is_seed = pandas.Series(False, runs.index)
    if not is_seed.any():
        raise without_seeds(runs, names, step, request)
    notes = note(runs.index[~is_seed], "without a seed left out")
    others = [name for name in (*columns, column) if name not in ("", "seed")]
    runs = runs.drop(columns=others).assign(seed=seeds)[is_seed]
    return runs.astype({"seed": "int64"}), column, notes


def refuse_column_per_seed(runs: pandas.DataFrame) -> None:
    """Raise `Refused` for a wide table, which has the result of each seed in a column of its own."""
    wide = [name for name in runs if SEED_IN_HEADING.fullmatch(name.strip())]
    if len(wide) < 2:
        return
    others = [name for name in runs if name not in wide and name != "status"]
    row = formatting.listed([*others, "seed", "loss"])
    melt = f"table.melt({others}, var_name='seed', value_name='loss')"
    how = f"write a row per run with the columns {row}, the seed as a whole number (in pandas: {melt})"
    raise Refused(f"one row per run is needed, but {some(wide)} are columns of one row; {how}")


def without_seeds(runs: pandas.DataFrame, names: list[str], step: str, request: Request) -> Refused:
    """What to write where no run has a seed."""
    why = f"no run has a seed; there are {some(runs, 'seed')}; name its column: --seed-from COLUMN"
    pattern = example(names)
    if pattern:
        return request.refusal(f"{why}, or read it from the runs' names", names=pattern)
    if not names or not step:
        return request.refusal(f"{why}, or, where each row is a run of its own that shares no seed", unpaired=True)
    return Refused(f"{why}, or write it into the runs' names and read it by --names '{{variant}}-s{{seed}}'")


def choose_metrics(
    rows: pandas.DataFrame, step: str, notes: list[str], request: Request, doubts: list[str]
) -> list[str]:
    """The metrics, the one that is compared first: that of --metric, else the loss of the test split, else that of the
    validation split; the training loss where nothing else was logged.  Adds to `doubts` if another could be meant.
    Raises `Refused` if there is none."""
    for name in request.metrics:
        if name in (*KEYS, "cell") or name not in rows:
            there = some([column for column in rows if column not in KEYS], name)
            raise Refused(f"--metric {name}: there is no such metric; there are {there}")
    ranks = {}
    for name in rows:
        if name in (*KEYS, *AXES, *OURS, step) or is_fact(name):
            continue
        split = next((rank for rank, words in enumerate(SPLITS) if words & {*words_of(name)}), 2)
        is_unclear = lower_is_better(name) is None
        is_metric = split < 2 or not is_unclear
        if is_metric and rows[name].str.contains(r"\d").any():  # a note on a loss has no number
            ranks[name] = (split, is_unclear, "loss" not in words_of(name))
    ranked = sorted(ranks, key=lambda name: ranks[name])
    metrics = list(dict.fromkeys([*request.metrics, *ranked]))
    if not metrics:
        why = "; ".join([f"no column is a metric by its name; there are {some(rows)}", *notes])
        raise request.refusal(why, metrics=("NAME",))
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
    columns = [name for name in there if plain(name) not in no_settings and runs[name].nunique(dropna=False) > 1]
    reasons = follows_a_key(runs, columns, step)
    candidates = [name for name in columns if name not in reasons]
    facts = [name for name in candidates if is_fact(name)]
    if len(facts) < len(candidates):  # facts are factors only if nothing else varies
        candidates = [name for name in candidates if name not in facts]
        for name in facts:
            reasons[name] = "says where, when or how large a run was"
            if plain(name) in (*NAMES, *LABELS):
                reasons[name] = "names the configuration"
            elif plain(name) in REMARKS:
                reasons[name] = "is a remark"
    changing = changing_with_seed(runs, candidates, step)
    reasons |= dict.fromkeys(changing, "changes between the seeds of one configuration")
    factors, redundant = needed(runs, [name for name in candidates if name not in changing])
    reasons |= redundant
    if not factors:
        why = f"no column is a factor, of which a comparison needs two values; there are {some(there)}"
        raise Refused(f"{why}; name one: --factors COLUMN, or of logs --names '{{variant}}-s{{seed}}'")
    words = [f"{name or '(unnamed)'} ({reasons[name]})" for name in columns if name in reasons]
    return factors, [f"columns that are no factors: {some(words)}"] if words else []


def follows_a_key(runs: pandas.DataFrame, columns: list[str], step: str) -> dict[str, str]:
    """Why columns cannot be factors: they have a value per run, or follow the seed or the step."""
    reasons = {}
    steps_recur = step in runs and 2 * runs[step].nunique() <= len(runs)
    keys = ["seed", step] if steps_recur else ["seed"]
    most = runs.groupby(keys).size().max()
    if most == 1:  # each run has a seed of its own
        most = len(runs) // 2
    for name in columns:
        if runs[name].nunique(dropna=False) > most:
            reasons[name] = "has a value per run"
    for key in reversed(keys):
        others = [name for name in columns if name not in reasons]
        following = [name for name in others if different(runs, [key, name]) == different(runs, [key])]
        if len(following) < len(others):
            reasons |= dict.fromkeys(following, "follows the seed" if key == "seed" else "follows the step")
    return reasons


def changing_with_seed(runs: pandas.DataFrame, columns: list[str], step: str) -> list[str]:
    """The columns that change between the seeds of one configuration of the other columns, as measurements and remarks
    do.  The other columns and the seed tell all runs apart, and most configurations have most seeds."""
    keys = ["seed", step] if step in runs else ["seed"]
    changing = []
    for name in sorted(columns, key=lambda name: -different(runs, [name])):
        others = [column for column in columns if column != name and column not in changing]
        if not others:
            break
        configurations = different(runs, others)
        pairs = different(runs, [*others, "seed"])
        is_crossed = pairs > DENSE * configurations * runs["seed"].nunique() and pairs > configurations
        identifies = different(runs, [*others, *keys]) == different(runs, [*columns, *keys])
        if is_crossed and identifies and different(runs, [*others, name]) > configurations:
            changing.append(name)
    return changing


def needed(runs: pandas.DataFrame, columns: list[str]) -> tuple[list[str], dict[str, str]]:
    """The columns without which configurations could not be told apart, and why the others are not needed."""
    factors = list(columns)
    redundant = {}
    counts = {name: different(runs, [name]) for name in reversed(columns)}
    for name in sorted(counts, key=lambda name: -counts[name]):
        others = [column for column in factors if column != name]
        if not others or different(runs, others) < different(runs, factors):
            continue
        factors = others
        redundant[name] = "names the configuration"
        for column in others:
            if different(runs, [column, name]) == different(runs, [column]):
                redundant[name] = f"changes with {column}"
    return factors, redundant


def different(runs: pandas.DataFrame, columns: list[str]) -> int:
    """The number of different combinations in these columns."""
    return len(runs[columns].drop_duplicates())
