"""Find what each attention of a model does otherwise than the reference's, of what has a description."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clockhands.checking.fitting import biases, entries
from clockhands.checking.fitting.masks import describe_mask
from clockhands.checking.fitting.reading import Layer, Reading
from clockhands.checking.fitting.rotation_difference import compare_rotations
from clockhands.checking.fitting.rotation_words import Settings, read_settings


@dataclass(frozen=True)
class Difference:
    """One thing that an attention does otherwise than the reference's, in words, and how it is undone there.

    ``layer`` counts attentions from 0 in the order of a pass; -1 is what enters the first block. ``rotations`` are maps
    [S, K, K] that make queries and keys those of the reference.
    """

    layer: int
    kind: str
    words: str
    rotations: tuple[Tensor, Tensor] | None = None


def find_differences(mine: Reading, wanted: Reading, reference: nn.Module) -> Iterator[Difference]:
    """Yield what differs and has a description, layer by layer; what has none is left out, and so stays unexplained."""
    entry, wanted_entry = mine.entry_BSD, wanted.entry_BSD
    if entry is not None and wanted_entry is not None and entries.differ(entry, wanted_entry):
        for words in entries.describe_entry(entry, wanted_entry) or ():
            yield Difference(-1, "entry", words)
    settings, sizes = read_settings(reference), _find_sizes(reference)
    for index, (ours, theirs) in enumerate(zip(mine.layers, wanted.layers, strict=True)):
        yield from _compare_angles(index, ours, theirs, settings)
        yield from _compare_logits(index, ours, theirs, sizes)


def _compare_angles(index: int, ours: Layer, theirs: Layer, settings: Settings) -> Iterator[Difference]:
    sides = [(ours.q_BHSK, theirs.q_BHSK), (ours.k_BHTK, theirs.k_BHTK)]
    queries, keys = (compare_rotations(mine.flatten(0, 1), wanted.flatten(0, 1), settings) for mine, wanted in sides)
    if queries is None or keys is None:
        return
    rotations = (queries.undo, keys.undo)
    if queries.words == keys.words:
        said = [" and ".join(queries.words)]
    else:
        said = [f"{' and '.join(x.words)} ({n})" for n, x in (("queries", queries), ("keys", keys)) if x.words]
    if gap := queries.ahead - keys.ahead:
        said.append(f"rotates queries as if they stood {abs(gap):.0f} {'later' if gap > 0 else 'earlier'} than keys")
    if any(said):
        yield Difference(index, "rotation", " and ".join(filter(None, said)), rotations)


def _find_sizes(module: nn.Module) -> frozenset[int]:
    """The sizes of tables so small that they may hold a bias for each head and bucket."""
    tables = (part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding))
    return frozenset(size for size in tables if 8 <= size <= 512)


def _compare_logits(index: int, ours: Layer, theirs: Layer, sizes: frozenset[int]) -> Iterator[Difference]:
    if not (ours.exact and theirs.exact):
        return
    gain = find_gain(ours, theirs)
    if gain is not None and abs(gain - 1) > 1e-3 and not _is_amplitude(ours, theirs):
        yield Difference(index, "scale", _name_gain(gain, ours.q_BHSK.shape[-1]))
    both = ours.allowed_ST & theirs.allowed_ST
    if biases.differ(ours.bias_HST, theirs.bias_HST, both):
        for words in biases.describe_bias(ours.bias_HST, theirs.bias_HST, both, sizes) or ():
            yield Difference(index, "bias", words)
    if not torch.equal(ours.allowed_ST, theirs.allowed_ST):
        for words in describe_mask(ours.allowed_ST, theirs.allowed_ST) or ():
            yield Difference(index, "mask", words)


def _is_amplitude(ours: Layer, theirs: Layer) -> bool:
    """Whether queries and keys are longer alike, and the scale is the same: the length of what is rotated."""
    lengths = [_find_length(a, b) or 0.0 for a, b in ((ours.q_BHSK, theirs.q_BHSK), (ours.k_BHTK, theirs.k_BHTK))]
    return (
        abs(lengths[0] - 1) > 1e-3 and abs(lengths[0] - lengths[1]) < 1e-3 and abs(ours.scale / theirs.scale - 1) < 1e-3
    )


def _name_gain(gain: float, width: int) -> str:
    root = width**0.5
    if abs(gain / root - 1) < 1e-3:
        return f"does not divide its logits by √{width}"
    if abs(gain * root - 1) < 1e-3:
        return f"divides its logits by √{width} once too often"
    return f"has logits of attention {gain:.4g} times as large"


def find_gain(mine: Layer, wanted: Layer) -> float | None:
    """Return scale times the lengths of queries and keys over the reference's; None where it is not one number."""
    lengths = [_find_length(a, b) for a, b in ((mine.q_BHSK, wanted.q_BHSK), (mine.k_BHTK, wanted.k_BHTK))]
    if not (mine.exact and wanted.exact) or None in lengths or not wanted.scale:
        return None
    return mine.scale / wanted.scale * float(lengths[0] or 0) * float(lengths[1] or 0)


def _find_length(mine: Tensor, wanted: Tensor) -> float | None:
    """How many times as long vectors are, whichever way they point; None where it is not one number."""
    ratios = mine.norm(dim=-1) / wanted.norm(dim=-1)
    ratio = float(ratios.mean())
    return ratio if float((ratios - ratio).abs().max()) < 2e-3 * ratio else None
