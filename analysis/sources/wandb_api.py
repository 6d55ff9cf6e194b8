"""Runs from Weights & Biases: a project online, each finished run fetched once, or a folder of offline runs."""

from __future__ import annotations

import math
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt, Refused, one_line
from ablate.config.wandb_login import nowhere, wandb_credentials
from ablate.results.atomic import read_json, write_json
from ablate.results.run import now
from ablate.results.study import Study
from analysis.sources.logged import Origin, command, study_of
from analysis.sources.request import Asked
from analysis.sources.tracked_runs import Tracked, logged_runs
from analysis.sources.wandb_offline import read_offline

TIMEOUT = 30  # seconds that one answer of W&B may take
SILENCE = 90.0  # seconds without any answer after which it counts as unreachable
OVER = ("finished", "crashed", "failed", "killed")
Answers = queue.Queue[Tracked | Exception | None]  # runs, then None, or what went wrong


def read_wandb(target: str, asked: Asked, results: Path) -> Study:
    """The study of a project ENTITY/PROJECT, or of a folder of offline runs.  Raises `Refused`, and never prompts."""
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
            source = f"W&B, offline runs in {name}"  # not where: reports are passed on
        elif re.fullmatch(r"[\w.-]+/[\w.-]+", target):
            name, source = target.replace("/", "-"), f"W&B {target}"
            runs, notes = list(fetch(target, results / "wandb" / name)), []
        else:
            raise Refused("write ENTITY/PROJECT, or a folder that holds offline-run-* folders")
        created = max((run.created for run in runs), default=now())
        study = asked.described.study or (f"{name}-{asked.group}" if asked.group else name)
        origin = Origin(study, source, created, command("--wandb", target, asked))
        return study_of(logged_runs(runs, asked.group, notes), asked, origin)
    except Refused as error:
        raise Refused(f"--wandb {target}: {error}") from None


def fetch(project: str, cache: Path) -> Iterator[Tracked]:
    """The runs of a project; one that has ended and not changed since is read from the cache.  Raises `Refused`."""
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
    except Exception as error:  # whatever W&B raises is said in one line
        answers.put(error)


def cached(cache: Path, run: Any) -> Tracked:
    """A run of the API with its full history, from `cache` where it has ended and not changed since."""
    file, mark = cache / f"{run.id}.json", _updated(run)
    try:
        kept = read_json(file)
        if kept.pop("updated", "") == mark and mark and set(kept) == set(Tracked._fields):
            return Tracked(**kept)
    except (FileNotFoundError, Corrupt):
        pass
    config = {key: value for key, value in dict(run.config).items() if not key.startswith("_")}
    found = Tracked(
        id=run.id,
        name=run.name or run.id,
        group=run.group or "",
        job_type=getattr(run, "job_type", "") or "",
        state=run.state,
        created=str(run.created_at),
        tags=list(run.tags or []),
        config=config,
        summary=_numbers(dict(run.summary)),
        history=[_numbers(row) for row in run.scan_history(page_size=1000)],
    )
    if run.state in OVER:
        write_json(file, found._asdict() | {"updated": mark})
    return found


def _updated(run: Any) -> str:
    """When a run was last written, as far as W&B says it, with its state."""
    attributes: Callable[[str], Any] = getattr(run, "_attrs", {}).get
    times = (attributes("updatedAt"), attributes("heartbeatAt"), getattr(run, "heartbeat_at", None))
    last = next((str(time) for time in times if time), "")
    return f"{run.state} {last}" if last else ""


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Numbers and texts of a row; numbers that are not finite as W&B's texts for them, images and the like left out."""
    kept = {key: value for key, value in row.items() if isinstance(value, int | float | str)}
    return {key: "NaN" if isinstance(v, float) and not math.isfinite(v) else v for key, v in kept.items()}
