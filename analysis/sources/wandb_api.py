"""Runs from Weights & Biases: an online project, fetching each finished run once, or a folder of offline runs.

Offline runs are `offline-run-*/run-*.wandb` files of records in LevelDB's log format.
"""

import contextlib
import json
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
from ablate.config.files import read_regular
from ablate.formatting import counted, is_number, visible
from ablate.results.atomic import read_json, write_json
from ablate.results.run import now
from ablate.results.study import Study
from analysis.sources import Request
from analysis.sources.columns import note, number
from analysis.sources.logged import Logged, Run, logged, study_of

TIMEOUT = 30  # seconds that one answer of W&B may take
SILENCE = 90.0  # seconds without any answer after which it counts as unreachable
STATES = {"finished": "done", "crashed": "failed", "failed": "failed", "killed": "failed"}
HEAD, BLOCK = 7, 32768  # bytes of the file's and each record's header, and of a block; headers do not cross blocks
WHOLE, FIRST, LAST = 1, 2, 4  # kinds of fragments of a record; 3 is a middle one
DEEP = re.compile(r"(?:[\[{][^\[\]{}]*){50}")  # 50 levels of nesting, on which Python could fail later
Row = dict[str, Any]


def read_wandb(target: str, request: Request, results: Path) -> Study:
    """The study of a project ENTITY/PROJECT, or of a folder of offline runs.  Raises `Refused`; never prompts."""
    try:
        import wandb  # noqa: F401
        from wandb.proto import wandb_internal_pb2  # noqa: F401
    except Exception as error:  # a protobuf of another version raises anything
        why = f"which cannot be imported ({one_line(error)}): pip install --upgrade wandb"
        lost = isinstance(error, ModuleNotFoundError) and error.name == "wandb"
        raise Refused(f"--wandb needs wandb, {'which is missing: pip install wandb' if lost else why}") from None
    try:
        if Path(target).is_dir():
            (runs, notes), name = read_offline(Path(target)), Path(target).resolve().name
            source = f"W&B, offline runs in {name}"  # no local path, because reports are shared
        elif re.fullmatch(r"[\w.-]+/[\w.-]+", target):
            name, source = target.replace("/", "-"), f"W&B {target}"
            runs, notes = list(fetch(target, results / "wandb" / name)), []
        else:
            raise Refused("write ENTITY/PROJECT, or a folder that holds offline-run-* folders")
        created = max((run["created"] for run in runs), default=now())
        study = request.described.study or (f"{name}-{request.group}" if request.group else name)
        found = logged_runs(runs, request.group, notes)
        return study_of(found, request, study, source, created, request.command("--wandb", target))
    except Refused as error:
        raise Refused(f"--wandb {target}: {error}") from None


def logged_runs(runs: list[Row], group: str, notes: list[str]) -> Logged:
    """The runs of one group; `notes` are on runs already left out.  Raises `Refused`."""
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
    for state in sorted({run["state"] for run in runs} - {*STATES, "running", "pending"}):
        names = [visible(run["name"]) for run in runs if run["state"] == state]
        notes = [*notes, *note(names, f"in the state {visible(state)}, counted as missing")]
    return logged([_run(run) for run in runs], notes)


def _own(run: Row) -> Row:
    """What ablate has logged of a run for this module; empty for those of other programs."""
    found = run["config"].get("ablate")
    return found if isinstance(found, dict) and isinstance(found.get("levels"), dict) else {}


def _run(run: Row) -> Run:
    """A run as it was fetched or read.  What its summary alone holds is of the last row."""
    own, config, history, summary = _own(run), run["config"], run["history"] or [{}], run["summary"]
    last = {name for row in history for name in row}
    rows = [*history[:-1], history[-1] | {name: value for name, value in summary.items() if name not in last}]
    idle = ("_", "effect/", "verdict/") if own else "_"  # W&B's, and what `ablate dashboard` adds
    rows = [{key: row[key] for key in row if key == "_step" or not key.startswith(idle)} for row in rows]
    facts = {"status": STATES.get(run["state"], "missing"), "created": run["created"]}
    if own:
        config = own["levels"] | {"seed": config.get("seed")}
        facts |= {"params": number(str(own["params"]))} if is_number(own.get("params")) else {}
        facts |= {"batches": str(own["batches"])} if "batches" in own else {}
        facts |= {"status": summary["status"]} if summary.get("status") in ("done", "diverged", "failed") else {}
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
    times = (attributes.get("updatedAt"), attributes.get("heartbeatAt"), getattr(run, "heartbeat_at", None))
    last = next((str(time) for time in times if time), "")
    file, mark = cache / f"{run.id}.json", f"{run.state} {last}" if last else ""
    known = {"id": run.id, "name": run.name or run.id, "group": run.group or "", "state": run.state}
    with contextlib.suppress(FileNotFoundError, Corrupt):
        stored: Row = read_json(file)
        if mark and stored.pop("updated", "") == mark and {*known, "created", "history"} <= set(stored):
            return stored
    found = known | {"created": str(run.created_at), "config": dict(run.config), "summary": _plain(dict(run.summary))}
    found["history"] = [_plain(row) for row in run.scan_history(page_size=1000)]
    if run.state in STATES:
        write_json(file, found | {"updated": mark})
    return found


def _plain(row: Row) -> Row:
    """The numbers and texts of a row, without images and other values; numbers that are not finite become "NaN"."""
    plain = {key: value for key, value in row.items() if isinstance(value, int | float | str)}
    return {key: "NaN" if isinstance(v, float) and not math.isfinite(v) else v for key, v in plain.items()}


def read_offline(folder: Path) -> tuple[list[Row], list[str]]:
    """The runs in a folder, in the order of their start, and notes on unreadable files.  Raises `Refused`."""
    places = ("run-*.wandb", "*run-*/run-*.wandb", "wandb/*run-*/run-*.wandb")
    files = next((found for place in places if (found := sorted(folder.glob(place)))), [])
    if not files:
        raise Refused(f"{folder} holds no runs of W&B; name the folder that holds offline-run-* folders")
    runs, notes = [], []
    for file in files:
        try:
            runs.append(_offline_run(read_regular(file)))
        except Exception:  # untrusted bytes may fail anywhere: records, JSON, times, huge numbers
            notes.append(f"{file.parent.name}/{file.name} is no run that can be read; left out")
    if not runs:
        raise Refused(f"none of the {counted(len(files), 'run')} in {folder} can be read")
    return runs, notes


def _offline_run(data: bytes) -> Row:
    from wandb.proto import wandb_internal_pb2 as proto

    found: Row = {"config": {}, "summary": {}, "history": [], "state": "running"}
    for piece in records(data):
        record = proto.Record()
        record.ParseFromString(piece)
        if record.HasField("run"):
            run = record.run
            found |= {"id": run.run_id, "name": run.display_name or run.run_id, "group": run.run_group}
            found["created"] = run.start_time.ToJsonString()
            found["config"] |= _items(run.config.update)
        elif record.HasField("config"):
            found["config"] |= _items(record.config.update)
        elif record.HasField("history"):
            found["history"].append({"_step": record.history.step.num} | _items(record.history.item))
        elif record.HasField("summary"):
            found["summary"] |= _items(record.summary.update)
        elif record.HasField("exit"):
            found["state"] = "failed" if record.exit.exit_code else "finished"
    if "id" not in found:
        raise ValueError("it has no beginning")
    return found


def _items(items: Any) -> Row:
    """The values of items by their keys.  Raises ValueError, also for too deep nesting."""
    if any(DEEP.search(item.value_json) for item in items):
        raise ValueError("nested too deep")
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def records(data: bytes) -> Iterator[bytes]:
    """The records of a file; an incomplete end is ignored."""
    at, whole = HEAD, b""
    while at + HEAD <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEAD:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        piece = data[at + HEAD : at + HEAD + size]
        if len(piece) < size or not WHOLE <= kind <= LAST:
            return
        whole = piece if kind in (WHOLE, FIRST) else whole + piece
        if kind in (WHOLE, LAST):
            yield whole
        at += HEAD + size
