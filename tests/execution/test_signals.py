"""A signal ends a command as a signal does, whatever a library makes of being interrupted in its midst."""

import os
import signal

import pytest

from ablate.execution import signals
from ablate.execution.signals import Terminated, handling_signals


def turned_into_an_error() -> None:
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        raise AttributeError("half of an assignment was undone")


def swallowed() -> None:
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException:
        return


@pytest.mark.parametrize("library", [turned_into_an_error, swallowed])
def test_a_signal_is_neither_an_error_nor_nothing(library, monkeypatch):
    monkeypatch.setattr(signals, "exit_if_not_ended", lambda reading: None)  # which would end this process, too
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), handling_signals():
        library()
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_without_a_signal_is_one():
    with pytest.raises(ZeroDivisionError), handling_signals():
        print(1 / 0)
