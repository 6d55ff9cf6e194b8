"""How long jobs take side by side."""

from __future__ import annotations

from ablate.execution.makespan import makespan


def test_each_job_is_begun_by_the_first_worker_that_is_free() -> None:
    assert makespan([3, 1, 1, 4], 2) == 6, "3 | 1 1 4"
    assert makespan([3, 1, 1, 4], 1) == 9 and makespan([3, 1, 1, 4], 9) == 4
