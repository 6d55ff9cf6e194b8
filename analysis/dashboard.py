"""ablate dashboard [STUDY]: a view and a report of a study on W&B, where the earlier ones are replaced.

Exit codes: 0 sent, or written for later where there is no key; 2 refused in one line.
"""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from ablate.config.depth import variants_of
from ablate.config.errors import Corrupt, Refused, whole_line
from ablate.config.extra import end_wandb, extra, nowhere, wandb_credentials, wandb_mode, wandb_settings
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting.streams import echo
from ablate.runs import naming
from ablate.runs.files import read_json, write_json
from ablate.runs.manifest import study_folder
from ablate.runs.records import Manifest
from analysis.case import Case
from analysis.cli import arguments as arguments_
from analysis.sources import read

FILE = "dashboard.json"  # among the figures what is sent; in the study's folder the ids of what was sent
WANDB = "ablate.execution.tracking.wandb.WandB"
FIGURES = "figures"
Part = tuple[str, str, list[Any]]  # a section: its title, and its text as Markdown or its panels


def main(arguments: list[str] | None = None) -> int:
    """Build and send the dashboard of one study; returns the exit code."""
    parser = Parser("ablate dashboard", "A view and a report of a study on W&B.")
    parser.add_argument("study", nargs="?", metavar="STUDY", help="its name (default: the newest)")
    options = parser.parse_args(arguments)
    return conclude(parser.prog, options.json, lambda: dashboard(options.results_dir, options.study))


def dashboard(results: Path, name: str | None) -> Outcome:
    """Write a study's figures and dashboard.json, and send both if W&B is reached.  Raises `Refused`."""
    study = read(results, name)
    name = study.manifest.study
    project, entity = place_of(study.manifest)
    extra("wandb_workspaces.workspaces", "ablate dashboard", "dashboard")
    from analysis.writing import output

    folder = arguments_.folder_of(study, results, None)
    case = arguments_.case(study, folder)
    output.write(case, folder)
    place = {"study": name, "project": project, "entity": entity}
    view, report = build(case, "", project)  # with an entity W&B would be asked
    specs = {}
    for kind, page in (("view", view), ("report", report)):
        specs[kind] = page._to_model().spec.model_dump(by_alias=True, exclude_none=True)
    write_json(folder / FILE, place | specs)
    unsent = "" if wandb_mode() == "online" else f"WANDB_MODE={wandb_mode()}"
    if not wandb_credentials():
        unsent = "no key of W&B is found (set WANDB_API_KEY)"
    how = f"view and report are in {folder / FILE}; to send them: ablate dashboard {name}"
    if unsent:
        lines = [f"{unsent}; {how}"]
    else:
        ids = study_folder(results, name) / FILE
        try:
            lines = send(case._replace(folder=folder.resolve()), ids.resolve(), place)
        except Exception as error:  # whatever W&B raises becomes one line
            raise Refused(f"W&B cannot be reached, or has refused ({whole_line(error)}); {how}") from None
        finally:
            end_wandb(5)
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

    name = f"{place['study']}/{FIGURES}"
    run_id = naming.tracked_id(place["study"], FIGURES)
    with nowhere(), tempfile.TemporaryDirectory() as folder:
        api = wandb.Api()
        entity = place["entity"] or str(api.settings["entity"] or api.default_entity)  # as where the sender's runs go
        where: dict[str, Any] = {"entity": entity, "project": place["project"]}
        run = wandb.init(**where, id=run_id, name=name, job_type=FIGURES, dir=folder, settings=settings, resume="allow")
        run.config.update({"ablate": FIGURES}, allow_val_change=True)
        run.log({f"figures/{figure}": wandb.Image(str(case.folder / f"{figure}.png")) for figure in case.drawn})
        run.finish()
        ids: dict[str, str] = {}
        with contextlib.suppress(FileNotFoundError, Corrupt):
            ids = read_json(file)
        view, report = build(case, **where)
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
    ended = f"Metric('Group') == {study!r} and SummaryMetric('status') not in ['diverged', 'failed']"
    runs: dict[str, Any] = {
        "filters": f"({ended}) or Metric('Name') == {f'{study}/{FIGURES}'!r}",
        "pinned_columns": ["config:cell.value", "config:seed.value", "summary:status"],
    }
    place = {"entity": entity, "project": project}
    blocks: list[Any] = []
    sections = []
    for heading, text, panels in parts(case):
        blocks.append(wr.H2(heading))
        if text:
            blocks.append(wr.MarkdownBlock(text))
            panels = [wr.MarkdownPanel(text)]
        else:
            blocks.append(wr.PanelGrid(runsets=[wr.Runset(**place, name=study, **runs)], panels=panels))
        sections.append(ws.Section(name=heading, panels=panels, is_open=True))
    title = f"{study}: {naming.title(manifest)}"[:128]
    about = f"Written by ablate dashboard {study}, which replaces what is changed here."
    report = wr.Report(**place, title=title, description=about, blocks=blocks, width="fluid")
    settings = ws.RunsetSettings(**runs)
    return ws.Workspace(**place, name=f"ablate {study}", sections=sections, runset_settings=settings), report


def parts(case: Case) -> list[Part]:
    """The sections that are not empty."""
    import wandb_workspaces.reports.v2 as wr

    from analysis.case.learning_curves import metrics_of
    from analysis.writing import sections, tables

    study = case.study
    answers = [*sections.question(case), *sections.overall(case), *sections.claims(case), *sections.sentences(case)]
    band = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev", "max_runs_to_show": len(study.runs)}
    curves = []
    for metric in dict.fromkeys(metrics_of(study).values()):
        curves.append(wr.LinePlot(title=metric, y=[metric], groupby=wr.Config("cell"), **band))
    pictures = [wr.MediaBrowser(title=name, media_keys=[f"figures/{name}"]) for name in case.drawn]
    every = [
        ("Results", "\n\n".join(map(tables.paragraph, answers)), []),
        ("Effects", tables.markdown(tables.effects_table(case)), []),
        ("Learning curves", "", curves),
        ("Figures", "", pictures),
        ("Failed and diverged runs", tables.markdown(tables.lost_table(study)), []),
        ("Command", f"    {study.manifest.command}", []),
    ]
    return [(heading, text, panels) for heading, text, panels in every if text or panels]
