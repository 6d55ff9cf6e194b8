"""What a process takes to train, beside the plan's estimate, at each scale on the CPU.

python benchmarks/bench_memory.py [OVERRIDES]
"""

import json
import subprocess
import sys
import tempfile
from typing import Any

MEASURE = """
import json, sys
import torch
from ablate.model.build import initialised_model
from ablate.training.optim import adamw
from ablate.planning.plan import check_cell
import torch.nn.functional as F
from ablate.planning.checks.memory import needed, PROCESS
from ablate.planning.checks.validate import Validator

torch.set_num_threads(1)
[cell], _ = Validator().validate([check_cell(sys.argv[1:])])
estimated = needed(cell) - PROCESS["cpu"]
# What a first batch, product, backward pass and optimiser load is no memory of the cell's.
cell.task.batch(0, 0, 1)
loose = torch.nn.Linear(64, 64)
first = adamw(loose, 1e-3, [0.9, 0.99], 0.1)
F.cross_entropy(loose(torch.randn(64, 64)), torch.zeros(64, dtype=torch.long)).backward()
first.step()
open("/proc/self/clear_refs", "w").write("5")  # the peak so far is forgotten
before = int([line for line in open("/proc/self/status") if line.startswith("VmRSS")][0].split()[1]) * 1024
model = initialised_model(cell.config, cell.task, 0)
optimiser = adamw(model, 1e-3, [0.9, 0.99], 0.1)
for step in range(2):
    batch = cell.task.batch(0, step, cell.config.train.batch_size)
    logits = model(**batch.inputs)
    F.cross_entropy(logits.float().flatten(0, -2), batch.targets.flatten()).backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
after = int([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1]) * 1024
print(json.dumps({"estimated": estimated, "measured": after - before, "process": before}))
"""


def measured(*overrides: str) -> dict[str, Any]:
    """Bytes that training takes beyond the process itself: estimated, and measured as resident memory at its peak.

    On Linux alone, whose /proc tells the latter.
    """
    with tempfile.TemporaryDirectory() as folder:
        arguments = [*overrides, "track=none", f"results_dir={folder}", "seeds=1"]
        done = subprocess.run([sys.executable, "-c", MEASURE, *arguments], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print a line for each scale, with some variants."""
    rest = sys.argv[1:]
    for scale in ("tiny", "small", "base"):
        for more in ([], ["position=alibi"], ["ffn=swiglu", "norm=ln_std"]):
            if scale == "base" and more:
                continue
            found = measured(f"scale={scale}", *more, *rest)
            mine, theirs = found["estimated"] / 1e6, found["measured"] / 1e6
            print(
                f"{scale} {' '.join(more)}: estimated {mine:.0f} MB, measured {theirs:.0f}, ratio {mine / theirs:.2f}"
            )


if __name__ == "__main__":
    main()
