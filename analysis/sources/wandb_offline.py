"""Runs that Weights & Biases wrote offline: `offline-run-*/run-*.wandb`, records in the framing of LevelDB's log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablate.config.errors import Refused
from ablate.config.regular_files import read_regular
from ablate.formatting import counted
from analysis.sources.tracked_runs import Tracked

HEAD, BLOCK = 7, 32768  # bytes of the file's and of each record's head; of a block, which no record's head crosses
DEEP = re.compile(r"(?:[\[{][^\[\]{}]*){50}")  # that many brackets opened in a row
DIGITS = 300  # of a whole number
WHOLE, FIRST, LAST = 1, 2, 4  # kinds of a piece of a record; 3 is one between


def read_offline(folder: Path) -> tuple[list[Tracked], list[str]]:
    """The runs in a folder, in the order of their start, and notes on what is none.  Raises `Refused`."""
    files = sorted(folder.glob("run-*.wandb")) or sorted(folder.glob("*run-*/run-*.wandb"))
    files = files or sorted(folder.glob("wandb/*run-*/run-*.wandb"))
    if not files:
        raise Refused(f"{folder} holds no runs of W&B; name the folder that holds offline-run-* folders")
    read = {file: _read(file) for file in files}
    found = [run for run in read.values() if run is not None]
    if not found:
        raise Refused(f"none of the {counted(len(files), 'run')} in {folder} can be read")
    lost = [file for file, run in read.items() if run is None]
    return found, [f"{file.parent.name}/{file.name} is no run that can be read; left out" for file in lost]


def _read(file: Path) -> Tracked | None:
    """The run of a file; None where it holds none, or one that is damaged in any way."""
    try:
        return _run(read_regular(file))
    except Exception:  # of bytes that anybody wrote: no record, no JSON, a time that is none, digits without end
        return None


def _run(data: bytes) -> Tracked:
    from wandb.proto import wandb_internal_pb2 as proto

    told: Any = None
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    history, state = [], "running"
    for piece in records(data):
        record = proto.Record()
        record.ParseFromString(piece)
        if record.HasField("run"):
            told = record.run
            config |= _items(told.config.update)
        elif record.HasField("config"):
            config |= _items(record.config.update)
        elif record.HasField("history"):
            row = _items(record.history.item)
            history.append({"_step": record.history.step.num} | row)
        elif record.HasField("summary"):
            summary |= _items(record.summary.update)
        elif record.HasField("exit"):
            state = "failed" if record.exit.exit_code else "finished"
    started = told.start_time.ToJsonString()
    kept = {name: value for name, value in config.items() if not name.startswith("_")}
    name = told.display_name or told.run_id
    tags = list(told.tags)
    return Tracked(told.run_id, name, told.run_group, told.job_type, state, started, tags, kept, summary, history)


def _items(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): _value(item.value_json) for item in items}


def _value(text: str) -> Any:
    """What a text of JSON holds.  Raises ValueError, also for what is too long or too deep to compute with."""
    if DEEP.search(text):
        raise ValueError("nested too deep")
    return json.loads(text, parse_int=_whole)


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError("more digits than a number has")
    return int(digits)


def records(data: bytes) -> Iterator[bytes]:
    """The records of a file; a torn end is passed over."""
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
