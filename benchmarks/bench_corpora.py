"""What preparing, planning and training on a large corpus takes: python benchmarks/bench_corpora.py [MB ...]

Generates words by Zipf's law in Parquet, two documents in a hundred with a near copy; prepares them with bytes, from
300 MB on killed once on the way; opens the corpus from its index; plans four variants and trains each for 20 steps.
Needs about three times the largest size (3,000 MB) on disk.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

FILE = 300  # MB of a file
OPEN = """
import resource, sys, time
import torch
from ablate.data.text import Text
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
task = Text(sys.argv[1], 256, "byte")
task.batch(0, 0, 32)
seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(f"{seconds:.2f} {(after - before) / 1024:.0f} {task.train_tokens}")
"""


def generate(folder: Path, megabytes: int) -> None:
    """Write documents of about 3 kB."""
    rng = np.random.default_rng(megabytes)
    words = np.array(["".join(map(chr, rng.integers(97, 123, rng.integers(2, 10)))) for _ in range(30_000)], object)
    share = (1 / np.arange(1, len(words) + 1)).cumsum() / (1 / np.arange(1, len(words) + 1)).sum()
    folder.mkdir()
    for start in range(0, megabytes, FILE):
        with pyarrow.parquet.ParquetWriter(folder / f"{start:05}.parquet", pyarrow.schema({"text": "string"})) as file:
            size = 0
            while size < 1e6 * min(FILE, megabytes - start):
                texts = [
                    " ".join(words[np.searchsorted(share, rng.random(int(rng.lognormal(6, 1)) + 20))])
                    for _ in range(500)
                ]
                texts += [f"{text} and an end of its own" for text in texts[::50]]
                file.write_table(pyarrow.table({"text": texts}))
                size += sum(map(len, texts))


class Peak(threading.Thread):
    """The largest memory of a process and all below it, in MB."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self.pid, self.most = pid, 0.0
        self.start()

    def run(self) -> None:
        """Sample until the process is gone."""
        while Path(f"/proc/{self.pid}").exists():
            self.most = max(self.most, sum(map(resident, family(self.pid))) / 1e6)
            time.sleep(0.1)


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    try:
        children = [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [pid, *(one for child in children for one in family(child))]


def resident(pid: int) -> int:
    """The private and shared bytes of a process in memory, pages of files left out."""
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return 1024 * int(lines.get("RssAnon", "0 kB").split()[0])
    except (OSError, ValueError):
        return 0


def timed(command: list[str], kill_after: float | None = None) -> tuple[float, float, str]:
    """Seconds, peak MB, and the output of a command; killed after some seconds if that is given."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    peak = Peak(process.pid)
    if kill_after is not None:
        time.sleep(kill_after)
        os.killpg(process.pid, 9)
    output, _ = process.communicate()
    if process.returncode and kill_after is None:
        sys.exit(f"{' '.join(command)} ended with code {process.returncode}")
    return time.perf_counter() - start, peak.most, output


def main() -> None:
    """Print a row per size."""
    sizes = [int(word) for word in sys.argv[1:]] or [30, 300, 3000]
    print("MB      prepared, s  MB/s  peak, MB   index: s   MB more   plan, s   peak, MB   4 x 20 steps, s")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            corpus, results = Path(folder) / "corpus", Path(folder) / "results"
            generate(corpus, size)
            os.environ |= {"ABLATE_CACHE": f"{folder}/cache", "ABLATE_RESULTS": str(results), "OMP_NUM_THREADS": "1"}
            words = ["data=text", f"data.path={corpus}", "scale=tiny", "track=none", "optim.warmup=2"]
            ablate = [sys.executable, "-m", "ablate"]
            spent = 0.0
            if size >= 300:
                spent, _, _ = timed([*ablate, "data", "prepare", *words], kill_after=size / 60)
            seconds, peak, _ = timed([*ablate, "data", "prepare", *words])
            opened, more, _ = timed([sys.executable, "-c", OPEN, str(corpus)])[2].split()
            sweep = [*ablate, "-m", *words, "norm=ln,rms", "ffn=mlp,swiglu", "train.steps=20", "seeds=1"]
            planned, memory, _ = timed([*sweep, "dry_run=true"])
            trained, _, _ = timed(sweep)
            rate = size / (seconds + spent)
            row = f"{size:<7} {seconds + spent:>11.0f} {rate:>5.0f} {peak:>9.0f} {opened:>10} {more:>9}"
            print(f"{row} {planned:>9.1f} {memory:>10.0f} {trained:>17.1f}", flush=True)


if __name__ == "__main__":
    main()
