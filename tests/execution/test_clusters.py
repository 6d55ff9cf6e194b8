"""Slurm, Ray and two hosts on one folder, started on this machine: equal numbers, whatever is cancelled or killed.

What cannot be installed is skipped.
"""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import SLURM, WITHOUT_TOKENS, host, lacking, no_hosts, ray, slurm
from conftest import SHAPE, STEPS, importing, latest, run_fresh
from crashing_norm import wait_for
from test_survival import numbers

from ablate.results.run import Run

pytestmark = pytest.mark.slow
# Long enough for something to happen to a run in the midst of it.
LONG = ["norm=ln,rms", "seeds=1", "train.steps=2000", "train.eval_every=500", "train.checkpoint_seconds=0.2"]


@pytest.fixture(scope="module")
def words(text: Path) -> list[str]:
    """The study that is trained on all of them."""
    return latest(*SHAPE, *STEPS, "data=text", f"data.path={text}", *LONG)


@pytest.fixture(scope="module")
def ours(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the default launcher's runs leave."""
    folder = tmp_path_factory.mktemp("ours")
    done = run_fresh("ablate", "-m", *words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return numbers(folder / "results")


@pytest.fixture(scope="module")
def queue() -> Iterator[dict[str, str]]:
    """The environment of a Slurm of one node."""
    if why := lacking(SLURM) or lacking_plugin("submitit"):
        pytest.skip(why)
    with slurm() as environment:
        yield {"SLURM_CONF": environment["SLURM_CONF"]}


def lacking_plugin(launcher: str) -> str:
    """That Hydra's plugin of a launcher is not installed; empty if it is."""
    names = ("hydra_plugins", f"hydra_plugins.hydra_{launcher}_launcher")
    return "" if all(map(importlib.util.find_spec, names)) else f"no hydra-{launcher}-launcher"


def begin(*arguments: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """The command line of a study, begun in a new interpreter."""
    command = [sys.executable, "-m", "ablate", "-m", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=importing(**environment), stdout=pipe, stderr=pipe, text=True)


def runs(folder: Path) -> dict[str, Run]:
    """The runs of a results folder by their cell's norm."""
    found = [path.relative_to(folder / "results/runs") for path in folder.glob("results/runs/*/*")]
    return {str(path).partition("-")[0]: Run(folder / "results", str(path)) for path in found}


def both_have_checkpoints(folder: Path) -> bool:
    return sum(run.checkpoint_file.exists() for run in runs(folder).values()) == 2


SLURM_WORDS = ["hydra/launcher=submitit_slurm", "hydra.launcher.partition=cpu", "hydra.launcher.timeout_min=10"]


def test_slurm_jobs_of_which_one_is_cancelled_and_one_dies_are_completed_by_the_same_command(
    words, ours, queue, tmp_path
):
    process = begin(*words, *SLURM_WORDS, cwd=tmp_path, **queue)
    wait_for(lambda: both_have_checkpoints(tmp_path) or process.poll() is not None)
    listed = subprocess.run(["squeue", "-h", "-o", "%F"], env=os.environ | queue, capture_output=True, text=True)
    [job] = {*listed.stdout.split()}
    killed = runs(tmp_path)["rms"].holder()
    subprocess.run(["scancel", f"{job}_0"], env=os.environ | queue, check=True)
    os.kill(killed.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1 and re.search(rf"ablate: the launcher failed .*{job}_0.*CANCELLED", err), out + err
    wait_for(lambda: (result := runs(tmp_path)["rms"].result()) is not None and result.status == "failed", 60)
    assert runs(tmp_path)["rms"].result().error.type == "WorkerDied"
    assert runs(tmp_path)["ln"].result() is None and runs(tmp_path)["ln"].checkpoint_file.exists()
    wait_for(lambda: runs(tmp_path)["ln"].holder() is None, 20)
    again = run_fresh("ablate", "-m", *words, *SLURM_WORDS, cwd=tmp_path, **queue)
    assert again.returncode == 0, again.stdout + again.stderr
    assert {name: run.result().resumed for name, run in runs(tmp_path).items()} == {"ln": 1, "rms": 1}
    assert numbers(tmp_path / "results") == ours


def test_a_ray_cluster_of_two_nodes(words, ours, tmp_path):
    if why := lacking_plugin("ray") or no_hosts():
        pytest.skip(why)
    to = ["hydra/launcher=ray", "+hydra.launcher.ray.remote.scheduling_strategy=SPREAD"]
    with (
        host("first", tmp_path) as first,
        host("second", tmp_path) as second,
        ray(tmp_path, [first, second]) as address,
    ):
        given = [*words, *to, f"hydra.launcher.ray.init.address={address}"]
        done = run_fresh("ablate", "-m", *given, cwd=tmp_path, **WITHOUT_TOKENS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert numbers(tmp_path / "results") == ours
    assert {run.result().host for run in runs(tmp_path).values()} == {"first", "second"}
