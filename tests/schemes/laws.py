"""What the laws share: every scheme under every variant, inputs, and attention as a decoder with a cache does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from clockhands import positions
from clockhands.attention import attend
from clockhands.errors import PositionError
from clockhands.options import options_of
from clockhands.scheme_pages.page import find_excuse
from clockhands.scheme_pages.variants import complete_options
from clockhands.schemes import CATALOGUE, Scheme, Sizes, build
from tests.schemes.oracles import VARIANTS

HEADS, LENGTH, HEAD_DIM, BATCH = 6, 9, 8, 2
WIDTH = HEADS * HEAD_DIM
CAUSAL = (True,)


def every(law: str, sides: tuple[bool, ...] = (True, False), *, in_turn: bool = False) -> pytest.MarkDecorator:
    """Run a law over every scheme, variant and side (causal or not); where it is excepted by reason, it must fail.

    ``sides``: a law that the mask has nothing to do with looks at the causal side alone.
    ``in_turn``: both sides of a scheme as it is, and of its variants one side each in turn; the rest with --exhaustive.
    """
    return cases(law, sides, lambda scheme: True, in_turn=in_turn)


def attending(law: str, sides: tuple[bool, ...] = (True, False), *, in_turn: bool = False) -> pytest.MarkDecorator:
    """Run a law over every scheme, variant and side that does not act at the embedding alone."""
    return cases(law, sides, lambda scheme: scheme.active_hooks() != {"encode"}, in_turn=in_turn)


def between(law: str, *, variants: bool = True) -> pytest.MarkDecorator:
    """Run a law over every scheme and variant that can stand between a target and its source (cross-attention).

    ``variants``: False leaves all but the schemes as they are to --exhaustive.
    """
    return cases(law, (False,), lambda scheme: not scheme.active_hooks() & {"encode", "locate"}, variants=variants)


def cases(
    law: str, sides: tuple[bool, ...], serves: Callable[[Scheme], bool], *, in_turn: bool = False, variants: bool = True
) -> pytest.MarkDecorator:
    """The schemes, variants and sides of a law, with the exceptions as failures that are expected."""
    found = []
    for name, kind in CATALOGUE.items():
        defaults = {key: option.default for key, option in options_of(kind).items()}
        for number, options in enumerate(VARIANTS.get(name, [{}])):
            scheme = _known(name, number)
            if not serves(scheme):
                continue
            for causal in sides:
                if not causal and scheme.declares.causal_only:
                    continue
                reason = find_excuse(law, name, {**defaults, **options})
                marks: list[pytest.MarkDecorator] = []
                if reason:
                    # Strict: an exception that is wider than what breaks the law is itself a failure.
                    marks += [pytest.mark.xfail(reason=reason, raises=(AssertionError, PositionError), strict=True)]
                other_turn = in_turn and not scheme.declares.causal_only and causal != bool(number % 2)
                if number and (other_turn or not variants):
                    marks += [pytest.mark.exhaustive]
                said = ",".join(f"{key}={describe(value)}" for key, value in options.items())
                side = "causal" if causal else "bidirectional"
                found.append(pytest.param(name, options, causal, marks=marks, id=f"{name}({said})-{side}"))
    return pytest.mark.parametrize(("name", "options", "causal"), found)


@cache
def _known(name: str, number: int) -> Scheme:
    """One scheme of each variant, built once for the cases of all laws, which ask it what it declares."""
    return make(name, VARIANTS.get(name, [{}])[number])


def describe(value: Any) -> str:
    """An option as the name of a test shows it; of parts, their names and options."""
    if not isinstance(value, tuple) or not any(isinstance(part, dict) for part in value):
        return str(value)
    return "+".join(part if isinstance(part, str) else " ".join(map(str, part.values())) for part in value)


def make(name: str, options: dict[str, Any], causal: bool = True) -> Scheme:
    """A scheme whose learned parameters are all away from where they start, so that a dropped term shows."""
    sizes = Sizes(WIDTH, WIDTH, HEADS, HEAD_DIM, 2, causal)
    scheme = build(CATALOGUE, name, sizes, complete_options(name, options, LENGTH))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    scheme.encoded = True  # the laws call each hook by itself
    return scheme.eval()


@dataclass
class Inputs:
    """What one attention layer has: queries, keys, values before rotation, its own input, and positions."""

    q: Tensor
    k: Tensor
    v: Tensor
    x: Tensor
    pos: Tensor

    def rows(self, start: int, stop: int) -> Inputs:
        """The tokens from ``start`` to ``stop``."""
        parts = (tensor[:, :, start:stop] for tensor in (self.q, self.k, self.v))
        return Inputs(*parts, self.x[:, start:stop], self.pos[:, start:stop])

    def to(self, dtype: torch.dtype) -> Inputs:
        return Inputs(*(tensor.to(dtype) for tensor in (self.q, self.k, self.v, self.x)), self.pos)


def inputs(scheme: Scheme, batch: int = BATCH, length: int = LENGTH, pos: Tensor | None = None) -> Inputs:
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(batch, HEADS, length, HEAD_DIM, generator=generator) for _ in range(3))
    x = torch.randn(batch, length, WIDTH, generator=generator)
    pos = positions.count_up(batch, length) if pos is None else pos
    return Inputs(q, k, v, x, on_axes(scheme, pos))


def on_axes(scheme: Scheme, pos_BS: Tensor) -> Tensor:
    """Positions with as many coordinates as the scheme reads: p // 3, p % 3 + p // 5, p % 4, p."""
    axes = scheme.declares.axes
    if axes in (None, 1):
        return pos_BS
    return torch.stack([pos_BS // 3, pos_BS % 3 + pos_BS // 5, pos_BS % 4, pos_BS][:axes], dim=-1)


def place(scheme: Scheme, data: Inputs) -> Tensor:
    """Where the tokens stand: as told, or where they place themselves."""
    own = scheme.locate(data.x, data.pos, None)
    return data.pos if own is None else own


def run(scheme: Scheme, data: Inputs, causal: bool, visible: Tensor | None = None) -> Tensor:
    """Attention all at once."""
    pos = place(scheme, data)
    return attend(scheme, data.q, data.k, data.v, pos, pos, visible, causal=causal)


def encoded(scheme: Scheme, pos: Tensor) -> Tensor:
    """What the scheme adds at the embedding; vectors of width 0 where it adds nothing."""
    vectors = scheme.encode(pos)
    return torch.zeros(*pos.shape[:2], 0) if vectors is None else vectors


def decode(scheme: Scheme, data: Inputs, steps: list[int]) -> Tensor:
    """Attention a few tokens at a time with a cache of keys, values (rotated or raw as declared) and positions."""
    rotated = scheme.declares.cache == "rotated"
    keys, values, places, outs, start = [], [], [], [], 0
    for step in steps:
        new = data.rows(start, start + step)
        past = torch.cat(places, dim=2) if places and places[0].dim() == 4 else None
        own = scheme.locate(new.x, new.pos, past)
        q, k, qpos = new.q, new.k, new.pos if own is None else own
        if rotated:
            q, k = scheme.rotate(q, k, qpos, qpos)
            new.v = scheme.rotate_values(new.v, qpos, qpos)
        places.append(qpos)
        keys.append(k)
        values.append(new.v)
        kpos = torch.cat(places, dim=1 if own is None else 2)
        scale = scheme.scale(data.q.shape[-1])
        out = attend(
            scheme, q, torch.cat(keys, 2), torch.cat(values, 2), qpos, kpos, causal=True, scale=scale, rotated=rotated
        )
        outs.append(out)
        start += step
    return torch.cat(outs, dim=2)
