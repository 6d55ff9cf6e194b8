"""Finished runs stay done when code moves, is renamed and split."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from warm_python import run_warm

from ablate.results.code_hash import LOOP, PACKAGE, Sources

USERS = {
    "code/mine/__init__.py": "",
    "code/mine/tools.py": "def half(x):\n    return x / 2\n",
    "code/mine/norms.py": """
from torch import nn
from mine import tools

class Half(nn.LayerNorm):
    def __init__(self, dim: int):
        super().__init__(dim)

    def forward(self, x, mask=None):
        return tools.half(super().forward(x))
""",
    "conf/norm/half.yaml": "# Half of a LayerNorm.\n_target_: mine.norms.Half\n_partial_: true\n",
}
LOADED = """
import sys
from pathlib import Path
from ablate import load
for config in sorted(Path("results").glob("runs/half-*/*/config.yaml")):
    print(type(load(config.parent, user=["mine"]).model().final_norm).__module__)
study = load(next(Path("results").glob("studies/*")))
print(set(study.runs["status"]), study.notes)
assert sys.modules["ablate"].__file__.startswith(sys.argv[1])
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code, to be edited, beside a user's package, in the folder that commands are given in."""
    folder = tmp_path_factory.mktemp("moved")
    for name in ("ablate", "conf", "experiments"):
        shutil.copytree(ROOT / name, folder / "checkout" / name)
    for name, text in USERS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "checkout"


def run(checkout: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A module's command line, with the code of the copy and of the user, from the folder that these are in."""
    path = os.pathsep.join([str(checkout), str(checkout.parent / "code")])
    return run_warm(command, checkout.parent, os.environ | {"PYTHONPATH": path})


def sweep(checkout: Path, small: list[str]) -> tuple[set[tuple[str, int]], str]:
    """What is on disk after a sweep of the copy's, and when it was written; what it said."""
    settings = [text for text in small if not text.startswith("results_dir=")]
    own = ["user=[mine]", f"--config-dir={checkout.parent / 'conf'}"]
    done = run(checkout, "ablate", "-m", "norm=ln,rms,half", "seeds=1", "train.parallel=1", *settings, *own)
    assert done.returncode == 0, done.stderr
    files = checkout.parent.glob("results/runs/*/*/result.json")
    return {(str(file), file.stat().st_mtime_ns) for file in files}, done.stderr


def module_of(name: str) -> str:
    """The module that a definition of ours stands in."""
    [(module, _)] = Sources({"ablate": [PACKAGE]}).definitions_named([name])
    return module


def rewrite(folder: Path, change: dict[str, str]) -> None:
    """Replaces dotted names in every file of code and configuration."""
    pattern = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, change)) + r")(?!\w)")
    for file in (file for kind in ("*.py", "*.yaml") for file in folder.rglob(kind)):
        text = file.read_text(encoding="utf-8")
        if (other := pattern.sub(lambda match: change[match[1]], text)) != text:  # the rest need not be compiled anew
            file.write_text(other, encoding="utf-8")


def rename(checkout: Path, old: str, new: str) -> None:
    """Gives a module another name, wherever it is named; `from a import b` imports it under the old one."""
    files = [checkout / f"{name.replace('.', '/')}.py" for name in (old, new)]
    files[1].parent.mkdir(parents=True, exist_ok=True)
    files[0].rename(files[1])
    (above, last), (below, first) = (name.rpartition(".")[::2] for name in (old, new))
    rewrite(checkout, {f"from {above} import {last}": f"from {below} import {first} as {last}", old: new})


def split(checkout: Path, name: str, new: str) -> None:
    """Moves one definition out of its module into a new one, which has the imports of the old one."""
    file = checkout / f"{module_of(name).replace('.', '/')}.py"
    text = file.read_text(encoding="utf-8")
    body = ast.parse(text).body
    [found] = [node for node in body if getattr(node, "name", None) == name]
    imports = [ast.unparse(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = text.splitlines()
    taken = lines[found.lineno - 1 : found.end_lineno]
    lines[found.lineno - 1 : found.end_lineno] = [f"from {new} import {name}"]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (checkout / f"{new.replace('.', '/')}.py").write_text("\n".join([*imports, "", *taken, ""]), encoding="utf-8")


def replace(file: Path, old: str, new: str) -> None:
    """Replaces what is in a file once."""
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old} is not in {file} once"
    file.write_text(text.replace(old, new), encoding="utf-8")


def move_all(checkout: Path) -> None:
    """Renames and moves modules of ours and of the user's, and takes a definition out of one."""
    norm, loop = module_of("RMSNorm"), module_of(LOOP[0])
    split(checkout, "angles", "ablate.model.turning")
    rename(checkout, norm, "ablate.model.normalisation")
    rename(checkout, loop, "ablate.training.loop.of_steps")
    rename(checkout, module_of("learning_rate"), "ablate.training.rates")
    mine = checkout.parent / "code" / "mine"
    (mine / "layers").mkdir()
    (mine / "norms.py").rename(mine / "layers" / "halves.py")
    (mine / "tools.py").rename(mine / "helpers.py")
    replace(mine / "layers" / "halves.py", "from mine import tools\n", "from ..helpers import half as by_two\n")
    replace(mine / "layers" / "halves.py", "tools.half", "by_two")
    replace(checkout.parent / "conf" / "norm" / "half.yaml", "mine.norms.", "mine.layers.halves.")


def test_finished_runs_stay_done(checkout: Path, small: list[str]) -> None:
    before, _ = sweep(checkout, small)
    assert len(before) == 3
    move_all(checkout)
    after, said = sweep(checkout, small)
    assert after == before, f"a run is trained again: {said}"
    (checkout.parent / "loaded.py").write_text(LOADED)
    loaded = run(checkout, "loaded", str(checkout))
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.startswith("mine.layers.halves\n") and "{'done'} []" in loaded.stdout
