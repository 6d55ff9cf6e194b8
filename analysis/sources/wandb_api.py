"""Runs of a project on Weights & Biases."""

import os
import re
from typing import Any

from ablate.config.errors import Refused, one_line, whole_line
from ablate.config.extra import nowhere, wandb_credentials
from ablate.formatting import visible
from ablate.runs.study import Study
from analysis.sources import Request
from analysis.sources.logged import Logged, Run, logged, note
from analysis.sources.roles import STATUS_OF
from analysis.sources.study import study_of

TIMEOUT = 30  # seconds that one answer of W&B may take


def read_wandb(target: str, request: Request) -> Study:
    """The study of a project ENTITY/PROJECT.  Raises `Refused`; never prompts."""
    try:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", target):
            raise Refused("write ENTITY/PROJECT; upload offline runs by `wandb sync` first")
        runs = fetch(target, request.group)
        created = str(runs.runs["created"].max())
        name = target.replace("/", "-")
        study = f"{name}-{request.group}" if request.group else name
        request = request._replace(source=("--wandb", target))
        return study_of(runs, request, study, f"W&B {target}", created)
    except Refused as error:
        raise Refused(f"--wandb {target}: {error}") from None


def fetch(project: str, group: str) -> Logged:
    """The runs of a project, or of one group in it, with their full histories.  Raises `Refused`."""
    if not wandb_credentials():
        raise Refused("no key of W&B is found; set WANDB_API_KEY, or log in once with `wandb login`")
    os.environ["WANDB_SILENT"] = "true"
    try:
        import wandb
    except Exception as error:  # a protobuf of another version raises anything
        raise Refused(f"wandb cannot be imported ({one_line(error)}): pip install --upgrade wandb") from None
    try:
        with nowhere():
            api = wandb.Api(timeout=TIMEOUT)
        return logged_runs(list(api.runs(project, per_page=100)), group)
    except Refused:
        raise
    except Exception as error:  # whatever W&B raises becomes one line
        raise Refused(f"W&B could not be read ({whole_line(error)})") from None


def logged_runs(runs: list[Any], group: str) -> Logged:
    """The runs of the API that are of one group.  Raises `Refused`."""
    runs = [run for run in runs if run.config.get("ablate") != "figures"]
    groups = dict.fromkeys(run.group for run in runs if run.group)
    if group and group not in groups:
        there = ", ".join(map(visible, groups)) or "none"
        raise Refused(f"--group {group}: there is no such group; there are {there}")
    studies = sorted({visible(run.group or "") for run in runs if logged_by_ablate(run)})
    if not group and len(studies) > 1:
        raise Refused(f"the runs are of {len(studies)} studies; choose one with --group: {', '.join(studies)}")
    runs = [run for run in runs if not group or run.group == group]
    runs.sort(key=lambda run: str(run.created_at))
    if not runs:
        raise Refused("there are no runs")
    going_on = [visible(run.name or run.id) for run in runs if status_of(run) == "missing"]
    return logged([as_run(run) for run in runs], note(going_on, "not ended, counted as missing"))


def status_of(run: Any) -> str:
    """How a run of the API has ended."""
    return STATUS_OF.get(run.state, "missing")


def logged_by_ablate(run: Any) -> dict[str, Any]:
    """What ablate has logged of a run for this module; empty for those of other programs."""
    facts = run.config.get("ablate")
    return facts if isinstance(facts, dict) and "levels" in facts else {}


def as_run(run: Any) -> Run:
    """A run of the API in our form.  Values that its summary alone has join the last row."""
    history = [plain(row) for row in run.scan_history(page_size=1000)] or [{}]
    summary = plain(dict(run.summary))
    names = {name for row in history for name in row}
    history[-1] |= {name: value for name, value in summary.items() if name not in names}
    rows = [{name: row[name] for name in row if name == "_step" or not name.startswith("_")} for row in history]
    config = dict(run.config)
    facts = {"status": status_of(run), "created": str(run.created_at)}
    ours = logged_by_ablate(run)
    if ours:
        config = ours["levels"] | {"seed": config.get("seed")}
        facts |= {name: ours[name] for name in ("params", "batches") if name in ours}
        if summary.get("status") in ("done", "diverged", "failed"):
            facts["status"] = summary["status"]
    return Run(run.name or run.id, config, rows, facts, run.id)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """The numbers and texts of a row, without images and other values."""
    return {key: value for key, value in row.items() if isinstance(value, int | float | str)}
