"""Findings survive JSON exactly, and nothing else is taken for findings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clockhands.errors import DataError
from clockhands.findings import Figure, Finding, Findings, Mark, Panel, Reference, Table, choose_digits, join_words

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**9), 10**9)
texts = st.text(max_size=12)


@st.composite
def findings(draw: st.DrawFn) -> Findings:
    values = tuple(draw(st.lists(numbers, min_size=1, max_size=4)))
    mark = Mark("line", draw(texts), x=values, y=values, emphasis=draw(st.sampled_from(["", "main", "reference"])))
    heat = Mark("heatmap", z=((0.5, None), (1.0, 2.0)))
    figure = Figure((Panel((mark, heat), title=draw(texts), xlim=(0.0, 1.0)), Panel(())), columns=2)
    table = Table.of(["a", draw(texts)], [[draw(texts), value] for value in values])
    item = Finding(
        draw(texts), "q?", draw(texts), draw(numbers), interval=(0.0, 1.0), table=table, figure=figure,
        references=(Reference(draw(texts), draw(numbers), (0.0, 1.0)), Reference("chance", 0.5)),
        details={"deep": {"list": [1, 2]}},
    )  # fmt: skip
    return Findings(draw(texts), (item,), {"model": draw(texts), "layers": 2})


@given(findings())
def test_json_round_trip_is_exact(original: Findings) -> None:
    assert Findings.from_json(original.to_json()) == original


def test_tensors_and_nan_become_plain_values() -> None:
    table = Table.of(["x"], [[torch.tensor(1.5)], [torch.tensor(2)], [math.nan]])
    assert table.rows == ((1.5,), (2,), (None,))


def test_a_reference_by_its_name() -> None:
    found = Finding("a", "?", "v", references=(Reference("untrained", 0.2), Reference("chance", 0.1)))
    assert found.reference("chance") == Reference("chance", 0.1)
    assert found.reference("rows shuffled") is None


def test_items_by_name() -> None:
    both = Findings("t", (Finding("a", "?", "yes"), Finding("b", "?", "no")))
    assert both["b"].verdict == "no"
    with pytest.raises(KeyError, match="no finding named 'c'; there are a, b"):
        both["c"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{}", "it has no 'schema'"), (b"\xff\xfe{", "it is not UTF-8"), (b"[", "Expecting"), (b"", ""), (b"[]", ""),
        (b'{"schema": 99}', ""), (b'{"schema": 1, "title": "x"}', ""), (None, "there is no such file"),
    ],
)  # fmt: skip
def test_another_file_is_named_with_the_reason(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "findings.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=f"cannot read the findings in {path}.*{reason}"):
        Findings.load(path)


def test_a_row_of_another_width_is_no_row_of_a_table() -> None:
    with pytest.raises(ValueError, match="a row has 1 values for the 2 columns"):
        Table.of(("a", "b"), [(1, 2), (3,)])


@pytest.mark.parametrize(
    ("words", "text"), [((), "none"), (("a",), "a"), (("a", "b"), "a and b"), (iter(["a", "b", "c"]), "a, b and c")]
)
def test_words_are_joined_as_in_a_sentence(words: Iterable[str], text: str) -> None:
    assert join_words(words) == text


def test_different_ends_of_an_interval_look_different() -> None:
    """As few digits as show it, six more at most; equal ends need none."""
    assert [choose_digits(*ends) for ends in [(0.1, 0.2, 1), (0.12, 0.14, 1), (0.1234, 0.1235, 1)]] == [1, 2, 4]
    assert choose_digits(0.5, 0.5, 1) == 1 and choose_digits(0.1, 0.1 + 1e-12, 1) == 1
