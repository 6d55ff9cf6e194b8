"""No edit moves a number: what tiny runs log against what was recorded.

What is meant to change numbers says so, and records them anew: `make records`.
"""

import json
import math

import pytest
from tiny_runs import RECORDED, RECORDS, SOME, machine

Numbers = dict[str, dict[str, list[str]]]  # by run and metric, as hexadecimal texts
# Where another CPU or library gives other last digits, runs in float64 are compared, and relatively: in float32 a unit
# that crosses zero there moves a gradient in its fourth digit, and an unstable run moves in its second.
TOLERANCE = 1e-4


def is_same(value: str, recorded: str, tolerance: float) -> bool:
    """Whether two recorded numbers are equal: to the last bit at tolerance 0, where nan equals nan."""
    if value == recorded:
        return True
    return math.isclose(float.fromhex(value), float.fromhex(recorded), rel_tol=tolerance, abs_tol=tolerance)


def moved(numbers: Numbers, recorded: Numbers, tolerance: float) -> list[str]:
    """The metrics of recorded runs that are other numbers now, or gone."""
    lines = []
    for run, metrics in recorded.items():
        for metric, before in metrics.items():
            now = numbers[run].get(metric, [])
            is_other = len(now) != len(before) or not all(map(is_same, now, before, [tolerance] * len(now)))
            if is_other:
                lines.append(f"{run} {metric}: {now} was {before}")
    return lines


@pytest.mark.parametrize(
    "names",
    [pytest.param(SOME, id="some"), pytest.param((), id="all", marks=pytest.mark.slow)],  # 160 runs: 15 CPU-seconds
)
def test_numbers_are_those_that_were_recorded(names, tmp_path):
    name = "components"
    tolerance = 0.0
    record = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    if record["machine"] != machine():
        name = "components_float64"
        tolerance = TOLERANCE
        record = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    recorded = {run: metrics for run, metrics in record["numbers"].items() if not names or run in names}
    numbers = RECORDS[name](tmp_path, names=names)
    # What came is recorded with the next change of numbers; what went must be recorded, too.
    assert numbers.keys() >= recorded.keys(), "make records records what went"
    lines = moved(numbers, recorded, tolerance)
    assert not lines, "\n".join(lines)
