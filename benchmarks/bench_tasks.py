"""What `scale=tiny` reaches on every task of our own, in every form that can do it, beside chance and each other.

python benchmarks/bench_tasks.py [TASK ...] [key=value ...]
"""

import sys
import tempfile
from pathlib import Path

from common import timed
from omegaconf import OmegaConf

from ablate.config.components import resolve
from ablate.config.groups import groups
from ablate.results.manifest import newest_study
from ablate.results.study import load_study

FORMS = {"decoder": {"lm"}, "encoder_decoder": {"seq2seq"}, "encoder": {"mlm", "classification"}}  # the kinds it does
TEXTS = ("stdlib", "text", "hf")


def tasks_of(form: str, wanted: list[str]) -> list[str]:
    """The tasks that a form can do, those wanted where there are any, else all but texts."""
    found = {name: resolve("data", OmegaConf.load(file)["_target_"]).kinds for name, file in groups()["data"].items()}
    asked = wanted or [name for name in found if name not in TEXTS]
    return [name for name in asked if FORMS[form] & {*found[name]}]


def main() -> None:
    """Print a line per task and form: metrics at the end of training, chance as a loss, seconds."""
    wanted = [word for word in sys.argv[1:] if "=" not in word]
    overrides = [word for word in sys.argv[1:] if "=" in word]
    if unknown := sorted({*wanted} - groups()["data"].keys()):
        raise SystemExit(f"no such task: {', '.join(unknown)}; there are {', '.join(groups()['data'])}")
    for form in FORMS:
        if not (tasks := tasks_of(form, wanted)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results"
            swept = f"data={','.join(tasks)}"
            timed("-m", f"model={form}", swept, "seeds=1", f"results_dir={results}", "track=none", *overrides)
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
