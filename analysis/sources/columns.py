"""What the columns of logged runs mean, requested or inferred: seed, step, factor or metric; decided here alone."""

import contextlib
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
LOWER = {"loss", "bpb", "bpc", "perplexity", "ppl", "error", "err", "nll", "mse", "rmse", "mae", "wer", "cer", "fid"}
HIGHER = {"accuracy", "acc", "exact", "em", "f1", "bleu", "rouge", "auc", "auroc", "reward", "success", "mcc"}
MOST = 50  # inferred factors; more must be a mistake
SHOWN = 20  # columns that a message lists
NAMED = 6  # runs or factors that a message lists
WORD = re.compile(r"[^\W\d][\w.]*")
WHOLE = re.compile(r"[+-]?\d{1,15}")
SEED = re.compile(r"([+-]?\d{1,19})(\.0*)?")
DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
TIDY = (
    "write a row per run (or per run and step) with the columns seed, cell or one per factor, and a metric such as "
    "test/loss, e.g. by pandas: runs.to_csv('runs.csv', index=False); of runs on W&B write --wandb ENTITY/PROJECT"
)
NUMBER = "a number; write a decimal point and no other sign"


def some(names: Iterable[str], meant: str = "") -> str:
    """A list of columns or levels for a message, shortened if long, and which of them a misspelt one could be."""
    names = list(names)
    near = nearest(meant, names)
    return (formatting.first_of(names, SHOWN) or "none") + f"; did you mean {near}?" * bool(near)


def note(names: Iterable[str], why: str) -> list[str]:
    """A note on runs, if there are any: 2 runs without a seed left out: a, b."""
    names = list(names)
    return [f"{formatting.counted(len(names), 'run')} {why}: {formatting.first_of(names, NAMED)}"] * bool(names)


def direction(metric: str) -> bool | None:
    """Whether lower values of a metric are better, by the words in its name; None if these do not tell."""
    words = set(re.split(r"[^a-z0-9]+", metric.split("@")[0].lower()))
    low, high = bool(words & LOWER), bool(words & HIGHER)
    return low if low != high else None


def is_neither(name: str) -> bool:
    """Whether a column's name, without case and surrounding marks, rules out a factor: `_Step`, `overfits`."""
    return name not in KEYS and name.casefold().strip("_ ") in NEITHER


def levels(texts: Iterable[Any]) -> list[Any]:
    """A factor's levels: all integers, all floats, all booleans, else texts; an empty one is None.  Numbers that would
    become equal when parsed or shown stay texts, as ids of 19 digits do."""
    column = pandas.Series([*texts], dtype=object).fillna("").astype(str).tolist()  # sizes are numbers already
    given = {text for text in column if text != ""}
    read: Any = str
    if all(WHOLE.fullmatch(text) for text in given):
        read = int
    elif all(DECIMAL.fullmatch(text) for text in given):
        read = float if len(set(map(Decimal, given))) == len({show(float(text)) for text in given}) else str
    elif {text.lower() for text in given} <= {"true", "false"}:
        read = {text: text.lower() == "true" for text in given}.__getitem__
    known = {text: read(text) for text in given} | {"": None}
    return [known[text] for text in column]


def level(text: Any) -> Any:
    """A text as the level it would be alone; other values unchanged."""
    return levels([text])[0] if isinstance(text, str) else text


def number(text: str) -> float:
    """A text as a number; infinite if not finite or beyond 1e100, where squares overflow; NaN for an empty text."""
    value = float(text or "nan")
    return value if not text or abs(value) < 1e100 else math.inf


def finite(text: str) -> float:
    """A text as a finite number.  Raises ValueError."""
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def seed(text: str) -> int | None:
    """A text as an integer of 64 bits; None if it is none."""
    found = SEED.fullmatch(text)
    return int(found[1]) if found and abs(int(found[1])) < 2**63 else None


def read_column(column: pandas.Series, where: pandas.Series, read: Callable[[str], Any], wanted: str) -> pandas.Series:
    """A column with every text converted by `read`.  Raises Refused at the first text that it rejects."""
    if pandas.api.types.is_numeric_dtype(column):
        return column
    found = []
    for at, text in column.items():
        try:
            found.append(read(text))
        except (ValueError, KeyError):
            raise Refused(f"{where[at]}: {column.name} is “{text[:20]}”, which is not {wanted}") from None
    return pandas.Series(found, column.index)


def read_names(pattern: str, names: list[str], metrics: Iterable[str]) -> pandas.DataFrame:
    """The fields of a pattern such as `{norm}-s{seed}` in each run's name, as texts, "" where it does not fit; a *
    stands for any text.  Raises Refused if it fits no name, or if a field cannot be a column."""
    parts = re.split(r"(\{[^{}]*\}|\*)", pattern)
    fields = [part[1:-1] for part in parts[1::2] if part != "*"]
    kinds = {"*": ".*", "{seed}": r"(\d+)"}
    texts = [kinds.get(part, "([^/]+)") if i % 2 else re.escape(part) for i, part in enumerate(parts)]
    for why, refused in {
        "is no word": [field for field in fields if not WORD.fullmatch(field)],
        "is there twice": [field for field in fields if fields.count(field) > 1],
        "is a metric of these runs": metrics,
        "has a meaning of its own": RESERVED,
    }.items():
        if wrong := [field for field in fields if field in refused]:
            raise Refused(f"--names {pattern}: {{{wrong[0]}}} {why}; write another word, as in {example(names)}")
    found = [re.fullmatch("".join(texts), name) for name in names]
    if not fields or not any(found):
        such = f"fits none of the runs' names, such as {', '.join(names[:2])}"
        why = (such if names else "fits no run, as no column has names (name, run, …)") if fields else "has no {field}"
        raise Refused(f"--names {pattern}: it {why}; write as in {example(names)}")
    return pandas.DataFrame([fit.groups() if fit else [""] * len(fields) for fit in found], columns=fields)


def example(names: list[str]) -> str:
    """The option that reads seeds from such names: their last number, if several names have the same one."""
    fits = [re.fullmatch(r"(.+?)([-_./ ]*(?:seed|s|run)?[-_=./ ]?)(\d+)(\D*)", name) for name in names]
    known = [fit for fit in fits if fit]
    if len({fit[1] for fit in known}) > 1 and len({fit[3] for fit in known}) < len(names):
        return f"--names '{{variant}}{known[0][2]}{{seed}}{known[0][4]}'"
    return "--names '{variant}-s{seed}', for names such as rms-s0"


def seeds_of(
    runs: pandas.DataFrame, where: pandas.Series, names: list[str], request: Request, tidy: bool
) -> list[int | None]:
    """The seed of each run: of --seed-from, else of the first of `SEEDS` that varies; None where a run has none.
    Raises Refused if no run has one, or a row of a table has none."""
    if (key := request.seed_from) and key not in runs:
        raise Refused(f"--seed-from {key}: no run has it; there are {some(runs, key)}")
    keys = [key] if key else [name for name in SEEDS if name in runs]
    keys = ["seed"] if not key and "seed" in keys and (tidy or "{seed}" in request.names) else keys
    if not keys and (near := nearest("seed", runs)) and f"{{{near}}}" in request.names:
        raise Refused(f"--names {request.names}: {{{near}}} gives no seed; did you mean {{seed}}?")
    if tidy and not keys:
        raise Refused(f"there is no column seed, but {some(runs)}; {TIDY}; or name it: --seed-from COLUMN")
    keys.sort(key=lambda name: runs[name].nunique() < 2)
    found = [next((s for s in map(seed, row) if s is not None), None) for row in runs[keys].itertuples(index=False)]
    if tidy and None in found:
        at = runs.index[found.index(None)]
        text = runs.at[at, keys[0]][:20]
        raise Refused(f"{where[at]}: {keys[0]} is “{text}”, which is not a whole number of 64 bits")
    if all(each is None for each in found):
        how = f"if their names have one, write {example(names)}, or name its key: --seed-from KEY"
        raise Refused(f"no run has a seed in its configuration ({', '.join(SEEDS[:3])}, …); {how}")
    return found


def step_columns(rows: pandas.DataFrame) -> list[str]:
    """The columns that could count training steps, by their names, equal ones once."""
    named = {name: name if name == "_step" else name.casefold().strip("_ ") for name in rows}
    groups = ([name for name, plain in named.items() if plain in group] for group in STEPS)
    found = next(filter(None, groups), [])
    if "step" in found:
        return ["step"]
    return [name for i, name in enumerate(found) if not any(rows[name].equals(rows[each]) for each in found[:i])]


def step_of(rows: pandas.DataFrame, request: Request) -> str:
    """The column that counts training steps, "" if there is none.  Raises Refused if several could."""
    if (name := request.step_from) and name not in rows:
        raise Refused(f"--step-from {name}: there is no such column; there are {some(rows, name)}")
    found = [name] if name else step_columns(rows)
    if len(found) > 1:
        raise Refused(f"each of {' and '.join(found)} could count the steps; name one: --step-from {found[0]}")
    return next(iter(found), "")


def choose_metrics(rows: pandas.DataFrame, request: Request, notes: list[str]) -> list[str]:
    """The metric columns, the endpoint first: those of --metric, else the test loss, else the test split's first.
    Columns that claims name are metrics, too; those that hold texts alone are not, whatever their name.  Raises Refused
    if there is none, with the `notes` on what was left out."""
    there = [name for name in rows if name not in KEYS]
    for name in (*request.metrics, *request.described.metrics):
        if name in KEYS and name in rows:
            raise Refused(f"--metric {name}: {name} identifies a run, its status or its size, and is no metric")
        if name in request.metrics and name not in rows:
            raise Refused(f"--metric {name}: there is no such column; there are {some(there, name)}")
    named = [name for name in there if not is_neither(name) and ("/" in name or direction(name) is not None)]
    texts = rows[named].select_dtypes(exclude="number")
    empty = {name for name in texts if not texts[name].str.fullmatch(DECIMAL).any()}
    found = [name for name in named if name not in empty] or named
    found.sort(key=lambda name: direction(name) is None)  # eval/loss before eval/runtime
    order = [*request.metrics, *(name for part in ("test/loss", "test", "val", "") for name in found if part in name)]
    order += [name for name in request.described.metrics if name in rows]
    if not order:
        known = "; ".join([f"there are {some(rows)}", *notes])
        raise Refused(f"no column is a metric by its name; write --metric NAME; {known}")
    return list(dict.fromkeys(order))


def choose_factors(
    runs: pandas.DataFrame, metrics: list[str], request: Request, step: str = ""
) -> tuple[list[str], list[str]]:
    """The factors: those of the command line, else of the study file, else inferred; and a note on columns left out.

    An inferred factor has at least two values, and no more than there are cells.  Of columns that always change
    together the first counts.  Raises Refused if a named column cannot be a factor, or if no column is one.
    """
    described = request.described
    there = [name for name in runs if name == "cell" or name not in (*KEYS, *metrics)]
    if lost := [name for name in described.factors if name not in runs]:
        raise Refused(f"{described.file}: factors.{lost[0]}: there is no such column: {instead(lost[0], there)}")
    if there and all(runs[name].nunique() < 2 for name in there):
        raise Refused(f"there is one variant, with the same {some(there)} in each run; a comparison needs two")
    most = int(runs.groupby(["seed", *[step] * bool(step)]).size().max())
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
    found: dict[tuple[int, ...], str] = {}
    left = []
    for name in (name for name in runs if name not in (*KEYS, *metrics, step)):
        codes = tuple(pandas.factorize(pandas.Series(levels(runs[name]), dtype=object), use_na_sentinel=False)[0])
        count = len(set(codes))
        in_cells = "cell" not in runs or len({*zip(runs["cell"], codes, strict=True)}) == runs["cell"].nunique()
        scheduled = bool(step) and runs.groupby(step)[name].nunique().max() < 2  # such as a learning rate
        if 2 <= count <= most and in_cells and not scheduled:  # a named cell has one level
            found.setdefault(codes, name)
        if count > 1 and name not in found.values():
            left.append(name or "(unnamed)")
    if len(found) > MOST:
        raise Refused(f"{len(found)} columns could be factors: {some(found.values())}; name those that are: --factors")
    if not found and "cell" not in runs:
        named = "name those that are with --factors (of logs, --names '{variant}-s{seed}' reads them from runs' names)"
        raise Refused(f"no column is a factor; {named}; there are {some(runs)}")
    told = f"columns that are neither factor nor metric, left out: {some(left)}"
    return list(found.values()) or ["cell"], [told] * bool(left)


def steps_and_factors(rows: pandas.DataFrame, metrics: list[str], request: Request) -> tuple[str, list[str], list[str]]:
    """The step, the factors, and a note on columns left out, of a table with a row per run, or per run and step.  A
    column not called `step` counts steps if rows repeat without it, and do not with it."""
    wanted = (*request.factors, *request.described.factors)

    def chosen(step: str) -> tuple[list[str], list[str]]:
        kept = [name for name in rows if name in wanted or name == step or not is_neither(name)]
        return choose_factors(rows[kept], metrics, request, step)

    counts = "step" in rows or bool(request.step_from)
    for step in () if counts else step_columns(rows)[:1]:
        with contextlib.suppress(Refused):  # then the columns have another meaning
            keys = [*chosen(step)[0], "seed"]
            counts = bool(rows.duplicated(keys).any()) and not rows.duplicated([*keys, step]).any()
    step = step_of(rows, request) if counts else ""
    return step, *chosen(step)
