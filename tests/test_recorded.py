"""No edit moves a number: tiny runs and tables of small studies against what was recorded.

What is meant to change numbers says so, and records them anew: `make records`.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import RECORDED, RECORDS, SOME, machine

# What is compared where another CPU or library gives other last digits, and how closely, relative: in float32 a unit
# that crosses zero there moves a gradient in its fourth digit, and an unstable run moves in its second.
ELSEWHERE = {"components": ("components_float64", 1e-4), "tables": ("tables", 1e-9)}


def recorded_as(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


def value_of(found: Any) -> float | None:
    """The number that was recorded as text; None where it is none."""
    try:
        return float.fromhex(found) if isinstance(found, str) else float(found)
    except ValueError:
        return None


def same(found: Any, recorded: Any, tolerance: float) -> bool:
    """Whether two recorded values are equal: to the last bit at tolerance 0, where nan equals nan."""
    one, other = value_of(found), value_of(recorded)
    if not tolerance or one is None or other is None or not math.isfinite(other):
        return bool(found == recorded)
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)


@pytest.mark.parametrize(
    ("name", "only"),
    [
        pytest.param("components", {"names": SOME}, id="some components"),
        pytest.param("components", {}, id="components", marks=pytest.mark.slow),  # 160 runs: a quarter of a CPU-minute
        pytest.param("tables", {}, id="tables"),
    ],
)
def test_numbers_are_those_that_were_recorded(name: str, only: dict[str, list[str]], tmp_path: Path) -> None:
    record, tolerance = recorded_as(name), 0.0
    if record["machine"] != machine():
        name, tolerance = ELSEWHERE[name]
        record = recorded_as(name)
    found, recorded = RECORDS[name](tmp_path, **only), record["numbers"]
    recorded = {key: numbers for key, numbers in recorded.items() if key in only.get("names", recorded)}
    # What came is recorded with the next change of numbers; what went must be recorded, too.
    assert found.keys() >= recorded.keys(), "make records records what went"
    moved = [
        f"{at} {key}: {now} was {before}"
        for at, values in recorded.items()
        for key, before in values.items()
        for now in [found[at].get(key, [])]
        if len(now) != len(before) or not all(same(*pair, tolerance) for pair in zip(now, before, strict=True))
    ]
    assert not moved, "\n".join(moved)
