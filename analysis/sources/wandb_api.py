"""Runs of a project on Weights & Biases."""

import os
import re
from typing import Any

from ablate.config.errors import Refused, one_line, whole_line
from ablate.config.extra import nowhere, wandb_credentials
from ablate.formatting import visible
from ablate.runs.folder import now
from ablate.runs.study import Study
from analysis.sources import Request
from analysis.sources.logged import Logged, Run, logged, note
from analysis.sources.roles import STATUS_OF
from analysis.sources.study import study_of

TIMEOUT = 30  # seconds that one answer of W&B may take
Row = dict[str, Any]


def read_wandb(target: str, request: Request) -> Study:
    """The study of a project ENTITY/PROJECT.  Raises `Refused`; never prompts."""
    try:
        import wandb  # noqa: F401
    except Exception as error:  # a protobuf of another version raises anything
        why = f"--wandb needs wandb, which cannot be imported ({one_line(error)}): pip install --upgrade wandb"
        raise Refused(why) from None
    try:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", target):
            raise Refused("write ENTITY/PROJECT; upload offline runs by `wandb sync` first")
        runs = fetch(target)
        created = max((run["created"] for run in runs), default=now())
        name = target.replace("/", "-")
        study = f"{name}-{request.group}" if request.group else name
        request = request._replace(source=("--wandb", target))
        return study_of(logged_runs(runs, request.group), request, study, f"W&B {target}", created)
    except Refused as error:
        raise Refused(f"--wandb {target}: {error}") from None


def fetch(project: str) -> list[Row]:
    """The runs of a project with their full histories, which W&B's library keeps.  Raises `Refused`."""
    if not wandb_credentials():
        raise Refused("no key of W&B is found; set WANDB_API_KEY, or log in once with `wandb login`")
    os.environ["WANDB_SILENT"] = "true"
    import wandb

    try:
        with nowhere():
            api = wandb.Api(timeout=TIMEOUT)
        return [row_of(run) for run in api.runs(project, per_page=100)]
    except Exception as error:  # whatever W&B raises becomes one line
        raise Refused(f"W&B could not be read ({whole_line(error)})") from None


def row_of(run: Any) -> Row:
    """A run of the API as plain data."""
    return {
        "id": run.id,
        "name": visible(run.name or run.id),
        "group": visible(run.group or ""),
        "status": STATUS_OF.get(run.state, "missing"),
        "created": str(run.created_at),
        "config": dict(run.config),
        "summary": plain(dict(run.summary)),
        "history": [plain(row) for row in run.scan_history(page_size=1000)],
    }


def plain(row: Row) -> Row:
    """The numbers and texts of a row, without images and other values."""
    return {key: value for key, value in row.items() if isinstance(value, int | float | str)}


def logged_runs(runs: list[Row], group: str) -> Logged:
    """The runs of one group.  Raises `Refused`."""
    runs = [run for run in runs if run["config"].get("ablate") != "figures"]
    groups = dict.fromkeys(run["group"] for run in runs if run["group"])
    if group and group not in groups:
        raise Refused(f"--group {group}: there is no such group; there are {', '.join(groups) or 'none'}")
    studies = {run["group"] for run in runs if logged_by_ablate(run)}
    if not group and len(studies) > 1:
        raise Refused(f"the runs are of {len(studies)} studies; choose one with --group: {', '.join(sorted(studies))}")
    runs = [run for run in runs if not group or run["group"] == group]
    runs.sort(key=lambda run: run["created"])
    if not runs:
        raise Refused("there are no runs")
    going_on = [run["name"] for run in runs if run["status"] == "missing"]
    return logged([as_run(run) for run in runs], note(going_on, "not ended, counted as missing"))


def logged_by_ablate(run: Row) -> Row:
    """What ablate has logged of a run for this module; empty for those of other programs."""
    facts = run["config"].get("ablate")
    return facts if isinstance(facts, dict) and "levels" in facts else {}


def as_run(run: Row) -> Run:
    """A fetched run in our form.  Values that its summary alone has join the last row."""
    ours = logged_by_ablate(run)
    config = run["config"]
    history = run["history"] or [{}]
    names = {name for row in history for name in row}
    only_in_summary = {name: value for name, value in run["summary"].items() if name not in names}
    rows = []
    for row in [*history[:-1], history[-1] | only_in_summary]:
        rows.append({name: row[name] for name in row if name == "_step" or not name.startswith("_")})
    facts = {"status": run["status"], "created": run["created"]}
    if ours:
        config = ours["levels"] | {"seed": config.get("seed")}
        facts |= {name: ours[name] for name in ("params", "batches") if name in ours}
        if run["summary"].get("status") in ("done", "diverged", "failed"):
            facts["status"] = run["summary"]["status"]
    return Run(run["name"], config, rows, facts, run["id"])
