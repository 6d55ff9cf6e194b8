"""What the columns of logged runs mean, named or inferred: seed, step, metric, factor; decided here alone."""

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pandas

from ablate import formatting
from ablate.config.errors import Refused
from ablate.formatting import instead, nearest, show
from analysis.sources import Request
from analysis.sources.readers import TIDY, direction, words_of

SHAPE = ("params", "flops_per_token")
RUNS = ("seed", "step", "status", "label", "path", "error")  # identify a run or its end: never factors, even on request
KEYS = ("cell", *RUNS, "batches", *SHAPE)
AXES = ("step", "tokens", "seconds")
RESERVED = {*KEYS, *AXES, "created"} - {"seed"}
SEEDS = ("seed", "seed.init", "random_seed", "seed.seed", "seed.value", "train_seed", "global_seed", "data_seed")
# Counts of training steps, as programs call them, in order of preference; W&B's own _step counts calls of its log.
STEPS = (
    {"step", "steps", "global_step", "trainer/global_step", "train/global_step"}
    | {"iter", "iters", "iteration", "iterations", "iter_num", "update", "updates", "num_updates"},
    {"_step"},
    {"epoch", "epochs", "train/epoch", "trainer/epoch"},
)
# Columns that vary within a run, or that ablate's own tables have besides factors: factors only on request.
NEITHER = set().union(*STEPS) | {"tokens", "seconds", "match", "chosen", "chosen_value", "match_difference", "overfits"}
# Columns that say which run this is, where or when it ran, or how large it was: factors only if nothing else varies.
NAMES = ("name", "run", "run_name", "run_id")
LABELS = {*NAMES, "id", "exp", "experiment", "exp_name", "commit", "sha", "hash", "git_commit", "file"}
NOTES = {"tags", "tag", "notes", "note", "description", "user", "author", "entity", "project", "group", "sweep"}
TIMES = {"created", "updated", "started", "ended", "date", "time", "timestamp", "day", "runtime", "duration", "elapsed"}
PLACES = {"host", "hostname", "node", "machine", "gpu", "gpus", "gpu_name", "gpu_type", "device", "cluster", "rank"}
JOBS = {"job", "job_id", "job_type", "slurm_job_id", "queue", "partition", "port", "master_port", "pid"}
FOLDERS = {"dir", "folder", "out_dir", "output_dir", "log_dir", "logdir", "save_dir", "checkpoint"}
RESUMES = {"init_from", "resume", "resume_from", "wandb_run_name", "wandb_project"}
SIZES = {"n_params", "num_params", "parameters", "total_params", "num_parameters", "memory", "memory_gb", "peak_memory"}
FACTS = LABELS | NOTES | TIMES | PLACES | JOBS | FOLDERS | RESUMES | SIZES
SPLITS = ({"test"}, {"val", "valid", "validation", "eval", "dev", "heldout"}, set[str](), {"train", "training"})
MOST = 50  # inferred factors; more must be a mistake
SHOWN = 20  # columns that a message lists
NAMED = 6  # runs or factors that a message lists
WORD = re.compile(r"[^\W\d][\w.]*")
WHOLE = re.compile(r"[+-]?\d{1,15}")
SEED = re.compile(r"([+-]?\d{1,19})(\.0*)?")
DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
ABSENT = {"", "na", "n/a", "none", "null", "-", "–", "—"}  # spellings of no value, in lower case
NUMBER = "a number; write a decimal point and no other sign"


def some(names: Iterable[str], meant: str = "") -> str:
    """A list of columns or levels for a message, shortened if long, and which of them a misspelt one could be."""
    names = list(names)
    near = nearest(meant, names)
    hint = f"; did you mean {near}?" if near else ""
    return (formatting.first_of(names, SHOWN) or "none") + hint


def note(names: Iterable[str], why: str) -> list[str]:
    """A note on runs, if there are any: 2 runs without a seed left out: a, b."""
    names = list(names)
    if not names:
        return []
    return [f"{formatting.counted(len(names), 'run')} {why}: {formatting.first_of(names, NAMED)}"]


def plain(name: str) -> str:
    """A column's name without case, surrounding marks and W&B's `config.`."""
    return name.casefold().strip("_ ").removeprefix("config.").replace(" ", "_")


def is_neither(name: str) -> bool:
    """Whether a column's name rules out a factor: `_Step`, `overfits`."""
    return name not in KEYS and plain(name) in NEITHER


def levels(texts: Iterable[Any]) -> list[Any]:
    """A factor's levels: all integers, all floats, all booleans, else texts; an empty one is None.  Numbers that would
    become equal when parsed or shown stay texts, as ids of 19 digits do."""
    column = pandas.Series([*texts], dtype=object).fillna("").astype(str).tolist()  # sizes are numbers already
    given = {text for text in column if text != ""}
    read: Any = str
    if all(WHOLE.fullmatch(text) for text in given):
        read = int
    elif all(DECIMAL.fullmatch(text) for text in given):
        stay_apart = len(set(map(Decimal, given))) == len({show(float(text)) for text in given})
        read = float if stay_apart else str
    elif {text.lower() for text in given} <= {"true", "false"}:
        read = {text: text.lower() == "true" for text in given}.__getitem__
    by_text = {text: read(text) for text in given} | {"": None}
    return [by_text[text] for text in column]


def level(text: Any) -> Any:
    """A text as the level it would be alone; other values unchanged."""
    return levels([text])[0] if isinstance(text, str) else text


def number(text: str) -> float:
    """A text as a number; infinite if not finite or beyond 1e100, where squares overflow; NaN for no value."""
    if text.strip().lower() in ABSENT:
        return math.nan
    value = float(text)
    return value if abs(value) < 1e100 else math.inf


def finite(text: str) -> float:
    """A text as a finite number, or NaN for no value.  Raises ValueError."""
    value = number(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


def seed(text: str) -> int | None:
    """A text as an integer of 64 bits; None if it is none."""
    fit = SEED.fullmatch(text)
    return int(fit[1]) if fit and abs(int(fit[1])) < 2**63 else None


def read_column(column: pandas.Series, where: pandas.Series, read: Callable[[str], Any], wanted: str) -> pandas.Series:
    """A column with every text converted by `read`.  Raises Refused at the first text that it rejects."""
    if pandas.api.types.is_numeric_dtype(column):
        return column
    values = []
    for at, text in column.items():
        try:
            values.append(read(text))
        except (ValueError, KeyError):
            raise Refused(f"{where[at]}: {column.name} is “{text[:20]}”, which is not {wanted}") from None
    return pandas.Series(values, column.index)


def read_names(pattern: str, names: list[str], metrics: Iterable[str]) -> pandas.DataFrame:
    """The fields of a pattern such as `{norm}-s{seed}` in each run's name, as texts, "" where it does not fit; a *
    stands for any text.  Raises Refused if it fits no name, or if a field cannot be a column."""
    parts = re.split(r"(\{[^{}]*\}|\*)", pattern)
    fields = [part[1:-1] for part in parts[1::2] if part != "*"]
    for why, refused in {
        "is no word": [field for field in fields if not WORD.fullmatch(field)],
        "is there twice": [field for field in fields if fields.count(field) > 1],
        "is a metric of these runs": metrics,
        "has a meaning of its own": RESERVED,
    }.items():
        wrong = [field for field in fields if field in refused]
        if wrong:
            raise Refused(f"--names {pattern}: {{{wrong[0]}}} {why}; write another word, as in {example(names)}")
    fits: list[re.Match[str] | None] = []
    for text in (r"([^/]+)", r"(.+)"):  # a name with a slash, such as feature/x, where the folders of runs fit nothing
        kinds = {"*": ".*", "{seed}": r"(\d+)"}
        words = [kinds.get(part, text) if i % 2 else re.escape(part) for i, part in enumerate(parts)]
        fits = [re.fullmatch("".join(words), name) for name in names]
        if all(fits):
            break
    if not fields or not any(fits):
        such = f"fits none of the runs' names, such as {', '.join(names[:2])}"
        why = (such if names else "fits no run, as no column has names (name, run, …)") if fields else "has no {field}"
        raise Refused(f"--names {pattern}: it {why}; write as in {example(names)}")
    return pandas.DataFrame([fit.groups() if fit else [""] * len(fields) for fit in fits], columns=fields)


def example(names: list[str]) -> str:
    """The option that reads seeds from such names: their last number, if several names have the same one."""
    fits = [re.fullmatch(r"(.+?)([-_./ ]*(?:seed|s|run)?[-_=./ ]?)(\d+)(\D*)", name) for name in names]
    numbered = [fit for fit in fits if fit]
    if len({fit[1] for fit in numbered}) > 1 and len({fit[3] for fit in numbered}) < len(names):
        return f"--names '{{variant}}{numbered[0][2]}{{seed}}{numbered[0][4]}'"
    return "--names '{variant}-s{seed}', for names such as rms-s0"


def seed_columns(columns: Iterable[str]) -> list[str]:
    """The columns that could hold the seed, by their names; the one called `seed` alone if there is one."""
    candidates = [name for name in columns if plain(name) in SEEDS]
    return ["seed"] if "seed" in candidates else candidates


def seeds_of(
    runs: pandas.DataFrame, where: pandas.Series, names: list[str], request: Request, tidy: bool
) -> tuple[list[int | None], str]:
    """The seed of each run, None where a run has none, and its column: that of --seed-from, else the first of `SEEDS`
    that varies.  Without any, --unpaired counts runs.  Raises Refused if no run has one, if several columns could be
    it, or if a row of a table has none."""
    key = request.seed_from
    if key and key not in runs:
        raise Refused(f"--seed-from {key}: no run has it; there are {some(runs, key)}")
    keys = [key] if key else seed_columns(runs)
    if not keys and request.unpaired:
        return list(range(len(runs))), ""
    near = nearest("seed", runs)
    if not keys and near and f"{{{near}}}" in request.names:
        raise Refused(f"--names {request.names}: {{{near}}} gives no seed; did you mean {{seed}}?")
    none = "name it: --seed-from COLUMN; or, where runs of one seed share nothing, write --unpaired"
    if tidy and not keys:
        raise Refused(f"there is no column seed, but {some(runs)}; {TIDY}; or {none}")
    varying = [name for name in keys if runs[name].nunique() > 1]
    if any(not runs[name].equals(runs[varying[0]]) for name in varying):
        raise Refused(f"each of {formatting.listed(varying)} could be the seed; name one: --seed-from {varying[0]}")
    keys = [*varying, *(name for name in keys if name not in varying)]
    seeds: list[int | None] = []
    for row in runs[keys].itertuples(index=False):
        seeds.append(next((value for value in map(seed, row) if value is not None), None))
    if tidy and None in seeds:
        at = runs.index[seeds.index(None)]
        text = runs.at[at, keys[0]][:20]
        raise Refused(f"{where[at]}: {keys[0]} is “{text}”, which is not a whole number of 64 bits")
    if all(value is None for value in seeds):
        how = f"if their names have one, write {example(names)}, or name its key: --seed-from KEY, or write --unpaired"
        raise Refused(f"no run has a seed in its configuration ({', '.join(SEEDS[:3])}, …); {how}")
    return seeds, keys[0]


def step_columns(rows: pandas.DataFrame) -> list[str]:
    """The columns that could count training steps, by their names, equal ones once."""
    named = {name: name if name == "_step" else name.casefold().strip("_ ") for name in rows}
    for group in STEPS:
        columns = [name for name, called in named.items() if called in group]
        if "step" in columns:
            return ["step"]
        if columns:
            return [name for i, name in enumerate(columns) if not any(rows[name].equals(rows[x]) for x in columns[:i])]
    return []


def step_of(rows: pandas.DataFrame, request: Request) -> str:
    """The column that counts training steps, "" if there is none.  Raises Refused if several could."""
    name = request.step_from
    if name and name not in rows:
        raise Refused(f"--step-from {name}: there is no such column; there are {some(rows, name)}")
    candidates = [name] if name else step_columns(rows)
    if len(candidates) > 1:
        both = " and ".join(candidates)
        raise Refused(f"each of {both} could count the steps; name one: --step-from {candidates[0]}")
    return candidates[0] if candidates else ""


def split_of(name: str) -> int:
    """The rank of a metric's split: test, validation, none, training."""
    words = {*words_of(name)}
    return next((rank for rank, split in enumerate(SPLITS) if words & split), 2)


def choose_metrics(rows: pandas.DataFrame, request: Request, notes: list[str], doubts: list[str]) -> list[str]:
    """The metric columns, the endpoint first: those of --metric, else the loss of the test split, else of the
    validation split.  Columns that claims name are metrics, too; those that hold texts alone are not.  Adds to `doubts`
    if others could be the endpoint.  Raises Refused if there is none, with the `notes` on what was left out."""
    there = [name for name in rows if name not in KEYS]
    for name in (*request.metrics, *request.described.metrics):
        if name in KEYS and name in rows:
            raise Refused(f"--metric {name}: {name} identifies a run, its status or its size, and is no metric")
        if name in request.metrics and name not in rows:
            raise Refused(f"--metric {name}: there is no such column; there are {some(there, name)}")
    named = []
    for name in there:
        is_evaluation = split_of(name) < 2 and (name not in FACTS)
        if not is_neither(name) and ("/" in name or direction(name) is not None or is_evaluation):
            named.append(name)
    texts = rows[named].select_dtypes(exclude="number")
    numeric = [name for name in named if name not in texts or texts[name].str.fullmatch(DECIMAL).any()] or named

    def order(name: str) -> tuple[bool, int, bool, bool]:
        unclear = direction(name) is None
        return unclear and split_of(name) > 1, split_of(name), unclear, "loss" not in words_of(name)

    metrics = [*request.metrics, *sorted(numeric, key=order)]
    metrics += [name for name in request.described.metrics if name in rows]
    if not metrics:
        there_are = "; ".join([f"there are {some(rows)}", *notes])
        raise Refused(f"no column is a metric by its name; write --metric NAME; {there_are}")
    rivals = [name for name in numeric if "@" not in name and order(name) == order(metrics[0])]
    if not request.metrics and len(rivals) > 1:
        doubts.append(f"each of {formatting.first_of(rivals, NAMED)} could be the metric")
    return list(dict.fromkeys(metrics))


def choose_factors(
    runs: pandas.DataFrame, metrics: list[str], request: Request, doubts: list[str], step: str = ""
) -> tuple[list[str], list[str]]:
    """The factors: those of the command line, else of the study file, else inferred; and a note on columns that are
    none.  Raises Refused if a named column cannot be a factor, or if no column is one."""
    described = request.described
    there = [name for name in runs if name == "cell" or name not in (*KEYS, *metrics)]
    absent = [name for name in described.factors if name not in runs]
    if absent:
        raise Refused(f"{described.file}: factors.{absent[0]}: there is no such column: {instead(absent[0], there)}")
    if there and all(runs[name].nunique() < 2 for name in there):
        raise Refused(f"there is one variant, with the same {some(there)} in each run; a comparison needs two")
    most = int(runs.groupby(["seed", step] if step else ["seed"]).size().max())
    if most == 1 and step:  # every run ends at a step of its own
        most = int(runs.groupby("seed").size().max())
    most = most if most > 1 else len(runs) // 2  # every run has a different seed
    wanted = list(request.factors or described.factors)
    alone = [name for name in wanted if not step and name in runs and most < runs[name].nunique() == len(runs)]
    for what, wrong in {
        "there is no such column": {*wanted} - {*runs},
        "{} identifies a run or its status": (*RUNS, step),
        "{} is a metric, by its name or --metric": metrics,
        "{} has a level per run, so that no variant has two seeds": alone,
    }.items():
        for name in (name for name in wanted if name in wrong):
            raise Refused(f"--factors {name}: {what.format(name)}; there are {some(there, name)}")
    if wanted:
        return wanted, []
    columns = [name for name in runs if name not in (*KEYS, *metrics, step) and runs[name].nunique(dropna=False) > 1]
    codes = {name: pandas.factorize(pandas.Series(levels(runs[name]), dtype=object))[0] for name in columns}
    table = pandas.DataFrame(codes, runs.index).assign(seed=runs["seed"])
    none: dict[str, str] = {}
    recurs = bool(step) and 2 * runs[step].nunique() <= len(runs)
    for name in columns:
        if "cell" in runs and len({*zip(runs["cell"], table[name], strict=True)}) > runs["cell"].nunique():
            none[name] = "varies within a cell"
        elif recurs and runs.groupby(step)[name].nunique().max() < 2:  # such as a learning rate
            none[name] = "follows the step"
        elif table[name].nunique() > most:
            none[name] = "has a value per run"
    first: dict[tuple[int, ...], str] = {}
    for name in sorted((name for name in columns if name not in none), key=lambda name: plain(name) in FACTS):
        same = first.setdefault(tuple(table[name]), name)
        if same != name:
            none[name] = f"changes with {same}"
    if len(first) > MOST:
        raise Refused(f"{len(first)} columns could be factors: {some(first.values())}; name those that are: --factors")
    _leave_out(table.drop(columns=[*none]), none, doubts)
    factors = [name for name in columns if name not in none]
    if not factors and "cell" not in runs:
        named = "name those that are with --factors (of logs, --names '{variant}-s{seed}' reads them from runs' names)"
        raise Refused(f"no column is a factor; {named}; there are {some(runs)}")
    reasons = [f"{name or '(unnamed)'} ({why})" for name, why in none.items()]
    return factors or ["cell"], [f"columns that are no factors: {some(reasons)}"] if reasons else []


def _leave_out(table: pandas.DataFrame, none: dict[str, str], doubts: list[str]) -> None:
    """Add to `none` the columns that are no settings of their own, by name, with the reason: facts about a run, what
    follows the seed, what names the configuration, and what follows another column.  Adds to `doubts` where a column
    could as well be the factor."""
    runs = table.drop_duplicates()
    settings = [name for name in runs if name != "seed"]
    shared = runs["seed"].duplicated().any()
    follows_seed = runs.groupby("seed")[settings].nunique().max() < 2
    for name in settings:
        if shared and follows_seed[name] and not follows_seed.all():
            none[name] = "follows the seed"
    settings = [name for name in settings if name not in none]
    facts = [name for name in settings if plain(name) in FACTS]
    if len(facts) < len(settings):
        for name in facts:
            labels = plain(name) in LABELS
            none[name] = "names the configuration" if labels else "says where, when or how large a run was"
        settings = [name for name in settings if name not in facts]

    def count(names: list[str]) -> int:
        return len(runs[names].drop_duplicates()) if names else 1

    for name in settings:
        others = [other for other in settings if other not in none and other != name]
        cells = count([*others, name])
        if len(others) > 1 and count([name]) == cells == count(others):
            none[name] = "names the configuration"
            if cells < math.prod(count([other]) for other in others):
                doubts.append(f"either {name} or {formatting.listed(others)} could be what is compared")
    settings = [name for name in settings if name not in none]
    sizes = runs[settings].nunique()
    for name, other in itertools.permutations(settings, 2):
        if sizes[name] < sizes[other] and other not in none and count([name, other]) == sizes[other]:
            none[name] = f"changes with {other}"
    settings = [name for name in settings if name not in none]
    if settings:
        per_cell = runs.drop_duplicates([*settings, "seed"]).groupby(settings).size()
        if per_cell.min() == 1 and per_cell.max() > 2:
            doubts.append(f"a configuration has one run alone if each of {formatting.listed(settings)} is a factor")


def steps_and_factors(
    rows: pandas.DataFrame, metrics: list[str], request: Request, doubts: list[str]
) -> tuple[str, list[str], list[str]]:
    """The step, the factors, and a note on columns left out, of a table with a row per run, or per run and step.  A
    column not called `step` counts steps if rows repeat without it, and do not with it."""
    wanted = (*request.factors, *request.described.factors)

    def chosen(step: str, doubts: list[str]) -> tuple[list[str], list[str]]:
        columns = [name for name in rows if name in wanted or name == step or not is_neither(name)]
        return choose_factors(rows[columns], metrics, request, doubts, step)

    counts = "step" in rows or bool(request.step_from)
    for step in () if counts else step_columns(rows)[:1]:
        with contextlib.suppress(Refused):  # then the columns have another meaning
            keys = [*chosen(step, [])[0], "seed"]
            counts = bool(rows.duplicated(keys).any()) and not rows.duplicated([*keys, step]).any()
    step = step_of(rows, request) if counts else ""
    return step, *chosen(step, doubts)
