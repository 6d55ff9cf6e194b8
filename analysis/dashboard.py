"""ablate dashboard [STUDY]: a view and a report of a study on W&B, where the earlier ones are replaced.

Exit codes: 0 sent, or written for later where there is no key or no network; 2 refused in one line.
"""

import contextlib
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from ablate import evidence
from ablate.config.depth import variants_of
from ablate.config.errors import Corrupt, Refused, whole_line
from ablate.config.extra import end_wandb, extra, nowhere, wandb_credentials, wandb_mode, wandb_settings
from ablate.config.subcommands import Outcome, Parser, conclude
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
    specs = {}
    for kind, shown in zip(("view", "report"), build(case, entity, project), strict=True):
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
    view, report = build(case, **own)
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
    view._internal_id = ids.get("view", "")
    view._internal_name = ids.get("name", "")
    report.id = ids.get("report", "")
    view.save()
    report.save()
    write_json(file, {"view": view._internal_id, "name": view._internal_name, "report": report.id})
    word = "updated" if ids else "new"
    return [f"{word}: {view.url}", f"{word}: {report.url}"]


def build(case: Case, entity: str, project: str) -> tuple[Any, Any]:
    """The view and the report of a study whose figures are drawn, objects of `wandb-workspaces`."""
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
        panels = []
        if part.text:
            blocks.append(wr.MarkdownBlock(part.text))
            panels.append(wr.MarkdownPanel(part.text))
        if part.panels:
            runs = wr.Runset(entity=entity, project=project, name=part.runs, filters=filters[part.runs])
            runs.pinned_columns = columns
            runs._id = naming.tracked_id(study, f"{part.title}/runs")
            blocks.append(wr.PanelGrid(runsets=[runs], panels=part.panels))
        if part.runs != LOST:  # a view has one set of runs
            panels += part.panels
        for panel in (*panels, *part.panels):  # the same in every dashboard of the study
            panel._id = naming.tracked_id(study, f"{part.title}/{getattr(panel, 'title', '')}")
        shown_parts.append(ws.Section(name=part.title, panels=panels, is_open=True))
    title = f"{study}: {naming.title(manifest)}"[:128]
    about = f"Written by ablate dashboard {study}, which replaces what is changed here."
    place = {"entity": entity, "project": project}
    report = wr.Report(**place, title=title, description=about, blocks=blocks, width="fluid")
    shown = ws.RunsetSettings(filters=f"({filters[SHOWN]}) or {filters[FIGURES]}", pinned_columns=columns)
    view = ws.Workspace(**place, name=f"ablate {study}", sections=shown_parts, runset_settings=shown)
    view._internal_runset_id = naming.tracked_id(study, "runs")
    return view, report


def parts(case: Case) -> list[Part]:
    """The sections that are not empty."""
    import wandb_workspaces.reports.v2 as wr

    from analysis.case.learning_curves import metrics_of
    from analysis.writing import sections, tables
    from analysis.writing.sentences import sentences

    study = case.study
    manifest = study.manifest
    answers = [*sections.question(case), *sections.overall(case), *sections.claims(case), *sentences(case)]
    band = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev", "max_runs_to_show": len(study.runs)}
    curves = list(dict.fromkeys(metrics_of(study).values()))
    groups = {"configuration": "cell"}
    if len(manifest.tasks) == 1:  # no means over several tasks
        groups |= {name: naming.tracked_key(name) for name in manifest.factors}
    lines = []
    for name, key in groups.items():
        lines += [wr.LinePlot(title=f"{y} by {name}", y=[y], groupby=wr.Config(key), **band) for y in curves]
    bars = []
    for metric in evidence.measures(manifest):
        title = f"{metric}, mean ± SD"
        bars.append(wr.BarPlot(title=title, metrics=[metric], groupby=wr.Config("cell"), **band))
    pictures = [wr.MediaBrowser(title=name, media_keys=[f"figures/{name}"]) for name in case.drawn]
    lost_table = tables.markdown(tables.lost_table(study))
    lost = []
    if lost_table:
        lost = [wr.LinePlot(title=f"{y}, each run", y=[y]) for y in dict.fromkeys(["train/loss", *curves])]
    every = [
        Part("Results", "\n\n".join(map(tables.paragraph, answers)), [], SHOWN),
        Part("Effects", tables.markdown(tables.effects_table(case)), [], SHOWN),
        Part("Learning curves", "", lines, SHOWN),
        Part("Metric", "", bars, SHOWN),
        Part("Figures", "", pictures, FIGURES),
        Part("Failed and diverged runs", lost_table, lost, LOST),
        Part("Command", f"    {manifest.command}", [], SHOWN),
    ]
    return [part for part in every if part.text or part.panels]
