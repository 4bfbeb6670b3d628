"""The attention of one sentence, head by head, and its logits in terms: token or position of query and of key.

In names of tensors ``t`` are ``SENTENCE_TERMS``, ``N`` other texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from clockhands.inspection.reading.capture import BATCH, capture
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_split import (
    DATA_DEPENDENT,
    POSITIONAL,
    TERM_GROUPS,
    TERMS,
    LogitParts,
    centre_logits,
    split_logits,
    split_text,
)
from clockhands.inspection.reading.sentences import Sentence, make_comparison_rows
from clockhands.inspection.reading.windows import Windows
from clockhands.models.subject import Subject
from clockhands.shapes import Bool, Float, Tensor

MOST_OTHERS = 48
"""Other texts from which the means by position come."""
SENTENCE_TERMS: Mapping[str, tuple[str, ...]] = {
    "token alone": ("content–content",),
    "token–position": ("content–position", "content–constant"),
    "position–token": ("position–content", "constant–content"),
    "position alone": tuple(term for name in POSITIONAL for term in TERM_GROUPS[name]),
    "token × distance": ("added, content", DATA_DEPENDENT),
}
"""The terms of the split logits in groups: does a term depend on the token or on the position of the query, and on
which of the two of the key? What no text changes, the constant, goes with position: it is there whatever the tokens
are. "Position alone" is the same sum as on the rest of the page. The last is zero except in layers that add what a
token and a distance give together (DeBERTa, Transformer-XL), or in which tokens choose positions or change what is
added."""
TOKENS_ALONE, POSITION_ALONE = map([*SENTENCE_TERMS].index, ("token alone", "position alone"))
"""The indices of tokens alone and of position alone among ``SENTENCE_TERMS``."""


@dataclass(frozen=True)
class SentenceLayer:
    """One attention layer on one sentence.

    Attributes:
        weights_HST: attention; ``swapped_HST`` after two words changed places, None if that has more or fewer tokens.
        mask_ST: which keys each query may attend to.
        terms_tHST: ``SENTENCE_TERMS`` of the logits, each centred over the keys of its query: softmax sees no more.
        shares_Ht: their shares of the variance of the logits, head by head.
        positional_N: the share of position alone in each of the other texts, all heads pooled.
        pooled_t: the shares in the sentence, all heads pooled.
    """

    weights_HST: Float[Tensor, "H S T"]
    swapped_HST: Float[Tensor, "H S T"] | None
    mask_ST: Bool[Tensor, "S T"]
    terms_tHST: Float[Tensor, "t H S T"]
    shares_Ht: Float[Tensor, "H t"]
    pooled_t: Float[Tensor, " t"]
    positional_N: Float[Tensor, " N"]


@torch.no_grad()
def split_sentence(subject: Subject, sentence: Sentence, windows: Windows) -> list[SentenceLayer]:
    """Run the model over a sentence and other texts of its length, and split the logits of every layer."""
    ids_NT, source_NS = make_comparison_rows(sentence, windows, MOST_OTHERS)
    recorded = capture(
        subject.model,
        subject.forward,
        ids_NT,
        ordinary_T=sentence.ordinary_T,
        source_NS=source_NS,
        batch=BATCH,
    )
    return [_read_layer(layer, sentence) for layer in recorded.layers]


def _read_layer(layer: Layer, sentence: Sentence) -> SentenceLayer:
    """Return what is shown of one layer, whose texts are those of ``make_comparison_rows``."""
    parts, split = split_text(layer, 0, first_other=2), split_logits(layer, sentence.ordinary_T)
    terms_tHST = torch.stack([_sum_terms(parts, terms) for terms in SENTENCE_TERMS.values()])
    included_BHST = parts.real.mark_ordinary_pairs(sentence.ordinary_T)
    logits_HST = centre_logits(parts.real.logits_BHST, included_BHST)[0].double()
    cov_Ht = (terms_tHST * logits_HST).sum((-1, -2)).T.cpu()
    var_H = logits_HST.square().sum((-1, -2)).cpu()
    positional = [TERMS.index(term) for term in SENTENCE_TERMS["position alone"]]
    centred = [centre_logits(term[None], parts.real.mask_BHST)[0] for term in terms_tHST]
    return SentenceLayer(
        parts.real.weights_BHST[0].float().cpu(),
        layer.replay(layer.inputs_NTD[1:2]).weights_BHST[0].float().cpu() if sentence.has_comparable_swap else None,
        parts.real.mask_BHST[0, 0].cpu(),
        torch.stack(centred).float().cpu(),
        cov_Ht / var_H[:, None].clamp_min(1e-30),
        cov_Ht.sum(0) / var_H.sum().clamp_min(1e-30),
        split.cov_NHt[2:, :, positional].sum((1, 2)) / split.var_NH[2:].sum(1).clamp_min(1e-30),
    )


def _sum_terms(parts: LogitParts, names: tuple[str, ...]) -> Float[Tensor, "H S T"]:
    """Return the sum of some terms of the logits of the first text; zero where masked."""
    total = torch.stack([parts.compute_term(name)[0].double() for name in names]).sum(0)
    return torch.where(parts.real.mask_BHST[0], total, 0.0)
