"""Every scheme of the catalogue: attention is read as the model computes it, and its logits split exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from clockhands.attention import record
from clockhands.inspection.measures.distance_curve import _compute_distance_curve
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.logit_split import (
    DATA_DEPENDENT,
    TERMS,
    split_by_batch,
    split_first_batch,
    split_logits,
)
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.models.subject import Subject
from clockhands.scheme_pages.variants import complete_options
from clockhands.schemes import CATALOGUE

from .measures.readings import check_order_of_parts, check_terms
from .tiny import draw_ids

VOCAB = 97
OPTIONS: dict[str, dict[str, Any]] = {"swin": {"rows": 16, "columns": 16}}
DATA = TERMS.index(DATA_DEPENDENT)
WORDS_PLACE = ("carope", "forgetting", "path", "repo", "selective-rope")
ROUNDS_INSIDE = {"inkling"}
"""Its bias goes through float32 whatever the model computes in."""


def _model(name: str) -> Transformer:
    torch.manual_seed(0)
    position = PositionConfig(name, complete_options(name, OPTIONS.get(name), length=8))
    sizes = {"vocab_size": VOCAB, "d_model": 32, "num_heads": 4, "d_ff": 64, "decoder_layers": 2}
    model = Transformer(TransformerConfig(kind="decoder", decoder=position, **sizes)).double().eval()
    for weight in model.parameters():
        if weight.ndim >= 2:
            nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    return model


def _captured(name: str) -> tuple[Subject, Capture]:
    subject = Subject.of(_model(name))
    return subject, capture(subject.model, subject.forward, draw_ids(), batch=2)


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_the_terms_sum_to_the_logits_that_the_model_computed(name: str) -> None:
    subject, recorded = _captured(name)
    heard: list[Any] = []
    with record(heard.append):
        subject.forward(draw_ids())
    for layer, true in zip(recorded.layers, heard, strict=True):
        check_terms(layer, 1e-6 if name in ROUNDS_INSIDE else 1e-10, true.logits_BHST)
        assert split_logits(layer, recorded.ordinary_T).compute_head_shares().sum(-1).sub(1).abs().max() < 1e-5


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - {"pope"}))
def test_the_order_of_the_parts_plays_no_role(name: str) -> None:
    """What the words give alone, less what nothing gives, is what they add to μ and place. (PoPE bends queries.)"""
    check_order_of_parts(_captured(name)[1].layers[0], 1e-9)


@pytest.mark.parametrize("name", WORDS_PLACE)
def test_what_words_do_to_places_is_a_term_of_its_own(name: str) -> None:
    """The distance term does not depend on the text, and the data-dependent one is not nothing."""
    _, recorded = _captured(name)
    layer = recorded.layers[0]
    for _, batch in split_by_batch(layer):
        kernel = batch.compute_term("constant–constant") + batch.compute_term("added, constant")
        assert float((kernel - kernel[:1]).abs().max()) < 1e-12
        assert float(batch.compute_term(DATA_DEPENDENT).masked_fill(~batch.real.mask_BHST, 0.0).std()) > 1e-4
    if name in ("carope", "forgetting", "repo"):  # the others' convolutions begin with the text
        assert _compute_distance_curve(split_first_batch(layer))[1] < 1e-6, "and is a function of the distance alone"


def _measure_data_dependent(name: str) -> float:
    """The share of the term that depends on what words do to places."""
    _, recorded = _captured(name)
    return float(split_logits(recorded.layers[0], recorded.ordinary_T).compute_layer_shares()[DATA])


@pytest.mark.parametrize("name", ["cope", "dape"])
def test_rewritten_rows_are_data_dependent(name: str) -> None:
    assert abs(_measure_data_dependent(name)) > 1e-3


@pytest.mark.parametrize("name", ["rope", "t5", "sinusoidal", "deberta"])
def test_schemes_that_know_no_words_have_no_such_term(name: str) -> None:
    assert _measure_data_dependent(name) == 0.0
