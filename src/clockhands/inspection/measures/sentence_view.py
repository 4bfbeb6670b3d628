"""The data of a page on which a reader chooses sentence, layer and head: packed numbers of attention and its terms.

In names of tensors ``t`` are ``SENTENCE_TERMS``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from clockhands.inspection.measures.base64_numbers import LARGEST_INT16, pack_int16
from clockhands.inspection.reading.sentence_split import POSITION_ALONE, SENTENCE_TERMS, SentenceLayer
from clockhands.inspection.reading.sentences import Sentence

MOST_NUMBERS = 240_000
"""Numbers of all sentences that a page carries, two bytes each; heads beyond are left out, and the page says so."""
ROUNDING = 1e-5
"""Terms that are smaller than this part of the largest are rounding."""


def make_attention_view(
    sentences: Sequence[Sentence], layers_by_sentence: Sequence[Sequence[SentenceLayer]]
) -> dict[str, Any]:
    """Return the data of the page's view ``attention``: plain values, for the ``details`` of a finding.

    It has ``kind``, the name of the view, and ``sentences``. A sentence has its ``text``, its ``tokens``, its text
    ``swapped`` (empty if that has more or fewer tokens), the ``terms`` of its logits by name, ``mask`` (that of the
    first layer, for each query a row of 0 and 1), ``left_out``, how many heads there is no room for, and ``heads``,
    each with ``layer`` (from 1), ``head`` (from 1), ``scale`` and ``numbers``: attention, attention after the swap
    where there is one, then every term, each [queries, keys] as little-endian integers of 16 bits in base64. Attention
    is in units of 1 / 32767, terms in units of ``scale``. A head of a layer with another mask, such as one that allows
    only near keys, has its own ``mask``.
    """
    share = MOST_NUMBERS // len(sentences)
    packed = [_pack_sentence(*pair, share) for pair in zip(sentences, layers_by_sentence, strict=True)]
    return {"kind": "attention", "sentences": packed}


def _pack_sentence(sentence: Sentence, layers: Sequence[SentenceLayer], most: int) -> Mapping[str, Any]:
    """Return one sentence with at most ``most`` numbers, those of the heads in which position does most."""
    largest_t = torch.stack([layer.terms_tHST.abs().amax((1, 2, 3)) for layer in layers]).amax(0)
    used = (largest_t > ROUNDING * largest_t.max()).nonzero().flatten().tolist()
    maps = 1 + (layers[0].swapped_HST is not None) + len(used)
    all_heads = [(index, head) for index, layer in enumerate(layers) for head in range(len(layer.weights_HST))]
    room = max(1, most // (maps * layers[0].mask_ST.numel()))
    chosen = sorted(all_heads, key=lambda at: -float(layers[at[0]].shares_Ht[at[1], POSITION_ALONE]))[:room]
    return {
        "text": sentence.text,
        "tokens": sentence.tokens,
        "swapped": sentence.swapped if layers[0].swapped_HST is not None else "",
        "terms": [list(SENTENCE_TERMS)[index] for index in used],
        "mask": _pack_mask(layers[0]),
        "left_out": len(all_heads) - len(chosen),
        "heads": [
            _pack_head(layers[index], index, head, used) | _pack_other_mask(layers, index)
            for index, head in sorted(chosen)
        ],
    }


def _pack_mask(layer: SentenceLayer) -> list[str]:
    """Return the mask of a layer, for each query a row of 0 and 1."""
    return ["".join("1" if attends else "0" for attends in row) for row in layer.mask_ST.tolist()]


def _pack_other_mask(layers: Sequence[SentenceLayer], index: int) -> dict[str, Any]:
    """Return the mask of a layer under the key ``mask``; an empty dict where it is that of the first layer."""
    is_same = torch.equal(layers[index].mask_ST, layers[0].mask_ST)
    return {} if is_same else {"mask": _pack_mask(layers[index])}


def _pack_head(layer: SentenceLayer, index: int, head: int, used: Sequence[int]) -> dict[str, Any]:
    """Return the numbers of one head, all maps one after the other."""
    terms_tST = layer.terms_tHST[list(used), head]
    scale = float(terms_tST.abs().max()) / LARGEST_INT16 if terms_tST.numel() else 0.0
    weights = [layer.weights_HST[head], *([] if layer.swapped_HST is None else [layer.swapped_HST[head]])]
    numbers = torch.cat([torch.stack(weights) * LARGEST_INT16, terms_tST / (scale or 1.0)])
    return {"layer": index + 1, "head": head + 1, "scale": scale, "numbers": pack_int16(numbers)}
