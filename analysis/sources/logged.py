"""Imported runs: the two tables that every reader fills, and their conversion to a study."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas

from ablate import formatting
from ablate.config.errors import Refused
from ablate.formatting import flat, is_number, show, visible
from ablate.runs.naming import measured_as
from ablate.runs.records import STATUSES, Cell, PlannedRun, TaskFacts, Way
from ablate.runs.study import Study
from ablate.runs.tables import named_rows
from analysis.sources import Request, columns
from analysis.sources.columns import AXES, NUMBER, SHAPE, levels, number, read_column
from analysis.sources.design import TASK, arrange, label_of
from analysis.sources.points import points, run_names
from analysis.sources.readers import as_text, direction, words_of
from analysis.sources.study_file import claim_fields

LONGEST = 500  # characters of a name or a level
Levels = dict[str, Any]
FACTS = (*SHAPE, "batches")
CARRIED = ("status", "stopped_at", *FACTS, "path", "error")
Tables = tuple[pandas.DataFrame, pandas.DataFrame, list[str], list[str]]
DENSE = 0.5  # if a larger share of the pairs of cell and seed has a row, the other pairs are missing runs
# What programs call the end of a run, in lower case; autoresearch keeps or discards a commit.
ENDED = {
    "done": ("done", "finished", "completed", "complete", "success", "succeeded", "ok", "keep", "discard"),
    "diverged": ("diverged",),
    "failed": ("failed", "crashed", "crash", "killed", "error", "oom", "timeout"),
    "missing": ("missing", "running", "pending", "queued", "preempted"),
}
STATUS_OF = {"": "done"} | {word: status for status in STATUSES for word in ENDED[status]}


class Run(NamedTuple):
    """A run as another program has logged it: `config` nested or not, `rows` what it logged, in order; `facts` are
    columns of `Logged.runs` that are no settings; `id` tells runs of one name apart."""

    name: str
    config: Mapping[str, Any]
    rows: list[dict[str, Any]]
    facts: Mapping[str, Any] = {}
    id: str = ""


class Logged(NamedTuple):
    """Runs as another program has logged them.

    runs        a row per run: settings as texts, "" where a run has none; optionally `created` (of equal runs the
                newest counts), `cell`, `label`, `status` (of STATUSES; by default done), `stopped_at` (a step before
                the planned last one) and others of CARRIED, None where unknown
    rows        a row per logged step, with the index of its run: what was logged, as numbers (infinite where one was
                not finite, NaN where nothing was logged) or as texts
    where       what messages call each run
    names       the names of the runs, which may hold seed and factors
    notes       what was left out
    tidy        `runs` are the rows of a table, of which several may be steps of one run
    is_ordered  the first run is of the reference, as in tables that ablate wrote
    """

    runs: pandas.DataFrame
    rows: pandas.DataFrame
    where: pandas.Series
    names: list[str]
    notes: list[str]
    tidy: bool = False
    is_ordered: bool = False


def logged(runs: list[Run], notes: list[str], is_ordered: bool = False) -> Logged:
    """The two tables of these runs; settings that are called as a column with a meaning become `config.NAME`."""
    taken = columns.RESERVED - {"cell"}
    settings = []
    facts = []
    rows = []
    for run in runs:
        config = {name: value for name, value in flat(run.config).items() if name[:1] != "_"}
        called = {f"config.{name}" if name in taken else visible(str(name)): config[name] for name in config}
        settings.append({name: visible(as_text(value)) for name, value in called.items()})
        ends = [STATUS_OF.get(str(row.get("status")).lower()) for row in run.rows[-1:]]
        facts.append({"status": ends[0] if ends and ends[0] else "done"} | dict(run.facts))
        rows += [{visible(name): _number(value) for name, value in row.items() if name != "status"} for row in run.rows]
    names = [visible(run.name) for run in runs]
    where = [f"{name} ({visible(run.id)})" if run.id else name for name, run in zip(names, runs, strict=True)]
    table = pandas.DataFrame(settings).fillna("").join(pandas.DataFrame(facts))
    whose = [i for i, run in enumerate(runs) for _ in run.rows]
    steps = pandas.DataFrame(rows, whose).dropna(axis=1, how="all")
    return Logged(table, steps, pandas.Series(where), names, notes, is_ordered=is_ordered)


def _number(value: Any) -> float:
    """A logged value as a number: infinite if not finite or too large, NaN if it is not a number."""
    try:
        return number(str(value)) if isinstance(value, str) or is_number(value) else math.nan
    except ValueError:
        return math.nan


def study_of(logged: Logged, request: Request, study: str, source: str, created: str, words: tuple[str, str]) -> Study:
    """Convert logged runs to a study called `study`, with the manifest that a plan would have written.  `source` is the
    file or project, `created` when it was written, `words` the option and value that read it.  Raises Refused, with the
    command to write, where what nobody named is doubtful."""
    doubts: list[str] = []
    logged, seed = _with_seeds(logged, request)
    metrics = columns.choose_metrics(logged.rows, request, logged.notes, doubts)
    endpoint = metrics[0]
    runs, rows, factors, notes = (_of_table if logged.tidy else _of_runs)(logged, metrics, request, doubts)
    lower = direction(endpoint) if request.lower is None else request.lower
    if lower is None:
        doubts.append(f"{endpoint}: its name does not say whether less of it is better; add --lower or --higher")
        lower = True
    _refuse_long(runs, factors, metrics)
    by_cell: dict[str, Levels] = runs.drop_duplicates("cell").set_index("cell", drop=False)[factors].to_dict("index")
    labels = runs.groupby("cell", sort=False)["label"].agg(set).to_dict() if "label" in runs else {}
    if not seed:
        runs["seed"] = runs.groupby("cell").cumcount()
    batches, pairing = _batches(runs, request.unpaired)
    facts = _facts(runs, batches)
    plan, reference = arrange(by_cell, facts, labels, request, logged.is_ordered, doubts)
    runs["label"] = runs["cell"].map({cell.id: cell.label for cell in plan.cells})
    first = [cell.id for cell in plan.cells if cell.reference]
    runs, lost, at, ends = points(runs, rows, metrics, request, lower, first, doubts)
    exact = request._replace(
        factors=tuple(factors),
        metrics=request.metrics or (endpoint,),
        lower=lower,
        reference=tuple((name, show(level)) for name, level in reference.items()),
        seed_from=request.seed_from or ("" if seed in ("", "seed") else seed),
        at=request.at or at,
        ends=request.ends or ends,
    )
    if doubts:
        raise Refused(f"{'; '.join(doubts)}; if this is meant, write: {exact.command(*words)}")
    whose = runs[list(dict.fromkeys(["cell", "label", "seed", "path", *factors]))]
    curves = whose.join(rows.drop(columns=whose.columns, errors="ignore"), how="inner").reset_index(drop=True)
    curves = curves if "step" in rows else curves[:0]
    runs, missing = with_missing(runs)
    runs = _with_cell_columns(runs.drop(columns="stopped_at", errors="ignore"), plan.cells, by_cell)
    ways = {name: direction(name) for name in metrics} | {endpoint: lower}
    measured: dict[str, Way] = {}
    for name, way in reversed(ways.items()):
        if way is not None:
            measured[measured_as(name)] = "min" if way else "max"
    base = ", ".join(f"{name}={show(level)}" for name, level in reference.items())
    better = f"{endpoint}, {'lower' if lower else 'higher'} is better"
    remarks = [f"runs from {source}: {better}; reference {base}; {pairing}"]
    if "train" in words_of(endpoint):
        remarks.append(f"{endpoint} is of training: no evaluation was logged, or it was not chosen")
    if "variant" in plan.factors and "variant" not in factors:
        several = formatting.first_of(factors, columns.NAMED)
        remarks.append(f"{several} form no design; configurations are compared whole")
    if exact._replace(at=request.at, ends=request.ends) != request:
        remarks.append(f"inferred, and not doubtful; to name it all write: {exact.command(*words)}")
    command = exact.command(*words)
    plan = dataclasses.replace(plan, study=study, source=source, created=created, updated=created, command=command)
    # The meaning of targets and the unit of a loss are unknown.
    tasks = {TASK: TaskFacts(name=source, title=source, metrics=measured)}
    seeds = sorted({int(seed) for seed in runs["seed"]})
    planned = [PlannedRun(cell=run.cell, seed=int(run.seed), path=run.path) for run in named_rows(runs)]
    merged = "variant" in plan.factors and "variant" not in factors
    claimed = claim_fields(request.described, plan, merged, ways) | {"remarks": remarks, "endpoint": endpoint}
    manifest = dataclasses.replace(plan, tasks=tasks, seeds=seeds, runs=planned, **claimed)
    return Study(manifest, runs, curves, [*notes, *lost, *missing])


def _with_seeds(logged: Logged, request: Request) -> tuple[Logged, str]:
    """The runs that have a seed, with it as an integer in the column `seed`, and fields of --names as columns; and the
    column that the seed is from, "" if runs are counted."""
    runs, rows, where, names, notes, tidy, _ = logged
    facts = [name for name in runs if name in (*CARRIED, "created")]
    bare = not tidy and len(facts) == runs.shape[1]
    if request.names:
        named = (*request.metrics, *request.described.metrics)
        metrics = [name for name in rows if name in named or direction(name) is not None]
        runs = runs.assign(**columns.read_names(request.names, names, metrics))
    settings = [name for name in runs.columns.difference(facts) if name == "seed" or runs[name].nunique() > 1]
    if bare and len(settings) < (1 if request.unpaired else 2):
        own = "Lightning: self.save_hyperparameters(), W&B: wandb.init(config=...)"
        how = f"write seed and factors to hparams.yaml in each run's folder ({own})"
        how += f", or read them from the runs' names: {columns.example(names)}"
        raise Refused(f"no run has settings; {how}")
    seeds, key = columns.seeds_of(runs, where, names, request, tidy)
    if not key and tidy and names and "file" not in runs:  # steps of one run have one name
        seeds = list(pandas.factorize(pandas.Series(names))[0])
    used = {request.seed_from, key} - {"seed"} if tidy else {request.seed_from, *columns.SEEDS}
    runs = runs.drop(columns=[*used], errors="ignore")
    notes = [*notes, *columns.note(where[[seed is None for seed in seeds]], "without a seed left out")]
    runs = runs.assign(seed=pandas.Series(seeds, dtype=object)).dropna(subset="seed").astype({"seed": "int64"})
    is_export = tidy and {"cell", "label", "status"} <= {*runs}  # of ablate's own tables
    rows = rows[rows.index.isin(runs.index)]
    return Logged(runs, rows, where, names, notes, tidy, logged.is_ordered or is_export), key


def _of_runs(logged: Logged, metrics: list[str], request: Request, doubts: list[str]) -> Tables:
    """The runs with the levels of their factors, of equal ones the newest; their rows by step, of rows of one step the
    last value of each column; factors; notes.  Rows without a step are of the one before; without any, counted."""
    runs, rows, where, _, notes, *_ = logged
    settings = runs.drop(columns=["created", "stopped_at"], errors="ignore")
    factors, left = columns.choose_factors(settings, metrics, request, doubts)
    runs, keys = _in_cells(runs, where, factors), [*factors, "seed"]
    if "created" in runs:
        order = runs.assign(done=runs["status"] == "done").sort_values(["done", "created"], kind="stable")
        old = order.index[order.duplicated(keys, keep="last")].sort_values()
        left = [*left, *columns.note(where[old], "left out, whose cell and seed were run again")]
        runs = runs.drop(index=old)
    _refuse_repeated(runs, where, factors, keys)
    rows = rows[rows.index.isin(runs.index)]
    steps = rows.groupby(level=0).cumcount().astype(float)
    if step := columns.step_of(rows, request):
        known = rows[step].replace(math.inf, math.nan).groupby(level=0)
        steps = known.ffill().fillna(known.bfill()).fillna(steps)
    rows = rows[list(dict.fromkeys(name for name in (*AXES, *metrics) if name in rows))].assign(step=steps)
    return runs, rows.groupby([rows.index, "step"]).last().reset_index("step"), factors, [*notes, *left]


def _of_table(logged: Logged, metrics: list[str], request: Request, doubts: list[str]) -> Tables:
    """The same of a table with a row per run, or per run and step."""
    table, rows, where = logged.runs, logged.rows, logged.where
    step, factors, left = columns.steps_and_factors(table, metrics, request, doubts)
    runs, keys = _in_cells(table, where, factors), [*factors, "seed"]
    names = [name for name in dict.fromkeys([*AXES, *metrics]) if name in rows and name not in (*factors, "step")]
    rows = pandas.DataFrame({name: read_column(rows[name], where, number, NUMBER) for name in names})
    if step:
        runs["step"] = rows["step"] = read_column(table[step], where, columns.finite, "a number")
    _refuse_repeated(runs, where, factors, [*keys, *["step"] * bool(step)])
    run = runs.groupby(keys, sort=False, dropna=False).ngroup()
    order = rows["step"].argsort(kind="stable") if step else slice(None)
    first, last = runs.groupby(run).head(1), runs.iloc[order].groupby(run).last()
    runs = last.assign(**{name: first[name].set_axis(last.index) for name in dict.fromkeys([*factors, "cell"])})
    return runs, rows.iloc[order].set_axis(run.iloc[order]), factors, [*logged.notes, *left]


def _in_cells(runs: pandas.DataFrame, where: pandas.Series, factors: list[str]) -> pandas.DataFrame:
    """What is known of runs: levels of their factors, the id of their cell, and facts."""
    own = {name: runs[name] if name == "cell" else levels(runs[name]) for name in factors}
    own = {name: pandas.Series([*each], runs.index, dtype=object) for name, each in own.items()}
    runs = runs.assign(status=runs.get("status", "done"), **own)
    runs["cell"] = _cell_ids(runs, factors)
    names = ["cell", "label", "created", "seed", *CARRIED, *factors]
    known = runs.reindex(columns=[name for name in dict.fromkeys(names) if name in (*runs, "path", "error")])
    return known.assign(path=known["path"].where(known["path"].notna(), where))


def _cell_ids(runs: pandas.DataFrame, factors: list[str]) -> pandas.Series:
    """The id of each run's cell: its name in the column `cell`, if all names differ."""
    numbers = runs.groupby(factors, sort=False, dropna=False).ngroup()
    if "cell" in runs:
        names = runs["cell"].astype(str).groupby(numbers).agg(lambda each: sorted(set(each)))
        if same := next((each for each in names if len(each) > 1), None):
            how = "name the columns in which they differ with --factors, or --factors cell"
            raise Refused(f"configurations {same[0]} and {same[1]} have the same factors; {how}")
        if names.str[0].is_unique:
            return runs["cell"].astype(str)
    return "c" + numbers.astype(str)


def _with_cell_columns(runs: pandas.DataFrame, cells: list[Cell], given: dict[str, Levels]) -> pandas.DataFrame:
    """The runs with the columns of their cells, in the order that studies of ablate have.  Levels are those of the
    study's factors and, if all cells became levels of one factor, also the original ones."""
    facts = [name for name in FACTS if any(getattr(cell, name) is not None for cell in cells)]
    rows = [cell.levels | given[cell.id] | {name: getattr(cell, name) for name in facts} for cell in cells]
    known = pandas.DataFrame(rows, [cell.id for cell in cells], dtype=object)
    known[facts] = known[facts].infer_objects()
    runs = runs.drop(columns=[*FACTS], errors="ignore")  # those of the cells count
    order = dict.fromkeys(["cell", "label", "seed", "status", *known, *runs])
    known = known.drop(columns="cell", errors="ignore")
    runs = runs.drop(columns=known.columns, errors="ignore").join(known, on="cell")
    runs["error"] = runs["error"].astype(object).where(runs["error"].notna(), None)
    return runs.fillna({"path": ""})[list(order)]


def _refuse_long(runs: pandas.DataFrame, factors: list[str], metrics: list[str]) -> None:
    texts = [("", name) for name in (*factors, *metrics)]
    for name in (*factors, *["label"] * ("label" in runs)):
        texts += [(f"{path}: ", str(level)) for path, level in zip(runs["path"], runs[name], strict=True)]
    if long := next((each for each in texts if len(each[1]) > LONGEST), None):
        at, text = long
        raise Refused(f"{at}“{text[:20]}…” has {len(text):,} characters; names and levels have at most {LONGEST}")


def _refuse_repeated(runs: pandas.DataFrame, where: pandas.Series, factors: list[str], keys: list[str]) -> None:
    alike = runs.groupby(keys, sort=False, dropna=False).ngroup()
    again = alike[alike.duplicated(keep=False)]
    if len(again):
        first, (one, other) = runs.loc[again.index[0]], where[again.index[again == again.iloc[0]]][:2]
        what = f"{label_of(first[factors].to_dict())}, seed {first['seed']}"
        what += f", step {first['step']:g}" if "step" in keys else ""
        raise Refused(
            f"{one} and {other} are both {what}; name the columns in which they differ with --factors, the column that "
            "counts the steps with --step-from, or give each run a seed of its own"
        )


def _batches(runs: pandas.DataFrame, unpaired: bool) -> tuple[dict[str, str], str]:
    """A key per cell that is equal for cells with equal batches, and a description of the pairing.  Runs pair by seed
    between cells with equal `batches` in each shared seed; between all cells without that column."""
    apart = {name: name for name in runs["cell"]}
    if unpaired:
        return apart, "unpaired, as asked"
    if "batches" in runs and runs["batches"].notna().any():
        by_cell = runs.astype({"batches": str}).groupby("cell", sort=False)
        own = {str(cell): dict(zip(rows["seed"], rows["batches"], strict=True)) for cell, rows in by_cell}
        found: dict[str, str] = {}
        for cell, seen in own.items():
            alike = (name for name in found if all(own[name].get(seed, batch) == batch for seed, batch in seen.items()))
            found[cell] = found.get(next(alike, ""), cell)
        return found, "paired by seed where batches are equal"
    if runs.groupby("seed")["cell"].nunique().max() < 2:
        return apart, "unpaired: no two configurations have a seed in common"
    return dict.fromkeys(apart, "seed"), "paired by seed, which is valid whatever runs of one seed share"


def _facts(runs: pandas.DataFrame, batches: dict[str, str]) -> dict[str, Any]:
    """The key of each cell's batches, and its sizes where they are known."""
    sizes = runs.reindex(columns=SHAPE).astype(float).replace(math.inf, math.nan).groupby(runs["cell"]).first()
    found: dict[str, Any] = {}
    for cell, own in sizes.iterrows():
        found[str(cell)] = {"batches": batches[str(cell)]}
        for name, value in own.dropna().items():
            found[str(cell)][name] = int(value) if value.is_integer() else value
    return found


def with_missing(runs: pandas.DataFrame) -> tuple[pandas.DataFrame, list[str]]:
    """The runs plus a row of status `missing` for each absent cell and seed, if most pairs are present; with a note."""
    pairs = pandas.MultiIndex.from_product([runs["cell"].unique(), sorted(set(runs["seed"]))], names=["cell", "seed"])
    lost = pairs[~pairs.isin(pandas.MultiIndex.from_frame(runs[["cell", "seed"]]))].to_frame(index=False)
    if lost.empty or len(runs) <= DENSE * len(pairs):
        return runs, []
    lost = lost.assign(label=lost["cell"].map(runs.groupby("cell")["label"].first()), status="missing")
    notes = columns.note(run_names(lost), "without a row, counted as missing")
    return pandas.concat([runs, lost], ignore_index=True), notes
