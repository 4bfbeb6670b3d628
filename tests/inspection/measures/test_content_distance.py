"""DeBERTa's own terms are reported apart, and only where there are any."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from clockhands.findings import Finding
from clockhands.inspection.reading.logit_split import split
from clockhands.model import Position, Transformer, TransformerConfig

from .. import planted
from ..planted import VOCAB, answer
from ..tiny import CONFIGS
from .readings import (
    random_rows,
)


def _word_terms(model: Any) -> Finding:
    subject, recorded = planted.subject_of(model, 48)
    splits = [split(layer, recorded.ordinary_T) for layer in recorded.layers]
    return answer("kernel.terms", subject, recorded, splits=splits)


@pytest.mark.parametrize(("kept", "asks"), [("c2p", True), ("p2c", False)])
def test_the_terms_of_queries_and_of_keys_are_reported_apart(kept: str, asks: bool) -> None:
    """One of DeBERTa's two terms is switched off and its tokens are random, so that the other term stands alone."""
    config = {**CONFIGS["deberta"]().to_dict(), "pos_att_type": [kept], "vocab_size": VOCAB, "num_hidden_layers": 1}
    torch.manual_seed(0)
    model = hf.DebertaModel(hf.DebertaConfig(**config)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.normal_(0, 1.5 * weight.shape[-1] ** -0.5)
    found = _word_terms(model)
    assert found.verdict.startswith("The query's token together with the distance accounts for"), found.verdict
    shares = (found.details["query_words"], found.details["key_words"])
    assert shares[not asks] > 0.04 and abs(shares[asks]) < 1e-3, shares


def test_no_effect_is_reported_where_tokens_hardly_depend_on_distances() -> None:
    """At its small initial weights, and without either term at all."""
    sizes = {"vocab_size": VOCAB, "d_model": 32, "num_heads": 2, "d_ff": 8, "encoder_layers": 1}
    torch.manual_seed(0)
    position = Position("deberta", {"terms": "c2p"})
    model: Any = Transformer(TransformerConfig(kind="encoder", encoder=position, **sizes))
    tokens = model.encoder.input.tokens.weight.data
    tokens.copy_(tokens[:1] + 0.01 * random_rows(VOCAB)[:, :32])
    assert _word_terms(model).verdict.startswith("No effect of tokens together with distances was found")
    assert _word_terms(planted.uniform("encoder", "t5")).verdict.startswith(
        "Nothing that is added to its logits depends on a token"
    )
