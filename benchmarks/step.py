"""One training step of scale=small on one core in each way that it can be computed, interleaved: milliseconds, and how
much of the rate of its products it reaches.

python benchmarks/step.py --text FILE [--steps 40] [OVERRIDE ...]
"""

import argparse
import itertools
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo
from torch import nn

import ablate.model.attend
from ablate.model.products import Shape, product_seconds
from ablate.planning.plan import plan_study
from ablate.results.run import Run
from ablate.training.compiling import FASTER
from ablate.training.trainer import Trainer

WAYS = {
    f"{precision} {products} {'compiled' if compiled == 'true' else 'eager'}": [
        f"train.precision={precision}",
        f"train.matmul={products}",
        f"train.compile={compiled}",
    ]
    for precision, products, compiled in itertools.product(("fp32", "bf16"), ("torch", "onednn"), ("false", "true"))
    if precision == "fp32" or products == "torch"
}


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("more", nargs="*")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch._dynamo.reset = lambda: None  # or the last run would drop what the others were compiled to
    torch._dynamo.config.recompile_limit = 32  # of all runs together
    common = ["scale=small", "seeds=1", "data=text", f"data.path={asked.text}", "track=none", *asked.more]
    with tempfile.TemporaryDirectory() as folder:
        steps = {name: step_of([*common, f"results_dir={folder}", *words]) for name, words in WAYS.items()}
        whole = {"fp32 products of linear layers alone": products_alone(common, folder)}
        for name, step in without_each_trick([*common, f"results_dir={folder}"]):
            steps[name] = step
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(asked.steps):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    for name, found in (seconds | {name: [one] for name, one in whole.items()}).items():
        print(f"{name:75} {1e3 * min(found):7.1f} ms at best, {1e3 * statistics.median(found):7.1f} ms median")


def linear_shapes(model: nn.Module) -> Counter[Shape]:
    """How many linear layers of each shape a model has."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return Counter((layer.in_features, layer.out_features) for layer in layers)


def step_of(words: list[str]) -> Callable[[], object]:
    """A function that takes one step of a new run; two have been taken."""
    plan = plan_study(words)
    trainer = Trainer(Run(Path(plan.results), plan.manifest.runs[0].path), plan.manifest.cells[0].config, 0)
    count = itertools.count()
    for _ in range(2):
        trainer.update(next(count))
    return lambda: trainer.update(next(count))


def without_each_trick(words: list[str]) -> list[tuple[str, Callable[[], object]]]:
    """Compiled steps, each without one of the things that make them faster."""
    compiled = [*words, "train.precision=fp32", "train.matmul=torch", "train.compile=true"]
    found = []
    for option, value in list(FASTER.items()):
        del FASTER[option]
        found.append((f"fp32 torch compiled without {option}", step_of(compiled)))
        FASTER[option] = value
    ablate.model.attend.FEW, few = 0, ablate.model.attend.FEW
    found.append(("fp32 torch compiled with fused attention", step_of(compiled)))
    ablate.model.attend.FEW = few
    return found


def products_alone(common: list[str], folder: str) -> float:
    """Seconds of a step's products by the faster library."""
    words = [*common, f"results_dir={folder}", "train.compile=false", "train.matmul=torch"]
    plan = plan_study(words)
    cell = plan.manifest.cells[0]
    model = Trainer(Run(Path(plan.results), plan.manifest.runs[0].path), cell.config, 0).model
    rows, shapes = int(cell.tokens_per_step or 0), linear_shapes(model)
    seconds = min(product_seconds(shapes, rows, backend) for backend in ("torch", "onednn"))
    flops = sum(6 * rows * features * outputs * count for (features, outputs), count in shapes.items())
    print(f"{flops / 1e9:.2f} GFLOP in a step's products")
    return seconds


if __name__ == "__main__":
    main()
