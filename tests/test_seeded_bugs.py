"""The bugs of `benchmarks/seeded_bugs.yaml` fit the code as it stands: each can be seeded, and its tests are there."""

from pathlib import Path

from seeded_bugs import BUGS, nodes_of, place_of

ROOT = Path(__file__).parents[1]


def test_every_seeded_bug_fits_the_code() -> None:
    lost = [bug.what for bug in BUGS if place_of(bug.old, ROOT) is None or not nodes_of(bug.tests, ROOT)]
    assert not lost, f"benchmarks/seeded_bugs.yaml: the code, or the test, of these is no longer found: {lost}"
