"""The current folder, somebody's repository or results, executes nothing; what `user=` names is found there."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, SHAPE, STEPS, latest, run_fresh
from fake_studies import a_cell
from omegaconf import OmegaConf

from ablate.config.import_path import find_here, start_importing
from ablate.execution import fork, launcher
from ablate.execution.orders import Order, line
from ablate.planning.checks.user_code import Failed, apart

SCRIPT = "import sys\nfrom ablate.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
# What libraries look for in a sweep, an analysis and an evaluation, and go on without where they do not find it.
PROBED = (
    "attr bottleneck cloudpickle colorama cuda cupy cython envwrap flint fx2trt_oss gmpy gmpy2 hypothesis ipywidgets "
)
PROBED += (
    "lxml monkeytype msvcrt nt numexpr onnx onnx_tf onnxruntime opt_einsum org pydot pynvml pytz scikits sksparse "
)
PROBED += (
    "tabulate tensorflow tensorrt torch2trt torchcomms torchdistx tree triton tvm uarray uharfbuzz unicodedata2 winreg "
)
PROBED += "xarray _winapi random sitecustomize usercustomize ablate analysis wandb yaml"
TINY = latest(*SHAPE, *STEPS, "data.context=48", "data=copy", "seeds=1", "train.parallel=1", "track=wandb")
NORM = """
    import torch

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
    (work / "matplotlibrc").write_text("text.usetex: True\n")  # figures would need a LaTeX
    (tmp_path / "ablate").write_text(SCRIPT)
    return work


def installed(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command that an installation has, from the folder."""
    variables = os.environ | {"PYTHONPATH": str(ROOT), "WANDB_MODE": "offline"} | environment
    command = [sys.executable, str(folder.parent / "ablate"), *words]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)


def test_no_command_and_no_worker_executes_the_current_folder(folder: Path) -> None:
    for words in (["-m", "norm=ln,rms", *TINY], ["analyse"], ["evaluate"], ["status"], ["sync"], ["diff", "ln", "rms"]):
        done = installed(folder, *words)
        assert done.returncode == 0, done.stderr
        assert [*(folder.parent / "executed").iterdir()] == [], words


def test_an_empty_entry_of_pythonpath_is_not_the_current_folder(folder: Path) -> None:
    for name in ("sitecustomize", "usercustomize", "nt", "_winapi"):  # Python's own library asks first for these
        (folder / f"{name}.py").unlink()
    done = installed(folder, "-m", "norm=ln,rms", *TINY, "dry_run=true", PYTHONPATH=f"{ROOT}{os.pathsep}")
    assert done.returncode == 0, done.stderr
    assert [*(folder.parent / "executed").iterdir()] == []


@pytest.mark.parametrize("module", ["ablate", "analysis"])
def test_python_m_leaves_the_folder_before_it_loads_anything(module: str, folder: Path) -> None:
    for name in ("ablate", "analysis"):  # Python takes these for ours
        (folder / f"{name}.py").unlink()
    done = run_fresh(module, *["-m", "norm=ln,nope"] * (module == "ablate"), cwd=folder)
    assert done.returncode == 2 and done.stderr.startswith("ablate"), done.stderr
    assert [*(folder.parent / "executed").iterdir()] == []


def test_user_names_what_is_found_there_in_every_process(folder: Path) -> None:
    """Here a module that derives from another of the same folder: each is named."""
    (folder / "mine.py").write_text("from theirs import Mine\n\nclass Norm(Mine):\n    pass\n")
    (folder / "theirs.py").write_text(dedent(NORM))
    (folder / "conf" / "norm").mkdir(parents=True)
    (folder / "conf" / "norm" / "mine.yaml").write_text("# Mine.\n_target_: mine.Norm\n_partial_: true\n")
    own = ["--config-dir=conf", "-m", "norm=ln,mine", *TINY]
    lost = installed(folder, *own, "user=[mine]", "dry_run=true")
    assert lost.returncode == 2 and "No module named 'theirs'" in lost.stderr
    assert "theirs lies in the current folder, of which user=[...] has to name it, too" in lost.stderr
    done = installed(folder, *own, "user=[mine, theirs]")
    assert done.returncode == 0 and "norm: mine − ln" in done.stdout, done.stderr
    assert installed(folder, "evaluate", "user=[mine,theirs]").returncode == 0
    assert [*(folder.parent / "executed").iterdir()] == []


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process in the folder, whose import path is restored."""
    for name in ("path", "meta_path"):
        monkeypatch.setattr(sys, name, [*getattr(sys, name)])
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.chdir(folder)
    (folder / "mine_too.py").write_text("NUMBER = 7")
    return folder


def test_a_process_that_is_no_copy_finds_the_same(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, where none is forked."""
    monkeypatch.setattr(fork, "FORKS", False)
    find_here(["mine_too.part"])
    assert apart(partial(eval, "__import__('mine_too').NUMBER")) == 7
    with pytest.raises(Failed, match="ModuleNotFoundError"):
        apart(partial(eval, "__import__('tabulate')"))


def test_a_job_of_another_launcher_finds_the_same(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process begins without a command line of ours, and with the current folder where Ray puts it."""
    sys.path.insert(1, str(inside))
    found = "spec = importlib.util.find_spec; print(bool(spec('mine_too')), bool(spec('tabulate')))"

    def alone(*_: Any) -> str:
        code = f"{start_importing()}; import importlib.util; {found}"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout

    monkeypatch.setattr(launcher, "run_alone", alone)
    monkeypatch.setattr(launcher.HydraConfig, "get", lambda: SimpleNamespace(job=SimpleNamespace(num=0)))
    order = Order(results="results", path="cell/run", seed=0, cell=a_cell(), user=["mine_too"])
    assert launcher.job(OmegaConf.create({"order": line(order)})).split() == ["True", "False"]
