"""A headless Chromium that reads the page."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dpb_gym.report import html
from dpb_gym.report.leaderboard_data import LeaderboardData

VISIBLE = """
const task = document.querySelector('#task-' + arguments[0]);
return [...task.querySelectorAll('tr.row')].filter(tr => tr.checkVisibility())
  .map(tr => tr.querySelector('.label').textContent + '|' +
             tr.querySelector('td.budget').textContent.trim());
"""
ENDS = """
const found = {};
document.querySelectorAll(`#task-${arguments[0]} .curves .series`).forEach(g => {
  const path = g.querySelector('.path');
  const p = path.getPointAtLength(path.getTotalLength());
  found[g.dataset.rows] = [p.x, p.y];
});
return found;
"""
LIT = """
return [...document.querySelectorAll(`#task-${arguments[0]} .curves .series.hot`)]
  .map(g => g.dataset.rows);
"""
SETTLED = """
const done = arguments[0], root = document.documentElement;
const frame = then => () => requestAnimationFrame(then);
const settled = frame(frame(() => setTimeout(done, 30)));
const wait = () => 'ready' in root.dataset ? settled() : setTimeout(wait, 5);
wait();
"""
# WCAG contrast of every visible text against what is behind it, lowest first.
CONTRASTS = """
const parse = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
const over = ([r, g, b, a = 1], below) => [r, g, b].map((v, i) => v * a + below[i] * (1 - a));
const light = colour => colour.map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + [0.2126, 0.7152, 0.0722][i] * v, 0);
const behind = node => {
  const below = node.parentElement ? behind(node.parentElement) : [255, 255, 255];
  return over(parse(getComputedStyle(node).backgroundColor), below);
};
const found = [];
for (const node of document.querySelectorAll('body *')) {
  if (![...node.childNodes].some(child => child.nodeType === 3 && child.data.trim())) continue;
  if (node.matches('script, noscript *, :disabled, :disabled + *, .unseen')) continue;
  if (!node.checkVisibility()) continue;
  const style = getComputedStyle(node), back = behind(node), svg = node instanceof SVGElement;
  const fore = over(parse(svg ? style.fill : style.color), back);
  const [low, high] = [light(fore), light(back)].sort((a, b) => a - b);
  found.push([(high + 0.05) / (low + 0.05), node.textContent.slice(0, 40)]);
}
return found.sort((a, b) => a[0] - b[0]);
"""


class Reader:
    """Actions of a reader on the open page; other attributes are the driver's."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def press(self, selector: str) -> None:
        """Clicks in the middle of an element."""
        element = self.find(selector)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()
        self.settle()

    def settle(self) -> None:
        """Waits until what has come into view is drawn."""
        self.driver.execute_async_script(SETTLED)

    def keys(self, selector: str, text: str) -> None:
        """Types into an element that has the focus."""
        element = self.find(selector)
        self.driver.execute_script("arguments[0].focus()", element)
        assert self.driver.switch_to.active_element == element
        element.send_keys(text)
        self.settle()

    def unfold(self) -> None:
        """Shows the filters."""
        if not self.find("#choices").is_displayed():
            self.press("#fold")

    def hover(self, selector: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).move_to_element(self.find(selector)).perform()

    def fragment(self) -> str:
        return str(self.driver.execute_script("return location.hash"))

    def visible(self, task: int = 0) -> list[str]:
        """Labels and budgets of the rows that can be seen, from top to bottom."""
        return list(self.driver.execute_script(VISIBLE, task))

    def lit(self, task: int = 0) -> list[str]:
        """Row numbers of the curves that are singled out."""
        return list(self.driver.execute_script(LIT, task))

    def ends(self, task: int = 0) -> dict[str, list[float]]:
        """Pixels at which the curves end, by row number."""
        return dict(self.driver.execute_script(ENDS, task))

    def contrasts(self) -> list[tuple[float, str]]:
        """Contrast and beginning of every visible text, lowest contrast first."""
        return [(ratio, text) for ratio, text in self.driver.execute_script(CONTRASTS)]

    def unfold_all(self) -> None:
        """Opens every section, with the details of a row."""
        script = "document.querySelectorAll('details').forEach(d => { d.open = true; })"
        self.driver.execute_script(script)
        self.settle()
        self.press("#row-0-0 .more button")


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """A headless Chromium, or a skip with the reason."""
    binary = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    service = shutil.which("chromedriver")
    if binary is None or service is None:
        missing = "Chromium" if binary is None else "chromedriver"
        message = f"{missing} was not found on the path; the page is not tested in a browser"
        if os.environ.get("DPB_REQUIRE_BROWSER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
        "--no-first-run",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(executable_path=service)
    )
    try:
        yield browser
    finally:
        with contextlib.suppress(Exception):
            browser.quit()


@pytest.fixture
def opened(driver: Any, tmp_path: Any) -> Callable[..., Any]:
    """Write a leaderboard, open it, and return a `Reader`.

    Width and height are those of the page, in CSS pixels, as on a device of that size.
    """

    def show(
        data: LeaderboardData,
        *,
        width: int = 1280,
        height: int = 7000,
        hash: str = "",
        dark: bool = False,
    ) -> Any:
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        scheme = "dark" if dark else "light"
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        driver.get("about:blank")
        driver.get_log("browser")
        driver.get_log("performance")
        path = html(data, tmp_path / "leaderboard.html")
        driver.get(path.as_uri() + hash)
        reader = Reader(driver)
        reader.settle()
        return reader

    return show


@pytest.fixture(autouse=True)
def quiet(driver):
    """No test may leave an error or warning in the console."""
    yield
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []
