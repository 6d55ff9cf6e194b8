"""What `scale=tiny` reaches on every task of our own, in every form that can do it, beside chance and each other.

python benchmarks/bench_tasks.py [key=value ...]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from common import timed

from ablate.results.manifest import newest_study
from ablate.results.study import load_study

FORMS = {
    "decoder": "copy,reverse,sort,addition,selective_copy,dates,mqar,memorisation",
    "encoder_decoder": "copy,reverse,sort,addition,selective_copy,dates",
    "encoder": "mlm,digits",
}


def main() -> None:
    """Print a line per task and form: metrics at the end of training, chance as a loss, seconds."""
    for form, tasks in FORMS.items():
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results"
            timed(
                "-m", f"model={form}", f"data={tasks}", "seeds=1", f"results_dir={results}", "track=none", *sys.argv[1:]
            )
            study = load_study(results, newest_study(results) or "")
        for run in study.runs.to_dict("records"):
            cell = next(cell for cell in study.manifest.cells if cell.id == run["cell"])
            task = study.manifest.tasks[cell.task]
            values = {name: run[f"test/{name}"] for name in dict.fromkeys(["loss", *task.metrics])}
            shown = "  ".join(f"{name} {value:.3f}" for name, value in values.items())
            known = ", ".join(f"{name} {value:.2f}" for name, value in task.yardsticks.items())
            print(f"{form:16} {task.title:55} {shown}  ({known})  {run['status']}", flush=True)


if __name__ == "__main__":
    main()
