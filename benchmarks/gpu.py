"""Everything that only a GPU can show, in nine minutes at most: one JSON, one Markdown page.

python benchmarks/gpu.py [PART …] [--out FOLDER] [--device cpu --toy]

Each part runs in a process of its own with a time limit, so that one that crashes or hangs ends no other.  Exit code
1 where a part failed; 0 where all hold, or there is no GPU.  It needs torch with CUDA and what `make gpu-pack` packs.
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
    of: str = ""


PARTS = [
    Part("card", "card", 60),
    Part("attention", "attention", 150),
    Part("variants", "sample", 150),
    Part("speed", "synchronisations", 60, alone=True),
    Part("speed", "gpt2", 200, alone=True),
    Part("speed", "plain", 120, alone=True),
    Part("speed", "captured", 120, alone=True),
    Part("survival", "checkpoints", 90, alone=True),
    Part("survival", "processes", 330, alone=True),
    Part("card", "memory_estimate", 120, of="rest"),
    Part("variants", "variants", 400, of="rest"),
    Part("attention", "rules", 180, of="rest"),
    Part("attention", "dropout_masks", 90, of="rest"),
    Part("parity", "parity", 180, of="rest"),
    Part("parity", "compiled_cells", 300, of="rest"),
    Part("survival", "resume", 240, of="rest"),
    Part("survival", "out_of_memory", 90, of="rest"),
    Part("speed", "base", 200, alone=True, of="rest"),
    Part("speed", "sweep", 200, alone=True, of="rest"),
    Part("mixers", "mixers", 1500, alone=True, of="mixers"),  # Triton compiles kernels in all sizes of tiles
]

Row = dict[str, Any]


def main() -> int:
    """Run the parts, or one of them; the exit code."""
    given = arguments()
    if given.only:
        return carry_out(given)
    if given.device == "cuda" and not available():
        print("gpu: there is no GPU here, or this torch has no CUDA; nothing was checked")
        return 0
    parts = [part for part in PARTS if {part.function, part.of} & set(given.parts or [""])]
    given.out.mkdir(parents=True, exist_ok=True)
    rows = run(parts, given, time.monotonic() + 60 * given.minutes)
    failed = [row["part"] for row in rows if row["status"] != "passed"]
    print(f"gpu: {len(rows) - len(failed)} of {len(rows)} parts passed; {given.out / 'gpu.md'}")
    return int(bool(failed))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(names()))
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="the folder of gpu.json and gpu.md")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--toy", action="store_true", help="go through everything at a toy size")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which no part begins or goes on")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # the part that this process is for
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.parts) - set(names()):
        parser.error(f"{', '.join(sorted(unknown))}: no such part; there are {', '.join(names())}")
    return given


def names() -> list[str]:
    """The names of parts, and of all that the first nine minutes leave out."""
    return list(dict.fromkeys([*(part.function for part in PARTS), *(part.of for part in PARTS if part.of)]))


def available() -> bool:
    """Whether a process of its own finds a GPU: in this one no context is opened."""
    asked = [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]
    return subprocess.run(asked, capture_output=True).returncode == 0


def run(parts: list[Part], given: argparse.Namespace, end: float) -> list[Row]:
    """What became of each part, in their order; the files are written after each."""
    done: dict[Part, Row] = {}

    def note(part: Part, row: Row) -> None:
        done[part] = row
        print(f"{row['status']:>8}  {row['part']:<18} {row['seconds']:6.1f} s", flush=True)
        write(given, [done[one] for one in parts if one in done])

    with tempfile.TemporaryDirectory() as folder:
        together = [part for part in parts if not part.alone]
        with concurrent.futures.ThreadPoolExecutor(TOGETHER if given.device == "cuda" else 1) as pool:
            waiting = {pool.submit(apart, part, given, Path(folder), end): part for part in together}
            for one in concurrent.futures.as_completed(waiting):
                note(waiting[one], one.result())
        for part in parts:
            if part.alone:
                note(part, apart(part, given, Path(folder), end))
    return [done[part] for part in parts]


def apart(part: Part, given: argparse.Namespace, folder: Path, end: float) -> Row:
    """A part in a process of its own: its status, seconds, findings, failures and, where it failed, its last words."""
    own, start = folder / part.function, time.monotonic()
    own.mkdir()
    row: Row = {"part": part.function, "status": "not run", "seconds": 0.0, "found": {}, "failures": []}
    limit = min(part.limit * (SLOWER if given.device == "cpu" else 1), end - start)
    if limit < 1:
        return row | {"failures": [f"the {given.minutes:g} minutes were over"]}
    command = [sys.executable, __file__, "--only", part.function, "--device", given.device, "--folder", str(own)]
    environment = os.environ | {"ABLATE_CACHE": str(folder / "cache"), "WANDB_MODE": "offline", "PYTHONUNBUFFERED": "1"}
    with open(own / "log", "w") as log:
        process = subprocess.Popen(
            [*command, *["--toy"] * given.toy],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        end_group(process)
    row["seconds"] = round(time.monotonic() - start, 1)
    said = own / "found.json"
    if said.exists():
        row |= json.loads(said.read_text())
    if code is None:
        row |= {"status": "too long", "failures": [*row["failures"], f"it was ended after {limit:.0f} s"]}
    elif code or not said.exists():
        row |= {"status": "crashed", "failures": [*row["failures"], f"it ended with exit code {code}"]}
    else:
        row["status"] = "failed" if row["failures"] else "passed"
    return row if row["status"] == "passed" else row | {"log": (own / "log").read_text(errors="replace")[-3000:]}


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a part with all that it started and left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def carry_out(given: argparse.Namespace) -> int:
    """Be the process of one part; the exit code."""
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    from gpu_parts.given import Findings, Given

    part, found = next(part for part in PARTS if part.function == given.only), Findings()
    try:
        getattr(importlib.import_module(f"gpu_parts.{part.module}"), part.function)(
            Given(given.device, given.toy, given.folder), found
        )
    except Exception as error:
        traceback.print_exc()
        found.expect(False, f"{type(error).__name__}: {str(error).strip() or 'no word'}")
    told = {"found": found.told, "failures": found.failures}
    (given.folder / "found.json").write_text(json.dumps(told, default=str))
    return 0


def write(given: argparse.Namespace, rows: list[Row]) -> None:
    """The JSON and the page, of the parts so far."""
    told = {"device": given.device, "toy": given.toy, "parts": rows}
    (given.out / "gpu.json").write_text(json.dumps(told, indent=1))
    (given.out / "gpu.md").write_text("\n".join(page(rows)) + "\n", encoding="utf-8")


def page(rows: list[Row]) -> list[str]:
    """The lines of the page: the card, a table of the parts, what failed, and what each found."""
    facts = next((row["found"] for row in rows if row["part"] == "card"), {})
    lines = [f"# Checked on {facts.get('card', 'an unknown device')}", ""]
    lines += [f"torch {facts.get('torch')}, CUDA {facts.get('cuda')}, cuDNN {facts.get('cudnn')}", ""]
    lines += ["| part | outcome | seconds |", "|---|---|---|"]
    lines += [f"| [{row['part']}](#{row['part']}) | {row['status']} | {row['seconds']} |" for row in rows]
    for row in rows:
        lines += ["", f"## {row['part']}", "", *(f"- **failed**: {said}" for said in row["failures"])]
        lines += [f"- {name}: {shown(value)}" for name, value in row["found"].items()]
        lines += ["", "```", row["log"], "```"] if row.get("log") else []
    return lines


def shown(value: Any) -> str:
    """A finding on one line; several lines as they are."""
    if isinstance(value, str) and "\n" in value:
        return f"\n\n```\n{value}\n```"
    return f"`{json.dumps(value, ensure_ascii=False)}`" if isinstance(value, dict | list) else str(value)


if __name__ == "__main__":
    sys.exit(main())
