"""Who has a machine: sweeps side by side, or one that times its runs, for itself."""

import socket
import threading

import pytest

from ablate.execution import launcher as module
from ablate.execution.launcher import reserve_machine
from ablate.runs.lock import take


@pytest.fixture(autouse=True)
def alone_here(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path))


def test_sweeps_train_side_by_side(capsys):
    with reserve_machine(exclusive=False), reserve_machine(exclusive=False):
        assert not capsys.readouterr().err


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_who_times_its_runs_waits_for_others_and_they_for_it(first, second, monkeypatch, capsys):
    waiting = threading.Event()
    entered = threading.Event()

    def asked(file, wait, how):
        if wait():
            waiting.set()
        return take(file, wait, how)

    def enter():
        with reserve_machine(second):
            entered.set()

    monkeypatch.setattr(module, "take", asked)
    with reserve_machine(first):
        other = threading.Thread(target=enter)
        other.start()
        assert waiting.wait(60) and not entered.is_set()
        [said] = capsys.readouterr().err.splitlines()
        assert "machine" in said and "timed" in said
    other.join(60)
    assert entered.is_set()


@pytest.mark.parametrize("alone", [True, False])
def test_where_there_can_be_no_lock_only_timed_runs_are_told_so(alone, tmp_path, capsys):
    (tmp_path / f"machine-{socket.gethostname()}.lock").mkdir()
    with reserve_machine(alone):
        assert ("cannot be locked" in capsys.readouterr().err) == alone
