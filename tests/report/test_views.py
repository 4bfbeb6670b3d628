"""What a reader chooses and turns on a page of ``inspect``, in a real browser: one head, and the position."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import torch

from clockhands.files import write_text
from clockhands.findings import Figure, Finding, Findings, Mark, Panel
from clockhands.inspection import Subject, inspect
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.distance_curve import make_distance_view
from clockhands.inspection.measures.rotation import RotationHands
from clockhands.inspection.reading.reading import Reading
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.report import make_page
from tests.inspection.tiny import tiny
from tests.inspection.words import WORDS, make_tokenizer
from tests.report.chromium import Browser, find

BINARY = find()
LARGEST_PAGE = 400_000
"""Bytes of a page of these two findings, their views and scripts among them."""


def find_sentences() -> Finding:
    generator = torch.Generator().manual_seed(0)
    text = " ".join(WORDS[index] for index in torch.randint(0, len(WORDS), (200,), generator=generator))
    asked = ["Tom bit a dog", "the king saw my sister"]
    return inspect(tiny("gpt2"), make_tokenizer(), [text], length=16, count=8, sentences=asked, control=False)[
        "sentence"
    ]


def find_hands() -> Finding:
    sizes = {"vocab_size": 50, "d_model": 16, "num_heads": 2, "d_ff": 16, "encoder_layers": 1}
    model = Transformer(TransformerConfig(kind="encoder", encoder=PositionConfig("sinusoidal"), **sizes))
    return MEASURES["table.hands"].run(Reading.without_text(Subject.of(model)))


def find_kernel() -> Finding:
    """A head whose logit is -|distance|, of a layer with three pairs of channels."""
    slope = -torch.arange(-9, 10).abs()[None].double()
    hands = RotationHands(torch.tensor([1.0, 0.1, 0.0]), torch.tensor([[2.0, 1.0, 0.0]]))
    view = make_distance_view([slope], [hands])
    figure = Figure((Panel((Mark("line", y=(1, 2)),)),), title="A kernel")
    return Finding("kernel", "What does distance do?", "V.", figure=figure, details={"view": view})


@pytest.fixture(scope="module")
def findings() -> Findings:
    return Findings("Views", (find_sentences(), find_hands(), find_kernel()))


@pytest.fixture(scope="module")
def page(findings: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("views") / "page.html", make_page(findings))


def choose(index: int, value: str) -> str:
    """A script that chooses ``value`` in the select of this index and returns what the view then says."""
    return f"""(() => {{ const select = document.querySelectorAll('.view select')[{index}]; select.value = '{value}';
        select.dispatchEvent(new Event('change')); return document.querySelector('.chosen').textContent }})()"""


def test_the_page_stays_small_and_its_figures_are_whole_without_a_script(findings: Findings, page: Path) -> None:
    assert page.stat().st_size < LARGEST_PAGE
    bare = make_page(findings, script=False)
    assert bare.count("<svg") == page.read_text("utf8").count("<svg") and 'class="view"' not in bare


def test_a_view_that_this_version_does_not_know_is_left_out() -> None:
    figure = Figure((Panel((Mark("points", "a", (1,), (2.0,)),)),))
    unknown = Finding("f", "Q?", "V.", figure=figure, details={"view": {"kind": "globe"}})
    assert '<script type="application/json"' not in make_page(Findings("t", (unknown,)))


def test_sentence_layer_head_and_map_are_chosen(browser: Browser, page: Path, findings: Findings) -> None:
    """A cell tells the numbers that are packed in the page, and its four terms add up to the logit."""
    browser.open(page, 1400)
    assert browser.evaluate(choose(1, "2")).startswith("Layer 2, head 1: attention.")
    assert browser.evaluate(choose(2, "3")).startswith("Layer 2, head 3: attention.")
    assert browser.evaluate(choose(3, "position alone")).startswith("Layer 2, head 3: position alone.")
    assert browser.evaluate(choose(0, "1")).startswith("Layer 2, head 3: position alone.")
    assert browser.evaluate("[...document.querySelectorAll('.cells .query')].map(e => e.textContent)") == (
        ["the", "king", "saw", "my", "sister"]
    )
    said = browser.evaluate(
        """(() => { document.querySelector('.cell[data-at="11"]').dispatchEvent(
        new PointerEvent('pointermove', { bubbles: true })); return document.querySelector('.said').textContent })()"""
    )
    head = findings["sentence"].details["view"]["sentences"][1]["heads"][6]
    weight = int.from_bytes(base64.b64decode(head["numbers"])[22:24], "little", signed=True) / 32767
    pair = "“saw” (position 2) looking at “king” (position 1)"
    assert said.startswith(f"{pair}: attention {weight:.3f}, after the swap ")
    logit, terms = said.removesuffix(".").replace("−", "-").split("; logit ")[1].split(" = ")
    assert sum(float(term.rsplit(" ", 1)[1]) for term in terms.split(" + ")) == pytest.approx(float(logit), abs=0.03)
    assert browser.faults() == []


def test_a_head_of_the_grid_is_chosen_by_a_click_and_cells_by_keys(browser: Browser, page: Path) -> None:
    browser.open(page, 1400)
    shown = browser.evaluate(
        """(() => { const tile = document.querySelectorAll('#sentence-svg .hover > rect')[5];
        tile.dispatchEvent(new MouseEvent('click', { bubbles: true }));
        const grid = document.querySelector('.cells'), out = [document.querySelector('.chosen').textContent,
          [...document.querySelectorAll('.hover .lit')].filter(tile => tile.getBoundingClientRect().width).length];
        for (const key of ['ArrowDown', 'ArrowDown', 'ArrowRight'])
          grid.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        return [...out, document.querySelector('.said').textContent] })()"""
    )
    assert shown[0].startswith("Layer 2, head 2: attention.")
    assert shown[1] == 2, "the head is marked in the map of each sentence"
    assert shown[2].startswith("“a” (position 2) looking at “bit” (position 1)")


POSITION = """(() => { const view = document.querySelectorAll('div.view')[1], out = {};
    const read = () => ({ position: view.dataset.position, row: parseFloat(view.querySelector('.row').style.top),
      mark: +view.querySelector('.mark').getAttribute('x1'), hands: [...view.querySelectorAll('.hand')].map(
        hand => [+hand.getAttribute('x2'), +hand.getAttribute('y2')]), said: view.querySelector('.now').textContent });
    const slider = view.querySelector('input'); slider.value = 6; slider.dispatchEvent(new Event('input'));
    out.slider = read();
    const heat = view.querySelector('.heat'), box = heat.getBoundingClientRect();
    heat.dispatchEvent(new PointerEvent('pointerdown', { clientX: box.x + 5, clientY: box.y + box.height * 6.5 / 64 }));
    out.heat = read();
    return out })()"""


def test_one_position_moves_row_curve_and_dials(browser: Browser, page: Path) -> None:
    """Position 7: the first hand of a sinusoid stands at 7 radians, clockwise; the slowest hardly moved."""
    browser.open(page, 1400)
    shown: dict[str, Any] = browser.evaluate(POSITION)
    assert shown["slider"]["position"] == "7" and shown["slider"] == shown["heat"]
    assert shown["slider"]["row"] == pytest.approx(100 * 6 / 64)
    assert shown["slider"]["mark"] == pytest.approx(14 + 182 * 6 / 63)
    angle = torch.tensor(7.0)
    assert shown["slider"]["hands"][0] == pytest.approx([9.5 * float(angle.sin()), -9.5 * float(angle.cos())], abs=0.1)
    assert shown["slider"]["hands"][-1] == pytest.approx([0.0, -9.5], abs=0.2)
    assert shown["slider"]["said"].startswith("7 of 1 to 64; cosine to the next position 0.")
    assert browser.faults() == []


DISTANCE = """(() => { const view = document.querySelectorAll('div.view')[2], slider = view.querySelector('input');
    slider.value = -6; slider.dispatchEvent(new Event('input'));
    const hands = [...view.querySelectorAll('.hand')];
    return { said: view.querySelector('.now').textContent, mark: +view.querySelector('.mark').getAttribute('x1'),
      hands: hands.map(hand => [+hand.getAttribute('x2'), +hand.getAttribute('y2')]),
      widths: hands.map(hand => +hand.style.strokeWidth),
      spans: [...view.querySelectorAll('.dials span')].map(e => e.textContent),
      told: view.querySelector('.dials').previousElementSibling.textContent } })()"""


def test_one_distance_moves_the_curve_and_the_dials(browser: Browser, page: Path) -> None:
    """Six tokens back a pair of 1 radian a token stands at -6 radians; the thickest hand is of the heaviest pair."""
    browser.open(page, 1400)
    shown: dict[str, Any] = browser.evaluate(DISTANCE)
    assert shown["said"] == "The key stands 6 tokens before the query: logit −6.000 against distance 0."
    assert shown["mark"] == pytest.approx(30 + 166 * 3 / 18)
    for hand, frequency in zip(shown["hands"], (1.0, 0.1, 0.0), strict=True):
        angle = torch.tensor(-6 * frequency)
        assert hand == pytest.approx([9.5 * float(angle.sin()), -9.5 * float(angle.cos())], abs=0.01)
    assert shown["widths"] == pytest.approx([3.0, 0.7 + 2.3 * 64 / 127, 0.7], abs=0.01)
    assert shown["spans"] == ["6.3", "62.8", "stands"]
    assert shown["told"].startswith("Layer 1 rotates 3 pairs of channels.")
    assert browser.faults() == []


@pytest.mark.parametrize("width", [360, 1440])
def test_views_fit_on_a_phone(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width, dark=width == 360)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    inside = """[...document.querySelectorAll('.view, .view *')].filter(e => !e.closest('.cells')
        && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    assert browser.evaluate(inside) == []
