"""Sweeps of GPT-2 at nanoGPT's CPU shape, from start to summary, against the same runs by a plain loop; both against
what this machine's products allow.  The plain loop, and nanoGPT's own, take their one run of each cell, and of the
first cell, times the number of runs.  Each sweep is raced twice, with no cache of compiled models and with the cache
that the first race leaves; with --cold once.

python benchmarks/race.py --text FILE [--steps 2000] [--seeds 2] [--precisions fp32,bf16] [--cold]
                          [--peer CHECKOUT_OF_NANOGPT] [OVERRIDE ...]
"""

import argparse
import json
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
from typing import NamedTuple

import numpy as np
import torch
from common import timed
from reference_gpt import GPT, Size, train
from step import linear_shapes

from ablate.data.text import Text
from ablate.model.products import product_seconds
from ablate.results.study import load_study

CELLS = [("ln", "gelu"), ("rms", "gelu"), ("ln", "swiglu"), ("rms", "swiglu")]
ROWS = 12


def main() -> None:
    """Run the race and print it: plain runs between the sweeps, so that a machine that slows down does so for both."""
    asked = arguments()
    torch.set_float32_matmul_precision("highest")
    task = Text(asked.text, 64, "char")
    data = {split: np.asarray(task.corpus.tokens[split]) for split in ("train", "val", "test")}
    size = Size(task.vocab)
    runs = len(CELLS) * asked.seeds
    settings = [(precision, cache) for precision in asked.precisions for cache in ("cold", "warm")[: 2 - asked.cold]]
    plain, ours = 0.0, []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number, (precision, cache) in enumerate(settings):
            plain += sum(reference(data, size, cell, asked.steps) for cell in CELLS[number :: len(settings)])
            ours.append(sweep(folder, asked, precision, cache))
        others = {"plain loop, fp32": plain * asked.seeds}
        if asked.peer:
            others["nanoGPT's loop, fp32"] = peer(Path(asked.peer), folder / "peer", task, data, asked.steps) * runs
    limits = {precision: best_tokens_per_second(size, precision) for precision in {"fp32", *asked.precisions}}
    told = Told(runs * asked.steps * ROWS * size.context, limits)
    print(f"{runs} runs of {asked.steps} steps; products of linear layers alone, {os.cpu_count()} cores, allow:")
    print("\n".join(f"    {limit:,.0f} tokens/s in {precision}" for precision, limit in limits.items()))
    for name, seconds in others.items():
        told.line(name, seconds, "fp32")
    for (precision, cache), (seconds, phases, losses) in zip(settings, ours, strict=True):
        told.line(f"ablate, {precision}, {cache} cache, start to summary", seconds, precision)
        print("".join(f"    {other / seconds:.2f} times as fast as {name}\n" for name, other in others.items()), end="")
        print(f"    of the cores' time: {phases}\n    test losses: {losses}")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="a text of some MB")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=["fp32", "bf16"])
    parser.add_argument("--cold", action="store_true", help="no race with a warm cache of compiled models")
    parser.add_argument("--peer", help="a checkout of nanoGPT")
    parser.add_argument("more", nargs="*", help="overrides of the sweep: train.compile=false")
    return parser.parse_args()


def sweep(folder: Path, asked: argparse.Namespace, precision: str, cache: str) -> tuple[float, str, str]:
    """Seconds of our sweep, what its runs spent the cores' time on, and the mean test loss of each cell."""
    results = folder / f"{precision}-{cache}"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / f"compiled-{precision}")
    words = ["-m", "+preset=gpt2", "scale=small", "norm=ln,rms", "ffn=gelu,swiglu", f"seeds={asked.seeds}", "data=text"]
    words += [f"data.path={asked.text}", "data.tokenizer=char", f"train.steps={asked.steps}", f"results_dir={results}"]
    seconds, _ = timed(*words, f"train.precision={precision}", "track=none", "study=race", *asked.more)
    means = load_study(results, "race").runs.groupby("label")["test/loss"].mean()
    losses = ", ".join(f"{label} {mean:.3f}" for label, mean in means.items())
    return seconds, phases_of(results, seconds * (os.cpu_count() or 1)), losses


def phases_of(results: Path, whole: float) -> str:
    """The shares of some seconds that runs took for each phase, the largest first, and for what is no run's."""
    spent: Counter[str] = Counter()
    for file in results.glob("runs/*/*/result.json"):
        spent.update(json.loads(file.read_text(encoding="utf-8"))["seconds"])
    spent["outside of runs"] = whole - spent.pop("total")  # type: ignore[assignment]
    return ", ".join(f"{name} {seconds / whole:.1%}" for name, seconds in spent.most_common())


def reference(data: dict[str, np.ndarray], size: Size, cell: tuple[str, str], steps: int) -> float:
    """Seconds of one run of the plain loop, in this process, with all threads."""
    torch.set_num_threads(os.cpu_count() or 1)
    return train(data, size, *cell, 0, steps)["seconds"]


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


class Told(NamedTuple):
    """The tokens of a race, and how many the products allow in a second, by precision."""

    tokens: int
    limits: dict[str, float]

    def line(self, what: str, seconds: float, precision: str) -> None:
        """One line."""
        rate = self.tokens / seconds
        print(f"{what}: {seconds:,.0f} s, {rate:,.0f} tokens/s, {rate / self.limits[precision]:.1%} of the limit")


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
