"""The bugs of `benchmarks/seeded_bugs.yaml` fit the code as it stands: each can be seeded, and its tests are there."""

from pathlib import Path

import yaml
from seeded_bugs import BUGS, nodes_of, place_of

ROOT = Path(__file__).parents[1]


def test_every_seeded_bug_fits_the_code() -> None:
    lost = [bug.what for bug in BUGS if place_of(bug.old, ROOT) is None or not nodes_of(bug.tests, ROOT)]
    assert not lost, f"benchmarks/seeded_bugs.yaml: the code, or the test, of these is no longer found: {lost}"


def test_the_code_of_every_mutant_that_no_test_can_catch_is_there() -> None:
    for entry in yaml.safe_load((ROOT / "benchmarks" / "mutants.yaml").read_text()):
        path, _, change = entry["mutant"].partition(": ")
        source = " ".join((ROOT / path).read_text().split())
        assert change.partition("  ->  ")[0] in source, f"benchmarks/mutants.yaml: {path} has changed"
