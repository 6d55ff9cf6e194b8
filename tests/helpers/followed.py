"""A study whose runs a test logs and ends as it goes, for views that follow it; what imports this loads no torch."""

import time
from pathlib import Path
from typing import Any

from fake_studies import a_cell, a_manifest, whole

from ablate.config.typed_json import stored
from ablate.results.atomic import write_json
from ablate.results.manifest import write_manifest
from ablate.results.records import PlannedRun, TaskFacts
from ablate.results.run import MetricsWriter, Run

STEPS = 100


def make_study(results: Path, labels: tuple[str, ...] = ("ln + mlp", "ln + swiglu"), seeds: int = 2) -> list[str]:
    """A study on disk with nothing trained; returns the paths of its runs."""
    cells = [
        a_cell(
            id=f"c{i}",
            name=f"cell{i}",
            label=label,
            task="text",
            flops_per_token=6000,
            config=stored(whole({"train": {"steps": STEPS}})),
        )
        for i, label in enumerate(labels)
    ]
    runs = [
        PlannedRun(cell=f"c{i}", seed=seed, path=f"cell{i}/s{seed}-{i}{seed}")
        for i in range(len(labels))
        for seed in range(seeds)
    ]
    tasks = {"text": TaskFacts(metrics={"loss": "min"})}
    write_manifest(results, a_manifest(study="s", cells=cells, runs=runs, seeds=[0, 1], tasks=tasks))
    return [run.path for run in runs]


def log(results: Path, path: str, until: int, **row: Any) -> None:
    """Write a run's metrics, ten steps and a second a row."""
    writer = MetricsWriter(Run(results, path).metrics_file)
    for step in range(0, until + 1, 10):
        writer.write({"step": step, "tokens": 640 * step, "seconds": step / 10, "train/loss": 4.5} | row)
    writer.close()


def end(results: Path, path: str, status: str = "done") -> None:
    error = {"type": "ValueError", "message": "it \x1b[31mbroke\nbadly"} if status == "failed" else None
    final = {"test/loss": 2.00712} if status == "done" else {}
    result = {"status": status, "final": final, "steps": 40, "seconds": {"total": 8.1}, "error": error}
    write_json(Run(results, path).result_file, result | {"ended": str(time.time())})
