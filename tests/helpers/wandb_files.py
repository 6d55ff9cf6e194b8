"""Offline runs of W&B, read by its own program."""

import json
import subprocess
from pathlib import Path
from typing import Any


def read_back(folder: Path) -> dict[str, Any]:
    """What W&B's own reader (`wandb leet inspect`, without its second of start-up) finds in an offline run."""
    from wandb.util import get_core_path

    (file,) = folder.glob("run-*.wandb")
    reader = [get_core_path(), "leet", "inspect", "--no-observability", "--json", "--run-file", file, folder.parent]
    output = subprocess.run(reader, capture_output=True, text=True, check=True).stdout
    kinds: dict[str, list[Any]] = {}
    for record in map(json.loads, output.splitlines()):
        kinds.setdefault(record["type"], []).append(record.get(record["type"]))
    summary: dict[str, Any] = {}
    for update in kinds["summary"]:
        summary |= update["update"]
    axes = {metric.get("name") or metric["glob_name"]: metric.get("step_metric") for metric in kinds["metric"]}
    found = {"config": kinds["run"][0]["config"]["update"], "history": [item["item"] for item in kinds["history"]]}
    return (
        kinds["run"][0] | found | {"axes": axes, "summary": summary, "exit_code": kinds["exit"][0].get("exit_code", 0)}
    )
