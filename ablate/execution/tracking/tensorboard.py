"""TensorBoard as a tracking service: event files of running and ended runs, in its own format and by its own writer."""

import dataclasses
import re
import shlex
import time
from pathlib import Path
from typing import Any

from ablate.config.extra import extra
from ablate.execution.tracking.sender import Row, TrackedRun
from ablate.formatting import is_number
from ablate.formatting.streams import say

NEED = "track=tensorboard", "tensorboard"
writer = extra("tensorboard.summary.writer.record_writer", *NEED)  # the parts that load neither TensorFlow nor torch
proto = extra("tensorboard.compat.proto.event_pb2", *NEED)
hparams = extra("tensorboard.plugins.hparams.summary_v2", *NEED)
STATUS = {"done": "STATUS_SUCCESS", "failed": "STATUS_FAILURE", "diverged": "STATUS_FAILURE"}


@dataclasses.dataclass
class EventFile:
    """The open event file of a run."""

    records: Any
    began: float  # when the run began, in seconds since 1970
    next_step: int = 0

    def add_scalars(self, values: dict[str, Any], step: int, seconds: float) -> None:
        """Add the numbers among some values; null stands for one that is not finite."""
        scalars = []
        for name, value in values.items():
            number = float("nan") if value is None else value
            if name != "step" and is_number(number):
                scalars.append({"tag": name, "simple_value": number})
        self.add_summary({"value": scalars}, step, seconds)

    def add_summary(self, summary: Any, step: int, seconds: float) -> None:
        """Add an event, `seconds` after the run began."""
        event = proto.Event(wall_time=self.began + seconds, step=step, summary=summary)
        self.records.write(event.SerializeToString())


class TensorBoard:
    """Event files in `<results>/tensorboard/<study>/<cell>-s<seed>`, with every point once.  The hparams of a run are
    the levels of its cell, whose seeds are one session group."""

    name = "tensorboard"
    mode = "online"

    def __init__(self) -> None:
        self.files: dict[str, EventFile] = {}
        self.folder: Path | None = None  # of the study

    def log(self, run: TrackedRun, rows: list[Row]) -> None:
        """Append rows of a run to its event file, which the first call opens, but for steps already written.  Raises
        OSError."""
        if run.id not in self.files:
            self._begin(run, rows)
        file = self.files[run.id]
        for row in rows:
            if row["step"] >= file.next_step:  # a resumed run logs some steps again
                file.add_scalars(row, row["step"], row.get("seconds", 0.0))
                file.next_step = row["step"] + 1
        file.records.flush()

    def finish(self, run: TrackedRun, rows: list[Row], summary: Row) -> None:
        """Append the last rows of a run, its final metrics at its last step, and how it ended.  Raises OSError."""
        assert run.status and run.seconds is not None
        self.log(run, rows)
        file = self.files.pop(run.id)
        last = rows[-1] if rows else {}
        final = {name: value for name, value in summary.items() if name not in last}
        file.add_scalars(final, last.get("step", 0), run.seconds)
        end = {"status": STATUS[run.status], "end_time_secs": file.began + run.seconds}
        data = hparams.plugin_data_pb2.HParamsPluginData(session_end_info=end)
        file.add_summary(hparams._summary_pb(hparams.metadata.SESSION_END_INFO_TAG, data), 0, run.seconds)
        file.records.close()

    def close(self) -> None:
        """Close the files of the runs that have not ended; the next sender writes them anew."""
        for file in self.files.values():
            file.records.close()
        self.files.clear()
        if self.folder and self.folder.is_dir():
            say(f"TensorBoard: tensorboard --logdir {shlex.quote(str(self.folder))}")

    def _begin(self, run: TrackedRun, rows: list[Row]) -> None:
        folder = folder_of(run)
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("events.out.tfevents.*"):  # of an earlier sender or an earlier attempt
            old.unlink()
        elapsed = rows[-1].get("seconds") if rows else run.seconds
        began = time.time() - (elapsed or 0.0)
        records = writer.RecordWriter(open(folder / f"events.out.tfevents.{int(began)}.{run.id}", "xb"))  # noqa: SIM115
        records.write(proto.Event(wall_time=began, file_version="brain.Event:2").SerializeToString())
        levels = {factor: "null" if level is None else level for factor, level in run.levels.items()}
        file = EventFile(records, began)
        file.add_summary(hparams.hparams_pb(levels, f"{run.study}/{run.cell}", began), 0, 0.0)
        self.files[run.id] = file
        self.folder = folder.parent


def folder_of(run: TrackedRun) -> Path:
    """The folder of a run's event files.  Raises OSError if a link leads it out of the results."""
    name = re.sub(
        r"[%/\\\0]", lambda match: f"%{ord(match[0]):02X}", f"{run.cell}-s{run.seed}"
    )  # a level may be a path
    folder = run.results / "tensorboard" / run.study / name
    if not folder.resolve().is_relative_to(run.results.resolve()):
        raise OSError(f"a link leads {folder} out of {run.results}; remove the link")
    return folder
