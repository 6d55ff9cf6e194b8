"""Runs of a project on Weights & Biases; each finished run is fetched once."""

import contextlib
import math
import os
import queue
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt, Refused, one_line, whole_line
from ablate.config.extra import nowhere, wandb_credentials
from ablate.formatting import is_number, visible
from ablate.runs.files import read_json, write_json
from ablate.runs.folder import now
from ablate.runs.study import Study
from analysis.sources import Request
from analysis.sources.logged import Logged, Run, logged, note
from analysis.sources.roles import STATUS_OF
from analysis.sources.study import study_of

TIMEOUT = 30  # seconds that one answer of W&B may take
SILENCE = 90.0  # seconds without any answer after which it counts as unreachable
ENDED = ("finished", "crashed", "failed", "killed")  # states of runs that do not go on
Row = dict[str, Any]


def read_wandb(target: str, request: Request, results: Path) -> Study:
    """The study of a project ENTITY/PROJECT.  Raises `Refused`; never prompts."""
    try:
        import wandb  # noqa: F401
    except Exception as error:  # a protobuf of another version raises anything
        why = f"--wandb needs wandb, which cannot be imported ({one_line(error)}): pip install --upgrade wandb"
        raise Refused(why) from None
    try:
        if Path(target).is_dir():
            raise Refused("is a folder; upload offline runs by `wandb sync`, then write ENTITY/PROJECT")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", target):
            raise Refused("write ENTITY/PROJECT")
        name = target.replace("/", "-")
        runs = list(fetch(target, results / "wandb" / name))
        created = max((run["created"] for run in runs), default=now())
        study = request.name or (f"{name}-{request.group}" if request.group else name)
        request = request._replace(source=("--wandb", target))
        return study_of(logged_runs(runs, request.group), request, study, f"W&B {target}", created)
    except Refused as error:
        raise Refused(f"--wandb {target}: {error}") from None


def logged_runs(runs: list[Row], group: str) -> Logged:
    """The runs of one group.  Raises `Refused`."""
    runs = [run for run in runs if run["config"].get("ablate") != "figures"]
    groups = list(dict.fromkeys(visible(run["group"]) for run in runs if run["group"]))
    if group and group not in groups:
        raise Refused(f"--group {group}: there is no such group; there are {', '.join(groups) or 'none'}")
    studies = {visible(run["group"]) for run in runs if _own(run)}
    if not group and len(studies) > 1:
        raise Refused(f"the runs are of {len(studies)} studies; choose one with --group: {', '.join(sorted(studies))}")
    # Of runs that ablate logged, those of the reference come first, as in its own tables.
    runs = [run for run in runs if not group or visible(run["group"]) == group]
    runs.sort(key=lambda run: (not _own(run).get("reference"), run["created"]))
    if not runs:
        raise Refused("there are no runs")
    going_on = [visible(run["name"]) for run in runs if STATUS_OF.get(run["state"], "missing") == "missing"]
    notes = note(going_on, "not ended, counted as missing")
    return logged([_run(run) for run in runs], notes, reference_first=any(_own(run).get("reference") for run in runs))


def _own(run: Row) -> Row:
    """What ablate has logged of a run for this module; empty for those of other programs."""
    logged_by_us = run["config"].get("ablate")
    has_levels = isinstance(logged_by_us, dict) and isinstance(logged_by_us.get("levels"), dict)
    return logged_by_us if has_levels else {}


def _run(run: Row) -> Run:
    """A fetched run in our form.  Values that its summary alone has join the last row."""
    own = _own(run)
    config = run["config"]
    history = run["history"] or [{}]
    names = {name for row in history for name in row}
    only_in_summary = {name: value for name, value in run["summary"].items() if name not in names}
    idle = ("_", "effect/", "verdict/") if own else ("_",)  # W&B's, and what `ablate dashboard` adds
    rows = []
    for row in [*history[:-1], history[-1] | only_in_summary]:
        rows.append({name: row[name] for name in row if name == "_step" or not name.startswith(idle)})
    facts = {"status": STATUS_OF.get(run["state"], "missing"), "created": run["created"]}
    if own:
        config = own["levels"] | {"seed": config.get("seed")}
        if is_number(own.get("params")):
            facts["params"] = own["params"]
        if "batches" in own:
            facts["batches"] = str(own["batches"])
        if run["summary"].get("status") in ("done", "diverged", "failed"):
            facts["status"] = run["summary"]["status"]
    return Run(run["name"], config, rows, facts, run["id"])


def fetch(project: str, cache: Path) -> Iterator[Row]:
    """The runs of a project; unchanged finished runs are read from the cache.  Raises `Refused`."""
    if not wandb_credentials():
        raise Refused("no key of W&B is found; set WANDB_API_KEY, or log in once with `wandb login`")
    answers: queue.Queue[Row | Exception | None] = queue.Queue()  # runs, then None, or an error

    def ask() -> None:
        try:
            import wandb

            os.environ["WANDB_SILENT"] = "true"
            with nowhere():
                api = wandb.Api(timeout=TIMEOUT)
            for run in api.runs(project, per_page=100):
                answers.put(cached(cache, run))
            answers.put(None)
        except Exception as error:  # whatever W&B raises becomes one line
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        while answer := answers.get(timeout=SILENCE):
            if isinstance(answer, Exception):
                raise Refused(f"W&B could not be read ({whole_line(answer)})")
            yield answer
    except queue.Empty:
        raise Refused(f"W&B did not answer within {SILENCE:.0f} s") from None


def cached(cache: Path, run: Any) -> Row:
    """A run of the API with its full history, from `cache` if it has ended and not changed since."""
    attributes = getattr(run, "_attrs", {})
    changed = attributes.get("updatedAt") or attributes.get("heartbeatAt")
    file = cache / f"{run.id}.json"
    with contextlib.suppress(FileNotFoundError, Corrupt):
        stored: Row = read_json(file)
        if changed and stored.get("changed") == changed and stored.get("state") == run.state:
            return stored
    row = {"id": run.id, "name": run.name or run.id, "group": run.group or "", "state": run.state, "changed": changed}
    row |= {"created": str(run.created_at), "config": dict(run.config), "summary": _plain(dict(run.summary))}
    row["history"] = [_plain(logged_row) for logged_row in run.scan_history(page_size=1000)]
    if run.state in ENDED:
        write_json(file, row)
    return row


def _plain(row: Row) -> Row:
    """The numbers and texts of a row, without images and other values; numbers that are not finite become "NaN"."""
    plain = {key: value for key, value in row.items() if isinstance(value, int | float | str)}
    return {key: "NaN" if isinstance(v, float) and not math.isfinite(v) else v for key, v in plain.items()}
