"""report.html in a real, headless Chromium without a network."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from analysed_studies import analysed
from browser import chromium, open_page, resize
from fake_studies import TASK, fabricate

from ablate.runs.study import load_study
from analysis import webpage
from analysis.case import case_of

pytestmark = pytest.mark.slow
GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
SHOWN = (
    "return document.getElementById('curves-plot').data.map(trace => [trace.meta.kind, trace.meta.cell, trace.visible])"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


def written(results: Path, study: str) -> Path:
    """The report of a study, without its figures."""
    folder = results / "figures" / study
    folder.mkdir(parents=True)
    (file,) = webpage.write(case_of(load_study(results, study), results / "figures" / study), folder)
    return file


def complaints(browser: Any) -> list[str]:
    """What the console said since it was last asked."""
    return [entry["message"] for entry in browser.get_log("browser")]


def traces(browser: Any, kind: str) -> dict[int, bool]:
    """Which cells have a trace of a kind, and whether it is shown."""
    return {cell: visible for found, cell, visible in browser.execute_script(SHOWN) if found == kind}


def test_the_page_opens_offline_and_the_console_stays_silent(browser: Any, tmp_path: Path) -> None:
    open_page(browser, written(tmp_path, fabricate(tmp_path, GRID)))
    assert browser.execute_script("return document.querySelectorAll('#curves-plot .scatterlayer .trace').length") > 0
    assert complaints(browser) == []
    fetched = "return fetch('https://example.org/').then(() => 'fetched', () => 'refused')"
    assert browser.execute_script(fetched) == "refused"
    assert any("Content Security Policy" in line for line in complaints(browser))


def choose(browser: Any, name: str, value: str = "") -> None:
    """Set a control of the curves."""
    at = f"#curves-controls input[name={name}]" + f"[value={value}]" * bool(value)
    browser.find_element("css selector", at).click()


def test_the_legend_hides_curves_and_controls_change_axes_and_show_every_seed(browser: Any, tmp_path: Path) -> None:
    status = lambda levels, seed: "diverged" if (levels["ffn"], seed) == ("swiglu", 1) else "done"  # noqa: E731
    study = fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, status=status, timing="isolated")
    open_page(browser, written(tmp_path, study))
    last = "return document.getElementById('curves-plot').data.find(t => t.meta.kind === 'mean').x.at(-1)"
    kind = "return document.getElementById('curves-plot')._fullLayout.yaxis.type"
    assert browser.execute_script(last) == 800 and browser.execute_script(kind) == "linear"
    choose(browser, "x", "tokens")
    choose(browser, "log", "true")
    assert browser.execute_script(last) == 800 * 1024 and browser.execute_script(kind) == "log"
    choose(browser, "x", "seconds")
    assert browser.execute_script(last) == pytest.approx(16, rel=1e-3)
    assert traces(browser, "end") == {1: True} and traces(browser, "run") == {1: True}
    choose(browser, "seeds")
    assert traces(browser, "run") == {0: True, 1: True}
    button = browser.find_elements("css selector", "#curves-legend button")[1]
    button.click()
    assert traces(browser, "mean") == traces(browser, "band") == {0: True, 1: False}
    assert button.get_attribute("aria-pressed") == "false"
    button.send_keys(" ")
    assert traces(browser, "mean")[1] and button.get_attribute("aria-pressed") == "true"
    browser.find_element("id", "curves-none").click()
    assert not any(traces(browser, "mean").values())
    browser.find_element("id", "curves-all").click()
    assert all(traces(browser, "mean").values()) and complaints(browser) == []


def test_runs_sort_and_filter(browser: Any, tmp_path: Path) -> None:
    status = lambda levels, seed: "failed" if seed == 2 else "done"  # noqa: E731
    open_page(browser, written(tmp_path, fabricate(tmp_path, GRID, status=status)))
    shown = "[...document.querySelectorAll('#runs-table tbody tr')].filter(row => !row.hidden)"
    rows = f"return {shown}.map(row => row.cells[{{}}].textContent)"
    head = browser.find_elements("css selector", "#runs-table thead button")[3]
    head.click()
    up = [float(text) for text in browser.execute_script(rows.format(3)) if text != "–"]
    assert up == sorted(up) and len(up) == 8
    assert browser.execute_script(rows.format(3))[-4:] == ["–"] * 4
    head.click()
    assert [float(text) for text in browser.execute_script(rows.format(3))[:8]] == sorted(up, reverse=True)
    browser.find_element("css selector", "form.filter select").send_keys("failed")
    assert browser.execute_script(rows.format(2)) == ["failed"] * 4
    browser.find_element("css selector", "form.filter input").send_keys("RMSNorm + SwiGLU")
    assert browser.execute_script(rows.format(0)) == ["RMSNorm + SwiGLU"]
    assert "1 of 12 shown" in browser.find_element("css selector", "form.filter output").text


def test_an_effect_leads_to_its_runs_and_back_to_all(browser: Any, tmp_path: Path) -> None:
    open_page(browser, written(tmp_path, fabricate(tmp_path, GRID, design="one_at_a_time")))
    shown = "return [...document.querySelectorAll('#runs-table tbody tr')].filter(row => !row.hidden).length"
    every = browser.execute_script(shown)
    browser.find_element("css selector", "form.filter input").send_keys("nothing like this")
    assert browser.execute_script(shown) == 0
    browser.find_element("css selector", ".findings a").click()
    assert browser.execute_script(shown) == every * 2 // 3 and browser.current_url.endswith("#runs")
    browser.find_element("css selector", "form.filter button.all").click()
    assert browser.execute_script(shown) == every


def test_a_figure_opens_in_full_size_and_closes(browser: Any) -> None:
    open_page(browser, analysed() / "report.html")
    browser.find_element("css selector", "button.zoom").click()
    size = "const image = document.querySelector('dialog[open] img'); return [image.clientWidth, image.naturalWidth]"
    shown, pixels = browser.execute_script(size)
    assert shown == pixels > 800
    browser.find_element("css selector", "dialog").click()
    browser.execute_async_script("requestAnimationFrame(arguments[0])")  # its close event is sent later
    assert not browser.find_elements("css selector", "dialog") and complaints(browser) == []


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_nothing_leaves_the_page_at_any_width(browser: Any, tmp_path: Path, width: int) -> None:
    factors = {"norm": ["ln", "a_norm_with_a_very_long_name_" * 4], "optim.lr": [1e-3, 3e-3]}
    file = written(tmp_path, fabricate(tmp_path, factors, command="python -m ablate " + "x" * 400))
    resize(browser, width)
    try:
        open_page(browser, file)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        cut = "return [...document.querySelectorAll('.scroll')].some(each => each.scrollWidth > each.clientWidth)"
        assert width > 400 or not browser.execute_script(cut), "on a phone no table is wider than the page"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


EVIL = [
    "<script>window.pwned=1;alert(1)</script>",
    '"><img src=x onerror=window.pwned=1>',
    "</script><script>window.pwned=1</script>",
    "javascript:alert(1)",
    "{{7*7}}{% raw %}",
    '<b>bold</b><a href="https://example.org">here</a>',
    "<!--",
    "%{x}${7*7}",
]


def test_no_text_of_a_study_becomes_markup(browser: Any, tmp_path: Path) -> None:
    told = {"question": EVIL[0], "command": EVIL[1], "remarks": [EVIL[2]], "versions": {EVIL[0]: EVIL[1]}}
    tasks = {"f0": TASK | {"metrics": {"<b>loss": "min"}}}
    open_page(browser, written(tmp_path, fabricate(tmp_path, {"norm": ["ln", *EVIL]}, tasks=tasks, **told)))
    assert complaints(browser) == []
    text = browser.find_element("tag name", "body").get_attribute("textContent")
    assert all(evil in text for evil in EVIL)
    assert "49" not in browser.find_element("tag name", "header").text
    title = "return document.querySelector('#curves-plot .ytitle').textContent"
    assert "validation <b>loss" in browser.execute_script(title)
    names = [button.text for button in browser.find_elements("css selector", "#curves-legend button span")]
    assert names[1:6] == [*EVIL[:5]] and names[0] == "LayerNorm (reference)"
    assert not browser.find_elements("css selector", "img[src=x], main b, main a:not([data-cells]), footer b, svg a")
    choose(browser, "seeds")
    assert browser.execute_script("return window.pwned") is None and complaints(browser) == []
