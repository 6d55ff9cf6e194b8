"""TensorBoard as a tracking service: event files of running and ended runs, in its own format and by its own writer."""

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ablate.config.extra import extra
from ablate.execution.tracking.mirror import Card
from ablate.formatting import is_number

NEED = "track=tensorboard", "tensorboard"
writer = extra("tensorboard.summary.writer.record_writer", *NEED)  # the parts that load neither TensorFlow nor torch
proto = extra("tensorboard.compat.proto.event_pb2", *NEED)
hparams = extra("tensorboard.plugins.hparams.summary_v2", *NEED)
STATUS = {"done": "STATUS_SUCCESS", "failed": "STATUS_FAILURE", "diverged": "STATUS_FAILURE"}


class TensorBoard:
    """Event files in `<results>/tensorboard/<study>/<cell>-s<seed>`, with every point once.  The hparams of a run are
    the levels of its cell, whose seeds are one session group."""

    name, mode = "tensorboard", "online"

    def __init__(self) -> None:
        self.runs: dict[str, SimpleNamespace] = {}  # the open file of a run, when it began, and its next step

    def log(self, card: Card, rows: list[dict[str, Any]]) -> None:
        """Show a running run.  Raises OSError."""
        run = self.runs.get(card.id) or self._begin(card, rows)
        for row in rows:
            if isinstance(step := row.get("step"), int) and step >= run.next_step:  # a resumed run repeats some steps
                _write(run, step, row.get("seconds"), {name: value for name, value in row.items() if name != "step"})
                run.next_step = step + 1
        run.file.flush()

    def finish(self, card: Card, rows: list[dict[str, Any]], status: str, summary: dict[str, Any]) -> None:
        """Show a run that has ended; its final metrics are at its last step.  Raises OSError."""
        self.log(card, rows)
        run, last = self.runs[card.id], rows[-1] if rows else {}
        _write(run, last.get("step", 0), card.seconds, {name: summary[name] for name in summary.keys() - last.keys()})
        ended = {"status": STATUS[status], "end_time_secs": run.began + (card.seconds or 0)}
        data = hparams.plugin_data_pb2.HParamsPluginData(session_end_info=ended)
        _write(run, 0, card.seconds, {}, hparams._summary_pb(hparams.metadata.SESSION_END_INFO_TAG, data))
        self.runs.pop(card.id).file.close()

    def close(self) -> None:
        """Close the files of the runs that have not ended; the next mirror writes them anew."""
        while self.runs:
            self.runs.popitem()[1].file.close()

    def _begin(self, card: Card, rows: list[dict[str, Any]]) -> SimpleNamespace:
        label, _, seed = card.name.rpartition("/")
        name = re.sub(r"[%/\\\0]", lambda found: f"%{ord(found[0]):02X}", f"{label}-{seed}")  # a level may be a path
        folder: Path = card.results / "tensorboard" / card.group / name
        if not folder.resolve().is_relative_to(card.results.resolve()):
            raise OSError(f"a link leads {folder} out of {card.results}; remove the link")
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob("events.out.tfevents.*"):  # of a killed mirror, or an earlier attempt
            file.unlink()
        began = time.time() - ((rows[-1].get("seconds") if rows else card.seconds) or 0)
        run = SimpleNamespace(file=None, began=began, next_step=0)
        run.file = writer.RecordWriter(open(folder / f"events.out.tfevents.{int(began)}.{card.id}", "xb"))  # noqa: SIM115
        run.file.write(proto.Event(wall_time=began, file_version="brain.Event:2").SerializeToString())
        levels = {name: "null" if level is None else level for name, level in card.config["ablate"]["levels"].items()}
        _write(run, 0, 0, {}, hparams.hparams_pb(levels, f"{card.group}/{card.job_type}", began))
        self.runs[card.id] = run
        return run


def _write(run: SimpleNamespace, step: int, seconds: float | None, row: dict[str, Any], summary: Any = None) -> None:
    """Write the numbers of a row as scalars, or a summary."""
    numbers = {name: float("nan") if value is None else value for name, value in row.items()}
    values = [{"tag": name, "simple_value": value} for name, value in numbers.items() if is_number(value)]
    event = proto.Event(wall_time=run.began + (seconds or 0), step=step, summary=summary or {"value": values})
    run.file.write(event.SerializeToString())
