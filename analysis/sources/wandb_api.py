"""Runs from Weights & Biases: an online project, fetching each finished run once, or a folder of offline runs.

Offline runs are `offline-run-*/run-*.wandb` files of records in LevelDB's log format.
"""

import json
import math
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt, Refused, one_line
from ablate.config.extra import nowhere, wandb_credentials
from ablate.config.files import read_regular
from ablate.formatting import counted
from ablate.results.atomic import read_json, write_json
from ablate.results.run import now
from ablate.results.study import Study
from analysis.sources.logged import Origin, command, study_of
from analysis.sources.request import Request
from analysis.sources.tracked_runs import Tracked, logged_runs

TIMEOUT = 30  # seconds that one answer of W&B may take
SILENCE = 90.0  # seconds without any answer after which it counts as unreachable
OVER = ("finished", "crashed", "failed", "killed")
HEAD, BLOCK = 7, 32768  # bytes of the file's and each record's header, and of a block; headers do not cross blocks
DEEP = re.compile(r"(?:[\[{][^\[\]{}]*){50}")  # 50 levels of nesting
DIGITS = 300  # of an integer
WHOLE, FIRST, LAST = 1, 2, 4  # kinds of fragments of a record; 3 is a middle one
Answers = queue.Queue[Tracked | Exception | None]  # runs, then None, or an error


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
        created = max((run.created for run in runs), default=now())
        study = request.described.study or (f"{name}-{request.group}" if request.group else name)
        origin = Origin(study, source, created, command("--wandb", target, request))
        return study_of(logged_runs(runs, request.group, notes), request, origin)
    except Refused as error:
        raise Refused(f"--wandb {target}: {error}") from None


def fetch(project: str, cache: Path) -> Iterator[Tracked]:
    """The runs of a project; unchanged finished runs are read from the cache.  Raises `Refused`."""
    if not wandb_credentials():
        raise Refused("no key of W&B is found; set WANDB_API_KEY, or log in once with `wandb login`")
    answers: Answers = queue.Queue()
    threading.Thread(target=_ask, args=(project, cache, answers), daemon=True).start()
    while True:
        try:
            answer = answers.get(timeout=SILENCE)
        except queue.Empty:
            raise Refused(f"W&B did not answer within {SILENCE:.0f} s") from None
        if answer is None:
            return
        if isinstance(answer, Exception):
            raise Refused(f"W&B could not be read ({type(answer).__name__}: {' '.join(str(answer).split())[:200]})")
        yield answer


def _ask(project: str, cache: Path, answers: Answers) -> None:
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


def cached(cache: Path, run: Any) -> Tracked:
    """A run of the API with its full history, from `cache` if it has ended and not changed since."""
    attributes: Callable[[str], Any] = getattr(run, "_attrs", {}).get
    times = (attributes("updatedAt"), attributes("heartbeatAt"), getattr(run, "heartbeat_at", None))
    last = next((str(time) for time in times if time), "")
    file, mark = cache / f"{run.id}.json", f"{run.state} {last}" if last else ""
    try:
        stored = read_json(file)
        if stored.pop("updated", "") == mark and mark and set(stored) == set(Tracked._fields):
            return Tracked(**stored)
    except (FileNotFoundError, Corrupt):
        pass
    found = Tracked(
        id=run.id,
        name=run.name or run.id,
        group=run.group or "",
        job_type=getattr(run, "job_type", "") or "",
        state=run.state,
        created=str(run.created_at),
        tags=list(run.tags or []),
        config={key: value for key, value in dict(run.config).items() if not key.startswith("_")},
        summary=_numbers(dict(run.summary)),
        history=[_numbers(row) for row in run.scan_history(page_size=1000)],
    )
    if run.state in OVER:
        write_json(file, found._asdict() | {"updated": mark})
    return found


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """The numbers and texts of a row, without images and other values; numbers that are not finite become "NaN"."""
    plain = {key: value for key, value in row.items() if isinstance(value, int | float | str)}
    return {key: "NaN" if isinstance(v, float) and not math.isfinite(v) else v for key, v in plain.items()}


def read_offline(folder: Path) -> tuple[list[Tracked], list[str]]:
    """The runs in a folder, in the order of their start, and notes on unreadable files.  Raises `Refused`."""
    files = sorted(folder.glob("run-*.wandb")) or sorted(folder.glob("*run-*/run-*.wandb"))
    files = files or sorted(folder.glob("wandb/*run-*/run-*.wandb"))
    if not files:
        raise Refused(f"{folder} holds no runs of W&B; name the folder that holds offline-run-* folders")
    runs, notes = [], []
    for file in files:
        try:
            runs.append(_run(read_regular(file)))
        except Exception:  # untrusted bytes may fail anywhere: records, JSON, times, huge numbers
            notes.append(f"{file.parent.name}/{file.name} is no run that can be read; left out")
    if not runs:
        raise Refused(f"none of the {counted(len(files), 'run')} in {folder} can be read")
    return runs, notes


def _run(data: bytes) -> Tracked:
    from wandb.proto import wandb_internal_pb2 as proto

    run: Any = None
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    history, state = [], "running"
    for piece in records(data):
        record = proto.Record()
        record.ParseFromString(piece)
        if record.HasField("run"):
            run = record.run
            config |= _items(run.config.update)
        elif record.HasField("config"):
            config |= _items(record.config.update)
        elif record.HasField("history"):
            row = _items(record.history.item)
            history.append({"_step": record.history.step.num} | row)
        elif record.HasField("summary"):
            summary |= _items(record.summary.update)
        elif record.HasField("exit"):
            state = "failed" if record.exit.exit_code else "finished"
    return Tracked(
        id=run.run_id,
        name=run.display_name or run.run_id,
        group=run.run_group,
        job_type=run.job_type,
        state=state,
        created=run.start_time.ToJsonString(),
        tags=list(run.tags),
        config={name: value for name, value in config.items() if not name.startswith("_")},
        summary=summary,
        history=history,
    )


def _items(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): _value(item.value_json) for item in items}


def _value(text: str) -> Any:
    """The value of a JSON text.  Raises ValueError, also for numbers that are too long and for too deep nesting."""
    if DEEP.search(text):
        raise ValueError("nested too deep")
    return json.loads(text, parse_int=_whole)


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError("more digits than a number has")
    return int(digits)


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
