"""The page in a real browser: no errors, no network, sorting, and no sideways scrolling on a phone."""

import json
import shutil

import pytest

from fairseq_reservoir.studies.report import ReportOptions, report
from tests.support.logs import plain_run
from tests.support.runs_of_a_study import ODD, write_runs

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
pytest.importorskip("selenium.webdriver.support.ui")
_MISSING = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=f"{' and '.join(_MISSING)} not installed")
_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of the mini runs and of a run with a very long name. Figures in other formats, which it does not show, are empty."""
    from matplotlib.figure import Figure

    def save(figure, out, format, **options):
        if format == "svg":
            usual(figure, out, format=format, **options)

    usual = Figure.savefig
    folder = tmp_path_factory.mktemp("page")
    write_runs(folder / "runs")
    plain_run(folder / "runs" / f"{'a' * 60}-1", [1, 2], [4, 4], layers=9).write()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        report(ReportOptions([folder / "runs"], folder / "out", baseline="dense", against="keep_ratio"))
    return (folder / "out" / "index.html").as_uri()


def open_page(browser, address, width):
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    choose_scheme(browser, "light")
    browser.get("about:blank")  # the next line opens a new document, even where this page was shown before
    browser.get(address)
    # The driver can return while the page is still being read, when the machine is busy.
    webdriver.support.ui.WebDriverWait(browser, 60).until(has_ended_loading)


def has_ended_loading(browser):
    return browser.execute_script("return document.readyState === 'complete' && location.protocol === 'file:'")


def choose_scheme(browser, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def test_no_errors_and_no_network(browser, address):
    browser.get("about:blank")  # the page of a new tab has ended loading
    browser.get_log("performance")
    open_page(browser, address, 1200)
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith("data:")} == {address}


def test_a_phone_does_not_scroll_sideways(browser, address):
    open_page(browser, address, 390)
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    browser.execute_script("window.scrollTo(500, 0)")
    assert browser.execute_script("return window.scrollX") == 0
    wide = browser.execute_script(
        "const e = document.querySelector('#aucc .scroll'); e.scrollLeft = 200; return e.scrollLeft"
    )
    assert wide == 200  # only the table scrolls


def test_a_reader_meets_answers_a_figure_tables_and_then_warnings_and_definitions(browser, address):
    open_page(browser, address, 1280)
    selectors = (".answers", "figure", "#results", "#over_seeds", "#runs", "#warnings", "#definitions")
    script = "return arguments[0].map(name => document.querySelector(name).getBoundingClientRect().top)"
    tops = browser.execute_script(script, selectors)
    assert tops == sorted(tops) and tops[1] < 900  # the figure is on the first screen


def test_every_figure_has_a_size_and_nothing_is_cut_off(browser, address):
    """All text of a figure is inside it, and only tables scroll sideways, with a fixed first column and its head."""
    sizes = (
        "return [...document.querySelectorAll('figure > svg')].map(e =>"
        " [e.getBoundingClientRect(), e.getBBox()].map(b => [b.width, b.height]))"
    )
    for width in (1280, 390):
        open_page(browser, address, width)
        boxes = browser.execute_script(sizes)
        assert len(boxes) == 8
        for (wide, high), (drawn_wide, drawn_high) in boxes:
            assert wide > 250 and high > 150 and drawn_wide > 100 and drawn_high > 100
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        outside = """
            return [...document.querySelectorAll("figure svg")].flatMap(svg => {
              const around = svg.getBoundingClientRect();
              return [...svg.querySelectorAll("text")].filter(text => {
                const own = text.getBoundingClientRect();
                return own.left < around.left - 1 || own.right > around.right + 1 || own.bottom > around.bottom + 1;
              }).map(text => text.textContent);
            })"""
        assert browser.execute_script(outside) == []
    fixed = """
        const box = document.querySelector("#runs .scroll"), place = e => e.getBoundingClientRect().left;
        box.scrollLeft = 150;
        return [box, ...box.querySelectorAll("th.first, tbody th")].map(place)"""
    left, *cells = browser.execute_script(fixed)
    assert len(cells) > 12 and set(cells) == {left}


def test_a_table_that_goes_on_fades_at_its_end(browser, address):
    open_page(browser, address, 390)
    fades = "const box = document.querySelector('#runs .scroll'); return getComputedStyle(box).maskImage !== 'none'"
    wait = webdriver.support.ui.WebDriverWait(browser, 20)
    wait.until(lambda browser: browser.execute_script(fades))
    browser.execute_script("const box = document.querySelector('#runs .scroll'); box.scrollLeft = box.scrollWidth")
    wait.until(lambda browser: not browser.execute_script(fades))


def column(browser, table, place):
    script = (
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(r => r.cells[arguments[1]].textContent)"
    )
    return browser.execute_script(script, f"#{table}", place)


def test_a_click_sorts_a_column_with_missing_values_last(browser, address):
    open_page(browser, address, 1200)
    buttons = browser.find_elements("css selector", "#to_best th button")
    before = column(browser, "to_best", 1)
    buttons[1].click()
    scores = [float(text.split(" ")[0]) for text in column(browser, "to_best", 1)]
    assert scores == sorted(scores) and column(browser, "to_best", 1) != before
    buttons[1].click()
    assert [float(text.split(" ")[0]) for text in column(browser, "to_best", 1)] == sorted(scores, reverse=True)
    sorted_by = browser.find_elements("css selector", "#to_best th[aria-sort]")
    assert [head.get_attribute("aria-sort") for head in sorted_by] == ["descending"]
    buttons[0].click()
    names = column(browser, "to_best", 0)
    assert names == sorted(names) and ODD in names
    button = browser.find_elements("css selector", "#aucc th button")[7]
    for _ in range(2):  # up, and down
        button.click()
        assert column(browser, "aucc", 7)[-1] == "—"


def test_the_dark_theme_is_readable(browser, address):
    luminance = """
        const style = getComputedStyle(document.querySelector(arguments[0]));
        const [r, g, b] = style[arguments[1]].match(/\\d+/g).map(v => (v / 255) ** 2.2);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b"""
    open_page(browser, address, 1200)
    for dark in (False, True):
        choose_scheme(browser, "dark" if dark else "light")
        paper = browser.execute_script(luminance, "body", "backgroundColor")
        assert (paper < 0.05) == dark
        for what, kind in (("td", "color"), (".notes p", "color"), ("figure svg text", "fill")):
            ink = browser.execute_script(luminance, what, kind)
            assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 4.5, what


def test_numbers_name_their_log(browser, address):
    open_page(browser, address, 1200)
    title = browser.execute_script("return document.querySelector('#to_best tbody td').title")
    assert title.count("train.log") == title.count(",") + 1 and "/runs/" in title
