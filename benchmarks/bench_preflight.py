"""What trying cells out costs: seconds per distinct cell, cold and from the cache, and what a plan of 4 cells gains.

python benchmarks/bench_preflight.py
"""

import os
import tempfile
import time
from typing import Any
from unittest import mock

import torch

from ablate.config.errors import PlanError
from ablate.config.groups import groups
from ablate.planning.checks import preflight
from ablate.planning.plan import plan_study

TASKS = {"decoder": "stdlib", "bert": "mlm", "encoder_decoder": "copy"}


def presets(scale: str) -> list[tuple[str, ...]]:
    """A command line for each preset, with a task that its form can do."""
    found = []
    for name, file in groups()["preset"].items():
        form = next(form for form in TASKS if f"override /model: {form}\n" in file.read_text())
        found.append((f"+preset={name}", f"data={TASKS[form]}", f"scale={scale}"))
    return found


SWEEPS: dict[str, list[tuple[str, ...]]] = {
    "norm=ln,rms ffn=mlp,swiglu": [("norm=ln,rms", "ffn=mlp,swiglu")],
    "norm=glob(*)": [("norm=glob(*)",)],
    "norm=glob(*) scale=base": [("norm=glob(*)", "scale=base")],
    "attention=glob(*) scale=small": [("attention=glob(*)", "scale=small")],
    "model.dim=384,768 scale=base": [("model.dim=384,768", "scale=base")],
    "presets, scale=tiny": presets("tiny"),
    "presets, scale=base": presets("base"),
}


def spent(commands: list[tuple[str, ...]], folder: str) -> tuple[float, int]:
    """Seconds inside try_out, and cells."""
    seconds, cells, real = 0.0, 0, preflight.try_out

    def timed(rows: Any, checked: Any, settings: Any) -> tuple[str, ...]:
        nonlocal seconds, cells
        start = time.perf_counter()
        found = real(rows, checked, settings)
        seconds, cells = seconds + time.perf_counter() - start, cells + len(rows)
        return found

    with mock.patch("ablate.planning.plan.try_out", timed):
        for command in commands:
            try:
                plan_study((*command, "track=none", "dry_run=true", f"results_dir={folder}"))
            except PlanError as error:
                print(f"  {' '.join(command)}: {error}")
    return seconds, cells


def main() -> None:
    """Print seconds per cell of each sweep."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        plan_study(("norm=ln", f"results_dir={folder}"))  # the corpus, and a first copy
        for name, commands in SWEEPS.items():
            os.environ["ABLATE_CACHE"] = tempfile.mkdtemp(dir=folder)
            with mock.patch("ablate.data.corpus.cache_folder", lambda: CACHE):
                (cold, cells), (warm, _) = spent(commands, folder), spent(commands, folder)
            print(f"{name}: {cells} cells, {cold:.2f} s cold ({cold / cells:.3f} each), {warm:.3f} s cached")


from ablate.data.corpus import cache_folder  # noqa: E402

CACHE = cache_folder()  # of corpora, filled once; copies go to a new one each time

if __name__ == "__main__":
    main()
