"""Stacked shares of the logits add up to what was split, and small groups are left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

from clockhands.findings import Finding
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.logits import _describe_ends, _describe_equal_layers, _draw_shares, _separate_terms
from clockhands.inspection.number_format import format_estimate, format_percent
from clockhands.inspection.reading.capture import capture
from clockhands.inspection.reading.logit_split import CONTENT, DISTANCE, POSITIONAL, TERMS, compute_means
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.models.subject import Subject

from .. import planted, planted_gpt2
from ..planted import VOCAB, answer, split
from ..tiny import CONFIGS, own, tiny
from .readings import answer_splits, attend_to_content, draw_ids, random_rows, read_own, split_layers


def _shares(**terms: float) -> torch.Tensor:
    names = {"content": "content–content", "curve": "constant–constant", "bias": "added, constant"}
    shares = torch.zeros(len(TERMS), dtype=torch.float64)
    for name, share in terms.items():
        shares[TERMS.index(names[name])] = share
    return shares


def test_terms_of_one_group_are_stacked_as_one() -> None:
    columns = [_shares(content=0.7, curve=0.1, bias=0.2), _shares(content=0.999, bias=0.001)]
    marks = _draw_shares(["1", "2"], columns, "layer", None).panels[0].marks
    expected = {CONTENT: pytest.approx((0.7, 0.999)), DISTANCE: pytest.approx((0.3, 0.001))}
    assert {mark.label: mark.y for mark in marks} == expected


def test_a_group_that_is_small_everywhere_is_left_out() -> None:
    marks = _draw_shares(["1"], [_shares(content=0.999, bias=0.001)], "layer", [0.4]).panels[0].marks
    assert [(mark.label, mark.kind) for mark in marks] == [(CONTENT, "stack"), ("position alone, untrained", "points")]
    assert marks[1].y == (pytest.approx(0.4),) and marks[1].emphasis == "reference"


@pytest.mark.parametrize(
    ("chosen", "sentence"), [(True, "Here tokens choose positions or change what"), (False, "The terms add up to")]
)
def test_tokens_choose_positions_is_said_where_they_do(chosen: bool, sentence: str) -> None:
    """RePo whose tokens all choose position 0 rotates nothing, and nothing of its logits depends on what they chose."""
    model: Any = planted.uniform("encoder", "repo")
    with torch.no_grad():
        model.encoder.blocks[0].attention.qkv.weight[:64].normal_(0, 0.3)
        if not chosen:
            model.encoder.schemes[0].place.weight.zero_()
        else:
            model.encoder.schemes[0].place.weight.mul_(10)
    verdict = answer_splits("logits.layers", split_layers(model)).verdict
    assert sentence in verdict
    assert ("tokens choose positions" in verdict) == chosen


def test_a_layer_attends_by_position_by_content_or_by_neither() -> None:
    positional = answer_splits("logits.layers", split_layers(planted.copying()))
    assert positional.verdict.startswith("Position alone accounts for 99.57 % of the variance of the first layer's log")
    content = answer_splits("logits.layers", split_layers(attend_to_content()))
    assert content.verdict.startswith("Whether position alone has an effect on the first layer's logits is undecided")
    equal = answer_splits("logits.layers", split_layers(planted.uniform()))
    assert equal.verdict.startswith("The first layer attends to all tokens alike")
    assert answer_splits("logits.heads", split_layers(planted.uniform())).verdict.startswith(
        "Every head attends to all"
    )


def test_the_last_layer_is_judged_by_its_own_interval() -> None:
    (positional,), (content,) = split_layers(planted.copying()), split_layers(attend_to_content())
    verdict = answer_splits("logits.layers", [positional, content]).verdict
    assert "the variance of the first layer's logits" in verdict
    assert "Whether position alone has an effect on the last layer's logits is undecided" in verdict
    assert "the variance of the last layer's logits" in answer_splits("logits.layers", [content, positional]).verdict
    assert "last layer" not in answer_splits("logits.layers", [positional]).verdict


def test_a_split_that_misses_the_logits_says_so() -> None:
    (exact,) = split_layers(planted.copying(), 16)
    assert "The terms add up to the logits, with an error of at most" in answer_splits("logits.layers", [exact]).verdict
    missed = answer_splits("logits.layers", [replace(exact, error=0.3)])
    assert "But the terms miss the logits by up to 30 % of the largest" in missed.verdict and missed.light == "warn"
    assert "by up to 0.02 % of the largest" in answer_splits("logits.layers", [replace(exact, error=2e-4)]).verdict


def test_the_untrained_layers_are_told_where_there_are_any() -> None:
    splits = [*split_layers(planted.copying()), *split_layers(attend_to_content())]
    told = "Untrained, position alone accounts for "
    assert _describe_ends(splits, [0.3, 0.1]).endswith(f" {told}30 % in the first layer and 10 % in the last.")
    assert _describe_ends(splits[:1], [0.3]).endswith(f" {told}30 % in the first layer.")
    assert told not in _describe_ends(splits, None)


def test_the_sentence_and_the_table_have_one_sum_and_the_sentence_names_its_terms() -> None:
    found = answer_splits("logits.layers", split_layers(attend_to_content("alibi")))
    assert found.table.columns[:2] == ("layer", "position alone")
    assert found.table.rows[0][1] == pytest.approx(found.value)
    assert found.value > 0.001 and f"accounts for {format_percent(found.value)} of" in found.verdict  # type: ignore[operator]
    assert all(name in found.verdict for name in POSITIONAL) and "measured on 0 windows of 1 tokens" in found.verdict


@pytest.mark.parametrize(("kind", "equal"), [("albert", True), ("copied", True), ("bert", False)])
def test_layers_of_equal_weights_are_told(kind: str, equal: bool) -> None:
    """ALBERT runs one layer twice; of a BERT the second layer is a copy of the first, or is not."""
    model = tiny("albert" if kind == "albert" else "bert")
    if kind == "copied":
        model.encoder.layer[1].load_state_dict(model.encoder.layer[0].state_dict())
    subject = Subject.of(model)
    layers = capture(subject.model, subject.forward, draw_ids()).layers
    told = " Layers 1 and 2 have the same weights in their attention."
    assert _describe_equal_layers(layers) == (told if equal else "")


def test_the_head_that_depends_on_position_most_is_named_with_its_share() -> None:
    models = (planted.copying(), planted.previous_token(), attend_to_content())
    both, one, none = (answer_splits("logits.heads", split_layers(model)) for model in models)
    for found in (both, one):
        assert found.value > 0.98 and found.interval is not None and found.interval[0] > 0.9  # type: ignore[operator]
        assert "is largest in layer 1 head 1" in found.verdict and "undecided" not in found.verdict
    assert {row[:2]: round(float(row[2]), 1) for row in one.table.rows} == {(1, 1): 1.0, (1, 2): 0.0}  # type: ignore[arg-type]
    assert none.value < 0.05 and none.verdict.startswith("Whether position alone has an effect")  # type: ignore[operator]


@pytest.mark.parametrize(("kind", "told"), [("token 5", True), ("first position", False)])
def test_what_a_head_does_for_a_token_that_never_moves_is_told_of_the_position_it_counts_as(
    kind: Any, told: bool
) -> None:
    """Token 5 stands first in every text. The head that follows it counted as position, in the median head too."""
    reading = planted_gpt2.read(planted_gpt2.make((kind, "uniform")), planted_gpt2.draw(always_first=5))
    layers, heads = (MEASURES[name].run(reading).verdict for name in ("logits.layers", "logits.heads"))
    assert ("One token of this text always stands where layer 1 head 1 looks and follows it" in layers) == told
    assert layers.startswith("Position alone accounts for 100 %")
    assert ("the median head has 0.0 %" in heads) == told and ("largest in layer 1 head 1, 100 %" in heads) == (
        not told
    )
    only = planted_gpt2.read(planted_gpt2.make((kind, kind)), planted_gpt2.draw(always_first=5))
    assert (MEASURES["logits.heads"].run(only).light == "skip") == told


@pytest.mark.parametrize("seed", [0, 6, 10])
@torch.no_grad()
def test_the_largest_head_by_chance_is_no_effect(seed: int) -> None:
    """Without any position, one head of eight lay above zero in half of such models, by an interval of its own."""
    model = own("none", encoder_layers=1, num_heads=8)
    torch.manual_seed(seed)
    for weight in model.parameters():
        if weight.ndim >= 2:
            weight.normal_(0, 1.5 * weight.shape[-1] ** -0.5)
    subject = Subject.of(model)
    recorded = capture(subject.model, subject.forward, draw_ids())
    found = answer("logits.heads", subject, recorded, logit_splits=split(recorded))
    assert found.value > 0.002 and "on the logits of any head is undecided" in found.verdict
    interval = format_estimate(found.value, *found.interval)[1]
    assert f"may be chance ({interval} for this head alone, before it is judged" in found.verdict


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
    assert _word_terms(model).verdict.startswith("Whether tokens together with distances have an effect is undecided")
    none = _word_terms(planted.uniform("encoder", "t5"))
    assert none.verdict.startswith("Nothing that is added to its logits depends on a token")


@pytest.mark.parametrize("name", ["deberta", "deberta-v2", "xlnet"])
def test_the_terms_of_tokens_add_up_to_that_of_thesplit(name: str) -> None:
    """Off the diagonal f and g add up to the split's term, which is computed in another way."""
    subject = Subject.of(tiny(name))
    recorded = capture(subject.model, subject.forward, draw_ids())
    layer = recorded.layers[0]
    asked, answered = _separate_terms(layer)
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
        found = _separate_terms(layer)
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
