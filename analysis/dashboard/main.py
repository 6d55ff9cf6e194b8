"""ablate dashboard [STUDY]: a view and a report of a study on W&B, where the earlier ones are replaced."""

import contextlib
import hashlib
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
from ablate.runs.manifest import choose_study, refusing, study_folder
from ablate.runs.study import load_study
from analysis.cli import arguments as arguments_

FILE = "dashboard.json"  # among the figures what is sent; in the study's folder the ids of what was sent
WANDB = "ablate.execution.tracking.wandb.WandB"
VIEWS = """query StudyViews($entity: String!, $project: String!, $kind: String!, $after: String) {
  project(entityName: $entity, name: $project) { allViews(viewType: $kind, first: 100, after: $after) {
    edges { node { id name displayName } } pageInfo { endCursor hasNextPage }
  } }
}"""
Row = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Build and send the dashboard of one study; returns the exit code."""
    parser = Parser("ablate dashboard", "A view and a report of a study on W&B.")
    parser.add_argument("study", nargs="?", metavar="STUDY", help="default: the newest")
    given = parser.parse_args(arguments)
    return conclude(parser.prog, given.json, lambda: dashboard(given.results_dir, given.study))


def dashboard(results: Path, name: str | None) -> Outcome:
    """Write a study's figures and dashboard.json, and send both if W&B is reached.  Raises `Refused`."""
    name = choose_study(results, name)
    with refusing(study_folder(results, name)):
        study = load_study(results, name)
    tracks = [track for config in study.manifest.configs for track in variants_of(config.track)]
    tracks = [track for track in tracks if isinstance(track, dict) and track.get("_target_") == WANDB]
    places = {(str(track.get("project")), str(track.get("entity") or "")) for track in tracks}
    if len(places) != 1:
        raise Refused(f"{name} is in {len(places) or 'no'} projects of W&B; repeat its command with track=wandb")
    [(project, entity)] = places
    extra("wandb_workspaces.workspaces", "ablate dashboard", "dashboard")
    from analysis.cli import output
    from analysis.dashboard.build import build

    folder = arguments_.folder_of(study, results, None)
    case = arguments_.case(study, folder)
    output.write(case, folder)
    place = {"study": name, "project": project, "entity": entity}
    made, why = build(case, "", project), "" if wandb_credentials() else "no key of W&B is found (set WANDB_API_KEY)"
    view, report = (each._to_model().spec.model_dump(by_alias=True, exclude_none=True) for each in made[:2])
    parts = {"view": {"name": made.view.name, "spec": view}, "report": {"title": made.report.title, "spec": report}}
    write_json(folder / FILE, place | parts | {"figures": made.figures, "summaries": made.summaries})
    why = why or f"WANDB_MODE={wandb_mode()}" * (wandb_mode() != "online")
    here, file = case._replace(folder=folder.resolve()), study_folder(results, name) / FILE
    known, lines = dict[str, str](), list[str]()
    with contextlib.suppress(FileNotFoundError, Corrupt):
        known = read_json(file)
    try:
        with nowhere():
            known, lines = (known, lines) if why else _send(here, known, entity, project)
    except Refused:
        raise
    except Exception as error:  # whatever W&B raises becomes one line
        if "did not respond" not in str(error) and "timed out" not in str(error):
            raise Refused(f"W&B refused ({whole_line(error)}); its key must be one that may write there") from None
        why = f"W&B cannot be reached ({whole_line(error)})"
    finally:
        end_wandb(5)
    if known:
        write_json(file, known)
    lines = [f"{why}; view and report are in {folder / FILE}; to send them: ablate dashboard {name}"] if why else lines
    echo("\n".join(lines))
    return Outcome(0, place | {"sent": not why, "lines": lines, "file": folder / FILE})


def _send(case: Any, known: dict[str, str], entity: str, project: str) -> tuple[dict[str, str], list[str]]:
    """Create or update a dashboard; returns its ids and lines that say where it is.  Raises what W&B raises."""
    settings = wandb_settings("online")
    import wandb

    from analysis.dashboard.build import build

    study, api = case.study.manifest.study, wandb.Api()
    entity = entity or str(api.settings["entity"] or api.default_entity)  # as where the sender's runs go
    at, figures = {"entity": entity, "project": project}, naming.tracked_id(study, "figures")
    made = build(case, **at)
    view = _there(api, at, "project-view", known.get("view"), made.view.name)
    report = _there(api, at, "runs", known.get("report"), made.report.title)
    wanted = {"$or": [{"group": study}, {"name": figures}]}
    runs = {run.id: run for run in api.runs("/".join(at.values()), wanted, per_page=100, lazy=False)}
    _send_figures(wandb, made, case.folder, {**at, "id": figures, "settings": settings}, runs.pop(figures, None))
    for name in made.summaries.keys() & runs.keys():
        if (summary := runs[name].summary_metrics) | made.summaries[name] != summary:
            runs[name].summary.update(made.summaries[name])
    made.view._internal_id, made.view._internal_name = view.get("id", ""), view.get("name", "")
    made.report.id = report.get("id", "")
    known = {"view": made.view.save()._internal_id, "report": made.report.save().id}
    lines = [f"{'updated' if old else 'new'}: {new.url}" for old, new in ((view, made.view), (report, made.report))]
    missing = sum(naming.tracked_id(study, run.path) not in runs for run in case.study.manifest.runs)
    return known, lines + [f"{missing} of its runs are not there; upload them: ablate sync {study}"] * bool(missing)


def _there(api: Any, at: dict[str, str], kind: str, known: str | None, name: str) -> Row:
    """The view or report with a known id, else the one with this name; empty without."""
    from wandb_workspaces._graphql import execute_graphql

    given, views = {**at, "kind": kind, "after": None}, list[Row]()
    while given["after"] != "":
        if (found := execute_graphql(api, VIEWS, given).get("project")) is None:
            raise Refused(f"W&B shows this key no project {'/'.join(at.values())}; upload runs first: ablate sync")
        views += [edge["node"] for edge in found["allViews"]["edges"]]
        page = found["allViews"]["pageInfo"]
        given["after"] = page["endCursor"] if page["hasNextPage"] else ""
    named = [view for view in views if view["id"] == known] or [view for view in views if view["displayName"] == name]
    return named[0] if named else {}


def _send_figures(wandb: Any, made: Any, folder: Path, whose: Row, run: Any) -> None:
    """Log the figures that changed, in a run of their own outside the study's group."""
    files = {name: folder / f"{name}.png" for name in made.figures}
    digests = {name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for name, file in files.items()}
    new = [name for name in files if digests[name] != (run.config if run else {}).get("digests", {}).get(name)]
    if new:
        with tempfile.TemporaryDirectory() as own:
            run = wandb.init(**whose, name=f"{folder.name}/figures", job_type="figures", dir=own, resume="allow")
            run.config.update({"ablate": "figures", "digests": digests}, allow_val_change=True)
            run.log({f"figures/{name}": wandb.Image(str(files[name]), caption=made.figures[name]) for name in new})
            run.finish()
