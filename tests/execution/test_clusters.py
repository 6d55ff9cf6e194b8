"""Other launchers than our own, Slurm, Ray and two hosts on one folder: equal numbers, whatever is cancelled or killed.

What cannot be installed is skipped.
"""

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from clusters import SLURM, WITHOUT_TOKENS, host, lacking, no_hosts, ray, slurm
from conftest import SHAPE, STEPS, importing, latest, run_fresh
from crashing_norm import STARTED, wait_for
from one_run import numbers

from ablate.runs.folder import Run

pytestmark = pytest.mark.slow
# Long enough for something to happen to a run in the midst of it.
LONG = ["norm=ln,rms", "seeds=1", "train.steps=2000", "train.eval_every=500", "train.checkpoint_seconds=0.2"]


@pytest.fixture(scope="module")
def words(text) -> list[str]:
    """The study that is trained on all of them."""
    return latest(*SHAPE, *STEPS, "data=text", f"data.path={text}", *LONG)


@pytest.fixture(scope="module")
def ours(words, tmp_path_factory) -> dict[str, Any]:
    """What the default launcher's runs leave."""
    folder = tmp_path_factory.mktemp("ours")
    done = run_fresh("ablate", "-m", *words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return numbers(folder / "results")


@pytest.fixture(scope="module")
def queue(tmp_path_factory) -> Iterator[dict[str, str]]:
    """The environment of a Slurm, of two nodes where this machine can be two hosts."""
    if why := lacking(SLURM) or lacking_plugin("submitit"):
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("nodes")
    with contextlib.ExitStack() as nodes:
        names = () if no_hosts() else HOSTS
        hosts = {name: nodes.enter_context(host(name, folder)) for name in names}
        environment = nodes.enter_context(slurm(**hosts))
        yield {"SLURM_CONF": environment["SLURM_CONF"]}


def lacking_plugin(launcher: str) -> str:
    """That Hydra's plugin of a launcher is not installed; empty if it is."""
    names = ("hydra_plugins", f"hydra_plugins.hydra_{launcher}_launcher")
    return "" if all(map(importlib.util.find_spec, names)) else f"no hydra-{launcher}-launcher"


def begin(*arguments: str, cwd: Path, within: Sequence[str] = (), **environment: str) -> subprocess.Popen[str]:
    """The command line of a study, begun in a session of its own, perhaps on another host."""
    process = subprocess.Popen(
        [*within, sys.executable, "-m", "ablate", "-m", *arguments],
        cwd=cwd,
        env=importing(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    STARTED.append(process.pid)
    return process


def runs(folder: Path) -> dict[str, Run]:
    """The runs of a results folder by their cell's norm."""
    found = [path.relative_to(folder / "results/runs") for path in folder.glob("results/runs/*/*")]
    return {str(path).partition("-")[0]: Run(folder / "results", str(path)) for path in found}


def wait_for_checkpoints(process: subprocess.Popen[str], folder: Path, count: int = 2) -> dict[str, Run]:
    """Wait until so many runs of a command have written a checkpoint; fails with what it says if it ends before."""
    found = "results/runs/*/*/checkpoint.pt"
    wait_for(lambda: process.poll() is not None or len(list(folder.glob(found))) == count)
    assert process.poll() is None, process.communicate()
    return runs(folder)


def the_job(queue: dict[str, str]) -> set[str]:
    """The number of the only job, or array of jobs, in Slurm's queue."""
    listed = subprocess.run(["squeue", "-h", "-o", "%F"], env=os.environ | queue, capture_output=True, text=True)
    return {*listed.stdout.split()}


HOSTS = ("first", "second")
SLURM_WORDS = ["hydra/launcher=submitit_slurm", "hydra.launcher.partition=cpu", "hydra.launcher.timeout_min=10"]


@pytest.mark.slurm
def test_slurm_jobs_of_which_one_is_cancelled_and_one_dies_are_completed_by_the_same_command(
    words, ours, queue, tmp_path
):
    process = begin(*words, *SLURM_WORDS, cwd=tmp_path, **queue)
    killed = wait_for_checkpoints(process, tmp_path)["rms"].holder()
    [job] = the_job(queue)
    subprocess.run(["scancel", f"{job}_0"], env=os.environ | queue, check=True)
    os.kill(killed.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 1 and re.search(rf"ablate: the launcher failed .*{job}_0.*CANCELLED", err), out + err
    wait_for(lambda: (result := runs(tmp_path)["rms"].result()) is not None and result.status == "failed", 60)
    assert runs(tmp_path)["rms"].result().error.type == "WorkerDied"
    assert runs(tmp_path)["ln"].result() is None and runs(tmp_path)["ln"].checkpoint_file.exists()
    wait_for(lambda: runs(tmp_path)["ln"].holder() is None, 20)
    again = run_fresh("ablate", "-m", *words, *SLURM_WORDS, cwd=tmp_path, **queue)
    assert again.returncode == 0, again.stdout + again.stderr
    assert {name: run.result().resumed for name, run in runs(tmp_path).items()} == {"ln": 1, "rms": 1}
    assert numbers(tmp_path / "results") == ours


@pytest.mark.slurm
def test_a_slurm_job_of_two_tasks_loses_a_rank_and_is_requeued(words, queue, tmp_path):
    """Killed, given again with its tasks on two nodes, begun again by Slurm: the numbers of one device."""
    one = latest(*words, "norm=rms", "train.parts=2")
    alone = tmp_path / "alone"
    jobs = tmp_path / "jobs"
    alone.mkdir()
    jobs.mkdir()
    done = run_fresh("ablate", "-m", *one, cwd=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    two = [*one, *SLURM_WORDS, "train.devices=2"]
    process = begin(*two, "hydra.launcher.tasks_per_node=2", cwd=jobs, **queue)
    run = wait_for_checkpoints(process, jobs, 1)["rms"]
    os.kill(run.holder().pid, signal.SIGKILL)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 1 and "failed: WorkerDied" in out, out + err
    assert run.holder() is None and not the_job(queue), "the other task has ended, too"
    over = "hydra.launcher.tasks_per_node=2" if no_hosts() else "hydra.launcher.nodes=2"
    logged = len(run.metrics()[0])
    process = begin(*two, over, cwd=jobs, **queue)
    wait_for(lambda: process.poll() is not None or len(run.metrics()[0]) > logged)
    assert process.poll() is None, process.communicate()
    subprocess.run(["scontrol", "requeue", *the_job(queue)], env=os.environ | queue, check=True)
    out, err = process.communicate(timeout=600)  # Slurm begins it when the credential of its first start has expired
    assert process.returncode == 0, out + err
    assert run.result().resumed == 2 and run.result().device.startswith("2 × "), run.result()
    assert numbers(jobs / "results") == numbers(alone / "results")
    assert not list(run.folder.glob(".*")) and run.holder() is None


@pytest.mark.ray
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


SHORT = ["train.steps=20", "train.eval_every=10"]


@pytest.fixture(scope="module")
def ours_of_few_steps(words, tmp_path_factory) -> dict[str, Any]:
    return swept(words, tmp_path_factory.mktemp("few"))


@pytest.mark.parametrize(
    "launcher",
    ["joblib", pytest.param("submitit_local", marks=pytest.mark.slurm), pytest.param("ray", marks=pytest.mark.ray)],
)
def test_a_launcher_gives_equal_numbers(launcher, words, ours_of_few_steps, tmp_path):
    if why := lacking_plugin(launcher.partition("_")[0]):
        pytest.skip(why)
    assert swept(words, tmp_path, f"hydra/launcher={launcher}") == ours_of_few_steps


def test_two_tasks_of_torchrun_train_one_run_together(words, tmp_path):
    parts = ["train.parts=2", "model.dropout=0.1"]
    alone = tmp_path / "alone"
    tasks = tmp_path / "tasks"
    alone.mkdir()
    tasks.mkdir()
    before = ["torch.distributed.run", "--nproc-per-node=2", "-m"]
    assert swept(words, tasks, *parts, "train.devices=2", before=before) == swept(words, alone, *parts)
    assert not list(tmp_path.glob("**/.ranks*")) and not list(tmp_path.glob("**/lease.json"))


def swept(words: list[str], folder: Path, *more: str, before: Sequence[str] = ()) -> dict[str, Any]:
    """Train both cells for a few steps in a folder: all that was measured."""
    done = run_fresh(*before, "ablate", "-m", *latest(*words, *SHORT, *more), cwd=folder, **WITHOUT_TOKENS)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = numbers(folder / "results")
    assert len(measured) == 2
    return measured
