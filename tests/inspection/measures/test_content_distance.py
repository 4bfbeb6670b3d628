"""DeBERTa's own terms are reported apart, and only where there are any."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

from clockhands.findings import Finding
from clockhands.inspection.measures.content_distance import separate_terms
from clockhands.inspection.reading.capture import capture
from clockhands.inspection.reading.logit_split import compute_means
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.models.subject import Subject

from .. import planted
from ..planted import VOCAB, answer, split
from ..tiny import CONFIGS, tiny
from .readings import draw_ids, random_rows, read_own


def _word_terms(model: Any) -> Finding:
    subject, recorded = planted.subject_of(model, 48)
    return answer("kernel.terms", subject, recorded, logit_splits=split(recorded))


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
    position = PositionConfig("deberta", {"terms": "c2p"})
    model: Any = Transformer(TransformerConfig(kind="encoder", encoder=position, **sizes))
    tokens = model.encoder.input.tokens.weight.data
    tokens.copy_(tokens[:1] + 0.01 * random_rows(VOCAB)[:, :32])
    assert _word_terms(model).verdict.startswith("No effect of tokens together with distances was found")
    none = _word_terms(planted.uniform("encoder", "t5"))
    assert none.verdict.startswith("Nothing that is added to its logits depends on a token")


@pytest.mark.parametrize("name", ["deberta", "deberta-v2", "xlnet"])
def test_the_terms_of_tokens_add_up_to_that_of_thesplit(name: str) -> None:
    """Off the diagonal f and g add up to the split's term, which is computed in another way."""
    subject = Subject.of(tiny(name))
    recorded = capture(subject.model, subject.forward, draw_ids())
    layer = recorded.layers[0]
    asked, answered = separate_terms(layer)
    x = layer.inputs_NTD[: layer.batch]
    mean, place = compute_means(layer, torch.arange(len(x), len(layer.inputs_NTD)))
    whole = layer.compute_bias(layer.replay(x)) - layer.compute_bias(layer.replay((mean + place).expand_as(x)))
    apart = ~torch.eye(x.shape[1], dtype=torch.bool)
    torch.testing.assert_close((asked + answered)[..., apart], whole[..., apart], atol=1e-5, rtol=1e-4)
    assert float(asked.abs().max()) > 1e-4
    assert (float(answered.abs().max()) > 1e-4) == name.startswith("deberta"), "q·r is all that Transformer-XL has"


@pytest.mark.parametrize(("kept", "lost"), [("c2p", 1), ("p2c", 0)])
@pytest.mark.parametrize("kind", ["hf", "own"])
def test_a_term_that_is_switched_off_is_found_to_be_nothing(kind: str, kept: str, lost: int) -> None:
    if kind == "own":
        subject, recorded = read_own(PositionConfig("deberta", {"terms": kept}))
    else:
        config = {**CONFIGS["deberta"]().to_dict(), "pos_att_type": [kept]}
        subject = Subject.of(hf.DebertaModel(hf.DebertaConfig(**config)))
        recorded = capture(subject.model, subject.forward, draw_ids())
    for layer in recorded.layers:
        found = separate_terms(layer)
        assert float(found[lost].abs().max()) < 1e-5
        assert float(found[1 - lost].abs().max()) > 1e-4


def test_what_is_not_affine_is_not_separated() -> None:
    """A layer in which tokens choose positions beside one of DeBERTa's; and queries of DeBERTa that are normalised."""
    subject, recorded = read_own(PositionConfig("none", layers=["deberta", "repo"]))
    chosen = answer("kernel.terms", subject, recorded, logit_splits=split(recorded))
    assert chosen.light == "skip" and chosen.verdict.startswith("Tokens choose their positions here, so that what")
    for name, start in (("forgetting", "Tokens choose their positions"), ("cope", "Logits are rewritten by the tok")):
        subject, recorded = read_own(PositionConfig(name))
        changed = answer("kernel.terms", subject, recorded, logit_splits=split(recorded))
        assert changed.light == "skip" and changed.verdict.startswith(start)
    model = tiny("deberta-v2")
    subject = Subject.of(model)
    plain = capture(subject.model, subject.forward, draw_ids())
    assert answer("kernel.terms", subject, plain, logit_splits=split(plain)).light != "skip"
    for layer in model.encoder.layer:
        projection = layer.attention.self.query_proj
        layer.attention.self.query_proj = nn.Sequential(projection, nn.LayerNorm(32))
    recorded = capture(subject.model, subject.forward, draw_ids())
    normed = answer("kernel.terms", subject, recorded, logit_splits=split(recorded))
    assert normed.light == "skip" and normed.verdict.startswith("Queries and keys are normalised here, so that what")
