"""A sweep of GPT-2 at nanoGPT's CPU shape, from start to summary, against the same runs by a plain loop; both against
what this machine's products allow.

python benchmarks/race.py [--steps 2000] [--seeds 5] [--precision fp32] [--warm] [--peer CHECKOUT_OF_NANOGPT]
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from common import timed
from reference_gpt import GPT, Size, train

from ablate.data.text import Text
from ablate.results.study import load_study
from ablate.training.product_rates import linear_shapes, product_seconds

CELLS = [("ln", "gelu"), ("rms", "gelu"), ("ln", "swiglu"), ("rms", "swiglu")]
ROWS = 12


def main() -> None:
    """Run the race and print it."""
    asked = arguments()
    torch.set_float32_matmul_precision("highest")
    task = Text(asked.text, 64, "char")
    data = {split: np.asarray(task.corpus.tokens[split]) for split in ("train", "val", "test")}
    size = Size(task.vocab)
    tokens = len(CELLS) * asked.seeds * asked.steps * ROWS * size.context
    limit = best_tokens_per_second(size, asked.precision)
    runs = [(*cell, seed) for seed in range(asked.seeds) for cell in CELLS]
    half = len(runs) // 2
    with tempfile.TemporaryDirectory() as folder:
        if asked.warm:
            sweep(Path(folder) / "warm", asked, steps=2, seeds=1)
        theirs = sum(reference(data, size, run, asked.steps) for run in runs[:half])
        ours, losses = sweep(Path(folder) / "race", asked, asked.steps, asked.seeds)
        theirs += sum(reference(data, size, run, asked.steps) for run in runs[half:])
        print(f"limit of this machine's products, {os.cpu_count()} cores: {limit:,.0f} tokens/s in {asked.precision}")
        told("ablate, start to summary", ours, tokens, limit)
        told("reference loop, fp32", theirs, tokens, limit)
        print(f"ablate is {theirs / ours:.2f} times as fast; its test losses: {losses}")
        if asked.peer:
            seconds = peer(Path(asked.peer), Path(folder) / "peer", task, data, asked.steps) * len(runs)
            told("nanoGPT's loop, one run times their number", seconds, tokens, limit)
            print(f"ablate is {seconds / ours:.2f} times as fast as nanoGPT")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--warm", action="store_true", help="fill the cache of compiled models beforehand")
    parser.add_argument("--text", required=True, help="a text of some MB")
    parser.add_argument("--peer", help="a checkout of nanoGPT")
    parser.add_argument("more", nargs="*", help="overrides of the sweep: train.compile=false")
    return parser.parse_args()


def sweep(results: Path, asked: argparse.Namespace, steps: int, seeds: int) -> tuple[float, str]:
    """Seconds of our sweep, and the mean test loss of each cell."""
    words = ["-m", "+preset=gpt2", "scale=small", "norm=ln,rms", "ffn=gelu,swiglu", f"seeds={seeds}", "data=text"]
    words += [f"data.path={asked.text}", "data.tokenizer=char", f"train.steps={steps}", f"results_dir={results}"]
    seconds, _ = timed(*words, f"train.precision={asked.precision}", "track=none", "study=race", *asked.more)
    means = load_study(results, "race").runs.groupby("label")["test/loss"].mean()
    return seconds, ", ".join(f"{label} {mean:.3f}" for label, mean in means.items())


def reference(data: dict[str, np.ndarray], size: Size, run: tuple[str, str, int], steps: int) -> float:
    """Seconds of one run of the reference loop, in this process, with all threads."""
    torch.set_num_threads(os.cpu_count() or 1)
    return train(data, size, *run, steps)["seconds"]


def best_tokens_per_second(size: Size, precision: str) -> float:
    """Tokens per second of training if it were products of linear layers alone, on all cores at once, by the fastest
    library; the mean over the cells."""
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores) as pool:
        seconds = [list(pool.map(products_of, [(size, cell, precision)] * cores)) for cell in CELLS]
    return float(np.mean([sum(ROWS * size.context / one for one in each) for each in seconds]))


def products_of(of: tuple[Size, tuple[str, str], str]) -> float:
    """Seconds of one step's products on one core."""
    torch.set_num_threads(1)
    size, cell, precision = of
    shapes = linear_shapes(GPT(size, *cell)) + Counter({(size.dim, size.vocab): 1})
    backends = {"fp32": [("torch", torch.float32), ("onednn", torch.float32)], "bf16": [("torch", torch.bfloat16)]}
    found = [product_seconds(shapes, ROWS * size.context, *backend) for backend in backends[precision]]
    return min(found)


def told(what: str, seconds: float, tokens: int, limit: float) -> None:
    """One line."""
    rate = tokens / seconds
    print(f"{what}: {seconds:,.0f} s, {rate:,.0f} tokens/s, {rate / limit:.1%} of the limit")


def peer(checkout: Path, copy: Path, task: Text, data: dict[str, np.ndarray], steps: int) -> float:
    """Seconds of one run of nanoGPT's own script at this shape, from a copy of its checkout."""
    shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(".git"))
    (copy / "data" / "race").mkdir(parents=True)
    for split in ("train", "val"):
        data[split].astype(np.uint16).tofile(copy / "data" / "race" / f"{split}.bin")
    (copy / "data" / "race" / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": task.vocab}))
    options = {"dataset": "race", "device": "cpu", "compile": False, "eval_iters": 20, "eval_interval": 250}
    options |= {"log_interval": 10, "block_size": 64, "batch_size": ROWS, "n_layer": 4, "n_head": 4, "n_embd": 128}
    options |= {"max_iters": steps, "lr_decay_iters": steps, "dropout": 0.0, "gradient_accumulation_steps": 1}
    options |= {"dtype": "float32", "warmup_iters": 100, "learning_rate": 2e-3, "min_lr": 2e-4, "bias": True}
    start = time.perf_counter()
    command = [sys.executable, "train.py", *(f"--{name}={value}" for name, value in options.items())]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
