"""What a run logged to TensorBoard, or to Weights & Biases offline, as rows; read by these libraries."""

import json
import subprocess
from pathlib import Path
from typing import Any

from ablate.config.extra import extra

Row = dict[str, Any]


def read_tensorboard(file: Path) -> list[Row]:
    """The scalars in an event file, a row per step.  Raises NotInstalled."""
    loader = extra("tensorboard.backend.event_processing.event_file_loader", file.name, "tensorboard")
    rows: dict[int, Row] = {}
    for event in loader.EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            if len(value.tensor.float_val) == 1:
                row = rows.setdefault(event.step, {"step": event.step})
                row[value.tag] = value.tensor.float_val[0]
    return list(rows.values())


def read_wandb(file: Path) -> list[Row]:
    """The history of an offline run, a row per step, and its summary as the last row, by W&B's own program.  Raises
    NotInstalled, and ValueError if that cannot read it."""
    core = extra("wandb.util", file.name, "wandb").get_core_path()
    reader = [core, "leet", "inspect", "--no-observability", "--json", "--run-file", file, file.parent.parent]
    done = subprocess.run(reader, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{file} cannot be read: {done.stderr.strip()}")
    rows = []
    summary: Row = {}
    for line in done.stdout.splitlines():
        record = json.loads(line)
        if record["type"] == "history":
            row = record["history"]["item"]
            rows.append({"step": row["_step"]} | row if "_step" in row else row)
        elif record["type"] == "summary":
            summary |= record["summary"]["update"]
    return [*rows, summary] if summary else rows
