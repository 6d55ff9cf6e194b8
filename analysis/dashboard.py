"""ablate dashboard [STUDY]: a view and a report of a study on W&B, where the earlier ones are replaced.

Exit codes: 0 sent, or written for later where there is no key or no network; 2 refused in one line.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ablate import evidence
from ablate.config.depth import variants_of
from ablate.config.errors import Corrupt, Refused, whole_line
from ablate.config.extra import end_wandb, extra, nowhere, wandb_credentials, wandb_mode, wandb_settings
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting import is_number
from ablate.formatting.streams import echo
from ablate.runs import naming
from ablate.runs.files import read_json, write_json
from ablate.runs.manifest import choose_study, refusing, study_folder
from ablate.runs.records import Manifest
from ablate.runs.study import load_study
from analysis.case import Case
from analysis.cli import arguments as arguments_

FILE = "dashboard.json"  # among the figures what is sent; in the study's folder the ids of what was sent
WANDB = "ablate.execution.tracking.wandb.WandB"
SHOWN = "ended or running"  # sets of runs
LOST = "failed or diverged"
FIGURES = "figures"


class Part(NamedTuple):
    """A section: its title, its text as Markdown, its panels, and whose runs these show."""

    title: str
    text: str
    panels: list[Any]
    runs: str


class Dashboard(NamedTuple):
    """A view and a report of `wandb-workspaces`."""

    view: Any
    report: Any


def main(arguments: list[str] | None = None) -> int:
    """Build and send the dashboard of one study; returns the exit code."""
    parser = Parser("ablate dashboard", "A view and a report of a study on W&B.")
    parser.add_argument("study", nargs="?", metavar="STUDY", help="its name (default: the newest)")
    given = parser.parse_args(arguments)
    return conclude(parser.prog, given.json, lambda: dashboard(given.results_dir, given.study))


def dashboard(results: Path, name: str | None) -> Outcome:
    """Write a study's figures and dashboard.json, and send both if W&B is reached.  Raises `Refused`."""
    name = choose_study(results, name)
    with refusing(study_folder(results, name)):
        study = load_study(results, name)
    project, entity = place_of(study.manifest)
    extra("wandb_workspaces.workspaces", "ablate dashboard", "dashboard")
    from analysis.writing import output

    folder = arguments_.folder_of(study, results, None)
    case = arguments_.case(study, folder)
    output.write(case, folder)
    place = {"study": name, "project": project, "entity": entity}
    built = build(case, entity, project)
    specs = {}
    for kind, shown in built._asdict().items():
        specs[kind] = shown._to_model().spec.model_dump(by_alias=True, exclude_none=True)
    write_json(folder / FILE, place | specs)
    unsent = "" if wandb_credentials() else "no key of W&B is found (set WANDB_API_KEY)"
    if not unsent and wandb_mode() != "online":
        unsent = f"WANDB_MODE={wandb_mode()}"
    lines = []
    if not unsent:
        drawn = case._replace(folder=folder.resolve())
        sent_before = (study_folder(results, name) / FILE).resolve()
        try:
            with nowhere():
                lines = send(drawn, sent_before, place)
        except Exception as error:  # whatever W&B raises becomes one line
            if "did not respond" not in str(error) and "timed out" not in str(error):
                raise Refused(f"W&B refused ({whole_line(error)}); its key must be one that may write there") from None
            unsent = f"W&B cannot be reached ({whole_line(error)})"
        finally:
            end_wandb(5)
    if unsent:
        lines = [f"{unsent}; view and report are in {folder / FILE}; to send them: ablate dashboard {name}"]
    echo("\n".join(lines))
    return Outcome(0, {**place, "sent": not unsent, "lines": lines, "file": folder / FILE})


def place_of(manifest: Manifest) -> tuple[str, str]:
    """Project and entity of the runs on W&B.  Raises `Refused` if they are in none, or in several."""
    places = set()
    for config in manifest.configs:
        for track in variants_of(config.track):
            if isinstance(track, dict) and track.get("_target_") == WANDB:
                places.add((str(track.get("project")), str(track.get("entity") or "")))
    if len(places) != 1:
        number = len(places) or "no"
        raise Refused(f"{manifest.study} is in {number} projects of W&B; repeat its command with track=wandb")
    return places.pop()


def send(case: Case, file: Path, place: dict[str, str]) -> list[str]:
    """Create or update the dashboard, whose ids `file` holds; returns lines that say where it is.  Raises what W&B
    raises."""
    settings = wandb_settings("online")
    import wandb

    api = wandb.Api()
    entity = place["entity"] or str(api.settings["entity"] or api.default_entity)  # as where the sender's runs go
    own: dict[str, Any] = {"entity": entity, "project": place["project"]}
    built = build(case, **own)
    ids: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError, Corrupt):
        ids = read_json(file)
    run_id = naming.tracked_id(place["study"], FIGURES)
    with tempfile.TemporaryDirectory() as folder:
        name = f"{place['study']}/{FIGURES}"
        run = wandb.init(**own, id=run_id, name=name, job_type=FIGURES, dir=folder, settings=settings, resume="allow")
        run.config.update({"ablate": FIGURES}, allow_val_change=True)
        run.log({f"figures/{figure}": wandb.Image(str(case.folder / f"{figure}.png")) for figure in case.drawn})
        run.finish()
    built.view._internal_id = ids.get("view", "")
    built.view._internal_name = ids.get("name", "")
    built.report.id = ids.get("report", "")
    built.view.save()
    built.report.save()
    write_json(file, {"view": built.view._internal_id, "name": built.view._internal_name, "report": built.report.id})
    word = "updated" if ids else "new"
    return [f"{word}: {built.view.url}", f"{word}: {built.report.url}"]


def build(case: Case, entity: str, project: str) -> Dashboard:
    """The dashboard of a study whose figures are drawn."""
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    manifest = case.study.manifest
    study = manifest.study
    group = f"Metric('Group') == {study!r} and SummaryMetric('status') {{}} ['diverged', 'failed']"
    filters = {SHOWN: group.format("not in"), LOST: group.format("in")}
    filters[FIGURES] = f"Metric('Name') == {f'{study}/{FIGURES}'!r}"
    columns = ["config:cell.value", "config:seed.value", "summary:status"]
    blocks: list[Any] = [wr.TableOfContents()]
    shown_parts = []
    for part in parts(case):
        blocks.append(wr.H2(part.title))
        text_panels = []
        if part.text:
            blocks.append(wr.MarkdownBlock(part.text))
            text_panels = [wr.MarkdownPanel(part.text)]
        if part.panels:
            runs = wr.Runset(entity=entity, project=project, name=part.runs, filters=filters[part.runs])
            runs.pinned_columns = columns
            runs._id = naming.tracked_id(study, f"{part.title}/runs")
            blocks.append(wr.PanelGrid(runsets=[runs], panels=part.panels))
        panels = text_panels if part.runs == LOST else [*text_panels, *part.panels]  # a view has one set of runs
        for panel in (*text_panels, *part.panels):  # the same in every dashboard of the study
            panel._id = naming.tracked_id(study, f"{part.title}/{getattr(panel, 'title', '')}")
        if panels:
            shown_parts.append(ws.Section(name=part.title, panels=panels, is_open=True))
    title = f"{study}: {naming.title(manifest)}"[:128]
    about = f"Written by ablate dashboard {study}, which replaces what is changed here."
    report = wr.Report(entity=entity, project=project, title=title, description=about, blocks=blocks, width="fluid")
    shown = ws.RunsetSettings(filters=f"({filters[SHOWN]}) or {filters[FIGURES]}", pinned_columns=columns)
    view = ws.Workspace(
        entity=entity, project=project, name=f"ablate {study}", sections=shown_parts, runset_settings=shown
    )
    view._internal_runset_id = naming.tracked_id(study, "runs")
    return Dashboard(view, report)


def parts(case: Case) -> Iterator[Part]:
    """The sections that are not empty."""
    import wandb_workspaces.reports.v2 as wr

    from analysis.case.learning_curves import metrics_of
    from analysis.writing import sections, tables
    from analysis.writing.sentences import sentences

    manifest = case.study.manifest
    metrics = evidence.measures(manifest)
    curves = list(dict.fromkeys(metrics_of(case.study).values()))
    band = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev", "max_runs_to_show": len(case.study.runs)}
    cell = wr.Config("cell")
    answers = [*sections.question(case), *sections.overall(case), *sections.claims(case), *sentences(case)]
    lines = [wr.LinePlot(title=f"{y} by configuration", y=[y], groupby=cell, **band) for y in curves]
    for name in manifest.factors:
        pairs = {(str(config.levels[name]), config.task) for config in manifest.cells}
        if len(pairs) == len({level for level, _ in pairs}):  # no means over several tasks
            key = wr.Config(naming.tracked_key(name))
            lines += [wr.LinePlot(title=f"{y} by {name}", y=[y], groupby=key, **band) for y in curves]
    bars = [wr.BarPlot(title=f"{y}, mean ± SD", metrics=[y], groupby=cell, **band) for y in metrics]
    for name, levels in manifest.factors.items():
        if all(map(is_number, levels)):
            x = wr.Config(naming.tracked_key(name))
            bars += [wr.ScatterPlot(title=f"{y} against {name}", x=x, y=wr.SummaryMetric(y)) for y in metrics]
    lost = [wr.LinePlot(title=f"{y}, each run", y=[y]) for y in dict.fromkeys(["train/loss", *curves])]
    lost_table = tables.markdown(tables.lost_table(case.study))
    pictures = [wr.MediaBrowser(title=name, media_keys=[f"figures/{name}"]) for name in case.drawn]
    every = [
        Part("Results", "\n\n".join(map(tables.paragraph, answers)), [], SHOWN),
        Part("Effects", tables.markdown(tables.effects_table(case)), [], SHOWN),
        Part("Learning curves", "", lines, SHOWN),
        Part("Metric", "", bars, SHOWN),
        Part("Figures", "", pictures, FIGURES),
        Part("Failed and diverged runs", lost_table, lost if lost_table else [], LOST),
        Part("Command", f"    {manifest.command}", [], SHOWN),
    ]
    yield from (part for part in every if part.text or part.panels)
