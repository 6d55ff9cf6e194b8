"""Which GPUs a process may use, what they are asked, and who gets which: with GPUs that are made up."""

import contextlib
import dataclasses
import os
import subprocess
from collections.abc import Callable, Iterator

import pytest
import torch
from conftest import latest
from omegaconf import OmegaConf

from ablate import api
from ablate.config.errors import PlanError
from ablate.execution import launcher
from ablate.execution.pool import SINGLE_THREAD
from ablate.planning.checks import memory
from ablate.planning.runs import device_problem
from ablate.runs.folder import Run
from ablate.training import hardware
from ablate.training.hardware import TASKS, Card, cards, environments, task_of_job


@pytest.fixture
def machine(monkeypatch) -> Iterator[Callable[..., None]]:
    """A machine with so many GPUs, of which CUDA_VISIBLE_DEVICES lists some, and that answer so."""

    def made(count: int, listed: str | None = None, answer: str = "") -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if listed is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
        done = subprocess.CompletedProcess([], int(not answer), answer, "no")
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
        cards.cache_clear()

    yield made
    cards.cache_clear()


@pytest.mark.parametrize(
    ("count", "listed", "expected"),
    [
        (2, None, ["0", "1"]),
        (1, "0,1,2,3", ["0"]),
        (2, "3,1", ["3", "1"]),
        (1, "MIG-9a8b", ["MIG-9a8b"]),
        (0, "-1", []),
    ],
)
def test_workers_are_on_gpus_that_there_are(count, listed, expected, machine):
    machine(count, listed)
    assert [worker["CUDA_VISIBLE_DEVICES"] for worker in environments("cuda", "auto")] == expected
    twice = [worker["CUDA_VISIBLE_DEVICES"] for worker in environments("cuda", 2 * count)]
    assert twice == expected * 2, "they share them in turn"


def workers_of_job(monkeypatch, plan, device: str, number: int, devices: int = 1) -> list[dict[str, str]]:
    """The environments in which a job of another launcher, with this number, trains its run."""
    environments_of_run: list[dict[str, str]] = []

    def run_in(workers, orders):
        environments_of_run.extend(workers)
        return [launcher.Answer(status="done")]

    monkeypatch.setattr(launcher, "device_of", lambda _: (device, "auto", devices))
    monkeypatch.setattr(launcher, "run_in", run_in)
    assert launcher.run_alone(plan("seeds=1").orders()[0], number) == "done"
    return environments_of_run


@pytest.mark.parametrize(
    ("devices", "parallel", "expected"),
    [(2, "auto", ["4,3", "2,1"]), (4, 2, ["4,3,2,1"] * 2), (8, "auto", []), (8, 1, [])],
)
def test_a_run_on_several_devices_has_an_equal_share_of_them(devices, parallel, expected, machine, monkeypatch):
    machine(5, "4,3,2,1,0")
    workers = environments("cuda", parallel, devices)
    assert [worker["CUDA_VISIBLE_DEVICES"] for worker in workers] == expected
    monkeypatch.setattr(hardware, "visible_devices", lambda device: ["4", "3", "2", "1", "0"])
    assert len(environments("cpu", parallel, devices)) == len(expected)


@pytest.mark.parametrize("names", TASKS, ids="-".join)
def test_tasks_of_a_job_share_the_devices_of_their_host(names, machine, monkeypatch):
    """The second of two tasks on this host, of four in all."""
    machine(5)
    for name, value in zip(names, (3, 1, 4), strict=True):
        monkeypatch.setenv(name, str(value))
    assert task_of_job() == (3, 1, 4)
    for devices, expected in ((4, ["1"]), (8, ["2,3"]), (2, []), (32, [])):
        assert [worker["CUDA_VISIBLE_DEVICES"] for worker in environments("cuda", "auto", devices)] == expected
    for value in ("", "x", "0", "3"):  # as of another program, not of a job with a fourth task
        monkeypatch.setenv(names[2], value)
        assert task_of_job() == (0, 0, 1)


@pytest.mark.parametrize(
    ("gpus", "cores", "gigabytes", "flops", "expected"),
    [(1, 16, 80, 1e10, 8), (2, 6, 80, 1e10, 3), (1, 16, 24, 1e10, 4), (1, 16, 80, 5e11, 1)],
)
def test_processes_with_small_steps_share_a_gpu(gpus, cores, gigabytes, flops, expected, machine, monkeypatch):
    """As many as cores and memory allow, 8 at most; a step of half a teraflop has the GPU for itself."""
    machine(gpus)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr(hardware, "cards", lambda: [Card(int(gigabytes * 1e9), 0, True)] * gpus)
    workers = [worker["CUDA_VISIBLE_DEVICES"] for worker in environments("cuda", "auto", flops=flops)]
    assert workers == [str(i) for i in range(gpus)] * expected
    assert len(environments("cuda", 2, flops=flops)) == 2 and len(environments("cuda", "auto")) == gpus


@pytest.mark.parametrize(("local", "devices", "reserving"), [(0, 2, True), (1, 2, False), (1, 1, True)])
def test_a_host_is_reserved_once_for_the_tasks_that_train_one_run(local, devices, reserving, plan, monkeypatch):
    """Otherwise the second task would wait for the first, which waits for it to begin."""
    reserved: list[bool] = []
    monkeypatch.setattr(
        launcher, "reserve_machine", lambda exclusive: reserved.append(exclusive) or contextlib.nullcontext()
    )
    monkeypatch.setattr(launcher, "run_in", lambda workers, orders: [launcher.Answer(status="done")] * len(orders))
    for name, value in zip(TASKS[0], (local, local, 2), strict=True):
        monkeypatch.setenv(name, str(value))
    launcher.run_orders(plan("seeds=1", "timing=isolated", "train.parts=2", f"train.devices={devices}").orders())
    assert reserved == [True] * reserving


def test_workers_are_those_that_the_most_demanding_configuration_needs(plan, monkeypatch):
    first, second = plan("norm=ln,rms", "seeds=1").orders()
    config = second.cell.planned_config.with_value("train.device", "cuda")
    cell = dataclasses.replace(second.cell, config=config, flops_per_token=2 * first.cell.flops_per_token)
    asked: list[tuple[str, str, int, float]] = []
    monkeypatch.setattr(launcher, "environments", lambda *words: asked.append(words) or [{}])
    monkeypatch.setattr(launcher, "run_in", lambda workers, orders: [launcher.Answer(status="done")] * len(orders))
    launcher.run_orders([first, dataclasses.replace(second, cell=cell)])
    assert asked == [("cuda", "auto", 1, cell.flops_per_step)] and cell.flops_per_step > first.cell.flops_per_step


def test_jobs_of_other_launchers_take_turns_on_gpus(machine, plan, monkeypatch):
    machine(3)
    for devices, shares in ((1, ["0", "1", "2", "0"]), (2, ["0,1", "0,1"])):
        for number, share in enumerate(shares):
            [worker] = workers_of_job(monkeypatch, plan, "cuda", number, devices)
            assert worker == SINGLE_THREAD | {"CUDA_VISIBLE_DEVICES": share}
    assert workers_of_job(monkeypatch, plan, "cpu", 3) == [SINGLE_THREAD]
    machine(0)
    assert workers_of_job(monkeypatch, plan, "cuda", 3) == []


@pytest.mark.parametrize(
    ("settings", "device", "expected"),
    [
        ({"nodes": 1, "tasks_per_node": 1, "gpus_per_node": None, "cpus_per_task": None}, "cuda", {"gpus_per_node": 4}),
        ({"nodes": 4, "tasks_per_node": 2, "gpus_per_node": None, "cpus_per_task": None}, "cpu", {"cpus_per_task": 1}),
        ({"ray": {"init": {}, "remote": {}}}, "cuda", {"ray": {"init": {}, "remote": {"num_gpus": 4}}}),
        ({"n_jobs": -1}, "cpu", {"n_jobs": 3}),
    ],
)
def test_a_launcher_gives_each_job_the_devices_of_its_run(settings, device, expected, monkeypatch):
    monkeypatch.setattr(launcher, "environments", lambda *given: [{}] * 3)
    given = OmegaConf.create(settings)
    OmegaConf.set_struct(given, True)
    launcher.request_devices(given, device, "auto", 1)
    assert given == settings, "as it was, for one device"
    launcher.request_devices(given, device, "auto", 4)
    assert OmegaConf.to_container(given) == settings | expected


def test_more_devices_than_there_are_are_refused(plan, monkeypatch):
    words = ["seeds=1", "train.parts=4", "train.devices=4"]
    planned = plan(*words)
    monkeypatch.setattr(hardware, "visible_devices", lambda device: ["0", "1", "2"])
    assert str(device_problem(planned)).startswith("train.devices: must be a number that 3 CPU cores")
    assert device_problem(plan(*words, "dry_run=true")) is None
    for name, value in zip(TASKS[0], (0, 0, 3), strict=True):
        monkeypatch.setenv(name, str(value))
    assert device_problem(planned)
    answers = launcher.run_in(environments("cpu", "auto", 4), planned.orders())
    assert [answer.status for answer in answers] == ["failed"] and "fewer devices" in answers[0].died
    result = Run(planned.results, planned.orders()[0].path).result()
    assert result and result.error and "than train.devices" in result.error.message


def test_gpus_are_asked_in_a_process_of_its_own(machine, monkeypatch):
    for opening in ("mem_get_info", "get_device_properties", "current_device", "is_bf16_supported", "init"):
        monkeypatch.delattr(torch.cuda, opening)
    machine(2, answer="some library prints\n[[80, 70, true], [24, 3, false]]\n")
    assert cards() == [Card(80, 70, True), Card(24, 3, False)]
    assert memory.memory_of("cuda") == 24.0, "every visible GPU counts"
    machine(1)
    assert cards() == [], "none that answers"
    machine(0, answer="[[80, 70, true]]")
    assert cards() == []


def test_a_gpu_study_is_planned_where_there_is_none(machine, small):
    """For jobs elsewhere; here it is refused."""
    machine(0)
    words = [*small, "norm=ln", "train.device=cuda"]
    with pytest.raises(PlanError, match=r"train\.device: there is no GPU here"):
        api.plan(words)
    [cell] = api.plan([*words, "hydra/launcher=basic"]).manifest.cells
    assert cell.config.train.precision == "bf16"
    machine(1, answer="[[80000000000, 70000000000, false]]")
    [cell] = api.plan(words).manifest.cells
    assert cell.config.train.precision == "fp32", "a card that does not compute in bf16"


def test_a_cell_that_no_visible_gpu_can_hold_is_refused(machine, small):
    machine(2, answer="[[80000000000, 70000000000, true], [1000000000, 900000000, true]]")
    words = latest(*small, "norm=ln", "train.device=cuda", "train.batch_size=100000")
    with pytest.raises(PlanError, match=r"of the 1\.0 GB that each process on a GPU can have"):
        api.plan(words)
