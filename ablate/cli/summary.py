"""The text summary at the end of a sweep, computed from the results on disk."""

import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.config.claims import STATISTICS
from ablate.evidence.effects import STEP
from ablate.formatting import columns, ranged
from ablate.results import naming
from ablate.results.study import Study
from ablate.results.tables import is_timed, named_rows

ROWS = 16  # the most rows of cells and of effects; `ablate analyse` has all
NAMED = 6  # the most runs and notes that are listed


def summary(study: Study, results: Path = Path("results"), wall_seconds: float | None = None) -> str:
    """A study on one screen; `results` is for the paths of failed runs, `wall_seconds` the sweep's duration."""
    table, cells, claims = evidence.effects(study), evidence.cells(study), evidence.claims(study)
    lines = [_title(study, wall_seconds), *naming.question_lines(study.manifest), _scope(study), _metric(study)]
    lines += [*_cells(cells), *_other_metrics(study), *evidence.claim_lines(study.manifest, claims)]
    lines += [*evidence.ladder_lines(evidence.ladder(study)), *effect_lines(table)]
    if not (timed := evidence.speed(study)).empty:
        lines += _metric_table(study, "seconds of a training step, on this machine", {"": STEP})
        lines += ["effects on the seconds of a training step; adjusted as a separate family"]
        lines += _effect_rows(evidence.headline(timed))
    if study.manifest.tuning:  # effects with all cells at the same value of the tuned key
        heading, rows = evidence.common_rows(study.manifest)
        lines += [heading, *_columns(rows[:ROWS]), *_more(len(rows) - ROWS, "effect")] if rows else []
    lines += evidence.exchange_lines(study)
    lines += _caveats(study, table, cells, claims)
    return "\n".join([*lines, *_problems(study, results), _next_command(study, table, results)])


def _title(study: Study, wall_seconds: float | None) -> str:
    manifest, status = study.manifest, study.runs["status"].value_counts()
    title = naming.title(manifest)
    tasks = ", ".join(dict.fromkeys(task.title for task in manifest.tasks.values()))
    parts = [title if title == manifest.study else f"{manifest.study}: {title}", tasks]
    parts += filter(None, [naming.role(manifest)])
    counts = [f"{status.get(name, 0)} {name}" for name in ("diverged", "failed", "missing")]
    parts.append(", ".join([formatting.counted(len(study.runs), "run"), *counts[: 3 if "missing" in status else 2]]))
    return " · ".join([*parts, *([] if wall_seconds is None else [formatting.duration(wall_seconds)])])


def _scope(study: Study) -> str:
    manifest, configs = study.manifest, [cell.config for cell in study.manifest.cells]
    sizes = _range((cell.params for cell in manifest.cells if cell.reference), formatting.size)
    rates = {config.optim.lr for config in configs}
    passes = _range(map(manifest.passes, manifest.cells), formatting.passes)
    tuning = manifest.tuning if manifest.tuning and manifest.tuning.key == "optim.lr" else None
    how = "tuned" if tuning else "untuned"
    rate = f"{'one ' * (how == 'untuned')}{how} lr " if len(rates) == 1 else f"{how} lrs "
    seen = f"{_range((config.train.steps for config in configs), str)} steps ({passes})"
    least = " (each the smallest that tuning cannot tell from its best)" * bool(tuning and tuning.rule == "one_se")
    matched = naming.matched(manifest)
    rate += _range(rates, formatting.scientific)
    return f"scope: {sizes} parameters, {seen}, {rate}{least}" + f"; {matched}" * bool(matched)


def _range(values: Iterable[float | None], shown: Callable[[Any], str]) -> str:
    return ranged(map(shown, sorted(values, key=lambda value: value or 0)))


def _metric(study: Study) -> str:
    metrics, tasks = evidence.measures(study.manifest), list(study.manifest.tasks.values())
    losses = tasks[0].yardsticks if len(tasks) == 1 and metrics[0].endswith("loss") else {}
    yardsticks = ", ".join(f"{name} {value:.2f}" for name, value in losses.items() if value is not None)
    averages = {cell.config.train.average for cell in study.manifest.cells} - {"none"}
    when = "last step" + "".join(f", weights averaged ({how})" for how in sorted(averages))
    named = " or ".join(f"{metric}{naming.unit(study.manifest, metric)}" for metric in metrics)
    own = ", each cell's by its own task" * (len(metrics) > 1)
    return f"{named}, {when}{own}" + f" ({yardsticks})" * bool(yardsticks)


def _cells(cells: pandas.DataFrame) -> list[str]:
    shown = list(named_rows(cells.head(ROWS)))
    places = formatting.decimals([cells.head(ROWS)["sd"].max()])
    # Only the first ± is labelled SD.
    first = next((row.Index for row in shown if row.n > 1), None)
    rows = [_cell(row, _score(row, places, row.Index == first)) for row in shown]
    return [*_columns(rows), *_more(len(cells) - len(shown), "cell")]


def _cell(row: Any, score: str) -> list[str]:
    size = formatting.size(row.params) if row.reference else formatting.percent(row.params_vs_reference)
    found = [row.name, score, size]
    if hasattr(row, "match"):
        found.append(f"{row.chosen}={row.chosen_value} ({formatting.remainder(row.match_difference)})")
    if hasattr(row, "tuned"):
        found.append(f"{row.tuned}={formatting.setting(row.tuned_value)}")
    if hasattr(row, "vectors_seconds"):
        seconds = f"vectors {formatting.number(row.vectors_seconds, 1)} CPU-s"
        found.append("" if math.isnan(row.vectors_seconds) else seconds)
    return found


def _other_metrics(study: Study) -> list[str]:
    metric, runs = evidence.endpoint(study.manifest), study.runs
    measured = {name for name in runs if runs[name].notna().any()}
    requested = sorted({length for cell in study.manifest.cells for length in cell.config.eval.lengths})
    lengths = {f"@{length}": name for length in requested if (name := f"{metric}@{length}") in measured}
    of = "" if metric == "test/loss" else "loss, "
    statistics = {f"{of}{tag}": name for tag in STATISTICS if (name := f"test/loss_{tag}") in measured}
    also = dict.fromkeys(name for task in study.manifest.tasks.values() for name in task.beside)
    beside = {name: f"test/{name}" for name in also if f"test/{name}" in runs and f"test/{name}" != metric}
    tables = {"also measured": beside, "tested at other lengths": lengths}
    tables["with statistics other than the running ones"] = statistics
    return [line for heading, metrics in tables.items() for line in _metric_table(study, heading, metrics)]


def _metric_table(study: Study, heading: str, metrics: dict[str, str]) -> list[str]:
    tables = [evidence.cells(study, metric).head(ROWS) for metric in metrics.values()]
    shown = [i for i in range(len(tables[0]) if tables else 0) if any(table["n"].iloc[i] for table in tables)]
    if not shown:
        return []
    found = [[tables[0]["name"].iloc[i] for i in shown]]
    for tag, table in zip(metrics, tables, strict=True):
        places = formatting.decimals([table["sd"].max()])
        found += [[tag] * len(shown)] * bool(tag)
        found.append([_score(row, places, False) for row in named_rows(table.iloc[shown])])
    return [heading, *_columns(zip(*found, strict=True))]


def _score(row: Any, places: int, first: bool) -> str:
    parts = [formatting.number(row.mean, places)] if row.n else []
    if row.n > 1:
        parts[0] += f" ± {formatting.number(row.sd, places)}" + " SD" * first
    if 0 < row.n < row.runs:
        parts[0] += f" (n = {row.n})"
    return ", ".join(parts + formatting.lost(row))


def effect_lines(table: pandas.DataFrame) -> list[str]:
    """A study's effects with their intervals and verdicts under a heading; [] without any."""
    shown = evidence.headline(table)
    design, rest = shown[shown["kind"] != "cell"], shown[shown["kind"] == "cell"]
    if table.empty:
        return []
    rows = _effect_rows(design)
    if len(rest):
        rows += ["cells against the reference, estimate only: 95 % intervals, not corrected", *_effect_rows(rest)]
    return [_heading(design), *rows]


def _effect_rows(table: pandas.DataFrame) -> list[str]:
    decided = table["verdict"].isin(evidence.DECIDED)
    in_order = table["kind"] == "step"
    marked = table.assign(late=table["kind"].isin(formatting.CROSSED), open=~decided & ~in_order)
    shown = evidence.foremost(marked.sort_values(["late", "open"], kind="stable"), ROWS)
    places = formatting.decimals((shown["high"] - shown["low"]) / 2)
    rows = [_effect(row, places) for row in named_rows(shown)]
    if not any(worth for *_, worth, _ in rows):
        rows = [(*start, verdict) for *start, _, verdict in rows]
    return [*_columns(rows), *_more(len(table) - len(shown), "effect")]


def effect_words(row: Any, places: int) -> tuple[str, str, str]:
    """Span, seeds and verdict of an effect."""
    span = "" if row.verdict == "withheld" else formatting.span(row.mean, row.low, row.high, places)
    return span, formatting.over(row), formatting.verdict(row)


def _effect(row: Any, places: int) -> tuple[str, ...]:
    span, seeds, verdict = effect_words(row, places)
    scale = " at this scale" * (row.verdict in ("better", "worse") and row.kind in ("main", "step"))
    verdict = (verdict + scale + evidence.assuming(row)) * (row.verdict != formatting.ESTIMATE_ONLY)
    remark = "; ".join(filter(None, (verdict, evidence.also_words(row.also))))
    return row.label, span, seeds, evidence.worth_words(row, "steps") if span else "", remark


def _heading(design: pandas.DataFrame) -> str:
    known = design[design["low"].notna()]
    if known.empty:
        return "effects, without intervals"
    seeds = f"{known['n'].min()} to {known['n'].max()}" if known["n"].nunique() > 1 else str(known["n"].max())
    paired = known["paired"]
    how = "paired over" if paired.all() else "paired or unpaired," if paired.any() else "unpaired,"
    return f"effects, {how} {seeds} seeds, simultaneous 95 % intervals"


def _caveats(study: Study, table: pandas.DataFrame, cells: pandas.DataFrame, claims: pandas.DataFrame) -> list[str]:
    lines = [evidence.families(study.manifest, int(table["family"].sum()))]
    lines += [evidence.FOOTNOTE] * (evidence.footnoted(table) and not evidence.footnoted(claims))
    lines += [*study.manifest.remarks, evidence.sequential_state(study, table, claims)]
    lines += [evidence.unadjusted(study.manifest), evidence.margin_line(study)]
    lines += [evidence.overfitting(study), *naming.notes(study.manifest.cells)]
    if len(study.manifest.seeds) == 1 and len(table):
        lines.append("one seed: no interval and no verdict; a single seed can conclude nothing")
    metrics = evidence.measures(study.manifest)
    for metric in metrics:
        noises = [noise for noise in evidence.noise(table) if noise.metric == metric]
        found = {noise.kind.replace("step", "main"): noise for noise in noises}
        if "main" in found and math.isfinite(found["main"].finds[0]) and study.manifest.design != "ladder":
            lines.append(_noise(found, cells[cells["metric"] == metric]) + f" in {metric}" * (len(metrics) > 1))
    shared = "; speed not compared (runs shared the machine)" * (not is_timed(study.manifest))
    return [*(line for line in lines if line), f"intervals cover seeds only{shared}"]


def _noise(found: dict[str, evidence.Noise], cells: pandas.DataFrame) -> str:
    main, correlation = found["main"], float(cells["correlation"].median())
    notes = [f"SD of an effect {formatting.between(*main.spread)}"]
    if math.isfinite(correlation) and main.n >= 5:  # too uncertain with fewer seeds
        notes.append(f"pair correlation {formatting.number(correlation, 2)}")
    sizes = [f"{kind}s of {formatting.between(*found[kind].finds)}" for kind in formatting.CROSSED if kind in found]
    sizes = [formatting.between(*main.finds), *sizes]
    finds = f"smallest effect found with 80 % power: {formatting.listed(sizes)}"
    return f"{finds} ({'; '.join(notes)})"


def _problems(study: Study, results: Path) -> Iterator[str]:
    for status in ("diverged", "failed"):
        runs = study.runs[study.runs["status"] == status]
        for run in named_rows(runs.head(NAMED)):
            reason = str(run.error).splitlines()[0] if isinstance(run.error, str) and run.error else "no reason on disk"
            file = results / "runs" / run.path / "result.json"
            yield f"{status}: {run.label}, seed {run.seed}: {reason} · {file}"
        yield from _more(len(runs) - NAMED, f"{status} run")
    yield from (f"note: {note}" for note in study.notes[:NAMED])
    yield from _more(len(study.notes) - NAMED, "note")


def _next_command(study: Study, table: pandas.DataFrame, results: Path) -> str:
    manifest, status = study.manifest, study.runs["status"]
    where = shlex.quote(str(results))
    figures = "figures: ablate analyse" + f" --results-dir {where}" * (results != Path("results"))
    open_runs = int(status.isin(["missing", "failed"]).sum())
    counted = formatting.counted(open_runs, "run")
    again = f"the same command again trains the {counted} without a number\n" if open_runs else ""
    if table.empty or manifest.confirms or naming.no_evidence(manifest):
        return again + figures
    if not (status == "done").any():
        rate = min(cell.config.optim.lr for cell in manifest.cells)
        lower = formatting.scientific(float(f"{rate / 3:.1g}"))
        hint = f"next: no run ended with a number; try a lower optim.lr, {lower} say\n"
        return again + hint * bool((status == "diverged").any()) + figures
    # A confirmation has its own seeds, whose number is fixed beforehand.
    command = [word for word in shlex.split(manifest.command) if not word.startswith(("seeds=", "seeds_max="))]
    # A study file may say seeds=auto, which does not go with a confirmation; of two seeds there is nothing to confirm.
    command += ["seeds=8"] * bool(manifest.sequential and manifest.experiment)
    more = "confirm=8" if len(manifest.seeds) > 2 else "seeds=5"
    return f"{again}next: {shlex.join(command)} {more}      {figures}"


def _columns(rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"  {line}" for line in columns(list(rows))]


def _more(count: int, noun: str) -> list[str]:
    return [f"  … {formatting.counted(count, f'more {noun}')}: ablate analyse"] if count > 0 else []
