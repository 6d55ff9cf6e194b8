"""All numbers of a sweep's runs."""

from pathlib import Path

from one_run import rows_of

from ablate.runs.folder import Run


def numbers(results: Path) -> dict[str, tuple]:
    """All that a sweep has measured, by run."""
    found = {}
    for path in results.glob("runs/*/*/result.json"):
        run = Run(results, str(path.parent.relative_to(results / "runs")))
        assert not run.metrics()[1], "torn lines"
        found[run.path] = run.result().status, run.result().final, run.result().documents, rows_of(run)
    return found
