"""Imported runs: two tables, which every reader fills, and their conversion to a study."""

import dataclasses
import math
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas

from ablate.config.errors import Refused
from ablate.formatting import counted, first_of, show
from ablate.results.naming import measured_as
from ablate.results.records import Cell, Manifest, PlannedRun, TaskFacts, Way
from ablate.results.study import Study
from ablate.results.tables import named_rows
from analysis.sources.columns import SHAPE, STEPS, choose_factors, choose_metrics, direction, few, levels, plain
from analysis.sources.design import arrange, label_of, labels_of, outside
from analysis.sources.request import Request
from analysis.sources.study_file import claim_fields

STATUSES = ("done", "diverged", "failed", "missing")
AXES = ("step", "tokens", "seconds")
TASK = "runs"
NUMBER = "a number; write a decimal point and no other sign"
NAMED = 6  # columns
LONGEST = 500  # characters of a name or a level
Levels = dict[str, Any]
CARRIED = ("status", "batches", *SHAPE, "path", "error")
DENSE = 0.5  # if a larger share of the pairs of cell and seed has a row, the other pairs are missing runs


class Logged(NamedTuple):
    """Runs as another program has logged them.

    runs       a row per run, indexed by its name in messages: `seed` (int), settings as texts, "" where a run has
               none; optionally `status` (one of STATUSES; by default done), `cell`, `label`, `batches`, `params`,
               `flops_per_token`, `path`, `error`, None where unknown.  Settings that vary are factors.
    curves     a row per logged step, indexed by the row number of its run: metrics, optionally `step`, `tokens`,
               `seconds`; infinite where a number was not finite, NaN where nothing was logged.  A run's last row is
               its end.  In a table with a row per run and step, rows with equal factors and seed are one run.
    created    the start time of each run, if runs may be repeats: of equal factors and seed the newest counts
    notes      what was left out
    """

    runs: pandas.DataFrame
    curves: pandas.DataFrame
    created: Sequence[str] = ()
    notes: Sequence[str] = ()


class Origin(NamedTuple):
    """The origin of runs: the study's name, the file or project, when it was written, the command that reads it."""

    study: str
    source: str
    created: str
    command: str


def command(flag: str, source: str, request: Request) -> str:
    """The command line that repeats this analysis of these runs."""
    reference = ",".join(f"{name}={level}" for name, level in request.reference)
    options = {"--factors": ",".join(request.factors), "--metric": ",".join(request.metrics), "--reference": reference}
    given = [word for pair in (options | {"--within": ",".join(request.within)}).items() if pair[1] for word in pair]
    way = [] if request.lower is None else ["--lower" if request.lower else "--higher"]
    words = ["ablate", "analyse", flag, source, *given, *way, *["--unpaired"] * request.unpaired]
    words += ["--group", request.group] if request.group else []
    words += ["--study", request.described.file] if request.described.file else []
    return shlex.join(words)


def study_of(logged: Logged, request: Request, origin: Origin) -> Study:
    """Convert logged runs to a study, with the manifest that a plan would have written.  Raises Refused."""
    metrics = choose_metrics(list(logged.curves), request)
    factors, left = choose_factors(logged.runs, metrics, request)
    own = {name: logged.runs[name] if name == "cell" else levels(logged.runs[name]) for name in factors}
    given = logged.runs.assign(status=logged.runs.get("status", "done"))
    given = given.assign(**{name: pandas.Series([*own[name]], given.index, dtype=object) for name in own})
    newest, again = _newest(given, logged.created, factors)
    table = _joined(given, logged.curves[logged.curves.index.isin(newest)], factors, metrics)
    lower = direction(metrics[0]) if request.lower is None else request.lower
    if lower is None:
        raise Refused(f"{metrics[0]}: its name does not say whether less of it is better; add --lower or --higher")
    rows = list(zip(*(table[name] for name in factors), strict=True))
    _refuse_long(table, rows, [*factors, *metrics])
    ids = _ids(table, rows)
    by_cell = {ids[row]: dict(zip(factors, row, strict=True)) for row in ids}
    table = table.assign(cell=[ids[row] for row in rows])
    called = table.groupby("cell", sort=False)["label"].agg(set).to_dict() if "label" in table else {}
    table["label"] = table["cell"].map({name: label_of(each) for name, each in by_cell.items()})
    table["path"] = table["path"].fillna("") if "path" in table else table.index
    _refuse_repeated(table, logged.curves)
    plan = arrange(by_cell, request)
    labels = labels_of(plan, called)
    table["label"] = table["cell"].map(labels)
    runs, lost = ends(table, metrics)
    shown, pairing = _batches(runs, request.unpaired)
    cells = _cells(plan, labels, runs, shown)
    runs, missing = with_missing(runs)
    runs = _with_cell_columns(runs, cells, by_cell)
    ways = {name: direction(name) for name in metrics} | {metrics[0]: lower}
    measured: dict[str, Way] = {
        measured_as(name): "min" if way else "max" for name, way in reversed(ways.items()) if way is not None
    }
    base = ", ".join(f"{name}={show(level)}" for name, level in plan.reference.items())
    better = f"{metrics[0]}, {'lower' if lower else 'higher'} is better"
    remarks = [f"runs from {origin.source}: {better}; reference {base}; {pairing}"]
    if len(factors) > 1 and not set(factors) & set(plan.factors) and not request.factors:
        # Inferred columns were merged into one factor: tell the user, as one may be a host name, say.
        whole = f"{first_of(factors, NAMED)} lay out no design, so that cells are compared whole"
        remarks.append(f"{whole}; --factors names those that are compared")
    manifest = dataclasses.replace(
        plan,
        study=origin.study,
        source=origin.source,
        created=origin.created,
        updated=origin.created,
        command=origin.command,
        seeds=sorted({int(seed) for seed in runs["seed"]}),
        # The meaning of targets and the unit of a loss are unknown.
        tasks={TASK: TaskFacts(name=origin.study, title=origin.source, kind="foreign", metrics=measured)},
        cells=cells,
        runs=[PlannedRun(cell=run.cell, seed=int(run.seed), path=run.path) for run in named_rows(runs)],
        remarks=remarks,
        endpoint=metrics[0],
        **claim_fields(request.described, factors, plan.factors, cells, ways),
    )
    axes = [name for name in ("path", *AXES) if name in table]
    columns = dict.fromkeys(["cell", "label", "seed", *axes, *metrics, *factors])  # a factor may be the cell itself
    curves = table[[*columns]] if "step" in table else table[["cell", "seed"]][:0]
    return Study(manifest, runs, curves.reset_index(drop=True), [*logged.notes, *left, *again, *lost, *missing])


def _newest(runs: pandas.DataFrame, created: Sequence[str], factors: list[str]) -> tuple[set[int], list[str]]:
    """The row numbers of the newest run of each cell and seed, done ones first, and a note on the other runs."""
    every = set(range(len(runs)))
    if not created:
        return every, []
    done = (runs["status"] == "done").tolist()
    order = sorted(every, key=lambda row: (done[row], created[row]))
    keys = list(zip(*(runs[name] for name in (*factors, "seed")), strict=True))
    newest = set({keys[row]: row for row in order}.values())
    lost = few(runs.index[row] for row in sorted(every - newest))
    note = f"{counted(len(every - newest), 'run')} left out, whose cell and seed were run again: {lost}"
    return newest, [note] * bool(lost)


def _joined(
    runs: pandas.DataFrame, curves: pandas.DataFrame, factors: list[str], metrics: list[str]
) -> pandas.DataFrame:
    """Every logged step with the columns of its run, indexed by the run's name in messages; metrics as numbers."""
    known = [name for name in ("cell", "label", "seed", *CARRIED, *factors) if name in runs]
    table = runs.iloc[curves.index][list(dict.fromkeys(known))]
    logged = [name for name in dict.fromkeys([*AXES, *metrics]) if name in curves and name not in factors]
    return table.assign(**{name: read_column(curves[name].set_axis(table.index), number, NUMBER) for name in logged})


def read_column(column: pandas.Series, read: Callable[[str], Any], wanted: str) -> pandas.Series:
    """A column with every text converted by `read`.  Raises Refused at the first text that it rejects."""
    if pandas.api.types.is_numeric_dtype(column):
        return column
    found = []
    for where, text in column.items():
        try:
            found.append(read(text))
        except (ValueError, KeyError):
            raise Refused(f"{where}: {column.name} is “{text[:20]}”, which is not {wanted}") from None
    return pandas.Series(found, column.index)


def number(text: str) -> float:
    """A text as a number; infinite if not finite or beyond 1e100, where squares overflow; NaN for an empty text."""
    value = float(text or "nan")
    return value if not text or abs(value) < 1e100 else math.inf


def _with_cell_columns(runs: pandas.DataFrame, cells: list[Cell], given: dict[str, Levels]) -> pandas.DataFrame:
    """The runs with the columns of their cells, in the order that studies of ablate have.  Levels are those of the
    study's factors and, if all cells became levels of one factor, also the original ones."""
    by_id = {cell.id: cell for cell in cells}
    levels = {name: cell.levels | given[name] for name, cell in by_id.items()}
    runs = runs.assign(**{key: [getattr(by_id[name], key) for name in runs["cell"]] for key in (*SHAPE, "batches")})
    runs["path"] = runs["path"].fillna("")
    runs["error"] = runs["error"].astype(object).where(runs["error"].notna(), None)
    factors = list(next(iter(levels.values())))
    for factor in factors:
        runs[factor] = pandas.Series([levels[name][factor] for name in runs["cell"]], runs.index, dtype=object)
    first = ["cell", "label", "seed", "status", *factors, *SHAPE, "batches"]
    return runs[list(dict.fromkeys([*first, *runs.columns]))]


def _ids(table: pandas.DataFrame, rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], str]:
    """An id for each combination of levels: its name in the column `cell`, if all names differ."""
    combinations = list(dict.fromkeys(rows))
    if "cell" in table:
        named: dict[tuple[Any, ...], list[str]] = {}
        for row, cell in dict.fromkeys(zip(rows, table["cell"], strict=True)):
            named.setdefault(row, []).append(str(cell))
        if same := next((sorted(cells) for cells in named.values() if len(cells) > 1), None):
            raise Refused(
                f"cells {same[0]} and {same[1]} have the same factors; name the columns in which they differ with "
                "--factors, or --factors cell"
            )
        if len({cells[0] for cells in named.values()}) == len(combinations):
            return {row: cells[0] for row, cells in named.items()}
    return {row: f"c{i}" for i, row in enumerate(combinations)}


def _refuse_long(table: pandas.DataFrame, rows: list[tuple[Any, ...]], names: list[str]) -> None:
    labels = table["label"] if "label" in table else [""] * len(rows)
    by_run = ((f"{at}: ", (*row, label)) for at, row, label in zip(table.index, rows, labels, strict=True))
    for at, texts in [("", names), *by_run]:
        if long := next((text for text in map(str, texts) if len(text) > LONGEST), ""):
            raise Refused(f"{at}“{long[:20]}…” has {len(long):,} characters; names and levels have at most {LONGEST}")


def _refuse_repeated(table: pandas.DataFrame, logged: Iterable[str]) -> None:
    keys = ["cell", "seed", *(["step"] if "step" in table else [])]
    again = table[table.duplicated(keys, keep=False)]
    if len(again):
        first = again.iloc[0]
        same = again[(again[keys] == first[keys]).all(axis=1)]
        axis = next((name for name in logged if plain(name) in STEPS), "")  # perhaps rows are steps of one run
        uncounted = f"; if {axis} counts what was trained, call it step" if axis and "step" not in keys else ""
        what = f"{first['label']}, seed {first['seed']}" + (f", step {first['step']:g}" if "step" in keys else "")
        raise Refused(
            f"{same.index[0]} and {same.index[1]} are both {what}; name the columns in which they differ with "
            "--factors, or give each run a seed of its own" + uncounted
        )


def _batches(runs: pandas.DataFrame, unpaired: bool) -> tuple[dict[str, str], str]:
    """A key per cell that is equal for cells with equal batches, and a description of the pairing.  Runs pair by seed
    between cells with equal `batches` in each shared seed; between all cells without that column."""
    names = list(dict.fromkeys(runs["cell"]))
    if unpaired:
        return {name: name for name in names}, "unpaired, as asked"
    if "batches" in runs and runs["batches"].notna().any():
        by_cell = runs.astype({"batches": str}).groupby("cell", sort=False)
        own = {str(cell): dict(zip(rows["seed"], rows["batches"], strict=True)) for cell, rows in by_cell}
        found: dict[str, str] = {}
        for cell, seen in own.items():
            alike = (name for name in found if all(own[name].get(seed, batch) == batch for seed, batch in seen.items()))
            found[cell] = found.get(next(alike, ""), cell)
        return found, "paired by seed where batches are equal"
    shared = runs.groupby("seed")["cell"].nunique().max() > 1
    if not shared:
        return {name: name for name in names}, "unpaired: no two cells have a seed in common"
    return dict.fromkeys(names, "seed"), "paired by seed, which is valid whatever runs of one seed share"


def _cells(plan: Manifest, labels: dict[str, str], runs: pandas.DataFrame, shown: dict[str, str]) -> list[Cell]:
    """The cells with their labels, sizes (also relative to their reference's) and the keys of their batches."""
    known = runs.reindex(columns=SHAPE).astype(float).replace(math.inf, math.nan)
    sizes = known.groupby(runs["cell"]).first().to_dict("index")
    cells = []
    for cell in plan.cells:
        shape: dict[str, Any] = {k: int(v) if v.is_integer() else v for k, v in sizes[cell.id].items()}
        label = labels[cell.id]
        cells.append(dataclasses.replace(cell, name=label, label=label, task=TASK, batches=shown[cell.id], **shape))
    base = {outside(cell.levels, plan.reference): cell.params for cell in cells if cell.reference}
    starts = [base.get(outside(cell.levels, plan.reference), math.nan) for cell in cells]
    return [
        dataclasses.replace(cell, params_vs_reference=cell.params / start - 1 if start else math.nan)
        for cell, start in zip(cells, starts, strict=True)
    ]


def ends(table: pandas.DataFrame, metrics: list[str]) -> tuple[pandas.DataFrame, list[str]]:
    """A row per run with the last logged value of every column, and notes on runs without a final endpoint.

    A run that ended earlier than others of its cell has no final value, as its last one is from mid-schedule.  A run
    whose final endpoint is not finite has diverged.
    """
    known = [name for name in ("cell", "label", "seed", *CARRIED) if name in table]
    if "step" in table:
        ordered = table.sort_values("step", kind="stable")
        logged = ordered["step"].where(ordered[metrics[0]].notna())
        grouped = ordered[[*known, *metrics]].assign(ended=logged).groupby(["cell", "seed"], sort=False)
        first = table[["cell", "seed"]].drop_duplicates()  # in the order of the table
        runs = first.merge(grouped.last().reset_index(), on=["cell", "seed"])
    else:
        runs = table[[*known, *metrics]].assign(ended=0.0).reset_index(drop=True)
    notes, value = list[str](), runs[metrics[0]]
    early = f"that stopped before the last step of their cell and so have no final {metrics[0]}"
    # Leaving diverged runs out would compare the lucky runs of one side with all runs of the other.
    infinite = f"with a last {metrics[0]} that is not finite and a status that does not say diverged"
    for lost, why, counts_as in (
        (value.isna(), f"without {metrics[0]}", "missing"),
        (np.isinf(value), infinite, "diverged"),
        (runs["ended"] < runs.groupby("cell")["ended"].transform("max"), early, "missing"),
    ):
        found = runs[lost & (runs["status"] == "done")]
        if len(found):
            named = few(f"{run.label} seed {run.seed}" for run in named_rows(found))
            notes.append(f"{counted(len(found), 'run')} {why}, counted as {counts_as}: {named}")
            runs.loc[found.index, "status"] = counts_as
    last = runs[runs["status"] == "done"].groupby("label", sort=False)["ended"].max()
    if last.nunique() > 1:  # cells were not trained equally long
        named = few(f"{label} {step:.15g}" for label, step in last.items())
        notes.append(f"cells end at different steps, and are compared there: {named}")
    finite = np.isfinite(runs[metrics]).to_numpy() & (runs["status"] == "done").to_numpy()[:, None]
    runs[metrics] = runs[metrics].where(finite)
    columns = list(dict.fromkeys([*known, "path", "error", *metrics]))
    return runs.drop(columns="ended").reindex(columns=columns), notes


def with_missing(runs: pandas.DataFrame) -> tuple[pandas.DataFrame, list[str]]:
    """The runs plus a row of status `missing` for each absent cell and seed, if most pairs are present; with a note."""
    cells, seeds = list(dict.fromkeys(runs["cell"])), sorted(set(runs["seed"]))
    there = set(zip(runs["cell"], runs["seed"], strict=True))
    lost = [(cell, seed) for cell in cells for seed in seeds if (cell, seed) not in there]
    if not lost or len(there) <= DENSE * len(cells) * len(seeds):
        return runs, []
    label = dict(zip(runs["cell"], runs["label"], strict=True))
    named = few(f"{label[cell]} seed {seed}" for cell, seed in lost)
    rows = [{"cell": cell, "seed": seed, "label": label[cell], "status": "missing"} for cell, seed in lost]
    note = f"{counted(len(lost), 'run')} without a row, counted as missing: {named}"
    return pandas.concat([runs, pandas.DataFrame(rows)], ignore_index=True), [note]
