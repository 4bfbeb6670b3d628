"""The page in a real browser: it opens clean, shows its figures, and nothing sticks out."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.findings import Finding, Findings, Table
from clockhands.report import put_side_by_side, write
from tests.report.chromium import Browser, find
from tests.report.contrast import contrast, luminance
from tests.report.demo import EVIL, demo

BINARY = find()
ROOT = Path(__file__).resolve().parent.parent.parent
AXE, DOCS = ROOT / "explorer" / "node_modules" / "axe-core" / "axe.min.js", ROOT / "docs"
pytestmark = pytest.mark.skipif(BINARY is None, reason="no chromium, chromium-browser or google-chrome on the path")
FAULTS_OF_FIGURES = """[...document.querySelectorAll('.plot')].flatMap(plot => {
    const name = plot.parentNode.id, shown = [...plot.children].filter(svg => svg.getBoundingClientRect().width > 0);
    if (shown.length !== 1) return [`${name}: ${shown.length} drawings are shown`];
    if (plot.scrollWidth > plot.clientWidth) return [`${name} scrolls sideways`];
    const [svg] = shown, box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    return [...svg.querySelectorAll('text')].flatMap(text => {
      const size = parseFloat(getComputedStyle(text).fontSize) * scale, at = text.getBoundingClientRect();
      const out = Math.max(box.left - at.left, at.right - box.right, box.top - at.top, at.bottom - box.bottom);
      return [...(size < 9 ? [`${name}: "${text.textContent}" is ${size.toFixed(1)} px high`] : []),
        ...(out > 1 ? [`${name}: "${text.textContent}" is cut off by ${out.toFixed(1)} px`] : [])] }) })"""
STICKS_OUT = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.plot, .table, pre')
    && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def pages(demo_page: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    both = put_side_by_side(model("first"), model("second"))
    return {"one": demo_page, "two": write(both, tmp_path_factory.mktemp("report"))[0]}


def model(name: str) -> Findings:
    """A model with its findings but for three, whose figures take as long to draw as all others together."""
    slow = ("heads.distance", "table.similarity", "table.clock")
    items = tuple(item for item in demo(name) if item.name not in slow)
    return replace(demo(name), items=items, facts={**demo().facts, "model": name})


@pytest.mark.parametrize("which", ["one", "two"])
@pytest.mark.parametrize("width", [360, 1400])
def test_opens_clean_and_fits(browser: Browser, pages: dict[str, Path], which: str, width: int) -> None:
    browser.open(pages[which], width, dark=width == 360)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert browser.evaluate(STICKS_OUT) == []
    assert browser.faults() == []
    requests = [
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert requests[0] == pages[which].as_uri()
    assert all(url.startswith("data:") for url in requests[1:]), requests


def test_a_table_of_many_columns_scrolls_in_its_box_alone_and_keeps_the_names_of_its_rows(
    browser: Browser, tmp_path: Path
) -> None:
    tables = {
        count: Table.of(("what", *(f"layer {layer}" for layer in range(count))), [("row", *[-1234.5] * count)] * 3)
        for count in (3, 13, 40)
    }
    items = tuple(Finding(name=f"t{count}", question="?", verdict=".", table=table) for count, table in tables.items())
    page = write(Findings("tables", items, {}, "", ""), tmp_path)[0]
    for width in (481, 768, 1400):
        browser.open(page, width)
        browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        moved = browser.evaluate("""[...document.querySelectorAll('.table')].map(box => {
            const cells = box.querySelectorAll('tbody tr:first-child td');
            const place = number => cells[number - 1].getBoundingClientRect().x;
            const before = [place(1), place(4)];
            box.scrollLeft = 100;
            return [before[0] - place(1), before[1] - place(4)] })""")
        few, *many = moved
        assert few == [0, 0]
        assert all(name == pytest.approx(0, abs=1) for name, _ in many)
        assert many[-1][1] == pytest.approx(100, abs=1), "a box of 40 columns scrolls"


def test_on_a_phone_no_table_scrolls_sideways(browser: Browser, pages: dict[str, Path]) -> None:
    """A row of a wide table is a block there, in which each cell stands beside the name of its column."""
    scrolling = (
        "[...document.querySelectorAll('.table')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
    )
    cells = """[...document.querySelectorAll('#logits-shares tbody tr:first-child td')].map(cell =>
        [getComputedStyle(cell, '::before').content, cell.textContent, cell.getBoundingClientRect().x])"""
    names = ["layer", *(mark.label for mark in demo()["logits.shares"].figure.panels[0].marks)]
    for width, labels in ((360, [f'"{name}"' for name in names]), (1400, ["none"] * len(names))):
        browser.open(pages["one"], width)
        browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert browser.evaluate(scrolling) == []
        shown = browser.evaluate(cells)
        assert [label for label, _, _ in shown] == labels
        assert len({place for _, _, place in shown}) == (1 if width == 360 else len(names))
        heads = browser.evaluate("document.querySelector('#logits-shares thead').getBoundingClientRect().width")
        assert (heads > 300) == (width == 1400)


def test_a_long_unit_breaks_nowhere_and_sticks_out_nowhere(browser: Browser, tmp_path: Path) -> None:
    """The number and the first word of its unit stay together, in the contents too."""
    finding = Finding("f", "What does each cost?", "V.", 268928, "parameters of the largest")
    page = write(Findings("t", (finding,)), tmp_path / "report")[0]
    for width in (360, 1440):
        browser.open(page, width)
        over = "[document.documentElement, document.querySelector('.contents')].map(e => e.scrollWidth - e.clientWidth)"
        assert browser.evaluate(over) == [0, 0]
        # "268,928" and "parameters" on one line, "of the largest" below it: two lines, no word in two.
        lines = "(() => { const b = document.querySelector('.contents b'); return b.getBoundingClientRect().height / "
        assert round(browser.evaluate(lines + "parseFloat(getComputedStyle(b).lineHeight) })()")) == 2


@pytest.mark.parametrize("width", [360, 768, 1024, 1280, 1440])
def test_figures_fit_and_their_letters_are_at_least_9_pixels_high(
    browser: Browser, pages: dict[str, Path], width: int
) -> None:
    browser.open(pages["one"], width)
    assert browser.evaluate(FAULTS_OF_FIGURES) == []


def test_figures_are_there_and_have_size(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"], 1400)
    sizes = browser.evaluate(
        "[...document.querySelectorAll('.plot > svg:first-child')].map(s => s.getBoundingClientRect())"
        ".map(box => [box.width, box.height])"
    )
    assert len(sizes) == sum(item.figure is not None for item in demo())
    assert all(wide > 500 and tall > 200 for wide, tall in sizes)
    drawn = browser.evaluate(
        "[...document.querySelectorAll('.plot > :first-child image')].every(i => i.getBoundingClientRect().width > 3)"
    )
    assert drawn


def test_hostile_token_stays_text(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"], 1400)
    assert browser.evaluate("document.querySelectorAll('img, script').length") == 1, "the page's own script"
    assert EVIL in browser.evaluate("document.body.textContent")


def test_a_point_under_the_cursor_tells_its_value(browser: Browser, pages: dict[str, Path]) -> None:
    """What lies on top where the first bar is drawn is the element whose title holds that bar's value."""
    browser.open(pages["one"], 1400)
    title = browser.evaluate(
        """(() => { const t = document.querySelector('#loudness-share-svg .hover > rect'); t.scrollIntoView();
        const box = t.getBoundingClientRect();
        const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
        return top.querySelector('title').textContent })()"""
    )
    assert title == "share of the input: 61.2 [59, 63], words"


def test_dark_screens_get_light_ink(browser: Browser, pages: dict[str, Path]) -> None:
    """Text of page and figure keeps a contrast of at least 4.5 to 1 (WCAG 2.2, 1.4.3) in both schemes."""
    script = """(() => { const colour = (e, key) => getComputedStyle(e)[key].match(/\\d+/g).slice(0, 3).map(Number);
        return [colour(document.body, 'backgroundColor'),
          ...[...document.querySelectorAll('.verdict, .beside, figcaption, .contents a')].map(e => colour(e, 'color')),
          ...[...document.querySelectorAll('#survival-probe-svg text')].map(e => colour(e, 'fill'))] })()"""
    for dark in (False, True):
        browser.open(pages["one"], 1400, dark=dark)
        paper, *inks = browser.evaluate(script)
        assert (luminance(paper) < 0.1) == dark
        assert min(contrast(paper, ink) for ink in inks) >= 4.5


@pytest.mark.skipif(not AXE.exists(), reason="axe is not installed: cd explorer && npm ci")
@pytest.mark.parametrize("width", [360, 1440])
def test_axe_has_no_finding(browser: Browser, pages: dict[str, Path], width: int) -> None:
    """On reports with everything unfolded and on the catalogue, light and dark."""
    for path in (*pages.values(), DOCS / "schemes" / "index.html"):
        browser.open(path, width, dark=width == 360)
        browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        browser.call("Runtime.evaluate", expression=AXE.read_text("utf8"))
        run = "axe.run().then(({ violations }) => violations.map(({ impact, id }) => `${impact} ${id}`))"
        found = browser.call("Runtime.evaluate", expression=run, awaitPromise=True, returnByValue=True)["result"]
        assert found["value"] == [], path


def test_on_paper_everything_folded_stands_open(browser: Browser, pages: dict[str, Path]) -> None:
    height = "document.querySelector('#loudness-share details').getBoundingClientRect().height"
    browser.open(pages["one"], 1400)
    assert 0 < browser.evaluate(height) < 40, "one line is seen of it"
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.evaluate(height) > 100
        assert browser.evaluate("getComputedStyle(document.querySelector('.skip-link')).display") == "none"
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")


def test_the_skip_link_is_the_first_stop_and_leads_to_the_findings(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"], 1400)
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert browser.evaluate("document.activeElement.className") == "skip-link"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    browser.evaluate("document.activeElement.click()")
    assert browser.evaluate("document.activeElement.id") == "content"


BUTTONS = """(async () => { window.taken = {}; const labels = ['Copy SVG', 'Copy PNG', 'Copy link'];
    Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { taken.text = text },
      write: async ([item]) => { taken.type = item.types[0];
        const bits = await createImageBitmap(await item.getType('image/png'));
        const pen = new OffscreenCanvas(bits.width, bits.height).getContext('2d'); pen.drawImage(bits, 0, 0);
        const seen = pen.getImageData(0, 0, bits.width, bits.height).data;
        taken.size = [bits.width, bits.height]; taken.inks = new Set(new Uint32Array(seen.buffer)).size } } });
    const figure = document.querySelector('#loudness-share-figure'), out = {};
    for (const label of labels) {
      [...figure.querySelectorAll('button')].find(b => b.textContent === label).click();
      for (let n = 0; n < 200 && figure.querySelector('[role=status]').textContent !== 'copied'; n++)
        await new Promise(done => setTimeout(done, 20));
      out[label] = { ...taken, said: figure.querySelector('[role=status]').textContent };
      figure.querySelector('[role=status]').textContent = ''; window.taken = {};
    } return out })()"""


def test_buttons_copy_the_figure_and_its_address(browser: Browser, pages: dict[str, Path]) -> None:
    """The file has title and verdict and nothing to point at; the picture has colours, twice the size of the page's."""
    browser.open(pages["one"], 1400)
    taken = browser.call("Runtime.evaluate", expression=BUTTONS, awaitPromise=True, returnByValue=True)["result"][
        "value"
    ]
    root, found = ET.fromstring(taken["Copy SVG"]["text"]), demo()["loudness.share"]
    assert root[0].text == found.question and (root[1].text or "").startswith(found.verdict)
    assert not [element for element in root.iter() if element.get("class") == "hover"]
    width, height = (float(part) for part in root.get("viewBox", "").split()[2:])
    assert taken["Copy PNG"]["type"] == "image/png"
    assert taken["Copy PNG"]["size"] == pytest.approx([2 * width, 2 * height], abs=1)
    assert taken["Copy PNG"]["inks"] > 20
    assert taken["Copy link"]["text"] == f"{pages['one'].as_uri()}#loudness-share-figure"
    assert [each["said"] for each in taken.values()] == ["copied"] * 3
    assert browser.faults() == []


def test_a_value_is_shown_beside_the_pointer_and_beside_a_finger(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"], 400)
    shown = browser.evaluate(
        """(() => { const bar = document.querySelector('#loudness-share-svg .hover > rect');
        bar.scrollIntoView();
        const box = bar.getBoundingClientRect(), tip = document.querySelector('.tip'), out = [tip.hidden];
        const point = (kind, x, y, type) => document.elementFromPoint(x, y).dispatchEvent(
          new PointerEvent(type, { pointerType: kind, clientX: x, clientY: y, bubbles: true }));
        point('mouse', box.x + box.width / 2, box.y + box.height / 2, 'pointermove');
        out.push(tip.textContent, tip.hidden, tip.getBoundingClientRect().right <= innerWidth);
        point('mouse', box.x + box.width / 2, box.y - 8, 'pointermove'); out.push(tip.hidden);
        point('touch', box.x + box.width / 2, box.y - 8, 'click'); out.push(tip.hidden);
        return out })()"""
    )
    assert shown[0] is True and shown[1] == "share of the input: 61.2 [59, 63], words"
    assert shown[2:4] == [False, True]
