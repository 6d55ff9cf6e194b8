"""Which GPUs a process may use, what they are asked, and who gets which: with GPUs that are made up."""

import contextlib
import os
import platform
import resource
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

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
from ablate.training.devices import configure_torch
from ablate.training.hardware import TASKS, Card, cards, environments, task_of_job


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
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
def test_workers_are_on_gpus_that_there_are(count, listed, expected, machine) -> None:
    machine(count, listed)
    assert [worker["CUDA_VISIBLE_DEVICES"] for worker in environments("cuda", "auto")] == expected
    twice = [worker["CUDA_VISIBLE_DEVICES"] for worker in environments("cuda", 2 * count)]
    assert twice == expected * 2, "they share them in turn"


def workers_of_job(monkeypatch, plan, device: str, number: int, devices: int = 1) -> list[dict[str, str]]:
    """The environments in which a job of another launcher, with this number, trains its run."""
    given: list[Any] = []
    monkeypatch.setattr(launcher, "device_of", lambda _: (device, "auto", devices))
    answer = launcher.Answer(status="done")
    monkeypatch.setattr(launcher, "run_in", lambda workers, _: given.extend(workers) or [answer])
    assert launcher.run_alone(plan("seeds=1").orders()[0], number) == "done"
    return given


def test_a_run_on_several_devices_has_an_equal_share_of_them(machine, plan, monkeypatch) -> None:
    def given(devices: int, parallel: str | int = "auto", device: str = "cuda") -> list[str | None]:
        return [worker.get("CUDA_VISIBLE_DEVICES") for worker in environments(device, parallel, devices)]

    machine(5, "4,3,2,1,0")
    assert given(2) == ["4,3", "2,1"] and given(4, 2) == ["4,3,2,1"] * 2 and given(8) == given(8, 1) == []
    monkeypatch.setattr(hardware, "visible_devices", lambda device: ["0", "1", "2", "3", "4"])
    assert given(2, device="cpu") == [None] * 2 and given(2, 3, "cpu") == [None] * 3 and given(8, 1, "cpu") == []
    for number, own in ((1, "2,3"), (2, "0,1")):
        assert workers_of_job(monkeypatch, plan, "cuda", number, 2) == [SINGLE_THREAD | {"CUDA_VISIBLE_DEVICES": own}]
    for names in TASKS:  # the second of two tasks on this host, of four in all
        with monkeypatch.context() as patch:
            for name, value in zip(names, (3, 1, 4), strict=True):
                patch.setenv(name, str(value))
            assert task_of_job() == (3, 1, 4) and given(1) == ["0", "1", "2", "3", "4"]
            assert given(4) == ["1"] and given(8) == ["2,3"] and given(2) == given(32) == []
            for value in ("", "x", "0", "3"):  # as of another program, not of a job with a fourth task
                patch.setenv(names[2], value)
                assert task_of_job() == (0, 0, 1)


@pytest.mark.parametrize(
    ("gpus", "cores", "gigabytes", "flops", "expected"),
    [(1, 16, 80, 1e10, 8), (2, 6, 80, 1e10, 3), (1, 16, 24, 1e10, 4), (1, 16, 80, 5e11, 1)],
)
def test_processes_with_small_steps_share_a_gpu(gpus, cores, gigabytes, flops, expected, machine, monkeypatch) -> None:
    """As many as cores and memory allow, 8 at most; a step of half a teraflop has the GPU for itself."""
    machine(gpus)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr(hardware, "cards", lambda: [Card(int(gigabytes * 1e9), 0, True)] * gpus)
    workers = [worker["CUDA_VISIBLE_DEVICES"] for worker in environments("cuda", "auto", flops=flops)]
    assert workers == [str(i) for i in range(gpus)] * expected
    assert len(environments("cuda", 2, flops=flops)) == 2 and len(environments("cuda", "auto")) == gpus


@pytest.mark.parametrize(("local", "devices", "reserving"), [(0, 2, True), (1, 2, False), (1, 1, True)])
def test_a_host_is_reserved_once_for_the_tasks_that_train_one_run(local, devices, reserving, plan, monkeypatch) -> None:
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


def test_jobs_of_other_launchers_take_turns_on_gpus(machine, plan, monkeypatch) -> None:
    machine(3)
    given = [workers_of_job(monkeypatch, plan, "cuda", number) for number in range(5)]
    assert given == [[SINGLE_THREAD | {"CUDA_VISIBLE_DEVICES": each}] for each in "01201"]
    assert workers_of_job(monkeypatch, plan, "cpu", 3) == [SINGLE_THREAD]
    machine(0)
    assert workers_of_job(monkeypatch, plan, "cuda", 3) == []


@pytest.mark.parametrize(
    ("settings", "device", "expected"),
    [
        ({"nodes": 1, "tasks_per_node": 1, "gpus_per_node": None, "cpus_per_task": None}, "cuda", {"gpus_per_node": 4}),
        ({"nodes": 4, "tasks_per_node": 2, "gpus_per_node": None, "cpus_per_task": None}, "cpu", {"cpus_per_task": 1}),
        ({"nodes": 1, "tasks_per_node": 1, "gpus_per_node": 8}, "cuda", {"gpus_per_node": 8}),
        ({"ray": {"init": {}, "remote": {}}}, "cuda", {"ray": {"init": {}, "remote": {"num_gpus": 4}}}),
        ({"ray": {"remote": {"num_cpus": 6}}}, "cpu", {"ray": {"remote": {"num_cpus": 6}}}),
        ({"n_jobs": -1}, "cpu", {"n_jobs": 3}),
    ],
)
def test_a_launcher_gives_each_job_the_devices_of_its_run(settings, device, expected, monkeypatch) -> None:
    monkeypatch.setattr(launcher, "environments", lambda *given: [{}] * 3)
    given = OmegaConf.create(settings)
    OmegaConf.set_struct(given, True)
    launcher.request_devices(given, device, "auto", 1)
    assert given == settings, "as it was, for one device"
    launcher.request_devices(given, device, "auto", 4)
    assert OmegaConf.to_container(given) == settings | expected


def test_more_devices_than_there_are_are_refused(plan, monkeypatch) -> None:
    words = ["seeds=1", "train.parts=4", "train.devices=4"]
    planned = plan(*words)
    monkeypatch.setattr(hardware, "visible_devices", lambda device: ["0", "1", "2"])
    assert str(device_problem(planned)) == "train.devices: must be a number that 3 CPU cores can share, not 4"
    assert device_problem(plan(*words, "dry_run=true")) is None
    for name, value in zip(TASKS[0], (0, 0, 3), strict=True):
        monkeypatch.setenv(name, str(value))
    assert "3 CPU cores, and 3 tasks can share, not 4" in str(device_problem(planned))
    answers = launcher.run_in(environments("cpu", "auto", 4), planned.orders())
    assert [answer.status for answer in answers] == ["failed"] and "fewer devices" in answers[0].died
    result = Run(planned.results, planned.orders()[0].path).result()
    assert result and result.error and "than train.devices" in result.error.message


def test_gpus_are_asked_in_a_process_of_its_own(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    for opening in ("mem_get_info", "get_device_properties", "current_device", "is_bf16_supported", "init"):
        monkeypatch.delattr(torch.cuda, opening)
    machine(2, answer="some library prints\n[[80, 70, true], [24, 3, false]]\n")
    assert cards() == [Card(80, 70, True), Card(24, 3, False)]
    assert memory.memory_of("cuda") == 24.0, "every visible GPU counts"
    machine(1)
    assert cards() == [], "none that answers"
    machine(0, answer="[[80, 70, true]]")
    assert cards() == []


def test_a_gpu_study_is_planned_where_there_is_none(machine: Callable[..., None], small: list[str]) -> None:
    """For jobs elsewhere, with a note of what could not be asked; here it is refused."""
    machine(0)
    words = [*small, "norm=ln", "train.device=cuda"]
    with pytest.raises(PlanError, match=r"train\.device: cuda is not available here"):
        api.plan(words)
    assert memory.UNASKED in api.plan([*words, "dry_run=true"]).notes
    planned = api.plan([*words, "hydra/launcher=basic"])
    assert memory.UNASKED in planned.notes
    assert planned.manifest.cells[0].config.train.precision == "bf16"
    for given, gigabytes, precision in (("H100", "80", "bf16"), ("t4", "16", "fp32"), ("24GiB", "25.77", "bf16")):
        found = api.plan([*words, "dry_run=true", f"train.memory={given}"])
        [cell], notes = found.manifest.cells, found.notes
        assert any(f" of {gigabytes} GB (train.memory={given})" in note for note in notes)
        assert memory.UNASKED not in notes and cell.config.train.precision == precision
        assert (cell.id == planned.manifest.cells[0].id) == (precision == "bf16"), "no part of a run's key"
    with pytest.raises(PlanError, match=r"of the 0\.1 GB"):
        api.plan([*words, "dry_run=true", "train.memory=0.1GB"])
    machine(1, answer="[[80000000000, 70000000000, false]]")
    planned = api.plan(words)
    assert memory.UNASKED not in planned.notes
    assert planned.manifest.cells[0].config.train.precision == "fp32", "a card that does not compute in bf16"


def test_a_cell_that_no_visible_gpu_can_hold_is_refused(machine: Callable[..., None], small: list[str]) -> None:
    machine(2, answer="[[80000000000, 70000000000, true], [1000000000, 900000000, true]]")
    words = latest(*small, "norm=ln", "train.device=cuda", "train.batch_size=100000")
    with pytest.raises(PlanError, match=r"of the 1\.0 GB that each process on a GPU can have"):
        api.plan(words)


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="other C libraries have no such settings")
def test_the_memory_of_a_step_is_kept_for_the_next() -> None:
    """Returned to the system, each page would be cleared and mapped again, thousands of times a step."""
    configure_torch()

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        step = [torch.ones(1 << 20) for _ in range(16)]
        del step
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    pages = 16 * 4 * (1 << 20) // resource.getpagesize()
    assert min(faults() for _ in range(3)) < pages / 10
