"""What a component does to its process is named, and changes no other cell's numbers."""

import functools
import importlib
import json
import multiprocessing
import os
import sys
from pathlib import Path

import numpy
import pytest
import torch
from conftest import latest
from crashing_norm import processes, start, wait_for
from one_run import sweep_here, train, write_plan
from own_module import write_module

from ablate.config.errors import PlanError
from ablate.config.groups import CONF
from ablate.execution import train_run
from ablate.planning.checks import child
from ablate.planning.plan import plan_study
from ablate.training.devices import configure_torch

ENDING = {
    "ctrl_c": ("raise_(KeyboardInterrupt('stop it'))", "KeyboardInterrupt: stop it"),
    "leave": ("sys.exit(0)", "SystemExit: 0"),
    "exit": ("os._exit(3)", "its process ended with exit code 3"),
    "closing": ("os.closerange(0, 200)", "its process ended with exit code 1"),
}
CALMLY = [  # which harms no run that does it
    "torch.set_num_threads(3)",
    "os.environ.update(ABLATE_CACHE='/nowhere', OMP_NUM_THREADS='5')",
    "os.chdir('/')",
    "os.close(0)",
    "subprocess.Popen(['sleep', '1000'])",
    'print(\'{"status": "done"}\', flush=True)',
    "os.fork()",
]
DTYPE = "torch.set_default_dtype(torch.float64)"
BADLY = [
    DTYPE,
    "F.relu = torch.nn.functional.relu = lambda x, inplace=False: x",
    "torch.set_grad_enabled(False)",
    "torch.manual_seed(7), random.seed(7), numpy.random.seed(7)",
    "torch.use_deterministic_algorithms(True), torch.set_flush_denormal(True)",
    "setattr(nn.Linear, 'forward', lambda self, x: 0 * F.linear(x, self.weight, self.bias))",
]
TOGETHER = {"calmly": "; ".join(CALMLY), "badly": "; ".join(BADLY)}
CODE = """
import os, random, subprocess, sys, time
import numpy
import torch
import torch.nn.functional as F
from torch import nn

TRAINS = any("from ablate.execution." in word for word in sys.orig_argv)


def raise_(error):
    raise error


class Deed(nn.Module):
    done = False

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x, mask=None):
        if not Deed.done and self.where and (self.training or not TRAINS):
            Deed.done = True
            self.do()
        return (x * self.weight * self.scale).to(x.dtype)


"""
CLASS = """
class {name}(Deed):
    scale, where = {scale}, {where}

    def do(self):
        {deed}


"""


def write(folder: Path, deeds: dict[str, str], where: str = "True") -> list[str]:
    """The package `deeds` with a norm for each, which does it only `where`; what makes it known."""
    (folder / "conf" / "norm").mkdir(parents=True)
    code = CODE
    every = deeds | {name: deed for name, (deed, _) in ENDING.items()}
    for i, (name, deed) in enumerate(every.items()):  # at scales of their own, or they were one network
        given = {"{name}": name.title(), "{deed}": deed, "{scale}": f"{1 + i / 50}", "{where}": where}
        code += functools.reduce(lambda text, key: text.replace(key, given[key]), given, CLASS)
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
    wait_for(lambda: not processes(process.pid))  # nothing is left running
    return process.returncode, out + err


@pytest.mark.slow
def test_what_a_component_does_to_its_process_reaches_no_other_run(small, tmp_path, untried):
    """While it trains; the plan refuses what is done there."""
    own = write(tmp_path, TOGETHER, "TRAINS")
    clean = tmp_path / "clean"
    dirty = tmp_path / "dirty"
    assert sweep_here(*latest(*small, "norm=ln,rms", "seeds=1", f"results_dir={clean}")) == 0
    words = [*own, f"norm=ln,{','.join([*TOGETHER, *ENDING])},rms"]
    code, said = sweep(tmp_path, *small, *words, f"results_dir={dirty}")
    assert code == 1 and "stopped" not in said, said
    for norm in ("ln", "rms"):
        assert of(dirty, norm) == of(clean, norm), norm
    ended = {name: of(dirty, name) for name in (*TOGETHER, *ENDING)}
    failed = {name: found["error"] for name, found in ended.items() if found["status"] == "failed"}
    assert failed.keys() >= {"badly", "ctrl_c", "leave", "exit"} and "calmly" not in failed, failed
    assert failed["ctrl_c"]["type"] == "KeyboardInterrupt" and "stop it" in failed["ctrl_c"]["traceback"]
    assert failed["leave"]["type"] == "SystemExit" and "exit code 3" in failed["exit"]["message"]


def test_a_component_that_ends_its_process_or_builds_other_models_is_one_line(small, tmp_path, monkeypatch):
    user, folder = write(tmp_path, {"dtype": DTYPE})
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, (_, why) in ENDING.items():
        with pytest.raises(PlanError) as refused:
            plan_study((*small, f"norm=ln,{name}", user), folder.partition("=")[2])
        [problem] = refused.value.problems
        assert str(problem).removeprefix(f"{name}: ") == f"deeds.{name.title()}: {why}"
    with pytest.raises(PlanError, match=r"deeds\.Dtype changes torch's default dtype"):
        plan_study((*small, "norm=ln,dtype", user), folder.partition("=")[2])
    assert "deeds" not in sys.modules, "nothing of it was loaded here"


IMPORTED = """
import torch
from torch import nn

{statement}


class Mine(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x, mask=None):
        return (x * self.weight).to(x.dtype)
"""
CHANGES = {
    "torch.set_default_dtype(torch.float64)": "torch's default dtype from torch.float32 to torch.float64",
    "torch.set_flush_denormal(True)": "whether subnormal numbers are taken for 0 from False to True",
    "torch.use_deterministic_algorithms(True)": "torch's deterministic algorithms from False to True",
    "torch.set_float32_matmul_precision('medium')": "torch's precision of matrix products from highest to medium",
}


def test_an_import_that_changes_settings_of_torch_is_refused(refused, tmp_path, monkeypatch):
    """They would be a variant's effect that nobody has written."""
    source = IMPORTED.format(statement="\n".join(CHANGES))
    name = write_module(tmp_path, monkeypatch, source, "norm", {"mine": ""})
    lines = "\n".join(refused("norm=ln,mine", f"user=[{name}]", config_dir=str(tmp_path / "conf")))
    for change in CHANGES.values():
        assert f"{name} changes {change}" in lines


COUNTING = """
import torch
from torch import nn


class Python(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.n = 0

    def forward(self, x, mask=None):
        if self.training:
            self.n = self.n + 1
        return (x * self.weight * (1 + 0.1 * self.n)).to(x.dtype)


class Always(Python):
    def forward(self, x, mask=None):
        self.n += 1
        return (x * self.weight * (1 + 0.1 * self.n)).to(x.dtype)


class Buffer(Python):
    def __init__(self, dim: int):
        super().__init__(dim)
        del self.n
        self.register_buffer("n", torch.zeros(()))
"""


def test_state_that_no_checkpoint_has_is_refused(plan, refused, tmp_path, monkeypatch, checks_here):
    name = write_module(tmp_path, monkeypatch, COUNTING, "norm", {"python": "", "always": "", "buffer": ""})
    words = [f"user=[{name}]", "seeds=1"]
    for norm in ("python", "always"):  # in training alone, and at evaluation, too
        [line] = refused(f"norm={norm}", *words, config_dir=str(tmp_path / "conf"))
        assert f"{name}.{norm.title()} keeps state where no checkpoint has it" in line and "register_buffer" in line
    assert plan("norm=buffer", *words, config_dir=str(tmp_path / "conf")).manifest.cells


OWN_NORM = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, dim: int, eps: float, gain: bool = True):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x, mask=None):
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight

def momentum_sgd(params, lr, weight_decay, momentum: float):
    return torch.optim.SGD(params, lr=lr, weight_decay=weight_decay, momentum=momentum)
"""


def test_planning_loads_no_user_code(plan, tmp_path, monkeypatch):
    """Not for defaults of constructors, options of a pattern, or the memory of an optimiser either."""
    name = write_module(tmp_path, monkeypatch, OWN_NORM, "norm", {"mine": "eps: 1.0e-5"})
    (tmp_path / "conf" / "optim").mkdir()
    settings = (CONF / "optim" / "sgd.yaml").read_text().replace("nesterov", "# nesterov")
    settings = settings.replace("ablate.training.optim.sgd", f"{name}.momentum_sgd")
    (tmp_path / "conf" / "optim" / "mine.yaml").write_text(settings)
    pattern = ["norm=ln,rms+mine", "+norm.gain=true", "model.layers=2"]
    for words in (["norm=ln,mine", "optim=mine"], pattern):
        planned = plan(*words, f"user=[{name}]", config_dir=str(tmp_path / "conf"))
        assert len(planned.manifest.cells) == 2 and name not in sys.modules, words
    assert planned.manifest.cells[1].config.norm["mine"]["gain"] is True


def test_built_in_runs_change_nothing_that_later_runs_of_their_process_depend_on(plan):
    cells = [["norm=bn", "optim=muon"], ["data=mlm", "model=encoder"], ["ffn=moe", "objective=multi_token"]]
    plans = [plan(*words, "seeds=1", "train.average=ema") for words in cells]
    for planned in plans:
        write_plan(planned)

    def state():
        random_numbers = [torch.default_generator.get_state().tolist(), str(numpy.random.get_state(legacy=False))]
        settings = {name: str(value) for name, value in child.read_settings().items()}
        return settings | {"random": random_numbers, "folder": os.getcwd(), "errors": numpy.geterr()}

    forked = multiprocessing.get_context("fork")
    receiver, sender = forked.Pipe()

    def train_all():
        configure_torch()
        before = state()
        statuses = [train(planned)[0] for planned in plans]
        sender.send([statuses, before == state()])

    process = forked.Process(target=train_all)
    process.start()
    sender.close()  # or nobody would notice that the process has ended without a word
    assert receiver.recv() == [["done"] * len(plans), True]
    process.join()


FAILING = """
from torch import nn

class Failing(nn.Module):
    def __init__(self, dim: int):
        super().__init__()

    def forward(self, x, mask=None):
        return explode(x)

def explode(x):
    raise RuntimeError("my norm exploded")
"""


def test_an_error_names_the_line_of_user_code(tmp_path, monkeypatch):
    name = write_module(tmp_path, monkeypatch, FAILING, "norm", {"failing": ""})
    module = importlib.import_module(name)
    try:
        module.Failing(4)(torch.ones(4))
    except RuntimeError as error:
        of_user_code = train_run.described(error, [name])
        of_others = train_run.described(error, [])
    assert of_user_code.message == f"my norm exploded ({name}.py:12)"
    assert of_others.message == "my norm exploded"
