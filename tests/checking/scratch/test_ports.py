"""Mistakes of ports are named, and nothing is said of ports that are right or wrong in something else."""

from __future__ import annotations

import json

import pytest

from clockhands.checking import against
from tests.checking.scratch.ports import (
    AT,
    BASE,
    CORRECT,
    ELSEWHERE,
    NUMBERS,
    PAGE,
    PORTS,
    ROOT,
    ROTATED,
    SLOPES,
    TRIL,
    WINDOWED,
    Port,
)

LOOKED_UP, BETWEEN = "self.pos_emb(positions)", "keys_at[:, None, :] - at[:, :, None]"

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


@pytest.mark.parametrize(
    ("scheme", "edit", "common", "says"),
    [
        ("rope", (BASE, "9000.0 ** (-torch"), (), "has base 9,000, not 10,000"),
        ("rope", (AT, f"-{AT}"), (), "rotates the other way"),
        ("rope", (ROTATED, "q, k = self.rotate(q, at + 1), self.rotate(k, at)"), (), "stood 1 later than keys"),
        ("rope", (ROTATED, "k = self.rotate(k, at)"), (), "does not rotate (queries)"),
        ("rope", (ROOT, ROOT + ROOT), (), "divides its logits by √16 once too often"),
        ("rope", (".triu(total - new - 15)", ".triu(total - new - 14)"), ((TRIL, WINDOWED),), "of 15, not 16"),
        ("rope", (".triu(total - new - 15)", ""), ((TRIL, WINDOWED),), "has no window; the reference has one of 16"),
        ("rope", (TRIL, WINDOWED), (), "has a window of 16, the reference none"),
        ("rope", (TRIL, ".tril(total - new + 2)"), (), "lets every token see 2 later ones"),
        ("rope", (AT, f"{AT} / 4"), (), "divides positions by 4, not by 1"),
        ("rope", (AT, "at.clamp(max=20)[:, None, :, None].float()"), (), "holds positions at 20"),
        ("rope", (AT, "(at % 20)[:, None, :, None].float()"), (), "begins positions anew after 19"),
        ("alibi", (SLOPES, f"0.5 * {SLOPES}"), (), "ALiBi's slopes halved"),
        ("alibi", (SLOPES, f"-1 * {SLOPES}"), (), "ALiBi's slopes of the wrong sign"),
        ("alibi", (SLOPES, f"({SLOPES}).flip(0)"), (), "ALiBi's slopes in reverse order of heads"),
        ("learned", (LOOKED_UP, "self.pos_emb((positions - 1).clamp(min=0))"), (), "vector of p − 1"),
        ("learned", (LOOKED_UP, "self.pos_emb(positions.clamp(max=9))"), (), "holds positions at 9"),
        ("learned", (LOOKED_UP, "self.pos_emb(positions % 10)"), (), "begins positions anew after 9"),
        ("learned", (LOOKED_UP, "self.pos_emb(positions * 0 + 3)"), (), "puts every token at position 3"),
        ("learned", (LOOKED_UP, f"0 * {LOOKED_UP}"), (), "adds no positions"),
        ("t5", (BETWEEN, f"{BETWEEN} + 1"), (), "takes each distance 1 too large"),
        ("t5", (BETWEEN, f"{BETWEEN} - 1"), (), "takes each distance 1 too small"),
    ],
)
def test_mirror_images_and_neighbours_of_ports_are_told_apart(
    scheme: str, edit: tuple[str, str], common: tuple[tuple[str, str], ...], says: str
) -> None:
    said = Port("", scheme, (), (edit,), common).explain()
    assert says in said, said
