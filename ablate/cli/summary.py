"""The text at the end of a sweep: configurations, effects with verdicts, their scope, what to do next."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pandas

from ablate import evidence, formatting
from ablate.cli.effect_text import ROWS, effect_lines, effect_rows, indented, more
from ablate.formatting import CROSSED, counted, number, ranged
from ablate.program.order import OUTPUT
from ablate.runs import naming
from ablate.runs.records import Manifest
from ablate.runs.study import Study
from ablate.runs.tables import named_rows

NAMED = 6  # the most runs and notes that are listed
LITTLE_SAVED = 0.8  # variance of a paired difference over that of unpaired seeds


def summary(study: Study, results: Path = Path("results"), wall_seconds: float | None = None) -> str:
    """A study on one screen; `results` is for the paths of failed runs, `wall_seconds` the sweep's duration."""
    manifest = study.manifest
    effects = evidence.effects(study)
    claims = evidence.claims(study)
    seconds = evidence.speed(study)
    lines = [title(study, wall_seconds), *naming.question_lines(manifest), *configurations(study)]
    lines += evidence.claim_lines(manifest, claims)
    lines += evidence.ladder_lines(evidence.ladder(study))
    if not naming.no_evidence(manifest) and not evidence.described(manifest):
        lines += effect_lines(manifest, effects)
    if len(seconds):
        lines += ["seconds of a training step, on this machine", *effect_rows(manifest, evidence.headline(seconds))]
    lines += [scope(study, effects), *remarks(study, effects, claims), *problems(study, results)]
    return "\n".join([*filter(None, lines), *next_steps(study, results)])


def title(study: Study, wall_seconds: float | None) -> str:
    """The study, its factors and tasks, and what became of its runs."""
    manifest = study.manifest
    parts = [manifest.study, naming.title(manifest), naming.role(manifest)]
    parts += [task.title for task in manifest.tasks.values()]
    endings = study.runs["status"].value_counts(sort=False)
    of_runs = ", ".join(f"{count} {status}" for status, count in endings.items())
    parts.append(f"{counted(len(study.runs), 'run')}: {of_runs}")
    if wall_seconds is not None:
        parts.append(formatting.duration(wall_seconds))
    return " · ".join(dict.fromkeys(filter(None, parts)))


def configurations(study: Study) -> list[str]:
    """The metric, then a row per configuration: its mean ± SD over seeds, its size, the metrics that go with it."""
    manifest = study.manifest
    table = evidence.cells(study)
    columns = {"": table["name"], "mean ± SD": scores(table)}
    if "params" in table:  # unknown of another program's runs
        columns["parameters"] = table["params_vs_reference"].map(formatting.percent, na_action="ignore").fillna("")
    if manifest.tuning:
        columns[manifest.tuning.key] = table["tuned_value"].map(formatting.setting)
    endpoint = evidence.endpoint(manifest)
    others = [f"test/{name}" for task in manifest.tasks.values() for name in task.beside]
    others += [name for name in study.runs if name.startswith(f"{endpoint}@")]
    for metric in others:
        if metric in study.runs and metric != endpoint:
            columns[metric.removeprefix(endpoint).removeprefix("test/")] = scores(evidence.cells(study, metric))
    rows = pandas.DataFrame(columns).head(ROWS)
    heading = f"{naming.metric_name(manifest, *evidence.measures(manifest))}, last step"
    return [heading, *indented([list(rows), *rows.to_numpy().tolist()]), *more(len(table) - ROWS, "configuration")]


def scores(table: pandas.DataFrame) -> list[str]:
    """The mean ± SD of each configuration, with the runs that have no number."""
    places = formatting.decimals([table["sd"].max()])
    texts = []
    for row in named_rows(table):
        mean = number(row.mean, places) if row.n else ""
        spread = f" ± {number(row.sd, places)}" if row.n > 1 else ""
        texts.append(", ".join(filter(None, [mean + spread, *formatting.lost(row)])))
    return texts


def scope(study: Study, effects: pandas.DataFrame) -> str:
    """What the results are about: seeds, size, data, steps, learning rates."""
    manifest = study.manifest
    noun = "paired seed" if effects["paired"].all() else "unpaired seed"
    parts = [counted(len(manifest.seeds), noun if len(effects) else "seed")]
    if len(manifest.seeds) == 1:
        parts = ["one seed, from which nothing can be concluded"]
    references = [cell.id for cell in manifest.cells if cell.reference]
    parts.append(naming.scope(manifest, [cell.id for cell in manifest.cells], references))
    if manifest.configs:
        parts[-1] += f" ({ranged(formatting.epochs(manifest.passes(cell)) for cell in manifest.cells)})"
        parts += [learning_rates(manifest), naming.matched(manifest)]
    return ", ".join(filter(None, parts))


def learning_rates(manifest: Manifest) -> str:
    """The learning rates, or what was tuned in place of one value for all."""
    if manifest.tuning:
        return f"{manifest.tuning.key} tuned per configuration (intervals ignore tuning noise)"
    rates = sorted({config.optim.lr for config in manifest.configs})
    return "one learning rate" if len(rates) == 1 else f"learning rates {ranged(map(formatting.scientific, rates))}"


def remarks(study: Study, effects: pandas.DataFrame, claims: pandas.DataFrame) -> Iterator[str]:
    """What changes how the results are read, or what is done next; some are empty."""
    manifest = study.manifest
    yield from manifest.remarks
    yield evidence.sequential_state(study, effects, claims)
    yield evidence.unadjusted(manifest)
    families = evidence.families(manifest, int(effects["family"].sum()))
    yield f"{families}; effects as estimates: ablate analyse" if evidence.described(manifest) else families
    yield evidence.margin_line(study)
    yield evidence.overfitting(study)
    yield from naming.notes(manifest.cells)
    undecided = effects[effects["verdict"].eq("undecided") & ~effects["kind"].isin(CROSSED)]
    smallest = undecided["smallest"].dropna()
    if len(smallest):
        detected = formatting.between(smallest.min(), smallest.max())
        yield f"smallest effect found with 80 % power where undecided: {detected}"
    if manifest.program and undecided["pairing_ratio"].gt(LITTLE_SAVED).any():
        yield "pairing seeds saved little: give batches a generator of their own (docs/how-to/own-script.md, Pairing)"


def problems(study: Study, results: Path) -> list[str]:
    """The runs that diverged or failed, with the reason and the file that has it, and the notes on damaged files."""
    runs = study.runs[study.runs["status"].isin(["diverged", "failed"])].fillna({"error": "no reason on disk"})
    lines = []
    for run in named_rows(runs.head(NAMED)):
        reason = run.error.partition("\n")[0]
        folder = results / "runs" / run.path
        file = folder / (OUTPUT if study.manifest.program else "result.json")
        lines.append(f"{run.status}: {run.label}, seed {run.seed}: {reason} · {file}")
    lines += more(len(runs) - NAMED, "run")
    return lines + [f"note: {note}" for note in study.notes[:NAMED]]


def next_steps(study: Study, results: Path) -> list[str]:
    """How to train what is missing, or the command that adds evidence; and that for figures."""
    manifest = study.manifest
    if manifest.source:  # another program trains its runs
        return [f"figures: {manifest.command}"]
    figures = "figures: ablate analyse"
    if results != Path(os.environ.get("ABLATE_RESULTS", "results")):
        figures += f" --results-dir {shlex.quote(str(results))}"
    status = study.runs["status"]
    unfinished = int(status.isin(["missing", "failed"]).sum())
    if unfinished:
        return [f"the same command again trains the {counted(unfinished, 'run')} without a number", figures]
    if len(manifest.cells) < 2 or manifest.confirms or naming.no_evidence(manifest) or not status.eq("done").any():
        return [figures]
    return [f"next: {more_seeds(manifest)}      {figures}"]


def more_seeds(manifest: Manifest) -> str:
    """The command for a confirmation on fresh seeds; for five seeds where there are one or two."""
    command = [word for word in shlex.split(manifest.command) if not word.startswith(("seeds=", "seeds_max="))]
    if manifest.sequential and manifest.experiment:
        command.append("seeds=8")  # in place of the study file's seeds=auto, which does not go with a confirmation
    command.append("confirm=8" if len(manifest.seeds) > 2 else "seeds=5")
    return shlex.join(command)
