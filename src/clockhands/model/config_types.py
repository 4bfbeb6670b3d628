"""The types of a configuration's fields: architectures, sides, places of dropout, and the largest sizes accepted."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, get_args

from clockhands.options import Range

__all__ = [
    "DROPOUT_PLACES",
    "LARGEST_HEAD_WIDTH",
    "LARGEST_NUM_HEADS",
    "SIDES_BY_ARCHITECTURE",
    "Architecture",
    "DropoutPlace",
    "FeedForwardWidth",
    "HeadCount",
    "HeadWidth",
    "LayerCount",
    "Side",
    "StackSide",
    "VocabularySize",
    "Width",
]

Architecture = Literal["encoder-decoder", "decoder", "encoder"]
"""Which stacks of layers a model has."""
Side = Literal["encoder", "decoder", "cross"]
"""Where attention is, and so where position can enter; ``cross`` is cross-attention."""
StackSide = Literal["encoder", "decoder"]
"""The sides that have a stack of layers. Cross-attention has none of its own: it is in the decoder's layers."""
SIDES_BY_ARCHITECTURE: dict[Architecture, tuple[Side, ...]] = {
    "encoder-decoder": ("encoder", "decoder", "cross"),
    "decoder": ("decoder",),
    "encoder": ("encoder",),
}
DropoutPlace = Literal["embedding", "residual", "ffn-residual", "attention", "activation"]
"""Where dropout may act; ``TransformerConfig`` says what each place is."""
DROPOUT_PLACES: tuple[DropoutPlace, ...] = get_args(DropoutPlace)

# The largest sizes that are accepted, on any machine. No known model reaches one of them.
LARGEST_HEAD_WIDTH = 2**17
LARGEST_NUM_HEADS = 2**16
VocabularySize: TypeAlias = Annotated[int, Range(least=1, most=2**31 - 1)]
"""The number of tokens in a vocabulary."""
Width: TypeAlias = Annotated[int, Range(least=1, most=2**20)]
"""The width of the states, d_model."""
HeadCount: TypeAlias = Annotated[int, Range(least=1, most=LARGEST_NUM_HEADS)]
"""The number of heads of queries, or of keys and values."""
HeadWidth: TypeAlias = Annotated[int, Range(least=1, most=LARGEST_HEAD_WIDTH)]
"""The width of one head, d_head."""
FeedForwardWidth: TypeAlias = Annotated[int, Range(least=1, most=2**22)]
"""The width inside a feed-forward layer."""
LayerCount: TypeAlias = Annotated[int, Range(least=0, most=2_000)]
"""The number of layers of a stack. The deepest published Transformer has 1,000 (Wang et al. 2022, DeepNet)."""
