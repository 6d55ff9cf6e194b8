"""A pytest plugin for mutation.py: coverage by test function, and the CPU seconds of each, written to $TEST_SECONDS."""

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


def function_of(nodeid: str) -> str:
    """The test function of a case."""
    return nodeid.partition("[")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Attribute all lines that run from here on to this test, also in its fixtures and processes that it starts."""
    test = function_of(item.nodeid)
    os.environ["MUTATION_TEST"] = test
    coverage = Coverage.current()
    assert coverage
    coverage.switch_context(test)
    start = sum(os.times()[:4])  # with child processes that have ended
    result = yield
    seconds[test] += sum(os.times()[:4]) - start
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a failure."""
    if report.failed:
        failed.add(function_of(report.nodeid))


def pytest_sessionfinish() -> None:
    """Write the times of the tests that passed."""
    passed = {test: time for test, time in seconds.items() if test not in failed}
    Path(os.environ["TEST_SECONDS"]).write_text(json.dumps(passed))
