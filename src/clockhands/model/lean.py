"""The decoder in lean mode: the model's own blocks, with little around their matrix products.

At every step they read one token of each hypothesis. Four things above all make that quicker than a forward pass of the
model. On a CPU the weights are stored column-major, which makes a product with few rows up to twice as fast. Positions
and their encodings are computed once and kept for all texts. Where the schemes allow it, attention calls the fused
kernel directly (``AttentionContext.lean``). And calls of modules do less in Python (``copy_for_decoding``).
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import nn

from clockhands.attention import get_recorder
from clockhands.errors import UsageError
from clockhands.model.attention import Attention, AttentionContext
from clockhands.model.fused_linear import FusedLinear
from clockhands.model.growing_cache import GrowingCache, SourceCache
from clockhands.model.kv_cache import acts_in_attention, may_call_fused_kernel
from clockhands.model.masks import Placement, expand_key_mask
from clockhands.model.token_batch import EncodedSource
from clockhands.model.transformer import Transformer
from clockhands.schemes import Scheme
from clockhands.schemes.scheme import Positions
from clockhands.shapes import Bool, Float, Int, Tensor

__all__ = ["DecodingPosition", "DecodingState", "LeanDecoder", "copy_for_decoding"]

AnyModule = TypeVar("AnyModule", bound=nn.Module)


class DecodingState:
    """The state of decoding one batch of texts: the source, the number of tokens read, and the KV caches.

    ``cache`` is that of self-attention, ``cross_cache`` that of cross-attention.
    """

    def __init__(self, source: EncodedSource, num_layers: int) -> None:
        self.source, self.length = source, 0
        self.cache, self.cross_cache = GrowingCache(num_layers), SourceCache(num_layers)
        # The contexts of cross-attention by the number of hypotheses. They serve every step that has as many, until
        # rows of the batch are dropped.
        self.cross_contexts: dict[int, list[AttentionContext]] = {}

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows of the batch, in this order."""
        self.source = self.source.select(rows)
        self.cache.select(rows)
        self.cross_cache.select(rows)
        self.cross_contexts.clear()


class DecodingPosition(NamedTuple):
    """One position: as it is counted, as the schemes read it after the transform, and its encoding at the embedding.

    ``transformed`` is [1, 1], or [1, 1, A] with A coordinates; ``encoding`` is [1, 1, P], or None if there is none.
    """

    counted: Int[Tensor, "1 1"]
    transformed: Positions
    encoding: Tensor | None


class LeanDecoder:
    """The decoder of an encoder-decoder model, which reads one token of each hypothesis at every step.

    Make a new one when the weights change.

    Where cached keys become stale (``Stack.cache_limit``), a step beyond that length is refused; for such models
    ``generation.engines`` reads the whole text again at every step instead (``must_reread_text``).

    ``attention_ignores_position``: whether no scheme acts in attention, so that positions enter only as encodings that
    are added to states or concatenated with them. Raises UsageError for a model that reads no source.
    """

    def __init__(self, transformer: Transformer) -> None:
        if transformer.decoder is None or transformer.cross_schemes is None:
            raise UsageError(
                f"LeanDecoder decodes with an encoder-decoder, and this model has the architecture "
                f"{transformer.config.architecture!r}"
            )
        self.transformer, self.stack = transformer, copy_for_decoding(transformer.decoder)
        layers = range(len(self.stack.blocks))
        self.schemes = [self.stack.schemes.get_scheme(layer) for layer in layers]
        self.cross_schemes = [transformer.cross_schemes.get_scheme(layer) for layer in layers]
        self.attention_ignores_position = not any(map(acts_in_attention, [*self.schemes, *self.cross_schemes]))
        # For each layer: whether its attention may call the fused kernel directly.
        self._self_attention_is_lean = [may_call_fused_kernel(scheme) for scheme in self.schemes]
        self._cross_attention_is_lean = [not acts_in_attention(scheme) for scheme in self.cross_schemes]
        # From step to step only the positions of the queries change, and the fused kernel does not read them: where it
        # serves every layer, the contexts of one step serve the next.
        self._reuses_cross_contexts = all(self._cross_attention_is_lean)
        for block, scheme, cross_scheme in zip(self.stack.blocks, self.schemes, self.cross_schemes, strict=True):
            # The copies keep the factor on q·k, which a scheme may decide, so that no step asks for it.
            copied: Any = block
            for attention, its_scheme in ((copied.attention, scheme), (copied.cross, cross_scheme)):
                attention.scale = attention.choose_scale(its_scheme)
        self._positions: list[DecodingPosition] = []

    def start(self, source: EncodedSource) -> DecodingState:
        """Return the state before the first token of a batch of texts."""
        return DecodingState(source, len(self.schemes))

    def step(
        self, ids_BW: Int[Tensor, "B W"], state: DecodingState, mask_B1WM: Bool[Tensor, "B 1 W M"] | None = None
    ) -> Float[Tensor, "B W D"]:
        """Read the next token of each hypothesis and return the decoder's last states of these tokens: [B, W, D].

        A row of the batch has W hypotheses: those of one source, or a single one (W = 1). All their tokens stand at the
        same position. ``mask_B1WM`` is over all cached keys and these tokens; None: every token may attend to all.
        Raises PositionError once the text is longer than ``Stack.cache_limit``, and for a position that a scheme does
        not take.
        """
        self.stack.refuse_stale_cache(state.length + 1)
        batch, beam = ids_BW.shape
        position = self._get_position(state.length)
        pos_BW = position.transformed.expand(batch, beam, *position.transformed.shape[2:])
        # A recorder needs the attention weights, which the fused kernel does not return.
        recording = get_recorder() is not None
        placement = Placement(pos_BW, pos_BW, mask_B1WM)
        contexts = [
            AttentionContext(scheme, placement, state.cache, i, self._self_attention_is_lean[i] and not recording)
            for i, scheme in enumerate(self.schemes)
        ]
        cross_contexts = None if recording else state.cross_contexts.get(beam)
        if cross_contexts is None:
            cross_contexts = self._make_cross_contexts(state, position.counted.expand(batch, beam), recording)
            if self._reuses_cross_contexts and not recording:
                state.cross_contexts[beam] = cross_contexts
        encoding = None if position.encoding is None else position.encoding.expand(-1, beam, -1)
        x_BWD = self.stack.input(ids_BW, encoding)
        pairs = list(zip(contexts, cross_contexts, strict=True))
        states_BWD = self.stack.run_blocks(x_BWD, pairs, state.source.states_BTD)
        state.length += 1
        return states_BWD

    def _make_cross_contexts(
        self, state: DecodingState, pos_BW: Int[Tensor, "B W"], recording: bool
    ) -> list[AttentionContext]:
        """Return the context of cross-attention of each layer, for queries at these positions."""
        mask_BT = state.source.mask_BT
        mask = None if mask_BT is None else expand_key_mask(mask_BT, pos_BW.shape[1])
        placement = Placement(pos_BW, state.source.positions_BT, mask)
        return [
            AttentionContext(
                scheme, placement, state.cross_cache, i, self._cross_attention_is_lean[i] and not recording
            )
            for i, scheme in enumerate(self.cross_schemes)
        ]

    def _get_position(self, length: int) -> DecodingPosition:
        """Return the position after ``length`` tokens, computed when a step first needs it.

        Not earlier, since a scheme may have a table that ends before it.
        """
        while len(self._positions) <= length:
            counted = torch.full((1, 1), len(self._positions), device=self.stack.input.tokens.weight.device)
            transformed = self.stack.transform_positions(counted, None)
            self._positions.append(DecodingPosition(counted, transformed, self.stack.encode_positions(transformed)))
        return self._positions[length]


def copy_for_decoding(module: AnyModule) -> AnyModule:
    """Return a copy of a module for decoding, which shares all tensors but the matrices of its linear layers on a CPU.

    The copy computes what the module computes in evaluation, by the same ``forward`` methods but for layer norms, which
    call ``torch.layer_norm`` at once. PyTorch's hooks on it are not called, its submodules are plain attributes, and
    the heads of one token are not transposed. That saves about a microsecond at each of the hundred calls and
    attributes of a step. Matrices are transposed in memory, their shapes unchanged, since a product with few rows then
    reads them in one sweep. Schemes are not copied but shared.
    """
    if isinstance(module, Scheme):
        return module
    copied = copy.copy(module)
    copied.__class__ = _make_class_without_hooks(cast(Any, type(module)))
    copied._parameters = dict(module._parameters)
    # A submodule that the configuration leaves out, such as a last norm, is None.
    copied._modules = {
        name: None if child is None else copy_for_decoding(child) for name, child in module._modules.items()
    }
    if isinstance(module, nn.Linear) and module.weight.device.type == "cpu":
        weight_OI = module.weight.detach().T.contiguous().T
        copied._parameters["weight"] = nn.Parameter(weight_OI, requires_grad=False)
    # What is in the instance's own dictionary is found before nn.Module.__getattr__ searches its three tables.
    copied.__dict__.update({**copied._parameters, **copied._modules, "training": False})
    return copied


@cache
def _make_class_without_hooks(module_class: Any) -> Any:
    """Return a subclass of a module class in which a call is ``forward`` and nothing more."""
    methods = {"__call__": module_class.forward}
    for general_class, quicker in _QUICKER_METHODS.items():
        methods |= quicker if issubclass(module_class, general_class) else {}
    return type(module_class.__name__, (module_class,), methods)


def _normalise(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """Compute what ``forward`` does, without three calls of Python around it."""
    return torch.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _project_heads(linear: FusedLinear, x_BWD: Float[Tensor, "B W D"], head_dim: int) -> tuple[Tensor, ...]:
    """Do what ``FusedLinear.project_heads`` does; the heads of one token lie in memory as they are to be read."""
    batch, length, _ = x_BWD.shape
    if length > 1:
        return FusedLinear.project_heads(linear, x_BWD, head_dim)
    heads_BH1K: Tensor = linear(x_BWD).view(batch, -1, 1, head_dim)
    return heads_BH1K.split_with_sizes([width // head_dim for width in linear.widths], 1)


def _join_heads(attention: Attention, out_BHWK: Float[Tensor, "B H W K"]) -> Float[Tensor, "B W D"]:
    """Do what ``Attention.join_heads`` does; the heads of one token lie in memory as they are to be read."""
    batch, _, length, _ = out_BHWK.shape
    if length > 1:
        return Attention.join_heads(attention, out_BHWK)
    joined_B1D: Tensor = attention.out(out_BHWK.reshape(batch, 1, -1))
    return joined_B1D


_QUICKER_METHODS: dict[type[nn.Module], dict[str, Any]] = {
    nn.LayerNorm: {"__call__": _normalise},
    FusedLinear: {"project_heads": _project_heads},
    Attention: {"join_heads": _join_heads},
}
"""Methods that a copy for decoding has in the place of a module's own: the same results with fewer operations."""
