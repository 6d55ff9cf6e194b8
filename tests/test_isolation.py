"""What one cell's component does to its process changes no other cell's numbers."""

from __future__ import annotations

import json
from pathlib import Path

from hazard import processes, start

DEEDS = {
    "dtype": "torch.set_default_dtype(torch.float64)",
    "relu": "F.relu = torch.nn.functional.relu = lambda x, inplace=False: x",
    "grad": "torch.set_grad_enabled(False)",
    "draw": "torch.manual_seed(7), random.seed(7), numpy.random.seed(7)",
    "threads": "torch.set_num_threads(3)",
    "precise": "torch.use_deterministic_algorithms(True), torch.set_flush_denormal(True)",
    "environ": "os.environ.update(ABLATE_CACHE='/nowhere', OMP_NUM_THREADS='5')",
    "chdir": "os.chdir('/')",
    "parent": "setattr(torch.nn.Linear, 'forward', lambda self, x: 0 * torch.nn.functional.linear(x, self.weight))",
    "stdin": "os.close(0)",
    "closing": "os.closerange(0, 200)",
    "fork": "os.fork()",
    "daemon": "os.fork() or (os.setsid(), time.sleep(1000))",
    "child": "subprocess.Popen(['sleep', '1000'])",
    "talk": 'print(\'{"status": "done"}\', flush=True)',
    "ctrl_c": "raise_(KeyboardInterrupt('stop it'))",
    "leave": "sys.exit(0)",
    "exit": "os._exit(3)",
}
CODE = """
import os, random, subprocess, sys, time
import numpy
import torch
import torch.nn.functional as F
from torch import nn

TRAINS = sys.argv[0].endswith("worker.py")


def raise_(error):
    raise error


class Deed(nn.Module):
    done = False

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x, mask=None):
        if not Deed.done and {where}:
            Deed.done = True
            self.do()
        return (x * self.weight * self.scale).to(x.dtype)


"""
CLASS = """
class {name}(Deed):
    scale = {scale}

    def do(self):
        {deed}


"""


def write(folder: Path, where: str) -> list[str]:
    """The package `deeds` with a norm for each; the arguments that make it known."""
    (folder / "conf" / "norm").mkdir(parents=True)
    code = CODE.replace("{where}", where)
    for i, (name, deed) in enumerate(DEEDS.items()):  # at scales of their own, or they were one network
        code += CLASS.replace("{name}", name.title()).replace("{deed}", deed).replace("{scale}", f"{1 + i / 50}")
        yaml = f"# {name}.\n_target_: deeds.{name.title()}\n_partial_: true\n"
        (folder / "conf" / "norm" / f"{name}.yaml").write_text(yaml)
    (folder / "deeds.py").write_text(code)
    return ["user=[deeds]", "--config-dir=conf"]


def of(results: Path, norm: str) -> dict[str, object]:
    """All that a cell's run left, bit for bit, but for its times."""
    [folder] = results.glob(f"runs/{norm}-*/s0-*")
    result = json.loads((folder / "result.json").read_text())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_bytes().splitlines()]
    for row in rows:
        row.pop("seconds", None)
    weights = folder / "weights.safetensors"
    found = {name: result.get(name) for name in ("status", "final", "documents", "error")}
    return found | {"key": folder.name, "rows": rows, "weights": weights.exists() and weights.read_bytes()}


def sweep(folder: Path, *words: str) -> tuple[int, str]:
    process = start("-m", *words, "seeds=1", "train.parallel=1", cwd=folder)
    out, err = process.communicate(timeout=550)
    assert not processes(process.pid), "nothing is left running"
    return process.returncode, out + err


def test_what_a_component_does_to_its_process_reaches_no_other_run(small: list[str], tmp_path: Path) -> None:
    own = write(tmp_path, "TRAINS and self.training")
    clean, dirty = tmp_path / "clean", tmp_path / "dirty"
    sweep(tmp_path, *small, "norm=ln,rms", f"results_dir={clean}")
    code, said = sweep(tmp_path, *small, *own, f"norm=ln,{','.join(DEEDS)},rms", f"results_dir={dirty}")
    assert code == 1, said
    for norm in ("ln", "rms"):
        assert of(dirty, norm) == of(clean, norm), norm
    ended = {name: of(dirty, name) for name in DEEDS}
    failed = {name: found["error"] for name, found in ended.items() if found["status"] == "failed"}
    assert failed.keys() >= {"grad", "ctrl_c", "leave", "exit"} and "fork" not in failed and "stdin" not in failed, (
        failed
    )
    assert failed["ctrl_c"]["type"] == "KeyboardInterrupt" and "stop it" in failed["ctrl_c"]["traceback"]
    assert failed["leave"]["type"] == "SystemExit" and "exit code 3" in failed["exit"]["message"]
