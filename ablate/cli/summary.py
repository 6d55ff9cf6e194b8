"""The text at the end of a sweep: configurations, effects with verdicts, their scope, what to do next."""

import math
import os
import shlex
from pathlib import Path
from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.cli.effect_text import ROWS, effect_lines, effect_rows, indented, more
from ablate.formatting import CROSSED, counted, number, ranged
from ablate.runs import naming
from ablate.runs.records import Manifest
from ablate.runs.study import Study
from ablate.runs.tables import named_rows

NAMED = 6  # the most runs and notes that are listed


def summary(study: Study, results: Path = Path("results"), wall_seconds: float | None = None) -> str:
    """A study on one screen; `results` is for the paths of failed runs, `wall_seconds` the sweep's duration."""
    manifest = study.manifest
    effects = evidence.effects(study)
    claims = evidence.claims(study)
    seconds = evidence.speed(study)
    lines = [_title(study, wall_seconds), *naming.question_lines(manifest), *_configurations(study)]
    lines += evidence.claim_lines(manifest, claims)
    lines += evidence.ladder_lines(evidence.ladder(study))
    lines += [line for metric in evidence.measures(manifest) for line in evidence.left_out_lines(study, metric)]
    if not naming.no_evidence(manifest) and not evidence.described(manifest):
        lines += effect_lines(manifest, effects)
    if len(seconds):
        lines += ["seconds of a training step, on this machine", *effect_rows(manifest, evidence.headline(seconds))]
    lines += [_scope(study, effects), *_remarks(study, effects, claims), *_problems(study, results)]
    return "\n".join([*lines, *_next_steps(study, results)])


def _title(study: Study, wall_seconds: float | None) -> str:
    manifest = study.manifest
    status = study.runs["status"].value_counts()
    title = naming.title(manifest)
    parts = [title if title == manifest.study else f"{manifest.study}: {title}", naming.role(manifest)]
    parts.append(", ".join(dict.fromkeys(task.title for task in manifest.tasks.values())))
    runs = f"{counted(len(study.runs), 'run')}, {status.get('diverged', 0)} diverged, {status.get('failed', 0)} failed"
    parts.append(runs + (f", {status['missing']} missing" if "missing" in status else ""))
    if wall_seconds is not None:
        parts.append(formatting.duration(wall_seconds))
    return " · ".join(filter(None, parts))


def _configurations(study: Study) -> list[str]:
    """The metric, then a row per configuration: its mean ± SD over seeds, its size, the metrics that go with it."""
    manifest = study.manifest
    endpoint = evidence.endpoint(manifest)
    others = {name: f"test/{name}" for task in manifest.tasks.values() for name in task.beside}
    lengths = manifest.configs[0].eval.lengths if manifest.configs else []
    others |= {f"@{length}": f"{endpoint}@{length}" for length in lengths}
    others = {name: metric for name, metric in others.items() if metric in study.runs and metric != endpoint}
    table = evidence.cells(study)
    names = [row.name for row in named_rows(table)]
    found = {"": names, "mean ± SD": _scores(table)}
    if "params" in table:  # unknown of another program's runs
        found["parameters"] = [_size(row) for row in named_rows(table)]
    if manifest.tuning:
        found[manifest.tuning.key] = [formatting.setting(value) for value in table["tuned_value"]]
    for name, metric in others.items():
        found[name] = _scores(evidence.cells(study, metric))
    rows = pandas.DataFrame(found).head(ROWS)
    lines = indented([list(rows), *rows.to_numpy().tolist()])
    return [_metric(study), *lines, *more(len(table) - ROWS, "configuration")]


def _size(row: Any) -> str:
    if row.reference:
        return formatting.size(row.params) if formatting.known(row.params) else ""
    return formatting.percent(row.params_vs_reference) if formatting.known(row.params_vs_reference) else ""


def _scores(table: pandas.DataFrame) -> list[str]:
    places = formatting.decimals([table["sd"].max()])
    return [_score(row, places) for row in named_rows(table)]


def _score(row: Any, places: int) -> str:
    mean = number(row.mean, places) if row.n else ""
    spread = f" ± {number(row.sd, places)}" if row.n > 1 else ""
    seeds = f" (n = {row.n})" if 0 < row.n < row.runs else ""
    return ", ".join(filter(None, [mean + spread + seeds, *formatting.lost(row)]))


def _metric(study: Study) -> str:
    manifest = study.manifest
    metrics = evidence.measures(manifest)
    text = " or ".join(metric + naming.unit(manifest, metric) for metric in metrics) + ", last step"
    tasks = list(manifest.tasks.values())
    if len(tasks) == 1 and metrics[0].endswith("loss"):
        known = [f"{name} {value:.2f}" for name, value in tasks[0].yardsticks.items() if value is not None]
        text += f" ({', '.join(known)})" if known else ""
    return text


def _scope(study: Study, effects: pandas.DataFrame) -> str:
    """What the results are about: seeds, size, steps, learning rates, data."""
    manifest = study.manifest
    sizes = sorted({cell.params for cell in manifest.cells if cell.reference and cell.params is not None})
    steps = sorted({config.train.steps for config in manifest.configs})
    passes = sorted({manifest.passes(cell) for cell in manifest.cells}, key=lambda value: value or 0)
    epochs = ranged(map(formatting.epochs, passes))
    parts = [_seeds(study, effects)]
    if sizes:
        parts.append(f"{ranged(map(formatting.size, sizes))} parameters")
    if steps:
        parts += [f"{ranged(map(str, steps))} steps ({epochs})", _learning_rates(manifest), naming.matched(manifest)]
    parts.append(ranged(task.name for task in manifest.tasks.values()))
    return ", ".join(filter(None, parts))


def _seeds(study: Study, effects: pandas.DataFrame) -> str:
    if len(study.manifest.seeds) == 1:
        return "one seed, from which nothing can be concluded"
    known = effects[effects["low"].notna()]
    if known.empty:
        return counted(len(study.manifest.seeds), "seed")
    pairing = "paired" if known["paired"].all() else "unpaired"
    return f"{ranged(map(str, sorted(known['n'].unique())))} {pairing} seeds"


def _learning_rates(manifest: Manifest) -> str:
    rates = sorted({config.optim.lr for config in manifest.configs})
    text = "one learning rate" if len(rates) == 1 else f"learning rates {ranged(map(formatting.scientific, rates))}"
    if manifest.tuning is None:
        return text
    tuned = f"{manifest.tuning.key} tuned per configuration (intervals ignore tuning noise)"
    return tuned if manifest.tuning.key == "optim.lr" else f"{text}, {tuned}"


def _remarks(study: Study, effects: pandas.DataFrame, claims: pandas.DataFrame) -> list[str]:
    """What changes how the results are read, or what is done next."""
    manifest = study.manifest
    lines = [*manifest.remarks, evidence.sequential_state(study, effects, claims), evidence.unadjusted(manifest)]
    families = evidence.families(manifest, int(effects["family"].sum()))
    lines.append(f"{families}; effects as estimates: ablate analyse" if evidence.described(manifest) else families)
    margin = evidence.margin_of(manifest.margin)
    if not margin.registered or (math.isfinite(margin.steps) and "exchange" not in study.beside):
        lines.append(evidence.margin_line(study))
    lines += [evidence.overfitting(study), *naming.notes(manifest.cells)]
    smallest = effects.loc[effects["verdict"].eq("undecided") & ~effects["kind"].isin(CROSSED), "smallest"].dropna()
    if len(smallest):
        finds = formatting.between(smallest.min(), smallest.max())
        lines.append(f"smallest effect found with 80 % power where undecided: {finds}")
    return [line for line in lines if line]


def _problems(study: Study, results: Path) -> list[str]:
    lines = []
    for status in ("diverged", "failed"):
        runs = study.runs[study.runs["status"] == status]
        for run in named_rows(runs.head(NAMED)):
            reason = str(run.error).splitlines()[0] if isinstance(run.error, str) and run.error else "no reason on disk"
            file = results / "runs" / run.path / "result.json"
            lines.append(f"{status}: {run.label}, seed {run.seed}: {reason} · {file}")
        lines += more(len(runs) - NAMED, f"{status} run")
    lines += [f"note: {note}" for note in study.notes[:NAMED]]
    return [*lines, *more(len(study.notes) - NAMED, "note")]


def _next_steps(study: Study, results: Path) -> list[str]:
    """How to train what is missing, the command that adds evidence, and that for figures."""
    manifest = study.manifest
    if manifest.source:  # another program trains its runs
        return [f"figures: {manifest.command}"]
    status = study.runs["status"]
    unfinished = int(status.isin(["missing", "failed"]).sum())
    lines = []
    if unfinished:
        lines.append(f"the same command again trains the {counted(unfinished, 'run')} without a number")
    figures = "figures: ablate analyse"
    if results != Path(os.environ.get("ABLATE_RESULTS", "results")):
        figures += f" --results-dir {shlex.quote(str(results))}"
    if len(manifest.cells) < 2 or manifest.confirms or naming.no_evidence(manifest):
        return [*lines, figures]
    cells_with_result = set(study.runs[status == "done"]["cell"])
    if cells_with_result:
        if unfinished and len(cells_with_result) < len(manifest.cells):
            return [*lines, figures]  # no configuration is confirmed that has never trained
        return [*lines, f"next: {_more_seeds(manifest)}      {figures}"]
    if (status == "diverged").any():
        third = formatting.scientific(float(f"{min(config.optim.lr for config in manifest.configs) / 3:.1g}"))
        lines.append(f"next: no run ended with a number; try a lower optim.lr, {third} say")
    return [*lines, figures]


def _more_seeds(manifest: Manifest) -> str:
    """The command for a confirmation on fresh seeds; for five seeds where there are one or two."""
    command = [word for word in shlex.split(manifest.command) if not word.startswith(("seeds=", "seeds_max="))]
    if manifest.sequential and manifest.experiment:
        command.append("seeds=8")  # in place of the study file's seeds=auto, which does not go with a confirmation
    command.append("confirm=8" if len(manifest.seeds) > 2 else "seeds=5")
    return shlex.join(command)
