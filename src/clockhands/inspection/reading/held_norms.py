"""What between the input of an attention layer and its logits is not affine, held at what the real input gave it.

Qwen 3, OLMo 2, Gemma 3 and Cohere divide every query and key by its own length; in RePo, PaTH and others of this
project every token says itself where it stands. Holding each token's divisor, and its place, makes the rest affine.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from clockhands.schemes import Scheme
from clockhands.shapes import Tensor


def norms_inside(module: nn.Module) -> list[nn.Module]:
    """The normalisation layers inside an attention module, except those on values.

    Those that come after the attention are never reached in a replay.
    """
    found = []
    for name, child in module.named_modules():
        last = name.rsplit(".", 1)[-1]
        named = child is not module and "norm" in type(child).__name__.lower()
        if named and not last.startswith("v_") and len(inspect.signature(child.forward).parameters) == 1:
            found.append(child)
    return found


class HeldNorms:
    """Records the divisors and the places that one real input gave, then applies the same to other inputs."""

    def __init__(self, module: nn.Module, scheme: Scheme | None = None) -> None:
        self.norms = norms_inside(module)
        self.reciprocals: dict[nn.Module, list[Tensor]] = {}
        self.calls: dict[nn.Module, int] = {}
        self.scheme = scheme if scheme is not None and "locate" in scheme.active_hooks() else None
        self.places_BHTA: Tensor | None = None

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Inside, real inputs pass; their divisors and places are kept."""
        self.reciprocals, self.calls = {}, {}
        with self._hooked(self._record), self._locating(self._keep):
            yield

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, every norm divides by what was recorded, and every token stands where it stood."""
        with self._hooked(self._replace), self._locating(lambda *_: self.places_BHTA):
            yield

    @torch.no_grad()
    def pairs(self, q_BHSK: Tensor, k_BHTK: Tensor) -> Tensor:
        """What the scheme adds for these queries and keys at the recorded places, less what it adds for none."""
        assert self.scheme is not None and self.places_BHTA is not None
        places = self.places_BHTA[: len(q_BHSK)]
        none = self.scheme.bias(torch.zeros_like(q_BHSK), torch.zeros_like(k_BHTK), places, places)
        some = self.scheme.bias(q_BHSK, k_BHTK, places, places)
        assert some is not None and none is not None
        return some - none

    @contextlib.contextmanager
    def _hooked(self, hook: Callable[..., Any]) -> Iterator[None]:
        hooks = [norm.register_forward_hook(hook) for norm in self.norms]
        try:
            yield
        finally:
            for handle in hooks:
                handle.remove()

    @contextlib.contextmanager
    def _locating(self, locate: Callable[..., Any]) -> Iterator[None]:
        """Inside, the scheme's places come from ``locate``."""
        if self.scheme is None:
            yield
            return
        self.scheme.locate = locate  # type: ignore[method-assign]  # on this instance; its class keeps its own
        try:
            yield
        finally:
            del self.scheme.locate

    def _keep(self, *args: Any) -> Tensor | None:
        assert self.scheme is not None
        self.places_BHTA = type(self.scheme).locate(self.scheme, *args)
        return self.places_BHTA

    def _record(self, norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        centred, gain, offset = _anatomy(norm, args[0])
        direction = centred * gain
        reciprocal = ((output - offset) * direction).sum(-1, keepdim=True)
        # One and the same norm may serve queries and keys, one after the other (Llama 4).
        self.reciprocals.setdefault(norm, []).append(reciprocal / direction.square().sum(-1, keepdim=True))

    def _replace(self, norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        centred, gain, offset = _anatomy(norm, args[0])
        recorded = self.reciprocals[norm]
        count = self.calls[norm] = self.calls.get(norm, -1) + 1
        return centred * gain * recorded[count % len(recorded)] + offset


def _anatomy(norm: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (x, centred if the norm centres; gain; offset), with which the norm is centred * gain / rms + offset.

    Found by asking the norm: alternating ±1 has root mean square 1 and, in an even width, mean 0, so that the norm
    returns its gain.
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
