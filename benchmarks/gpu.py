"""Everything that only a GPU can show, in nine minutes at most: one JSON, one Markdown page.

python benchmarks/gpu.py [PART …] [--out FOLDER] [--device cpu --toy]

Each part runs in a process of its own with a time limit, so that one that crashes or hangs ends no other.  Exit code
1 where a part failed; 0 where all hold, or there is no GPU.  It needs torch with CUDA and what training imports.
"""

import argparse
import concurrent.futures
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MINUTES = 9
SLOWER = 5  # times that a part may take longer on a CPU, which others may keep busy
TOGETHER = 8  # parts at once of those that measure no time


class Part(NamedTuple):
    """A function of a module of `gpu_parts`, its time limit in seconds, whether it must be alone on the GPU, and the
    name that runs it where no part is named; without one it is among the first nine minutes."""

    module: str
    function: str
    limit: int
    alone: bool = False
    group: str = ""


PARTS = [
    Part("card", "card", 60),
    Part("attention", "attention", 150),
    Part("variants", "sample", 150),
    Part("speed", "synchronisations", 60, alone=True),
    Part("speed", "gpt2", 200, alone=True),
    Part("speed", "plain", 120, alone=True),
    Part("speed", "captured", 120, alone=True),
    Part("survival", "processes", 330, alone=True),
    Part("card", "memory_estimate", 120, group="rest"),
    Part("variants", "variants", 400, group="rest"),
    Part("attention", "rules", 180, group="rest"),
    Part("attention", "dropout_masks", 90, group="rest"),
    Part("parity", "parity", 180, group="rest"),
    Part("parity", "compiled_cells", 300, group="rest"),
    Part("survival", "resume", 240, group="rest"),
    Part("survival", "out_of_memory", 90, group="rest"),
    Part("mixers", "mixers", 1500, alone=True, group="mixers"),  # Triton compiles kernels in all sizes of tiles
]
NAMES = [*(part.function for part in PARTS), "rest"]


def main() -> int:
    """Run the parts, or be the process of one of them; the exit code."""
    options = read_options()
    if options.only:
        return run_here(options)
    if options.device == "cuda" and not has_gpu():
        print("gpu: there is no GPU here, or this torch has no CUDA; nothing was checked")
        return 0
    names = options.parts or [""]
    parts = [part for part in PARTS if part.function in names or part.group in names]
    options.out.mkdir(parents=True, exist_ok=True)
    rows = run(parts, options)
    failed = [row for row in rows if row["status"] != "passed"]
    print(f"gpu: {len(rows) - len(failed)} of {len(rows)} parts passed; {options.out / 'gpu.md'}")
    return 1 if failed else 0


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(NAMES))
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="the folder of gpu.json and gpu.md")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--toy", action="store_true", help="go through everything at a toy size")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which no part begins or goes on")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # the part that this process is for
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in options.parts:
        if name not in NAMES:
            parser.error(f"{name}: no such part; there are {', '.join(NAMES)}")
    return options


def has_gpu() -> bool:
    """Whether another process sees a GPU: in this one no context is opened."""
    command = [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]
    return subprocess.run(command, capture_output=True).returncode == 0


def run(parts: list[Part], options: argparse.Namespace) -> list[dict[str, Any]]:
    """What became of each part, in their order; the files are written after each."""
    end = time.monotonic() + 60 * options.minutes
    rows: dict[Part, dict[str, Any]] = {}

    def add(part: Part, row: dict[str, Any]) -> None:
        rows[part] = row
        print(f"{row['status']:>8}  {row['part']:<18} {row['seconds']:6.1f} s", flush=True)
        write(options, [rows[part] for part in parts if part in rows])

    with tempfile.TemporaryDirectory() as folder:
        threads = TOGETHER if options.device == "cuda" else 1
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            futures = {}
            for part in parts:
                if not part.alone:
                    futures[pool.submit(run_part, part, options, Path(folder), end)] = part
            for future in concurrent.futures.as_completed(futures):
                add(futures[future], future.result())
        for part in parts:
            if part.alone:
                add(part, run_part(part, options, Path(folder), end))
    return [rows[part] for part in parts]


def run_part(part: Part, options: argparse.Namespace, folder: Path, end: float) -> dict[str, Any]:
    """A part in a process of its own: its status, seconds, values, failures and, where it failed, the log."""
    start = time.monotonic()
    row: dict[str, Any] = {"part": part.function, "status": "not run", "seconds": 0.0, "values": {}, "failures": []}
    limit = min(part.limit * (SLOWER if options.device == "cpu" else 1), end - start)
    if limit < 1:
        row["failures"] = [f"the {options.minutes:g} minutes were over"]
        return row
    own = folder / part.function
    own.mkdir()
    command = [sys.executable, __file__, "--only", part.function, "--device", options.device, "--folder", str(own)]
    if options.toy:
        command.append("--toy")
    environment = os.environ | {"ABLATE_CACHE": str(folder / "cache"), "WANDB_MODE": "offline", "PYTHONUNBUFFERED": "1"}
    log = own / "log"
    with open(log, "w") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(ProcessLookupError):  # all that it started and left behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    row["seconds"] = round(time.monotonic() - start, 1)
    report = own / "report.json"
    if report.exists():
        row |= json.loads(report.read_text())
    if code is None:
        row["status"] = "too long"
        row["failures"].append(f"it was ended after {limit:.0f} s")
    elif code or not report.exists():
        row["status"] = "crashed"
        row["failures"].append(f"it ended with exit code {code}")
    else:
        row["status"] = "failed" if row["failures"] else "passed"
    if row["status"] != "passed":
        row["log"] = log.read_text(errors="replace")[-3000:]
    return row


def run_here(options: argparse.Namespace) -> int:
    """Be the process of one part; the exit code."""
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    from gpu_parts.setup import Report, Setup

    [part] = [part for part in PARTS if part.function == options.only]
    report = Report()
    try:
        module = importlib.import_module(f"gpu_parts.{part.module}")
        getattr(module, part.function)(Setup(options.device, options.toy, options.folder), report)
    except Exception as error:
        traceback.print_exc()
        report.expect(False, f"{type(error).__name__}: {error}")
    text = json.dumps({"values": report.values, "failures": report.failures}, default=str)
    (options.folder / "report.json").write_text(text)
    return 0


def write(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """The JSON and the page, of the parts so far."""
    content = {"device": options.device, "toy": options.toy, "parts": rows}
    (options.out / "gpu.json").write_text(json.dumps(content, indent=1))
    (options.out / "gpu.md").write_text("\n".join(page(rows)) + "\n", encoding="utf-8")


def page(rows: list[dict[str, Any]]) -> list[str]:
    """The lines of the page: a table of the parts, then what failed and what was measured in each."""
    lines = ["# Check of a GPU", "", "| part | outcome | seconds |", "|---|---|---|"]
    for row in rows:
        lines.append(f"| [{row['part']}](#{row['part']}) | {row['status']} | {row['seconds']} |")
    for row in rows:
        lines += ["", f"## {row['part']}", ""]
        lines += [f"- **failed**: {failure}" for failure in row["failures"]]
        lines += [f"- {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in row["values"].items()]
        if "log" in row:
            lines += ["", "```", row["log"], "```"]
    return lines


if __name__ == "__main__":
    sys.exit(main())
