"""The badge is an SVG that holds its texts and asks for nothing."""

from __future__ import annotations

from xml.etree import ElementTree

from clockhands.report.badge import make_badge

SVG = "{http://www.w3.org/2000/svg}"


def test_the_texts_stand_in_it_escaped() -> None:
    badge = ElementTree.fromstring(make_badge("position", "<3 & 4>", "good", 'PASS  a"b'))
    texts = [element.text for element in badge.iter(f"{SVG}text")]
    assert texts == ["position", "<3 & 4>"]
    assert badge.find(f"{SVG}title").text == 'PASS  a"b'  # type: ignore[union-attr]
    assert badge.get("aria-label") == "position: <3 & 4>"


def test_the_colour_follows_the_light_and_the_width_the_text() -> None:
    good, bad = (make_badge("position", "50 pass", light, "") for light in ("good", "bad"))
    assert good != bad
    assert "http" not in good.replace("http://www.w3.org/2000/svg", "")
    short, long = (ElementTree.fromstring(make_badge("a", text, "good", "")) for text in ("b", "b" * 40))
    assert int(long.get("width", 0)) - int(short.get("width", 0)) > 200


def test_white_text_can_be_read_on_every_colour() -> None:
    from clockhands.report.badge import _COLOURS

    for colour in _COLOURS.values():
        channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert 1.05 / (luminance + 0.05) >= 4.5  # WCAG 2.1, 1.4.3
