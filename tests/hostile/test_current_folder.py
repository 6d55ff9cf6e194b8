"""The current folder, somebody's repository or results, executes nothing; what `user=` names is found there."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from conftest import ROOT, SHAPE, STEPS, importing, latest, run_fresh
from fake_studies import draw_effects_alone

from ablate.config.import_path import find_packages_here
from ablate.planning.checks import child

# What libraries look for in a sweep, an analysis and an evaluation, and go on without where they do not find it.
PROBED = """
attr bottleneck cloudpickle colorama cuda cupy cython envwrap flint fx2trt_oss gmpy gmpy2 hypothesis ipywidgets lxml
monkeytype msvcrt nt numexpr onnx onnx_tf onnxruntime opt_einsum org pydot pynvml pytz scikits sksparse tabulate
tensorflow tensorrt torch2trt torchcomms torchdistx tree triton tvm uarray uharfbuzz unicodedata2 winreg xarray _winapi
random types typing sitecustomize usercustomize ablate analysis wandb yaml
"""


@pytest.fixture
def executed(tmp_path) -> Path:
    """A folder that holds a file for each module of the current folder that was imported."""
    (tmp_path / "executed").mkdir()
    return tmp_path / "executed"


@pytest.fixture
def folder(tmp_path, executed) -> Path:
    """A current folder whose every module leaves a file in `executed` when it is imported."""
    work = tmp_path / "work"
    (work / "hydra_plugins").mkdir(parents=True)
    for name in (*PROBED.split(), "hydra_plugins/x"):
        (work / f"{name}.py").write_text(f"open({str(executed / Path(name).name)!r}, 'w')\n")
    (work / "evil.dist-info").mkdir()
    (work / "evil.dist-info" / "METADATA").write_text("Name: evil\nVersion: 1\n")
    (work / "evil.dist-info" / "entry_points.txt").write_text("[torch.backends]\nevil = random:evil\n")
    return work


def remove(folder: Path, *names: str) -> None:
    """Remove modules that Python itself or the test must find elsewhere."""
    for name in names:
        (folder / f"{name}.py").unlink()


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


def test_commands_and_workers_execute_only_what_user_names(folder, executed):
    """A module that derives from another of the same folder: both must be named."""
    remove(folder, "ablate", "analysis")  # the folder comes first until the command leaves it
    (folder / "mine.py").write_text("from theirs import Mine\n\nclass Norm(Mine):\n    pass\n")
    (folder / "theirs.py").write_text(NORM)
    (folder / "conf" / "norm").mkdir(parents=True)
    (folder / "conf" / "norm" / "mine.yaml").write_text("# Mine.\n_target_: mine.Norm\n_partial_: true\n")
    draw_effects_alone(folder / "results", "here")
    small = latest(*SHAPE, *STEPS, "data=copy", "data.context=48", "seeds=1", "train.parallel=1", "track=wandb")
    sweep = ["--config-dir=conf", "-m", "norm=ln,mine", "study=here", *small]
    lines = [[*sweep, "user=[mine]", "dry_run=true"], [*sweep, "user=[mine,theirs]"], ["analyse"], ["status"], ["sync"]]
    installed = folder.parent / "installed"
    installed.mkdir()
    (installed / "ablate_lines.py").write_text(SCRIPT)
    command = [sys.executable, str(installed / "ablate_lines.py"), *map(repr, lines)]
    environment = importing(WANDB_MODE="offline")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert list(executed.iterdir()) == [], done.stderr
    assert re.findall(r"^exit code (\w+)$", done.stdout, re.MULTILINE) == ["2", "0", "0", "0", "0"], done.stderr
    assert "mine − ln: " in done.stdout
    assert "theirs is in the current folder: add it to user=[...]" in done.stderr


# How commands are started, and the modules of the folder that Python itself or the test must find elsewhere.
STARTED = ["ablate", "analysis", "sitecustomize", "usercustomize"]
CONSOLE_SCRIPT = "import sys; sys.argv[:] = ['ablate', 'status']; from ablate.__main__ import main; main()"
WAYS = {
    "python -m ablate": (["-m", "ablate", "status"], [*STARTED, "nt", "_winapi", "types", "typing"]),
    "python -m analysis": (["-m", "analysis"], [*STARTED, "nt", "_winapi", "types", "typing"]),
    "console script": (["-P", "-c", CONSOLE_SCRIPT], STARTED),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_command_leaves_the_folder_before_it_loads_anything(way, folder, executed):
    """Nor is an empty entry of PYTHONPATH the folder."""
    words, needed = WAYS[way]
    remove(folder, *needed)
    if way == "console script":
        for name in ("re", "collections", "textwrap", "argparse", "difflib"):
            (folder / f"{name}.py").write_text(f"open({str(executed / name)!r}, 'w')\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["", str(ROOT)])}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("ablate"), done.stderr
    assert list(executed.iterdir()) == []


def test_a_module_of_the_user_that_imports_us_finds_its_siblings(tmp_path):
    """As `python -m package.train`, whose package imports both of ours."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import ablate, analysis\n")
    (tmp_path / "package" / "train.py").write_text("import sibling\n")
    (tmp_path / "sibling.py").write_text("print('imported')\n")
    done = run_fresh("package.train", cwd=tmp_path, PYTHONSAFEPATH="")
    assert (done.returncode, done.stdout) == (0, "imported\n"), done.stderr


IS_FOUND = "__import__('importlib.util').util.find_spec({!r}) is not None"


@pytest.fixture
def inside(folder, monkeypatch) -> Path:
    """The folder as the current one of this process, whose import path is restored."""
    for name in ("path", "meta_path"):
        monkeypatch.setattr(sys, name, [*getattr(sys, name)])
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.chdir(folder)
    (folder / "mine_too.py").write_text("")
    return folder


@pytest.mark.usefixtures("inside")
def test_a_child_process_finds_the_named_module_alone():
    find_packages_here(["mine_too.part"])
    with child.one_child():
        assert child.run_in_child(partial(eval, IS_FOUND.format("mine_too")))
        assert not child.run_in_child(partial(eval, IS_FOUND.format("tabulate")))
