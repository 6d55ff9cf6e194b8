"""Whether runs of `ablate` and of a plain loop end alike: from the same weights, on the same batches, over many seeds.

Single runs drift apart, since rounding is amplified; means must be equivalent within 0.005.  In bf16 the difference
from float32 is shown against the spread of seeds.

python benchmarks/agreement.py --text FILE [--seeds 16] [--steps 800]
"""

import argparse
import math
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from common import timed
from reference_gpt import GPT, Size, adopt, learning_rate, loss_of
from scipy import stats
from torch import nn

from ablate.config.schema import Config
from ablate.data.task import build_task
from ablate.model.build import initialised_model
from ablate.results.study import load_study

MARGIN = 0.005


def main() -> None:
    """Print mean differences with 90 % intervals, within the margin where two one-sided tests at 5 % say so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", required=True)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=800)
    asked = parser.parse_args()
    words = ["-m", "+preset=gpt2", "scale=small", "data=text", f"data.path={asked.text}", "data.tokenizer=char"]
    words += [f"seeds={asked.seeds}", f"train.steps={asked.steps}", "train.precision=fp32,bf16", "study=agreement"]
    with tempfile.TemporaryDirectory() as folder:
        timed(*words, f"results_dir={folder}", "track=none", "keep=none")
        study = load_study(Path(folder), "agreement")
        config = study.manifest.cells[0].config
    losses = study.runs.pivot(index="seed", columns="train.precision", values="test/loss").sort_index()
    ours, bf16 = losses["fp32"].to_numpy(), losses["bf16"].to_numpy()
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        seeds = [int(seed) for seed in losses.index]
        reference = np.array(list(pool.map(partial(plain_loop, config, steps=asked.steps), seeds)))
    print(f"test loss over {asked.seeds} seeds of {asked.steps} steps: {ours.mean():.4f}, SD {ours.std(ddof=1):.4f}")
    told("float32 against the plain loop", ours - reference)
    told("bf16 against float32", bf16 - ours)


def plain_loop(config: Config, seed: int, steps: int) -> float:
    """The test loss of the reference, with our first weights and our batches."""
    task = build_task(config)
    model = GPT(Size(task.vocab), "ln", "gelu")
    adopt(model, initialised_model(config, task, seed).state_dict())
    matrices, vectors = ([p for p in model.parameters() if (p.ndim > 1) is many] for many in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.99))
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, steps, 0.002)
        batch = task.batch(seed, step, 12)
        loss = loss_of(model, batch.inputs["tokens"], batch.targets)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    held_out = task.held_out("test", 65536)
    with torch.no_grad():
        parts = [
            (loss_of(model, held_out.inputs["tokens"][i : i + 64], held_out.targets[i : i + 64]), i)
            for i in range(0, len(held_out.targets), 64)
        ]
    sizes = [len(held_out.targets[i : i + 64]) for _, i in parts]
    return sum(float(loss) * size for (loss, _), size in zip(parts, sizes, strict=True)) / sum(sizes)


def told(what: str, differences: np.ndarray) -> None:
    """One line."""
    n = len(differences)
    half = stats.t.isf(0.05, n - 1) * differences.std(ddof=1) / math.sqrt(n)
    low, high = differences.mean() - half, differences.mean() + half
    word = "equivalent" if low > -MARGIN and high < MARGIN else "not shown to be equivalent"
    spread = f"SD of a pair {differences.std(ddof=1):.4f}"
    print(f"{what}: {differences.mean():+.4f} [{low:+.4f}, {high:+.4f}], {spread}: {word} within {MARGIN}")


if __name__ == "__main__":
    main()
