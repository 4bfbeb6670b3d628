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
    "HeadWidth",
    "Heads",
    "Layers",
    "Side",
    "StackSide",
    "VocabularySize",
    "Width",
]

Architecture = Literal["encoder-decoder", "decoder", "encoder"]
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
DROPOUT_PLACES: tuple[DropoutPlace, ...] = get_args(DropoutPlace)

# The largest sizes that are accepted, on any machine: each is larger than in every model known.
LARGEST_HEAD_WIDTH = 2**17
LARGEST_NUM_HEADS = 2**16
VocabularySize: TypeAlias = Annotated[int, Range(least=1, most=2**31 - 1)]
Width: TypeAlias = Annotated[int, Range(least=1, most=2**20)]
Heads: TypeAlias = Annotated[int, Range(least=1, most=LARGEST_NUM_HEADS)]
HeadWidth: TypeAlias = Annotated[int, Range(least=1, most=LARGEST_HEAD_WIDTH)]
Layers: TypeAlias = Annotated[int, Range(least=0, most=2_000)]
"""The deepest published Transformer has 1,000 layers (Wang et al. 2022, DeepNet); more than 2,000 take longer to build
than anybody waits."""
