"""The current folder, somebody's repository or results, executes nothing; what `user=` names is found there."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import matplotlib
import pytest
from conftest import ROOT, SHAPE, STEPS, importing, latest, run_fresh
from fake_studies import a_cell, draw_effects_alone
from omegaconf import OmegaConf
from warm_python import run_warm

from ablate.config.import_path import find_here, start_importing
from ablate.execution import launcher
from ablate.execution.pool import Order, line
from ablate.planning.checks import child as fork
from analysis.figures.draw import style

# Several command lines in one process, as the console script of an installation has one.
SCRIPT = """
import sys
from ablate.__main__ import main

for line in sys.argv[1:]:
    sys.argv[1:] = eval(line)
    try:
        main()
    except SystemExit as end:
        print("exit code", end.code)
"""
# What libraries look for in a sweep, an analysis and an evaluation, and go on without where they do not find it.
PROBED = """
attr bottleneck cloudpickle colorama cuda cupy cython envwrap flint fx2trt_oss gmpy gmpy2 hypothesis ipywidgets lxml
monkeytype msvcrt nt numexpr onnx onnx_tf onnxruntime opt_einsum org pydot pynvml pytz scikits sksparse tabulate
tensorflow tensorrt torch2trt torchcomms torchdistx tree triton tvm uarray uharfbuzz unicodedata2 winreg xarray _winapi
random types typing sitecustomize usercustomize ablate analysis wandb yaml
"""
TINY = latest(*SHAPE, *STEPS, "data.context=48", "data=copy", "seeds=1", "train.parallel=1")
SAYS = "import os\nfrom importlib import util\ndef says(channel):\n    "
SAYS += "channel.sendall(f\"{util.find_spec('tabulate')}\\n\".encode())\n    os._exit(3)\n"
NORM = """
    import importlib.util, torch

    assert not importlib.util.find_spec("tabulate"), "the folder is on the path"

    class Mine(torch.nn.Module):
        def __init__(self, dim: int):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(dim))

        def forward(self, x, mask=None):
            return x / (1 + x.abs().amax(-1, keepdim=True)) * self.weight
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose every module leaves a file in `executed` when it is imported."""
    work, executed = tmp_path / "work", tmp_path / "executed"
    for made in (work / "hydra_plugins", work / "evil.dist-info", executed):
        made.mkdir(parents=True)
    files = {name: work / f"{name}.py" for name in PROBED.split()} | {"plugin": work / "hydra_plugins" / "x.py"}
    for name, file in files.items():
        file.write_text(f"open({str(executed / name)!r}, 'w')\n")
    (work / "evil.dist-info" / "METADATA").write_text("Name: evil\nVersion: 1\n")
    (work / "evil.dist-info" / "entry_points.txt").write_text("[torch.backends]\nevil = random:evil\n")
    return work


def test_no_command_and_no_worker_executes_the_folder_but_what_user_names(folder: Path) -> None:
    """Here a module that derives from another of the same folder: each is named."""
    (folder / "mine.py").write_text("from theirs import Mine\n\nclass Norm(Mine):\n    pass\n")
    (folder / "theirs.py").write_text(dedent(NORM))
    (folder / "conf" / "norm").mkdir(parents=True)
    (folder / "conf" / "norm" / "mine.yaml").write_text("# Mine.\n_target_: mine.Norm\n_partial_: true\n")
    draw_effects_alone(folder / "results", "here")
    own = ["--config-dir=conf", "-m", "norm=ln,mine", "study=here", *latest(*TINY, "track=wandb")]
    lines = [[*own, "user=[mine]", "dry_run=true"], [*own, "user=[mine,theirs]"], ["analyse"], ["status"], ["sync"]]
    installed = folder.parent / "installed"
    installed.mkdir()
    (installed / "ablate_lines.py").write_text(SCRIPT)
    for name in ("ablate", "analysis"):  # the folder comes first until the command leaves it
        (folder / f"{name}.py").unlink()
    path = os.pathsep.join([str(ROOT), str(installed)])
    words = map(repr, lines)
    done = run_warm(["ablate_lines", *words], folder, importing(WANDB_MODE="offline") | {"PYTHONPATH": path})
    assert done.returncode == 0 and [*(folder.parent / "executed").iterdir()] == [], done.stderr
    codes = re.findall(r"^exit code (\w+)$", done.stdout, re.MULTILINE)
    assert codes == ["2", *["0"] * 4] and "mine − ln: " in done.stdout, done.stdout + done.stderr
    assert "theirs is in the current folder: add it to user=[...]" in done.stderr


@pytest.mark.parametrize("module", ["ablate", "analysis"])
def test_python_m_leaves_the_folder_before_it_loads_anything(module: str, folder: Path) -> None:
    """Nor has it an empty entry of PYTHONPATH."""
    asked_first = ("sitecustomize", "usercustomize", "nt", "_winapi", "types", "typing")  # by Python itself
    for name in ("ablate", "analysis", *asked_first):
        (folder / f"{name}.py").unlink()
    done = run_fresh(module, *["status"] * (module == "ablate"), cwd=folder, PYTHONPATH=os.pathsep)
    assert done.returncode == 2 and done.stderr.startswith("ablate"), done.stderr
    assert [*(folder.parent / "executed").iterdir()] == []


def test_the_console_script_loads_nothing_of_an_empty_entry_of_pythonpath(folder: Path) -> None:
    """As an installation's script begins, but for what the script itself imports."""
    for name in ("ablate", "analysis", "sitecustomize", "usercustomize"):
        (folder / f"{name}.py").unlink()
    for name in ("re", "collections", "textwrap", "argparse", "difflib"):
        (folder / f"{name}.py").write_text(f"open({str(folder.parent / 'executed' / name)!r}, 'w')\n")
    script = "import sys; sys.argv[:] = ['ablate', 'status']; from ablate.__main__ import main; main()"
    path = os.pathsep.join(["", str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-P", "-c", script], cwd=folder, env=environment, capture_output=True)
    assert done.returncode == 2 and done.stderr.startswith(b"ablate status: "), done.stderr
    assert [*(folder.parent / "executed").iterdir()] == []


@pytest.mark.parametrize("imported", ["ablate", "analysis"])
def test_a_module_of_the_user_finds_its_siblings(imported: str, tmp_path: Path) -> None:
    """`python -m package.train`, whose package imports ours, still has the current folder on its path."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text(f"import {imported}\n")
    (tmp_path / "package" / "train.py").write_text("import sibling\n")
    (tmp_path / "sibling.py").write_text("print('found')\n")
    done = run_fresh("package.train", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "found\n"), done.stderr


def test_a_matplotlibrc_of_the_folder_changes_no_figure() -> None:
    assert {name for name in matplotlib.rcParams if not name.startswith("backend")} <= style.RC.keys()


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process in the folder, whose import path is restored."""
    for name in ("path", "meta_path"):
        monkeypatch.setattr(sys, name, [*getattr(sys, name)])
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.chdir(folder)
    (folder / "mine_too.py").write_text(SAYS)
    return folder


def test_a_process_that_is_no_copy_finds_the_same(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, where none is forked."""
    monkeypatch.setattr(fork, "FORKS", False)
    monkeypatch.delattr(os, "fork")
    find_here(["mine_too.part"])
    child = fork.start(importlib.import_module("mine_too").says)
    assert child.receive(60) == "None" and child.end(60) == 3
    del sys.modules["mine_too"]


def test_a_job_of_another_launcher_finds_the_same(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process begins without a command line of ours, and with the current folder where Ray puts it."""
    sys.path.insert(1, str(inside))
    found = "spec = importlib.util.find_spec; print(bool(spec('mine_too')), bool(spec('tabulate')))"

    def alone(*_: Any) -> str:
        code = f"{start_importing()}; import importlib.util; {found}"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout

    monkeypatch.setattr(launcher, "run_alone", alone)
    monkeypatch.setattr(
        launcher.HydraConfig,
        "get",
        lambda: SimpleNamespace(job=SimpleNamespace(num=0), launcher=SimpleNamespace(_target_="ray")),
    )
    order = Order(results="results", path="cell/run", seed=0, cell=a_cell(), user=["mine_too"])
    assert launcher.job(OmegaConf.create({"order": line(order)})).split() == ["True", "False"]
