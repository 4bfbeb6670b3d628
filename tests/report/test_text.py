"""Numbers and names as a reader meets them."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockhands.findings import Finding
from clockhands.report.text import escape, number, prose, quantity, slugs, span

NARROW = "\u202f"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (12, "12"),
        (-3, "−3"),
        (12345, f"12{NARROW}345"),
        (0.5, "0.5"),
        (9.401, "9.4"),
        (0.08, "0.08"),
        (-0.1234, "−0.123"),
        (123.456, "123"),
        (99999.5, f"100{NARROW}000"),
        (4.2e-7, "4.2 × 10⁻⁷"),
        (1.0e12, "1 × 10¹²"),
        (float("nan"), "–"),
        (float("inf"), "∞"),
        (float("-inf"), "−∞"),
        ("words\n", "words␊"),
    ],
)
def test_number(value: object, shown: str) -> None:
    assert number(value) == shown


def test_quantity_and_span() -> None:
    assert quantity(9.4, "%") == "9.4\u00a0%"
    assert quantity("none") == "none"
    assert span((0.25, 1)) == "[0.25, 1]"
    assert span((0.93041, 0.93044)) == "[0.93041, 0.93044]"
    assert span((0.5, 0.5)) == "[0.5, 0.5]"
    assert span(None) == ""


@given(st.text())
def test_escaped_text_parses_back_to_itself(text: str) -> None:
    """An HTML parser reads exactly the visible characters, and never a tag."""
    read: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            raise AssertionError(tag)

        def handle_data(self, data: str) -> None:
            read.append(data)

    parser = Reader(convert_charrefs=True)
    parser.feed(escape(text))
    parser.close()
    plain = "".join(character for character in text if character.isprintable() and not 0x80 <= ord(character) < 0xA0)
    assert "".join(character for character in "".join(read) if character in plain) == plain
    "".join(read).encode("utf8")


def test_prose() -> None:
    assert prose("one\n\ntwo `a < b`") == "<p>one</p><p>two <code>a &lt; b</code></p>"
    assert 'href="https://example.org/a?b=1"' in prose("see https://example.org/a?b=1.")
    assert 'href="https://arxiv.org/abs/2104.09864"' in prose("arXiv:2104.09864, eq. 3")
    assert "<a" not in prose("javascript:alert(1) http://plain.example")


def test_slugs_are_safe_and_distinct() -> None:
    names = ("a.b", "a b", "../../etc", "<x>", "…")
    made = slugs(Finding(name, "", "") for name in names)
    assert len(set(made)) == len(names)
    assert all(set(slug) <= set("abcdefghijklmnopqrstuvwxyz-0123456789") for slug in made)
