"""Other launchers than our own carry a study out to the same numbers; what is not installed is skipped."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from clusters import WITHOUT_TOKENS
from conftest import SHAPE, STEPS, latest, run_fresh
from one_run import numbers

PLUGINS = {"joblib": "hydra_joblib_launcher", "submitit_local": "hydra_submitit_launcher", "ray": "hydra_ray_launcher"}
EXTRAS = {"joblib": "joblib", "submitit_local": "slurm", "ray": "ray"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ours(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the default launcher's runs leave."""
    return swept(text, tmp_path_factory.mktemp("ours"))


@pytest.mark.parametrize(
    "launcher",
    ["joblib", pytest.param("submitit_local", marks=pytest.mark.slurm), pytest.param("ray", marks=pytest.mark.ray)],
)
def test_a_launcher_gives_equal_numbers(launcher: str, text: Path, ours: dict[str, Any], tmp_path: Path) -> None:
    names = ("hydra_plugins", f"hydra_plugins.{PLUGINS[launcher]}")  # without its parent a module cannot be asked for
    if not all(map(importlib.util.find_spec, names)):
        pytest.skip(f"no hydra/launcher={launcher}: pip install -e '.[{EXTRAS[launcher]}]'")
    assert swept(text, tmp_path, f"hydra/launcher={launcher}") == ours


@pytest.mark.parametrize("how", ["torchrun", pytest.param("submitit_local", marks=pytest.mark.slurm)])
def test_two_tasks_of_a_job_train_one_run_together(how: str, text: Path, tmp_path: Path) -> None:
    parts, job = (
        ["train.parts=2", "model.dropout=0.1"],
        ["hydra/launcher=submitit_local", "hydra.launcher.tasks_per_node=2"],
    )
    tasks = ["torch.distributed.run", "--nproc-per-node=2", "-m"] if how == "torchrun" else []
    if not tasks and importlib.util.find_spec("submitit") is None:
        pytest.skip("no hydra/launcher=submitit_local: pip install -e '.[slurm]'")
    for folder in ("alone", "tasks"):
        (tmp_path / folder).mkdir()
    alone = swept(text, tmp_path / "alone", *parts)
    job = ["train.devices=2", *([] if tasks else job)]
    assert swept(text, tmp_path / "tasks", *parts, *job, before=tasks) == alone
    assert not list(tmp_path.glob("**/.ranks*")) and not list(tmp_path.glob("**/lease.json"))


def swept(text: Path, folder: Path, *more: str, before: Sequence[str] = ()) -> dict[str, Any]:
    """Train two cells with one seed in a folder: all that was measured."""
    small = latest(*SHAPE, *STEPS, "train.steps=20", "train.eval_every=10", "data=text", f"data.path={text}", "seeds=1")
    done = run_fresh(*before, "ablate", "-m", "norm=ln,rms", *small, *more, cwd=folder, **WITHOUT_TOKENS)
    assert done.returncode == 0, done.stdout + done.stderr
    found = numbers(folder / "results")
    assert len(found) == 2
    return found
