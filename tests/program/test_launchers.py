"""Programs as jobs of Slurm and of Ray, both started on this machine: the numbers of runs on this machine."""

import json
from pathlib import Path

import pytest
from clusters import SLURM, WITHOUT_TOKENS, lacking, ray, slurm
from conftest import run_fresh
from small_program import COMMAND, TRAIN, WORDS

pytestmark = pytest.mark.slow


def numbers(folder: Path, *words: str, **environment: str) -> dict[str, float]:
    """The metric of each run of the small program by its folder, after a command in a folder."""
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    done = run_fresh("ablate", "command", COMMAND, *WORDS, "seeds=2", *words, cwd=folder, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    values = {}
    for file in folder.rglob("result.json"):
        values[file.parent.parent.name + file.parent.name[:2]] = json.loads(file.read_text())["final"]["val/loss"]
    return values


@pytest.fixture
def here(tmp_path) -> dict[str, float]:
    """The numbers of runs on this machine."""
    values = numbers(tmp_path / "here")
    assert len(values) == 4
    return values


@pytest.mark.slurm
def test_jobs_of_slurm(here, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    if why := lacking(SLURM):
        pytest.skip(why)
    words = ["hydra/launcher=submitit_slurm", "hydra.launcher.partition=cpu", "hydra.launcher.timeout_min=10"]
    with slurm() as environment:
        assert numbers(tmp_path / "jobs", *words, SLURM_CONF=environment["SLURM_CONF"]) == here


@pytest.mark.ray
def test_jobs_of_ray(here, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_ray_launcher")
    with ray(tmp_path, [[]]) as address:
        words = ["hydra/launcher=ray", f"hydra.launcher.ray.init.address={address}"]
        assert numbers(tmp_path / "jobs", *words, **WITHOUT_TOKENS) == here
