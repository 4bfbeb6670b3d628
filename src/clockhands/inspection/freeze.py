"""Normalisation of queries and keys, held at what the real input gave it, so that it acts linearly on parts.

Qwen 3, OLMo 2, Gemma 3 and Cohere divide every query and key by its own length. That division is the only step between
the input of an attention layer and its logits that is not affine. Freezing each token's divisor makes it so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from clockhands.shapes import Tensor


def norms_inside(module: nn.Module) -> list[nn.Module]:
    """The normalisation layers inside an attention module, except those on values.

    Those that come after the attention are never reached in a replay.
    """
    found = []
    for name, child in module.named_modules():
        last = name.rsplit(".", 1)[-1]
        if child is not module and "norm" in type(child).__name__.lower() and not last.startswith("v_"):
            found.append(child)
    return found


class Frozen:
    """Records what each norm did to one real input, then applies the same division to other inputs."""

    def __init__(self, module: nn.Module) -> None:
        self.norms = norms_inside(module)
        self.reciprocals: dict[nn.Module, Tensor] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Inside, real inputs pass; their divisors are kept."""
        hooks = [norm.register_forward_hook(self._record) for norm in self.norms]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, every norm divides by what was recorded."""
        hooks = [norm.register_forward_hook(self._replace) for norm in self.norms]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _record(self, norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        centred, gain, offset = _anatomy(norm, args[0])
        direction = centred * gain
        reciprocal = ((output - offset) * direction).sum(-1, keepdim=True)
        self.reciprocals[norm] = reciprocal / direction.square().sum(-1, keepdim=True)

    def _replace(self, norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        centred, gain, offset = _anatomy(norm, args[0])
        return centred * gain * self.reciprocals[norm] + offset


def _anatomy(norm: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(x, centred if the norm centres; gain; offset) such that the norm is centred * gain / length + offset.

    Found by asking the norm: a vector of alternating ±1 has mean 0 and length 1, so that the norm returns its gain.
    """
    width = x.shape[-1]
    signs = torch.ones(width, dtype=x.dtype, device=x.device)
    signs[1::2] = -1
    probe = signs.expand_as(x[:1])
    forward = type(norm).forward
    up, down = forward(norm, probe), forward(norm, -probe)
    ramp = torch.arange(width, dtype=x.dtype, device=x.device).sin().expand_as(x[:1]) + signs
    centres = torch.allclose(forward(norm, ramp), forward(norm, ramp + 3.0), atol=1e-3)
    centred = x - x.mean(-1, keepdim=True) if centres else x
    return centred, (up - down) / 2 * signs, (up + down) / 2
