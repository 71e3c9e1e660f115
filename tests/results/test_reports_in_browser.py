"""Reports in headless Chromium: no error, charts with their data, sorting, filters, zoom, colours.

Skipped where there is no Chromium, or no driver for it (Debian: `chromium` and `chromium-driver`).
"""

from __future__ import annotations

import base64
import os
import shutil

import pytest

from allrail.output.report.document import Cell, Page, Section, Table
from allrail.output.report.front import pareto_front
from allrail.output.report.rendering import render
from allrail.output.report.timeline import Bar, Row, timeline

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# As WebDriver writes keys.
LEFT, RIGHT, DOWN, ESCAPE = "\ue012", "\ue014", "\ue015", "\ue00c"
KINDS = (
    "collectives",
    "training",
    "traffic",
    "placement",
    "queue",
    "sweep",
    "reproduction",
    "layouts",
    "tuning",
    "verdict",
)


@pytest.fixture(scope="module")
def chromium():
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        missing = "Chromium" if browser is None else "chromedriver"
        pytest.skip(f"there is no {missing} on this machine")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = browser
    options.add_argument("--headless=new")
    options.add_argument("--window-size=1200,1000")
    options.add_argument("--disable-dev-shm-usage")
    options.add_argument("--force-device-scale-factor=1")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(driver)) as one:
        yield one


class Report:
    """A page that is open."""

    def __init__(self, driver, folder):
        from selenium.webdriver.support.wait import WebDriverWait

        self.driver = driver
        self.media(dark=False)
        driver.get("about:blank")
        driver.get_log("browser")
        driver.get(f"file://{folder}/report.html")
        waiting = WebDriverWait(driver, 30, poll_frequency=0.05)  # for what is unpacked
        waiting.until(lambda _: len(self.all(".chart")) == len(self.all(".chart .viewport")))
        self.settle()

    def media(self, *, dark):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def settle(self):
        """Wait until what has changed is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done)));"
        )

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys):
        self.one(".viewport").send_keys(*keys)
        self.settle()

    def data(self, selector=".viewport"):
        found = self.js("return {...document.querySelector(arguments[0]).dataset}", selector)
        return {name: float(value) for name, value in found.items()}

    def texts(self, selector, column):
        """A column of a table, as shown; found and read at once, for the page may make it anew."""
        return self.js(
            "const rows = document.querySelector(arguments[0]).tBodies[0].rows;"
            "return [...rows].filter((row) => !row.hidden)"
            ".map((row) => row.cells[arguments[1]].textContent)",
            selector,
            column,
        )

    def colours(self, selector):
        """The colours on a canvas, as numbers."""
        return self.js(
            "const canvas = document.querySelector(arguments[0]);"
            "const copy = document.createElement('canvas');"
            "[copy.width, copy.height] = [canvas.width, canvas.height];"
            "const pen = copy.getContext('2d', {willReadFrequently: true});"
            "pen.drawImage(canvas, 0, 0);"
            "const all = pen.getImageData(0, 0, copy.width, copy.height).data;"
            "return [...new Set(new Uint32Array(all.buffer))]",
            selector,
        )


@pytest.fixture(params=KINDS)
def each(request, chromium, reports):
    return Report(chromium, reports[request.param])


@pytest.fixture
def collectives(chromium, reports):
    return Report(chromium, reports["collectives"])


@pytest.fixture
def swept(chromium, reports):
    return Report(chromium, reports["sweep"])


def number(text):
    return float(text.replace(",", "").removesuffix(" %"))


def test_it_loads_without_a_word_in_the_console_and_without_a_network(each):
    assert each.driver.get_log("browser") == []
    assert each.js("return performance.getEntriesByType('resource').length") == 0


def test_every_chart_is_drawn_with_its_data(each):
    charts = each.js("return JSON.parse(document.getElementById('data').textContent)")
    assert len(each.all(".chart")) == len(charts)
    for name, data in charts.items():
        told = each.data(f"#{name} .viewport")
        if "points" in data:
            count = len(data["points"])
        else:
            count = sum(len(lane) // 5 for row in data["rows"] for lane in row["lanes"])
            assert told["count"] == count
        assert 0 < told["drawn"] <= count
        assert len(each.colours(f"#{name} canvas")) > 20


BARS = """
return [...document.querySelectorAll("td.part")].filter((one) => one.offsetParent).map((cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  const style = getComputedStyle(cell);
  const inner = cell.getBoundingClientRect().bottom - parseFloat(style.borderBottomWidth);
  const tops = style.backgroundSize.split(/,(?![^(]*[)])/).map((size, layer) => {
    const high = parseFloat(size.trim().split(" ").at(-1));
    const place = style.backgroundPositionY.split(/,(?![^(]*[)])/)[layer].trim();
    const up = parseFloat(place.match(/100% - ([\\d.]+)px/)?.[1]);
    return inner - up - high;
  });
  return [cell.textContent, range.getBoundingClientRect().bottom, Math.min(...tops), tops.length];
})"""


def test_bars_of_parts_lie_below_their_numbers(each):
    """Each has a bar and its track; their upper edge is not above the lower one of the text."""
    for text, low, top, layers in each.js(BARS):
        assert layers == 2
        assert top is not None, text
        assert low <= top + 0.5, (text, low, top)


SIZES = "return [...document.querySelectorAll('canvas')].map((one) => ({width: one.width}))"
CLICKS = """
return [...document.querySelectorAll("table")].map((table) =>
  [...table.tHead.rows[0].cells].map((head, column, heads) => {
    const texts = () => [...table.tBodies[0].rows].map((row) => row.cells[column].textContent);
    const told = [[null, texts()]];
    for (const _ of [1, 2]) {
      head.querySelector("button").click();
      told.push([head.getAttribute("aria-sort"), texts()]);
    }
    told.push(heads.filter((one) => one.hasAttribute("aria-sort")).length);
    return told;
  }));
"""


def test_a_click_on_a_header_sorts_both_ways(each):
    tables = each.js(CLICKS)
    assert any(len(columns[0][0][1]) > 1 for columns in tables)
    for columns in tables:
        for (_, before), (first, up), (second, down), marked in columns:
            assert (first, second, marked) == ("ascending", "descending", 1)
            assert sorted(up) == sorted(down) == sorted(before)
            try:
                assert list(map(number, up)) == sorted(map(number, up))
                assert list(map(number, down)) == sorted(map(number, down), reverse=True)
            except ValueError:
                continue  # a column of texts, of numbers with units, or with holes


def test_numbers_are_sorted_by_what_they_are_and_holes_come_last(chromium, tmp_path):
    sizes = [Cell("1 GB", 1e9), Cell("900 MB", 9e8), "–", Cell("10 KB", 1e4)]
    rows = [[f"row {n}", one] for n, one in zip((10, 9, 1, 2), sizes, strict=True)]
    table = Table("sizes", ["row", "size"], rows, [0])
    page = Page("t", "s", [], "h", [], [Section("r", "R", [table])])
    (tmp_path / "report.html").write_text(render(page, version="0"))
    report = Report(chromium, tmp_path)
    found = report.one("table")
    row, size = found.find_elements("css selector", "thead button")
    size.click()
    assert report.texts("table", 1) == ["10 KB", "900 MB", "1 GB", "–"]
    size.click()
    assert report.texts("table", 1) == ["1 GB", "900 MB", "10 KB", "–"]
    row.click()
    assert report.texts("table", 0) == ["row 1", "row 2", "row 9", "row 10"]


def test_a_filter_leaves_the_rows_that_have_all_words(collectives):
    table = collectives.one("#dimensions-rows")
    box = table.find_element("xpath", "preceding::input[1]")
    box.send_keys("themis DIM2")
    rows = collectives.js(
        "return [...arguments[0].tBodies[0].rows].filter((row) => !row.hidden)"
        ".map((row) => row.textContent)",
        table,
    )
    assert len(rows) == 1
    assert "themis" in rows[0]
    assert "dim2" in rows[0]
    assert "1 of 6 rows" in box.find_element("xpath", "..").text
    box.clear()
    box.send_keys(" ")
    assert len(collectives.texts("#dimensions-rows", 0)) == 6


class TestTimeline:
    def width(self, report):
        told = report.data()
        return told["highUs"] - told["lowUs"]

    def test_keys_zoom_pan_and_show_all(self, collectives):
        whole = self.width(collectives)
        collectives.press("+")
        assert self.width(collectives) == pytest.approx(whole / 2, rel=1e-6)
        fewer = collectives.data()
        assert fewer["drawn"] < fewer["count"]
        collectives.press(RIGHT, RIGHT)
        moved = collectives.data()
        assert moved["lowUs"] == pytest.approx(fewer["lowUs"] + 0.3 * whole / 2, rel=1e-3)
        assert self.width(collectives) == pytest.approx(whole / 2, rel=1e-6)
        collectives.press("-", "-")
        assert self.width(collectives) == pytest.approx(whole)
        collectives.press("+", "+", "+", "0")
        assert collectives.data()["lowUs"] == 0
        assert self.width(collectives) == pytest.approx(whole)

    def test_the_view_never_leaves_the_timeline(self, collectives):
        whole = collectives.data()["highUs"]
        collectives.press("+", *[RIGHT] * 30)
        assert collectives.data()["highUs"] == pytest.approx(whole)
        collectives.press(*[LEFT] * 60)
        assert collectives.data()["lowUs"] == 0
        collectives.press(*["+"] * 60)
        assert self.width(collectives) > 0

    def test_keys_tell_one_span_after_the_other(self, collectives):
        collectives.press(DOWN)
        first = collectives.one(".live").text
        assert "baseline" in first
        assert "dim1" in first
        assert " for " in first
        collectives.press("n")
        second = collectives.one(".live").text
        assert second != first
        collectives.press("p")
        assert collectives.one(".live").text == first
        collectives.press(DOWN)
        assert "dim2" in collectives.one(".live").text
        collectives.press(ESCAPE)
        assert collectives.one(".live").text == ""

    def test_the_wheel_zooms_when_it_has_the_focus_and_else_scrolls(self, collectives):
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

        view = collectives.one(".viewport")
        collectives.js("arguments[0].scrollIntoView({block: 'center'})", view)
        whole = self.width(collectives)

        def turn():
            origin = ScrollOrigin.from_element(view)
            ActionChains(collectives.driver).scroll_from_origin(origin, 0, -120).perform()
            collectives.settle()

        turn()
        assert self.width(collectives) == pytest.approx(whole)
        collectives.js("arguments[0].focus({preventScroll: true})", view)
        turn()
        assert self.width(collectives) < whole

    def test_the_pointer_tells_what_is_below_it_and_drags(self, collectives):
        from selenium.webdriver.common.action_chains import ActionChains

        view = collectives.one(".viewport")
        collectives.js("arguments[0].scrollIntoView({block: 'center'})", view)
        box = collectives.js("return arguments[0].getBoundingClientRect().toJSON()", view)
        x, y = 230 - box["width"] / 2, 26 + 26 + 11 - box["height"] / 2
        ActionChains(collectives.driver).move_to_element_with_offset(view, x, y).perform()
        collectives.settle()
        tip = collectives.one(".tip")
        assert tip.is_displayed()
        assert "chunk" in tip.text
        collectives.press("+")
        before = collectives.data()["lowUs"]
        ActionChains(collectives.driver).move_to_element(view).click_and_hold().move_by_offset(
            -150, 0
        ).release().perform()
        collectives.settle()
        assert collectives.data()["lowUs"] > before

    def test_a_filter_leaves_spans_that_have_all_words(self, collectives):
        box = collectives.one(".chart input")
        box.send_keys("themis chunk 1")
        collectives.settle()
        told = collectives.data()
        assert 0 < told["count"] < 20
        assert "spans in 3 rows" in collectives.one(".chart .told").text
        collectives.one("details.view summary").click()
        collectives.settle()
        names = {text.split()[1] for text in collectives.texts(".view table", 1)}
        assert names == {"1"}

    def test_buttons_do_as_the_keys(self, collectives):
        whole = self.width(collectives)
        near, far, everything = collectives.all(".chart button")[:3]
        names = [one.accessible_name for one in (near, far, everything)]
        assert names == ["Zoom in", "Zoom out", "Show all"]
        near.click()
        near.click()
        collectives.settle()
        assert self.width(collectives) == pytest.approx(whole / 4, rel=1e-6)
        far.click()
        collectives.settle()
        assert self.width(collectives) == pytest.approx(whole / 2, rel=1e-6)
        everything.click()
        collectives.settle()
        assert self.width(collectives) == pytest.approx(whole)


class TestPoints:
    def test_the_front_is_of_what_a_filter_leaves(self, swept):
        charts = swept.js("return JSON.parse(document.getElementById('data').textContent)")
        points = charts["front"]["points"]
        assert swept.data()["drawn"] == len(points) == 9
        assert swept.data()["front"] == len(pareto_front(points))
        swept.one(".chart input").send_keys("fabric.planes 1")
        swept.settle()
        assert swept.data()["drawn"] == 3
        left = [one for one in points if "fabric.planes 1" in one[2]]
        assert swept.data()["front"] == len(pareto_front(left)) < 3
        assert "3 of 9 points" in swept.one(".chart .told").text

    def test_the_recommended_layout_has_its_name_whether_on_the_front_or_not(
        self, chromium, reports
    ):
        page = Report(chromium, reports["layouts"])
        charts = page.js("return JSON.parse(document.getElementById('data').textContent)")
        [name] = charts["memory-chart"]["marked"]
        assert any(name == one[2] for one in charts["memory-chart"]["points"])
        assert f"{name} *" in page.texts("#ranked-rows", 0)
        assert page.data()["named"] >= 1

    def test_points_have_their_names_beside_them(self, swept):
        """All of them, where they are few; those on the front at least once a filter leaves one."""
        charts = swept.js("return JSON.parse(document.getElementById('data').textContent)")
        assert swept.data()["named"] == len(charts["front"]["points"])
        swept.one(".chart .tools input").send_keys("fabric.planes 1, traffic.size 1 MiB")
        swept.settle()
        assert swept.data()["drawn"] == swept.data()["named"] == 1

    def test_keys_zoom_and_tell_points(self, swept):
        whole = swept.data()
        swept.press("+")
        zoomed = swept.data()
        assert zoomed["high"] - zoomed["low"] == pytest.approx((whole["high"] - whole["low"]) / 2)
        swept.press("0", "n")
        assert swept.data()["low"] == whole["low"]
        first = swept.one(".live").text
        assert first.startswith("point ")
        swept.press("n")
        assert swept.one(".live").text != first


def test_dark_and_light(each):
    back = "return getComputedStyle(document.body).backgroundColor"
    light = each.js(back)
    names = [one.get_attribute("id") for one in each.all(".chart")]
    before = {name: set(each.colours(f"#{name} canvas")) for name in names}
    each.media(dark=True)
    each.settle()
    assert each.js(back) != light
    dark = 0xFF << 24 | 0x4B << 16 | 0x41 << 8 | 0x39  # `--grid`, as bytes lie in memory
    for name in names:
        assert dark not in before[name]
        assert dark in each.colours(f"#{name} canvas")


def test_everything_that_is_used_has_a_name(each):
    for one in each.all("button, input, summary, [role], section, nav, table thead th"):
        if one.get_attribute("role") == "status":
            continue  # it speaks when there is something to say
        assert one.accessible_name.strip() or one.tag_name == "th", one.get_attribute("outerHTML")
    assert {one.aria_role for one in each.all(".viewport")} <= {"application"}
    for one in each.all(".viewport"):
        words = each.js(
            "return arguments[0].getAttribute('aria-describedby').split(' ')"
            ".map((id) => document.getElementById(id).textContent).join(' ')",
            one,
        )
        assert "zoom" in words
        assert any(char.isdigit() for char in words)


def test_it_fits_a_narrow_window(each):
    each.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": False},
    )
    try:
        each.settle()
        assert each.js("return document.documentElement.scrollWidth") <= 380
        assert all(
            each.data(f"#{one.get_attribute('id')} .viewport")["drawn"]
            for one in each.all(".chart")
        )
    finally:
        each.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_it_prints_light_and_whole_and_is_as_before_afterwards(each):
    each.media(dark=True)
    each.js(
        "window.seen = []; window.addEventListener('beforeprint', () => window.seen.push("
        "[getComputedStyle(document.documentElement).getPropertyValue('--paper').trim(),"
        "...[...document.querySelectorAll('canvas')].map((one) => one.width)]))"
    )
    told = each.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    pdf = base64.b64decode(told["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000
    assert each.js("return window.seen") == [["#ffffff", *[3000] * len(each.all(".chart"))]]
    each.settle()
    assert all(one["width"] < 3000 for one in each.js(SIZES))
    assert not each.js("return document.documentElement.hasAttribute('data-paper')")
    assert each.driver.get_log("browser") == []


def test_many_spans_are_drawn_at_once(chromium, tmp_path):
    bars = [Bar(i, i + 0.7, f"chunk {i}", "#3a6fb7") for i in range(10_000)]
    rows = [Row("job", f"dim{n}", "", bars) for n in range(10)]
    chart = timeline(
        "many", rows, title="Many", caption="c", legend=[("#3a6fb7", "x")], end_us=10_000
    )
    page = Page("t", "s", [], "h", [], [Section("timeline", "Timeline", [chart])])
    (tmp_path / "report.html").write_text(render(page, version="0"))
    report = Report(chromium, tmp_path)
    assert report.data()["count"] == report.data()["drawn"] == 100_000
    report.press("+", "+", DOWN, "n")
    assert 0 < report.data()["drawn"] < 50_000
    assert report.driver.get_log("browser") == []
