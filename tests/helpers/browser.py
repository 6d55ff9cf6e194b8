"""A headless Chromium for tests, where there is one."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"]


@contextlib.contextmanager
def chromium(width: int = 1200, height: int = 900) -> Iterator[Any]:
    """A Selenium driver with the page's console kept and no network; skips the test where there is no Chromium."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install '.[browser]'")
    binary, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("no chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory() as profile:
        for flag in [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]:
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            browser.set_page_load_timeout(60)
            browser.set_script_timeout(60)
            offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
            browser.execute_cdp_cmd("Network.enable", {})
            browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
            yield browser
        finally:
            browser.quit()


def resize(browser: Any, width: int, height: int = 900) -> None:
    """Give the page this very width; a window cannot be as narrow as a phone."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def open_page(browser: Any, file: Path) -> None:
    """Open a file and wait until its curves are drawn, where it has any."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(file.as_uri())
    drawn = "const plot = document.getElementById('curves-plot'); return !plot || plot.dataset.ready === 'true'"
    WebDriverWait(browser, 60).until(lambda page: page.execute_script(drawn))
