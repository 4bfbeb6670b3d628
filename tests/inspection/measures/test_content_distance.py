"""The own terms of DeBERTa are told apart, and reported where they are there."""

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
def test_the_words_of_queries_or_of_keys_are_told_to_listen_to_distances(kept: str, asks: bool) -> None:
    """Of DeBERTa's two terms one is switched off; its words are random, so that the other one stands alone."""
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


def test_words_that_hardly_listen_to_distances_are_not_told_to() -> None:
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
