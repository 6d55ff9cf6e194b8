"""A pytest plugin for mutation.py: coverage by test, and each test's seconds, which it writes to $TEST_SECONDS."""

import json
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

seconds: Counter[str] = Counter()
failed: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Attribute all lines that run from here on to this test, also in its fixtures and processes that it starts."""
    os.environ["TEST"] = item.nodeid
    coverage = Coverage.current()
    assert coverage
    coverage.switch_context(item.nodeid)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of a test's setup, call or teardown."""
    seconds[report.nodeid] += report.duration
    if report.failed:
        failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write the times of the tests that passed."""
    passed = {test: time for test, time in seconds.items() if test not in failed}
    Path(os.environ["TEST_SECONDS"]).write_text(json.dumps(passed))
