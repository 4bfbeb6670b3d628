"""Mistakes of ports are named, and nothing is said of ports that are right or wrong in something else."""

from __future__ import annotations

import json

import pytest

from clockhands.checking import against
from tests.checking.scratch.ports import CORRECT, ELSEWHERE, NUMBERS, PAGE, PORTS, Port

# One of each kind: frequencies, layout, one layer, mask, two at once, slopes, table, buckets.
FAST = (
    "base 250,000",
    "pairs for halves in layer 1",
    "window 17 for 16",
    "pairs for halves and √d left out",
    "slopes of 8 heads",
    "the table read 2 too late",
    "the sign of T5's distances",
    "the decode step 8 too early",
    "positions counted from the pads",
)
UNNAMED = ("values rotated too",)


def marked(port: Port) -> object:
    return pytest.param(port, marks=() if port.name in FAST else pytest.mark.slow, id=port.name)


@pytest.mark.parametrize("port", [marked(port) for port in PORTS if port.name not in UNNAMED])
def test_a_mistake_of_a_port_is_named(port: Port) -> None:
    said = port.explain()
    assert port.is_named(said), said


@pytest.mark.parametrize("name", UNNAMED)
def test_what_cannot_be_fitted_is_not_guessed(name: str) -> None:
    (port,) = (port for port in PORTS if port.name == name)
    assert port.explain() == ""


@pytest.mark.parametrize("port", [marked(port) for port in CORRECT[4:]] + [CORRECT[0]], ids=lambda port: port.name)
def test_a_port_that_computes_the_same_is_the_same(port: Port) -> None:
    found = against.compare(*port.models())
    assert found.same and not found.explanation and not found.tried


@pytest.mark.parametrize("port", ELSEWHERE, ids=lambda port: port.name)
def test_nothing_is_said_of_a_mistake_in_something_else(port: Port) -> None:
    """Another base is a fact too, but it does not explain the difference alone: it is no clue."""
    found = against.compare(*port.models())
    assert not found.same
    assert found.explanation == ""


def test_the_page_is_about_the_ports_that_there_are() -> None:
    """Its sentences are measured by hand; that they are of these ports, and enough of them, is tested."""
    results = json.loads(NUMBERS.read_text("utf8"))["results"]
    assert (results["count"], results["correct"], results["elsewhere"]) == (25, len(CORRECT), len(ELSEWHERE))
    assert list(results["printed"]) == [port.name for port in PORTS]
    assert results["named"] == sum(port.is_named(results["printed"][port.name]) for port in PORTS) >= 21
    assert (results["alarms"], results["guesses"]) == (0, 0)
    assert len(CORRECT) >= 10
    text = PAGE.read_text("utf8")
    assert all(f"| {name} | {said or 'nothing'}" in text for name, said in results["printed"].items())
