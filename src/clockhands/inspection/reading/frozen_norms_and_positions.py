"""Freeze norms and positions inside an attention layer at those of the real input, so that the rest is affine.

Qwen 3, OLMo 2, Gemma 3 and Cohere divide every query and key by its own length; RePo, PaTH and others of this project
compute the position of every token from the token. Both would make the parts of an input depend on one another.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import nn

from clockhands.schemes import Scheme
from clockhands.shapes import Tensor

ProductBias: TypeAlias = Callable[[Tensor, Tensor, float], Tensor]
"""From queries, keys and the layer's factor on q·k to what is added to the logits for them."""


def list_norms(module: nn.Module) -> list[nn.Module]:
    """Return the normalisation layers inside an attention module, except those on values.

    One after the attention is in the list too, but a replay never reaches it.
    """
    # A norm of values ("v_norm") divides no query and no key. Nor does one that is called with a second input, such as
    # a gate, and in the shapes that ``_read_norm`` tries it would not run.
    norms = []
    for name, child in module.named_modules():
        last = name.rsplit(".", 1)[-1]
        is_norm = child is not module and "norm" in type(child).__name__.lower()
        if is_norm and not last.startswith("v_") and len(inspect.signature(child.forward).parameters) == 1:
            norms.append(child)
    return norms


class FrozenNormsAndPositions:
    """Records the divisors of norms and the positions of tokens for one input, then applies them to other inputs."""

    def __init__(self, module: nn.Module, scheme: Scheme | None = None) -> None:
        self.norms = list_norms(module)
        self.reciprocals: dict[nn.Module, list[Tensor]] = {}
        self.calls: dict[nn.Module, int] = {}
        self.scheme = scheme if scheme is not None and "locate" in scheme.active_hooks() else None
        self.positions_BHTA: Tensor | None = None

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Inside the block, the divisors and the positions of the input that runs are recorded."""
        self.reciprocals, self.calls = {}, {}
        with self._hook_norms(self._record_divisor), self._replace_locate(self._record_positions):
            yield

    @contextlib.contextmanager
    def apply(self) -> Iterator[None]:
        """Inside the block, every norm divides by the recorded divisors, and every token has its recorded position."""
        with self._hook_norms(self._apply_divisor), self._replace_locate(lambda *_: self.positions_BHTA):
            yield

    def make_product_bias(self) -> ProductBias | None:
        """Return a function for the part of the scheme's bias that depends on queries and keys (PaTH).

        It computes at the recorded positions. None where tokens do not choose positions, or the scheme adds no bias.
        """
        scheme, positions_BHTA = self.scheme, self.positions_BHTA
        if scheme is None or positions_BHTA is None or "bias" not in scheme.active_hooks():
            return None

        @torch.no_grad()
        def compute(q_BHSK: Tensor, k_BHTK: Tensor, scale: float) -> Tensor:
            positions = positions_BHTA[: len(q_BHSK)]  # they are those of a whole batch, which a replay fills up
            zeros = (torch.zeros_like(q_BHSK), torch.zeros_like(k_BHTK))
            bias = cast(Tensor, scheme.bias(q_BHSK, k_BHTK, positions, positions, scale))
            return bias - cast(Tensor, scheme.bias(*zeros, positions, positions, scale))

        return compute

    @contextlib.contextmanager
    def _hook_norms(self, hook: Callable[..., Tensor | None]) -> Iterator[None]:
        """Inside the block, ``hook`` runs after every norm."""
        hooks = [norm.register_forward_hook(hook) for norm in self.norms]
        try:
            yield
        finally:
            for handle in hooks:
                handle.remove()

    @contextlib.contextmanager
    def _replace_locate(self, locate: Callable[..., Tensor | None]) -> Iterator[None]:
        """Inside the block, the scheme's positions come from ``locate``, which is called with the scheme first."""
        if self.scheme is None:
            yield
            return
        # Set on this instance: its class keeps its own method.
        self.scheme.locate = partial(locate, self.scheme)  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self.scheme.locate

    def _record_positions(self, scheme: Scheme, *args: Any) -> Tensor | None:
        """Stand in for the scheme's ``locate``: compute the positions, and keep them."""
        self.positions_BHTA = type(scheme).locate(scheme, *args)
        return self.positions_BHTA

    def _record_divisor(self, norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        """Keep 1 / rms of the input of a norm: the factor of centred * gain in its output, by least squares."""
        centred, gain, offset = _read_norm(norm, args[0])
        direction = centred * gain
        reciprocal = ((output - offset) * direction).sum(-1, keepdim=True)
        # One and the same norm may serve queries and keys, one after the other (Llama 4).
        self.reciprocals.setdefault(norm, []).append(reciprocal / direction.square().sum(-1, keepdim=True))

    def _apply_divisor(self, norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        """Return what the norm gives if it divides by the recorded divisor, in place of its output."""
        centred, gain, offset = _read_norm(norm, args[0])
        recorded = self.reciprocals[norm]
        count = self.calls[norm] = self.calls.get(norm, -1) + 1
        return centred * gain * recorded[count % len(recorded)] + offset


def _read_norm(norm: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (x, centred if the norm centres; gain; offset), with which the norm is centred * gain / rms + offset.

    Found by running the norm: alternating ±1 has root mean square 1 and, in an even width, mean 0, so that the norm
    returns its gain.
    """
    width = x.shape[-1]
    signs = torch.ones(width, dtype=x.dtype, device=x.device)
    signs[1::2] = -1
    probe = signs.expand_as(x[:1])
    forward = type(norm).forward
    plus, minus = forward(norm, probe), forward(norm, -probe)
    # A norm that centres gives the same for an input and for the input plus 3; ``uneven`` has a mean that is not zero.
    uneven = torch.arange(width, dtype=x.dtype, device=x.device).sin().expand_as(x[:1]) + signs
    centres = torch.allclose(forward(norm, uneven), forward(norm, uneven + 3.0), atol=1e-3)
    centred = x - x.mean(-1, keepdim=True) if centres else x
    return centred, (plus - minus) / 2 * signs, (plus + minus) / 2
