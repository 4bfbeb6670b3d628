"""Where a page says that a scheme does not serve, it does not; and where it says nothing, it does."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from clockhands.attention import attend
from clockhands.errors import PositionError
from clockhands.scheme_pages.limits import list_limits
from clockhands.scheme_pages.page import PAGE_SIZES, make_page
from clockhands.scheme_pages.shown_options import complete_options
from clockhands.schemes import CATALOGUE, Declares, Scheme, build
from clockhands.shapes import Tensor

TOKENS = 5


def compute(scheme: Scheme, pos: Tensor) -> Tensor:
    """What attention makes of equal queries, keys and values at positions [1, S] or [1, S, A], with the encoding."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 8, TOKENS, 64, generator=generator) for _ in range(3))
    x = torch.randn(1, TOKENS, 512, generator=generator)
    with torch.no_grad():
        encoding, own = scheme.encode(pos), scheme.locate(x, pos, None)
        here = pos if own is None else own
        out = attend(scheme, q, k, v, here, here, causal=True)
        return out if encoding is None else out + encoding.mean(-1)[:, None, :, None]


def takes(scheme: Scheme, pos: Tensor) -> bool:
    try:
        compute(scheme, pos)
    except PositionError:
        return False
    return True


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_page_says_where_its_scheme_does_not_serve(name: str) -> None:
    said = " / ".join(make_page(name).limits)
    torch.manual_seed(0)
    scheme = build(CATALOGUE, name, PAGE_SIZES, complete_options(name)).eval()
    axes = scheme.declares.axes or 1
    line = torch.arange(TOKENS)[None]
    pos = line if axes == 1 else line[..., None].expand(1, TOKENS, axes)
    assert takes(scheme, pos)
    assert takes(scheme, pos + 0.5) is ("for positions between whole numbers" not in said)
    others = line[..., None].expand(1, TOKENS, 2) if axes == 1 else line
    assert takes(scheme, others) is ("for positions of several coordinates" not in said and axes == 1)
    assert ("it reads" in said) is (axes != 1)
    length = scheme.declares.max_length
    assert takes(scheme, pos + (length or 100_000) - TOKENS)
    assert takes(scheme, pos + (length or 100_000)) is ("later positions are refused" not in said)
    if length is None:
        assert takes(scheme, pos * 1000) is ("beyond its window" not in said)
    encoder = build(CATALOGUE, name, dataclasses.replace(PAGE_SIZES, causal=False), complete_options(name))
    assert encoder.declares.causal_only is ("in an encoder" in said)


def test_every_phrase_is_said_where_it_holds_and_only_there() -> None:
    plain = Declares(translation_invariant=True, real_valued=True, axes=None)
    assert list_limits(plain, plain, 1.99) == list_limits(plain, plain, None) == []
    changes = {
        "a shift of all positions": {"translation_invariant": False},
        "tokens that are further apart are refused": {"beyond": "raise"},
        "of more than 64 tokens: later positions are refused": {"beyond": "raise", "max_length": 64},
        "of more than 64 tokens: later positions are read as the last one": {"beyond": "clamp", "max_length": 64},
        "to generate texts with a KV cache": {"depends_on_length": True},
        "texts longer than 2,048 tokens with a KV cache": {"depends_on_length": True, "steady_length": 2048},
        "between whole numbers": {"real_valued": False},
        "several coordinates": {"axes": 1},
        "it reads 3 coordinates": {"axes": 3},
        "it draws random numbers": {"stochastic": True},
    }  # fmt: skip
    for phrase, change in changes.items():
        (limit,) = list_limits(dataclasses.replace(plain, **change), plain, None)  # type: ignore[arg-type]
        assert phrase in limit
    (limit,) = list_limits(plain, dataclasses.replace(plain, causal_only=True), None)
    assert limit.startswith("in an encoder")
    assert list_limits(plain, plain, 2.5) == [
        "where the time of attention counts: it takes 2.50 times that of no position"
    ]
