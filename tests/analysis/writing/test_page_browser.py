"""report.html in a real, headless Chromium without a network."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, open_page, resize
from fake_studies import fabricate

from ablate.runs.study import load_study
from analysis.case import case_of
from analysis.writing import page

pytestmark = [pytest.mark.slow, pytest.mark.browser]
GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
BOTTOM = "return Math.round(document.getElementById(arguments[0]).getBoundingClientRect().bottom + scrollY)"
SCROLLS = "return [...document.querySelectorAll('table')].filter(e => e.checkVisibility() && e.scrollWidth > e.parentElement.clientWidth).length"  # noqa: E501


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


def written(results: Path, study: str, **changed: Any) -> Path:
    """The report of a study, without its figures."""
    folder = results / "figures" / study
    folder.mkdir(parents=True)
    case = case_of(load_study(results, study), folder)
    page.write(case._replace(effects=case.effects.assign(**changed)), folder)
    return folder / page.NAME


def complaints(browser: Any) -> list[str]:
    """What the console said since it was last asked."""
    return [entry["message"] for entry in browser.get_log("browser")]


def test_the_page_opens_offline_and_the_console_stays_silent(browser, tmp_path):
    open_page(browser, written(tmp_path, fabricate(tmp_path, GRID)))
    assert browser.execute_script("return document.querySelectorAll('#curves-plot .scatterlayer .trace').length") > 0
    assert complaints(browser) == []
    fetched = "return fetch('https://example.org/').then(() => 'fetched', () => 'refused')"
    assert browser.execute_script(fetched) == "refused"
    assert all("Content Security Policy" in line or "violates" in line for line in complaints(browser))


@pytest.mark.parametrize(("width", "height", "screens"), [(1280, 800, 2), (390, 844, 4)])
def test_effects_confounds_and_curves_are_on_the_first_screens(browser, tmp_path, width, height, screens):
    factors = {"norm": ["ln", "rms", "bn"], "ffn": ["mlp", "swiglu", "geglu"]}
    file = written(tmp_path, fabricate(tmp_path, factors, range(5), design="one_at_a_time"), also="bias true → false")
    resize(browser, width, height)
    open_page(browser, file)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(BOTTOM, "curves-plot") <= screens * height
    assert browser.execute_script(SCROLLS) == 0, "no table is wider than its place"


@pytest.mark.parametrize("width", [360, 1600])
def test_nothing_leaves_the_page_at_any_width(browser, tmp_path, width):
    factors = {"norm": ["ln", "a_norm_with_a_very_long_name_" * 4], "optim.lr": [1e-3, 3e-3]}
    file = written(tmp_path, fabricate(tmp_path, factors, command="python -m ablate " + "x" * 400))
    resize(browser, width)
    open_page(browser, file)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
