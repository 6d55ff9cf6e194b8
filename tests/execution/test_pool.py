"""The pool: which worker gets which run, when no more are sent, and that no worker is left."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ablate.execution import pool
from ablate.execution.pool import Answer, Order, Pool, StoppedEarly
from ablate.execution.signals import DiskFull

pytestmark = pytest.mark.usefixtures("untried")


@pytest.fixture
def orders(plan) -> list[Order]:
    """Two configurations, three seeds each."""
    return plan("norm=ln,rms", "seeds=3").orders()


@pytest.fixture
def pool_of(monkeypatch) -> Callable[..., Pool]:
    """A pool of so many workers, which answer an order by a function."""

    def make(count: int, answer: Callable[[Order], Answer]) -> Pool:
        class FakeWorker:
            def __init__(self, environment: dict[str, str]):
                started.append(self)

            def train(self, order: Order) -> Answer:
                trained.append(order)
                return answer(order)

            def ask_to_stop(self) -> None:
                pass

            def stop(self, deadline: float) -> None:
                stopped.append(self)

        started: list[Any] = []
        stopped: list[Any] = []
        trained: list[Order] = []
        monkeypatch.setattr(pool, "Worker", FakeWorker)
        deaths: list[tuple[str, str]] = []
        made = Pool([{}] * count, lambda order, message: deaths.append((order.path, message)))
        vars(made).update(started=started, stopped=stopped, trained=trained, deaths=deaths)
        return made

    return make


def failed(error: str) -> Answer:
    return Answer(status="failed", error=error)


def test_the_sweep_stops_when_the_first_run_of_each_configuration_failed_alike(orders, pool_of):
    first_seeds = [order for order in orders if order.seed == 0]
    later = [order for order in orders if order.seed != 0]
    resume = threading.Event()

    def answer(order):
        if order in later:
            resume.wait(5)  # the pool decides in between
        return failed("RuntimeError: no C++ compiler")

    workers = pool_of(1, answer)
    with pytest.raises(StoppedEarly, match=r"same error \(RuntimeError: no C\+\+ compiler\); \d runs not trained"):
        workers.run([*first_seeds, *later])
    resume.set()
    assert len(workers.trained) < len(orders)


@pytest.mark.parametrize(
    "answer",
    [
        lambda order: failed(f"of {order.cell.id}"),
        lambda order: failed("alike") if order.cell.reference else Answer(status="done"),
        lambda order: Answer(status="failed", died="killed by signal 9"),
    ],
    ids=["different errors", "one configuration works", "killed workers"],
)
def test_otherwise_every_run_is_tried(answer, orders, pool_of):
    assert len(pool_of(1, answer).run(orders)) == len(orders)


def test_how_a_worker_died_is_reported_before_the_other_runs_are_trained(orders, pool_of):
    known_deaths = []

    def answer(order):
        known_deaths.append(len(workers.deaths))
        is_first = order.path == orders[0].path
        return Answer(status="failed", last=True, died="killed") if is_first else Answer(status="done")

    workers = pool_of(1, answer)
    workers.run(orders[:2])
    assert workers.deaths == [(orders[0].path, "killed")]
    assert known_deaths == [0, 1]


def test_an_interrupted_run_is_continued_by_another_worker(orders, pool_of):
    interrupted = iter([True])

    def answer(order):
        if next(interrupted, False):
            return Answer(status="interrupted", last=True)
        return Answer(status="done")

    workers = pool_of(1, answer)
    assert [found.status for found in workers.run(orders[:1])] == ["done"]
    assert len(workers.started) == 2


def test_after_a_full_disk_no_more_orders_are_sent(orders, pool_of):
    workers = pool_of(1, lambda order: Answer(status="failed", last=True, full="/results/file"))
    with pytest.raises(DiskFull):
        workers.run(orders)
    assert len(workers.trained) < len(orders)


def test_a_worker_that_is_being_started_when_the_sweep_ends_is_ended(monkeypatch):
    """Ctrl-C between the start of the process and its entry among the workers."""
    starting = threading.Event()
    stopped = []

    class SlowToStart:
        def __init__(self, environment):
            starting.set()
            closing.wait(5)

        def ask_to_stop(self) -> None:
            pass

        def stop(self, deadline):
            stopped.append(self)

    closing = threading.Event()
    monkeypatch.setattr(pool, "Worker", SlowToStart)
    workers = Pool([{}], lambda order, message: None)
    thread = threading.Thread(target=workers.worker_at, args=(0,))
    thread.start()
    starting.wait()
    threading.Timer(0.2, closing.set).start()
    workers.close()
    thread.join()
    assert len(stopped) == 1
