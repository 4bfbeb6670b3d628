"""One attention layer, kept so that it can be run again alone: on its recorded input, or on any other.

Between the input of an attention module and its queries and keys everything is affine, but for norms of queries and
keys (Qwen 3, OLMo 2, Gemma 3, Cohere) and positions that are computed from the tokens (RePo, PaTH and others of this
project). Both can be frozen at those of the real input, so that the rest is affine.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias, cast

import torch
from torch import nn

from clockhands.errors import CheckpointError
from clockhands.inspection.reading.attention_hooks import ComputedAttention, listen
from clockhands.model.attention import AttentionContext
from clockhands.schemes import AttentionInputs, Scheme
from clockhands.shapes import Float, Tensor

ProductBias: TypeAlias = Callable[[Tensor, Tensor, float], Tensor]
"""From queries, keys and the layer's factor on q·k to what is added to the logits for them."""


class FrozenNormsAndPositions:
    """Records the divisors of norms and the positions of tokens for one input, then applies them to other inputs."""

    def __init__(self, module: nn.Module, scheme: Scheme | None = None) -> None:
        # A norm of values ("v_norm") divides no query and no key. Nor does one that is called with a second input, such
        # as a gate, and in the shapes that ``_read_norm`` tries it would not run. A replay never reaches one that comes
        # after the attention.
        self.norms = [
            child
            for name, child in module.named_modules()
            if child is not module
            and "norm" in type(child).__name__.lower()
            and not name.rsplit(".", 1)[-1].startswith("v_")
            and len(inspect.signature(child.forward).parameters) == 1
        ]
        self.reciprocals: dict[nn.Module, list[Tensor]] = {}
        self.calls: dict[nn.Module, int] = {}
        self.scheme = scheme if scheme is not None and "locate" in scheme.active_hooks() else None
        self.positions_BHTA: Tensor | None = None

    def record(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block, the divisors and the positions of the input that runs are recorded."""
        self.reciprocals, self.calls = {}, {}

        def record_divisor(norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            """Keep 1 / rms of the input of a norm: the factor of centred * gain in its output, by least squares."""
            centred, gain, offset = _read_norm(norm, args[0])
            direction = centred * gain
            reciprocal = ((output - offset) * direction).sum(-1, keepdim=True)
            # One and the same norm may serve queries and keys, one after the other (Llama 4).
            self.reciprocals.setdefault(norm, []).append(reciprocal / direction.square().sum(-1, keepdim=True))

        def record_positions(scheme: Scheme, *args: Any) -> Tensor | None:
            self.positions_BHTA = type(scheme).locate(scheme, *args)
            return self.positions_BHTA

        return self._replace(record_divisor, record_positions)

    def apply(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block, every norm divides by the recorded divisors, and every token has its recorded position."""

        def apply_divisor(norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
            centred, gain, offset = _read_norm(norm, args[0])
            recorded = self.reciprocals[norm]
            count = self.calls[norm] = self.calls.get(norm, -1) + 1
            return centred * gain * recorded[count % len(recorded)] + offset

        return self._replace(apply_divisor, lambda *_: self.positions_BHTA)

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
            bias = cast(Tensor, scheme.bias(AttentionInputs(q_BHSK, k_BHTK, positions, positions, scale)))
            return bias - cast(Tensor, scheme.bias(AttentionInputs(*zeros, positions, positions, scale)))

        return compute

    @contextlib.contextmanager
    def _replace(self, hook: Callable[..., Tensor | None], locate: Callable[..., Tensor | None]) -> Iterator[None]:
        """Inside the block, ``hook`` runs after every norm, and ``locate``, given the scheme, is its method."""
        hooks = [norm.register_forward_hook(hook) for norm in self.norms]
        if self.scheme is not None:  # set on this instance: its class keeps its own method
            self.scheme.locate = partial(locate, self.scheme)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for handle in hooks:
                handle.remove()
            if self.scheme is not None:
                del self.scheme.locate


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


class _AttentionKnown(Exception):
    """Leaves an attention module as soon as its attention is computed; the rest of the module is not needed."""


@dataclass
class Layer:
    """One attention layer that can be run again: its module, the arguments of its call, and its input on every text.

    ``index`` counts layers from 0. ``inputs_NTD`` are on the CPU, in the dtype of the model; ``model`` is the stack
    that the layer belongs to. ``time_first``: the module's input is [T, N, D].
    """

    index: int
    module: nn.Module
    inputs_NTD: Float[Tensor, "N T D"]
    model: nn.Module = field(repr=False)
    args: tuple[Any, ...] = field(repr=False)
    kwargs: dict[str, Any] = field(repr=False)
    time_first: bool = False

    @cached_property
    def recorded_input(self) -> Tensor:
        """The input of the batch on which the arguments were recorded."""
        return cast(Tensor, find_input(self.args, self.kwargs))

    @cached_property
    def batch(self) -> int:
        """The number of texts of one run: the recorded arguments, such as masks, have this size."""
        return self.recorded_input.shape[1 if self.time_first else 0]

    def replay(self, x_NTD: Float[Tensor, "N T D"]) -> ComputedAttention:
        """Run this attention layer alone on another input, of at most ``batch`` texts.

        Raises CheckpointError if the module computes no attention when it runs alone.
        """
        count, recorded, seen = len(x_NTD), self.recorded_input, list[ComputedAttention]()
        if count < self.batch:  # the last text fills up the batch, and is cut off again
            x_NTD = torch.cat([x_NTD, x_NTD[-1:].expand(self.batch - count, -1, -1)])
        x = x_NTD.to(recorded)
        x = x.transpose(0, 1) if self.time_first else x.contiguous()
        # The other input stands wherever the recorded one stood: for queries, keys and values.
        args = tuple(x if value is recorded else value for value in self.args)
        kwargs = {name: x if value is recorded else value for name, value in self.kwargs.items()}

        def keep(computed: ComputedAttention) -> None:
            seen.append(computed)
            raise _AttentionKnown

        with contextlib.suppress(_AttentionKnown), torch.no_grad(), listen(self.model, keep, within=self.module):
            self.module(*args, **kwargs)
        if not seen:
            raise CheckpointError(f"{type(self.module).__name__} computed no attention when run alone")
        if count == self.batch:
            return seen[0]
        tensors: dict[str, Any] = {name: x[:count] for name, x in vars(seen[0]).items() if isinstance(x, Tensor)}
        return replace(seen[0], **tensors)

    def replay_all(self) -> Iterator[tuple[slice, ComputedAttention]]:
        """Run the layer again on every text, and yield the rows of each batch of texts with their attention."""
        for start in range(0, len(self.inputs_NTD), self.batch):
            rows = slice(start, min(start + self.batch, len(self.inputs_NTD)))
            yield rows, self.replay(self.inputs_NTD[rows])

    @cached_property
    def scheme(self) -> Scheme | None:
        """The scheme of an attention layer of this project; None for others."""
        return next((arg.scheme for arg in self.args if isinstance(arg, AttentionContext)), None)

    @cached_property
    def locates_tokens(self) -> bool:
        """Whether the scheme computes positions from the tokens: its ``locate`` hook (RePo, PaTH and others)."""
        return self.scheme is not None and "locate" in self.scheme.active_hooks()

    @cached_property
    def rewrites_logits(self) -> bool:
        """Whether the scheme rewrites rows of logits (CoPE and others): what it adds may then depend on all tokens."""
        return self.scheme is not None and "logits" in self.scheme.active_hooks()

    @cached_property
    def needs_freezing(self) -> bool:
        """Whether norms or positions must be frozen at those of the real input; the split of its logits needs that."""
        frozen = FrozenNormsAndPositions(self.module, self.scheme)
        with frozen.record():
            self.replay(self.inputs_NTD[:1])
        return self.locates_tokens or bool(frozen.reciprocals)

    @cached_property
    def scale(self) -> float:
        """The factor of q·k in the logits.

        A model of this project tells it. Of others, whose softmax alone is seen, the part of the logits that is
        quadratic in the input is regressed on q·k: the logits of x and of -x have the same quadratic part and opposite
        linear parts, and those of 0 are the constant part.
        """
        x = self.inputs_NTD[: self.batch]
        plus = self.replay(x)
        if plus.scale is not None:
            return plus.scale
        minus, zero = self.replay(-x), self.replay(torch.zeros_like(x))
        quadratic = (plus.logits_BHST.double() + minus.logits_BHST.double()) / 2 - zero.logits_BHST.double()
        products = (plus.q_BHSK - zero.q_BHSK).double() @ (plus.k_BHTK - zero.k_BHTK).double().transpose(-1, -2)
        whole = plus.q_BHSK.double() @ plus.k_BHTK.double().transpose(-1, -2)
        if float(products.abs().max()) <= 1e-9 * float(whole.abs().max()):  # the queries or the keys are constant
            quadratic, products = plus.logits_BHST.double(), whole
        quadratic, products = quadratic[plus.mask_BHST], products[plus.mask_BHST]
        return float((quadratic * products).sum() / products.square().sum().clamp_min(1e-30))

    def compute_bias(self, computed: ComputedAttention) -> Float[Tensor, "B H S T"]:
        """Return what the layer added to ``scale * q·k``; zero where masked."""
        bias_BHST = computed.bias_BHST
        if bias_BHST is None:
            bias_BHST = computed.logits_BHST - self.scale * computed.q_BHSK @ computed.k_BHTK.transpose(-1, -2)
        return torch.where(computed.mask_BHST, bias_BHST, 0.0)


def find_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return the input among the arguments of an attention module: ``hidden_states`` by name, else the first tensor."""
    named = kwargs.get("hidden_states")
    return next((value for value in (named, *args, *kwargs.values()) if isinstance(value, Tensor)), None)
