"""The text at the end of a sweep: configurations, effects with verdicts, their scope, what to do next."""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas

from ablate import evidence, formatting
from ablate.formatting import CROSSED, columns, counted, number, ranged
from ablate.program.checks import fails_alike, shows_nothing
from ablate.runs import naming
from ablate.runs.records import Manifest
from ablate.runs.study import Study
from ablate.runs.tables import named_rows

MOST_EFFECTS = 16


def summary(study: Study, results: Path = Path("results"), wall_seconds: float | None = None) -> str:
    """A study in words; `results` is the folder of results, `wall_seconds` the sweep's duration."""
    manifest = study.manifest
    if study.runs["status"].isin(["failed", "missing"]).all():
        how_to_go_on = next_steps(study, results)[:-1]
        return "\n".join([title(study, wall_seconds), *how_to_go_on])
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
    lines += [scope(study, effects), *remarks(study, effects, claims)]
    return "\n".join([*filter(None, lines), *next_steps(study, results)])


def title(study: Study, wall_seconds: float | None) -> str:
    """The study, its factors and tasks, and what became of its runs."""
    manifest = study.manifest
    tasks = [task.title for task in manifest.tasks.values()]
    endings = [f"{count} {status}" for status, count in study.runs["status"].value_counts(sort=False).items()]
    runs = f"{counted(len(study.runs), 'run')}: {', '.join(endings)}"
    duration = "" if wall_seconds is None else formatting.duration(wall_seconds)
    parts = [manifest.study, naming.title(manifest), naming.role(manifest), *tasks, runs, duration]
    return " · ".join(dict.fromkeys(filter(None, parts)))


def configurations(study: Study) -> list[str]:
    """The metric, then a row per configuration: its mean ± SD over seeds, its size, the metrics that go with it."""
    manifest = study.manifest
    table = evidence.cells(study)
    texts = {"": table["name"], "mean ± SD": scores(table)}
    if "params" in table:  # unknown of another program's runs
        texts["parameters"] = table["params_vs_reference"].map(formatting.percent, na_action="ignore").fillna("")
    if manifest.tuning:
        texts[manifest.tuning.key] = table["tuned_value"].map(formatting.setting)
    endpoint = evidence.endpoint(manifest)
    beside = {f"test/{name}" for task in manifest.tasks.values() for name in task.beside} - {endpoint}
    for metric in study.runs:
        if metric in beside or metric.startswith(f"{endpoint}@"):
            texts[metric.removeprefix(endpoint).removeprefix("test/")] = scores(evidence.cells(study, metric))
    rows = pandas.DataFrame(texts)
    heading = f"{naming.metric_name(manifest, *evidence.measures(manifest))}, last step"
    return [heading, *indented([list(rows), *rows.to_numpy().tolist()])]


def scores(table: pandas.DataFrame) -> list[str]:
    """The mean ± SD of each configuration, with the runs that have no number."""
    places = formatting.decimals([table["sd"].max()])
    texts = []
    for row in named_rows(table):
        mean = number(row.mean, places) if row.n else ""
        spread = f" ± {number(row.sd, places)}" if row.n > 1 else ""
        texts.append(", ".join(filter(None, [mean + spread, *formatting.lost(row)])))
    return texts


# Effects


def effect_lines(manifest: Manifest, table: pandas.DataFrame) -> list[str]:
    """A study's effects with their verdicts under a heading; [] without any."""
    rows = evidence.headline(table)
    if rows.empty:
        return []
    has_intervals = rows.loc[rows["family"].astype(bool), "low"].notna().any()
    heading = "effects, simultaneous 95 % intervals" if has_intervals else "effects, estimates only"
    return [heading, *effect_rows(manifest, rows)]


def effect_rows(manifest: Manifest, table: pandas.DataFrame) -> list[str]:
    """A line per effect, interactions after the others and what is decided first."""
    rows = []
    for row in named_rows(evidence.decided_first(table).head(MOST_EFFECTS)):
        rows.append((evidence.effect_sentence(manifest, row), evidence.verdict_word(row)))
    more = len(table) - MOST_EFFECTS
    return indented(rows) + ([f"  … {counted(more, 'more effect')}: ablate analyse"] if more > 0 else [])


def indented(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows as lines of aligned columns, two spaces to the right."""
    return [f"  {line}" for line in columns(list(rows))]


# What they are about, and what to do next


def scope(study: Study, effects: pandas.DataFrame) -> str:
    """What the results are about: seeds, size, data, steps, learning rates."""
    manifest = study.manifest
    noun = "seed"
    if len(effects):
        noun = "paired seed" if effects["paired"].all() else "unpaired seed"
    seeds = counted(len(manifest.seeds), noun)
    begun = study.runs.loc[study.runs["status"] != "missing", "seed"].nunique()
    if begun < len(manifest.seeds):
        seeds = f"{begun} of {seeds}"
    if len(manifest.seeds) == 1:
        seeds = "one seed, from which nothing can be concluded"
    references = [cell.id for cell in manifest.cells if cell.reference]
    setting = naming.scope(manifest, [cell.id for cell in manifest.cells], references)
    if not manifest.configs:
        return f"{seeds}, {setting}"
    passes = ranged(formatting.epochs(manifest.passes(cell)) for cell in manifest.cells)
    rates = ""
    if manifest.tuning:
        rates = f"{manifest.tuning.key} tuned per configuration (intervals ignore tuning noise)"
    elif len({config.optim.lr for config in manifest.configs}) == 1:
        rates = "one learning rate"
    return ", ".join(filter(None, [seeds, f"{setting} ({passes})", rates, naming.matched(manifest)]))


def remarks(study: Study, effects: pandas.DataFrame, claims: pandas.DataFrame) -> Iterator[str]:
    """What changes how the results are read, or what is done next; some are empty."""
    manifest = study.manifest
    yield from manifest.remarks
    yield evidence.sequential_state(study, effects, claims)
    yield evidence.unadjusted(manifest)
    yield evidence.families(manifest, int(effects["family"].sum()))
    yield evidence.margin_line(study)
    yield evidence.overfitting(study)
    yield from naming.notes(manifest.cells)
    undecided = effects[effects["verdict"].eq("undecided") & ~effects["kind"].isin(CROSSED)]
    smallest = undecided["smallest"].dropna()
    if len(smallest):
        detected = formatting.between(smallest.min(), smallest.max())
        yield f"smallest effect found with 80 % power where undecided: {detected}"
    for note in study.notes:
        yield f"note: {note}"


def next_steps(study: Study, results: Path) -> list[str]:
    """How to train what is missing, or the command that adds evidence; and that for figures."""
    manifest = study.manifest
    if manifest.source:  # another program trains its runs
        return [f"figures: {manifest.command}"]
    figures = "figures: ablate analyse"
    if results != Path(os.environ.get("ABLATE_RESULTS", "results")):
        figures += f" --results-dir {shlex.quote(str(results))}"
    if manifest.program and fails_alike(study):
        return ["all ended runs failed in the same way: correct the command or the program", figures]
    if manifest.program and shows_nothing(study):  # as a remark says
        return [figures]
    status = study.runs["status"]
    unfinished = int(status.isin(["missing", "failed"]).sum())
    if unfinished:
        runs = counted(unfinished, "run")
        return [f"the same command again trains the {runs} without a number; ablate status says why", figures]
    if len(manifest.cells) < 2 or manifest.confirms or naming.no_evidence(manifest):
        return [figures]
    return [f"next: {more_seeds(manifest)}      {figures}"]


def more_seeds(manifest: Manifest) -> str:
    """The command for a confirmation on fresh seeds; for five seeds where there are one or two."""
    command = [word for word in shlex.split(manifest.command) if not word.startswith(("seeds=", "seeds_max="))]
    if manifest.sequential and manifest.experiment:
        command.append("seeds=8")  # in place of the study file's seeds=auto, which does not go with a confirmation
    command.append("confirm=8" if len(manifest.seeds) > 2 else "seeds=5")
    return shlex.join(command)
