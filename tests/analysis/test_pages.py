"""What people read of small studies stays as it was recorded, but where a change means to move it: `make records`."""

import difflib

import pytest
from shown_studies import PAGES, SHOWN, pages

LARGE = ("many", "unpaired", "two tasks")  # studies of which to draw everything takes a CPU-second and more


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if each in LARGE else ()) for each in SHOWN]
)
def test_what_people_read_of_a_study_is_what_was_recorded(name, tmp_path):
    recorded, now = (PAGES / f"{name}.txt").read_text(encoding="utf-8"), pages(tmp_path, name)
    if now != recorded:  # pytest's own comparison of long texts takes minutes
        changed = difflib.unified_diff(recorded.splitlines(), now.splitlines(), "recorded", "now", lineterm="", n=1)
        pytest.fail("\n".join([*changed][:60]) + "\nif that is meant: make records")
