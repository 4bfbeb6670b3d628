"""The laws, run over every scheme of the catalogue under all the options of its oracle. An exception is data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clockhands import positions
from clockhands.schemes import CATALOGUE, Scheme, Sizes, attend, attend_reference, build
from tests.schemes.oracles import ORACLES, VARIANTS, Case, weights

HEADS, LENGTH, HEAD_DIM, BATCH = 6, 9, 8, 2
WIDTH = HEADS * HEAD_DIM

# {law: {scheme: reason}}: what a scheme honestly cannot promise.
EXCEPTIONS: dict[str, dict[str, str]] = {}

CASES = [
    pytest.param(name, options, id=f"{name}-{options}") for name in CATALOGUE for options in VARIANTS.get(name, [{}])
]


def make(name: str, options: dict[str, Any], causal: bool = True) -> Scheme:
    """A scheme whose learned parameters are all away from zero, so that a dropped term shows."""
    scheme = build(CATALOGUE, name, Sizes(WIDTH, WIDTH, HEADS, HEAD_DIM, 2, causal), options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return scheme.eval()


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(BATCH, HEADS, LENGTH, HEAD_DIM, generator=generator).to(dtype) for _ in range(3))
    return q, k, v, torch.randn(BATCH, LENGTH, WIDTH, generator=generator).to(dtype)


def place(scheme: Scheme, x_BSD: Tensor, pos_BS: Tensor) -> Tensor:
    own = scheme.locate(x_BSD, pos_BS, None)
    return pos_BS if own is None else own


def sides(scheme: Scheme) -> list[bool]:
    """The masks under which a scheme is defined: causal, and bidirectional unless it is causal only."""
    return [True] if scheme.declares.causal_only else [True, False]


def excused(law: str, name: str) -> None:
    if name in EXCEPTIONS.get(law, {}):
        pytest.skip(f"{name}: {EXCEPTIONS[law][name]}")


def test_every_scheme_has_an_oracle() -> None:
    assert sorted(ORACLES) == sorted(CATALOGUE), "an oracle is missing, or one is left over"


@pytest.mark.parametrize(("name", "options"), CASES)
def test_equals_its_oracle(name: str, options: dict[str, Any]) -> None:
    for causal in sides(make(name, options)):
        scheme = make(name, options, causal)
        q, k, v, x = inputs()
        pos = positions.sequential(BATCH, LENGTH)
        case = Case(
            scheme, options, q[0].double(), k[0].double(), v[0].double(), pos[0], pos[0], x[0].double(), causal, WIDTH
        )
        expected = ORACLES[name](case)
        if expected.encode_SP is not None:
            torch.testing.assert_close(
                scheme.encode(pos)[0].double(), expected.encode_SP, atol=expected.tolerance, rtol=0
            )
            continue
        qpos = place(scheme, x, pos)
        weight = weights(expected.logits_HST, causal) if expected.logits_HST is not None else None
        out = weight @ v[0].double() if expected.out_HSK is None else expected.out_HSK
        for kernel in (lambda *a, **kw: attend_reference(*a, **kw).out_BHSK, attend):
            got = kernel(scheme, q, k, v, qpos, qpos, causal=causal)[0].double()
            torch.testing.assert_close(got, out, atol=expected.tolerance, rtol=1e-4)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_common_shift_changes_nothing_where_declared(name: str, options: dict[str, Any]) -> None:
    excused("shift", name)
    for causal in sides(make(name, options)):
        scheme = make(name, options, causal)
        q, k, v, x = inputs()
        pos = positions.sequential(BATCH, LENGTH)
        here = attend(scheme, q, k, v, place(scheme, x, pos), place(scheme, x, pos), causal=causal)
        there = place(scheme, x, positions.shifted(pos, 5))
        moved = attend(scheme, q, k, v, there, there, causal=causal)
        pe, pe_moved = scheme.encode(pos), scheme.encode(positions.shifted(pos, 5))
        same = torch.allclose(here, moved, atol=1e-5) and (pe is None or torch.allclose(pe, pe_moved, atol=1e-6))
        assert same == scheme.declares.translation_invariant
