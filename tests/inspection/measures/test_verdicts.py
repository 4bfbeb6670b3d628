"""Every sentence about data, told of a model of which it is true and of one of which it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers as hf

from clockhands.findings import Finding
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.recovery import LOUDER, _limit, _Sample
from clockhands.inspection.measures.survival import _splits as probe_splits
from clockhands.inspection.measures.survival import position_hits, probe_layers
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.head_statistics import HeadStatistics
from clockhands.inspection.reading.logit_split import split
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.subject.subject import Subject
from clockhands.model import Position, Transformer, TransformerConfig

from .. import planted
from ..planted import HALF, LENGTH, VOCAB, answer
from ..tiny import CONFIGS


def _of_splits(name: str, splits: list[Any]) -> Finding:
    return MEASURES[name].run(replace(Reading.without_text(Subject.of(planted.uniform())), splits=splits))


def _of_heads(name: str, layer: HeadStatistics) -> Finding:
    return MEASURES[name].run(replace(Reading.without_text(Subject.of(planted.uniform())), heads=[layer]))


@torch.no_grad()
def _tables(words: torch.Tensor, places: torch.Tensor) -> tuple[Subject, Capture]:
    model = planted.bert()
    model.embeddings.word_embeddings.weight.copy_(words)
    model.embeddings.position_embeddings.weight.copy_(places)
    return planted.subject_of(model)


def _random(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, 64, generator=torch.Generator().manual_seed(seed))


def _half(rows: int, upper: bool) -> torch.Tensor:
    """Random rows in one half of the dimensions."""
    table = torch.zeros(rows, 64)
    table[:, slice(HALF, 64) if upper else slice(0, HALF)] = _random(rows, int(upper))[:, :HALF]
    return table


@pytest.mark.parametrize(
    ("words", "places", "sentence", "light"),
    [
        (_half(VOCAB, True), _half(LENGTH, False), "more nearly orthogonal than chance", "good"),
        (_half(VOCAB, True), _half(LENGTH, True), "words and positions share directions", "warn"),
        (_random(VOCAB), _random(LENGTH, 7), "no more and no less than chance", "info"),
        (_random(VOCAB), torch.zeros(LENGTH, 64), "All position rows are equal", "skip"),
        (_random(VOCAB), torch.ones(LENGTH, 64), "All position rows are equal", "skip"),
    ],
)
def test_directions(words: torch.Tensor, places: torch.Tensor, sentence: str, light: str) -> None:
    found = answer("directions", *_tables(words, places))
    assert sentence in found.verdict and found.light == light
    if light != "skip":
        assert found.interval is not None and found.interval[0] <= found.value <= found.interval[1]  # type: ignore[operator]


def test_a_text_of_one_word_has_no_directions() -> None:
    subject, recorded = _tables(_random(VOCAB), _random(LENGTH, 7))
    one = Capture(torch.full((8, LENGTH), 9), [], [], recorded.ordinary_T)
    assert "All token rows of the text are equal" in answer("directions", subject, one).verdict


@pytest.mark.parametrize(
    ("factor", "sentence", "light"),
    [(1.0, "and both are heard", "good"), (0.001, "hardly audible", "bad"), (100.0, "drowns it", "warn")],
)
def test_loudness(factor: float, sentence: str, light: str) -> None:
    found = answer("loudness", *_tables(_random(VOCAB), factor * _random(LENGTH, 1)))
    assert sentence in found.verdict and found.light == light


def test_position_0_is_left_out_of_loudness_and_overlap() -> None:
    """A row 0 of a thousand times the length changes no number, and is told as an outlier."""
    places = _random(LENGTH, 1)
    ordinary = [answer(name, *_tables(_random(VOCAB), places)) for name in ("loudness", "directions")]
    places[0] *= 1000
    outlying = [answer(name, *_tables(_random(VOCAB), places)) for name in ("loudness", "directions")]
    assert [found.value for found in ordinary] == pytest.approx([found.value for found in outlying], rel=1e-5)
    assert "Outlying rows: 0." in outlying[0].verdict and "Outlying" not in ordinary[0].verdict
    assert all("Position 0 and special tokens are left out" in found.method for found in outlying)


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_equal_position_rows_are_no_fault(value: float) -> None:
    """Zero or constant rows divided by zero."""
    subject, recorded = _tables(_random(VOCAB), torch.full((LENGTH, 64), value))
    loud = answer("loudness", subject, recorded)
    assert loud.value == pytest.approx(0.0, abs=1e-9) and loud.light == "bad"
    assert "all position rows are equal, so that they tell no place from another" in loud.verdict
    found = answer("recovery", subject, recorded)
    assert found.light == "skip" and "All position rows are equal" in found.verdict


@pytest.mark.parametrize(
    ("factor", "sentence", "light"),
    [(0.2, "times that length they lose one word in twenty or more", "good"), (30.0, "too loud as they are", "bad")],
)
def test_recovery(factor: float, sentence: str, light: str) -> None:
    found = answer("recovery", *_tables(_random(VOCAB), factor * _random(LENGTH, 1)))
    assert sentence in found.verdict and found.light == light
    assert [reference.name for reference in found.references] == ["random vectors"]


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (1.0, "At 2 times that length they lose one word in twenty or more."),
        (8.0, "At 16 times that length they lose one word in twenty or more."),
        (32.0, "Even 32 times as long they lose less than one word in twenty."),
    ],
)
def test_how_much_longer_positions_may_be(last: float, said: str) -> None:
    """It said "1 times as long", and of 32, beyond which nothing was tried, that words are lost there."""
    sweep = [(factor, torch.tensor([float(factor <= last)]), torch.zeros(1)) for factor in LOUDER]
    assert _limit(sweep) == said


def test_the_neighbours_of_a_word_do_not_count_the_word() -> None:
    """Where the sum has left the word, one of the neighbours that stayed was taken off for it."""
    rows = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1], [0, -1, 0, 0], [0, 0, -1, 0]]).float()
    sample = _Sample(rows, torch.tensor([0]), torch.tensor([0]), torch.zeros(1, 4), torch.zeros(1, 4))
    assert sample.neighbours(torch.zeros(1, 4), count=2) == 1.0
    away = torch.tensor([[-0.9, 1.0, 1.0, 0.5]])
    order = torch.nn.functional.cosine_similarity(rows[:1] + away, rows).argsort(descending=True).tolist()
    assert set(order[:2]) == {1, 2} and order[2] == 3, "both neighbours and another are nearer than the word"
    assert sample.neighbours(away, count=2) == 1.0
    assert sample.neighbours(torch.tensor([[-1.0, 1.0, 0.0, 9.0]]), count=2) == 0.5, "the second neighbour is lost"


def test_rows_of_any_size_have_the_same_shares() -> None:
    """The squares of rows of 1e18 leave the range of float32: loudness was nan %."""
    words, places = _random(VOCAB), _random(LENGTH, 1)
    for name in ("loudness", "directions", "recovery"):
        usual, scaled = (answer(name, *_tables(factor * words, factor * places)) for factor in (1.0, 1e18))
        assert scaled.light == usual.light and "nan" not in scaled.verdict
        assert scaled.value == pytest.approx(usual.value, rel=1e-4)


def test_words_that_are_all_recovered_from_few_texts_leave_room_for_others() -> None:
    """It said [1, 1] of whatever number of texts."""
    found = answer("recovery", *_tables(_random(VOCAB), 0.001 * _random(LENGTH, 1)))
    assert found.value == 1.0
    assert found.interval == pytest.approx((0.025 ** (1 / 32), 1.0)), "of 32 texts, Clopper and Pearson"


@torch.no_grad()
def _crossing(places: bool) -> tuple[Subject, Capture]:
    """An encoder-decoder whose cross-attention knows places alone, or words alone that are drawn anew each time."""
    position = Position("sinusoidal")
    sizes = {"vocab_size": VOCAB, "d_model": 32, "num_heads": 2, "d_ff": 8, "encoder_layers": 1, "decoder_layers": 1}
    torch.manual_seed(0)
    config = TransformerConfig(kind="encoder-decoder", encoder=position, decoder=position, tying="none", **sizes)
    model: Any = Transformer(config).eval()
    for stack in (model.encoder, model.decoder):
        if places:
            stack.input.tokens.weight.zero_()
        else:
            stack.input.register_forward_pre_hook(lambda module, args: (args[0], torch.zeros_like(args[1])))
    model.decoder.blocks[0].attention.out.weight.zero_()
    model.decoder.blocks[0].cross.q.weight.mul_(8)
    subject = Subject.of(model, side="decoder")
    windows, source = planted.ids(48)[:, :16], planted.ids(48, seed=1)[:, :9]
    return subject, capture(subject.model, subject.forward, windows, source_NS=source)


def test_cross_attention_is_told_to_go_by_place_where_it_does() -> None:
    found = answer("heads.across", *_crossing(places=True))
    assert found.verdict.startswith("Place alone explains 100 % of the attention over the source")
    none = answer("heads.across", *_crossing(places=False))
    assert none.verdict.startswith("No effect of place alone on the attention over the source was found"), none.verdict
    assert none.interval is not None and none.interval[0] <= 0 <= none.interval[1]


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
    assert found.verdict.startswith("What the query's word asks of distances decides"), found.verdict
    shares = (found.details["query_words"], found.details["key_words"])
    assert shares[not asks] > 0.04 and abs(shares[asks]) < 1e-3, shares


def test_words_that_hardly_listen_to_distances_are_not_told_to() -> None:
    """At its small initial weights, and without either term at all."""
    sizes = {"vocab_size": VOCAB, "d_model": 32, "num_heads": 2, "d_ff": 8, "encoder_layers": 1}
    torch.manual_seed(0)
    position = Position("deberta", {"terms": "c2p"})
    model: Any = Transformer(TransformerConfig(kind="encoder", encoder=position, **sizes))
    tokens = model.encoder.input.tokens.weight.data
    tokens.copy_(tokens[:1] + 0.01 * _random(VOCAB)[:, :32])
    assert _word_terms(model).verdict.startswith("No effect of words together with distances on the logits was found")
    assert _word_terms(planted.uniform("encoder", "t5")).verdict.startswith("Nothing that is added here depends on a")


@pytest.mark.parametrize(
    ("chosen", "sentence"), [(True, "Here the words move the places"), (False, "The terms rebuild")]
)
def test_words_are_told_to_move_the_places_where_they_do(chosen: bool, sentence: str) -> None:
    """RePo whose words all choose place 0 rotates nothing, and nothing of its logits depends on what they chose."""
    model: Any = planted.uniform("encoder", "repo")
    with torch.no_grad():
        model.encoder.blocks[0].attention.qkv.weight[:64].normal_(0, 0.3)
        if not chosen:
            model.encoder.schemes[0].place.weight.zero_()
        else:
            model.encoder.schemes[0].place.weight.mul_(10)
    verdict = _of_splits("logits.layers", _splits(model)).verdict
    assert sentence in verdict
    assert ("words move the places" in verdict) == chosen


@pytest.mark.parametrize("kept", [True, False])
def test_what_reaches_the_last_layer_without_residual_connections(kept: bool) -> None:
    """Attention to itself alone passes each position on; uniform attention makes all states one."""
    model: Any = planted.uniform("encoder", "sinusoidal")
    if kept:
        with torch.no_grad():
            model.encoder.input.tokens.weight.zero_()
            model.encoder.blocks[0].attention.qkv.weight[:32] = 30 * torch.eye(32)
            model.encoder.blocks[0].attention.qkv.weight[32:64] = torch.eye(32)
            model.encoder.blocks[0].feed_forward.down.weight.normal_()
    _, _, cut = answer("survival", *planted.subject_of(model)).verdict.partition("With the residual connections cut, ")
    assert ("of positions reach the last layer." in cut) == kept
    assert ("it is undecided whether any position reaches the last layer" in cut) == (not kept)


def _kernel(model: Any) -> Finding:
    subject, recorded = planted.subject_of(model)
    return answer("kernel", subject, recorded, splits=[split(recorded.layers[0], recorded.ordinary_T)])


@pytest.mark.parametrize("scheme", ["rope", "alibi"])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_the_kernel_is_compared_with_shuffled_distances(kind: str, scheme: str) -> None:
    found, still = (_kernel(planted.kernel(kind, scheme, still=still)) for still in (False, True))
    assert found.verdict.startswith("Distance alone accounts for up to")
    assert still.verdict.startswith("No effect of distance alone was found")
    reference = found.reference("distances shuffled")
    assert reference is not None and reference.interval is not None and found.interval is not None
    assert found.interval[0] > reference.interval[1]
    assert (found.details["beyond"], still.details["beyond"]) == (True, False)
    assert _kernel(planted.uniform(kind)).light == "skip"


def test_shuffled_distances_are_the_largest_of_any_layer_as_the_share_is() -> None:
    """The layer where distance does most was compared with its own shuffles alone."""
    subject, recorded = planted.subject_of(planted.kernel("encoder", "rope"))
    plain = split(recorded.layers[0], recorded.ordinary_T)
    weak = replace(plain, offsets_HJ=plain.offsets_HJ * 0.5, cov_NHt=plain.cov_NHt * 0.5)
    pair = replace(recorded, layers=[recorded.layers[0]] * 2)
    lone = answer("kernel", subject, recorded, splits=[weak]).reference("distances shuffled")
    both = answer("kernel", subject, pair, splits=[weak, replace(plain, cov_NHt=plain.cov_NHt * 0)])
    reference = both.reference("distances shuffled")
    assert lone is not None and reference is not None and lone.interval is not None and reference.interval is not None
    assert both.details["share"][0] > both.details["share"][1] == 0.0, "the first layer is the one that is told of"
    assert reference.interval[1] == pytest.approx(2 * lone.interval[1], rel=1e-6), "the second's shuffles reach further"


def _splits(model: Any, texts: int = 48) -> list[Any]:
    _, recorded = planted.subject_of(model, texts)
    return [split(layer, recorded.ordinary_T) for layer in recorded.layers]


@torch.no_grad()
def _content() -> Any:
    """Random queries and keys of words, and no position anywhere."""
    model: Any = planted.uniform()
    rows = model.encoder.blocks[0].attention.qkv.weight[:64]
    rows.copy_(torch.randn(64, 32, generator=torch.Generator().manual_seed(0)) / 8)
    return model


def test_what_decides_where_a_layer_looks() -> None:
    positional = _of_splits("logits.layers", _splits(planted.copying()))
    assert positional.verdict.startswith(
        "Position alone accounts for 100 % of the variance of the first layer's logits"
    )
    content = _of_splits("logits.layers", _splits(_content()))
    assert content.verdict.startswith("No effect of position alone on the first layer's logits was found")
    equal = _of_splits("logits.layers", _splits(planted.uniform()))
    assert equal.verdict.startswith("The first layer looks at all tokens alike")


def test_heads_that_position_decides_are_counted_with_an_interval() -> None:
    models = (planted.copying(), planted.previous_token(), _content())
    both, one, none = (_of_splits("logits.heads", _splits(model)) for model in models)
    assert (one.value, one.interval) == (1.0, (1.0, 1.0)), "head 0 by position, head 1 by words"
    assert (none.value, none.interval) == (0.0, (0.0, 0.0))
    assert both.value == 1.0 and "decides most in head 0" in both.verdict
    assert "in 1 of 2 heads (1 surely and 1 possibly, by each head's own 95 % interval)" in one.verdict


def test_attention_by_place_is_counted_and_uniform_attention_is_none() -> None:
    """Uniform attention in float32 is the same in every text up to rounding, and that is no place."""
    for kind in ("encoder", "decoder"):
        flat = _of_heads("heads.positional", planted.heads_of(planted.subject_of(planted.uniform(kind))[1]))
        assert flat.verdict == (
            "0 of 2 heads attend mostly by place (0 surely and 0 possibly, by each head's own 95 % interval). No head "
            "has a name."
        )
    found = _of_heads("heads.positional", planted.heads_of(planted.subject_of(planted.copying())[1]))
    assert found.value == 2.0 and found.interval == (2.0, 2.0)
    assert "layer 1 head 0: previous token" in found.verdict and found.light == "good"


def test_how_far_heads_look() -> None:
    near = _of_heads("heads.distance", planted.heads_of(planted.subject_of(planted.previous_token(30.0))[1]))
    assert "Less than half as far looks layer 1." in near.verdict
    far = _of_heads("heads.distance", planted.heads_of(planted.subject_of(planted.uniform())[1]))
    assert "No layer looks less than half as far." in far.verdict
    assert far.value == pytest.approx(far.references[0].value, rel=1e-3)


def _distant(distances: list[float], uniform: float) -> HeadStatistics:
    """A layer whose heads look as far as told, on every text, beside uniform attention that looks ``uniform`` far."""
    layer = planted.heads_of(planted.subject_of(planted.uniform())[1])
    return replace(layer, distance_NH=torch.tensor(distances).double().expand(9, -1), uniform_distance=uniform)


@pytest.mark.parametrize(("distances", "median"), [([1.0, 3.0], 2.0), ([1.0, 2.0, 4.0, 9.0], 3.0), ([1, 2, 9], 2.0)])
def test_the_median_over_heads_is_the_middle_of_the_two_in_the_middle(distances: list[float], median: float) -> None:
    """It was the lower one: of two heads the nearer."""
    found = _of_heads("heads.distance", _distant(distances, 10.0))
    assert found.value == median and found.interval == (median, median)
    assert f"a median over heads of {median:.1f} tokens" in found.verdict


@pytest.mark.parametrize("local_first", [True, False])
def test_every_layer_is_compared_with_uniform_attention_under_its_own_mask(local_first: bool) -> None:
    """A local layer looks as far as it may, 2 tokens; a global one 6 of 20. All were compared with the first."""
    layers = [_distant([2.0, 2.0], 2.0), _distant([6.0, 6.0], 20.0)]
    layers = layers if local_first else layers[::-1]
    reading = replace(Reading.without_text(Subject.of(planted.uniform())), heads=layers)
    found = MEASURES["heads.distance"].run(reading)
    assert found.value == 2.0 and found.references[0].value == 2.0
    assert found.verdict.endswith(f"Less than half as far looks layer {2 if local_first else 1}.")


def test_whether_positions_can_be_read_behind_the_last_layer() -> None:
    kept = answer("survival", *planted.subject_of(planted.uniform("encoder", "sinusoidal")))
    assert "Behind the last layer the position can still be read." in kept.verdict
    lost = answer("survival", *planted.subject_of(planted.uniform()))
    assert "Whether any position can be read behind the last layer is undecided." in lost.verdict
    assert lost.interval is not None and lost.interval[0] <= 1 / (LENGTH - 1)
    names = [reference.name for reference in kept.references]
    assert names == ["chance", "positions permuted"]


def test_the_permuted_control_is_that_of_the_last_layer() -> None:
    """Beside what is read behind the last layer stood the control of the embedding."""
    subject, recorded = planted.subject_of(planted.uniform("encoder", "sinusoidal"))
    recorded.hidden[0] = torch.zeros_like(recorded.hidden[0])
    states, splits = recorded.hidden[-1][:, recorded.counted_T].float(), probe_splits(recorded)
    expected = float(position_hits(states[: splits.texts], splits, permuted=True).mean())
    embedding = float(position_hits(torch.zeros_like(states[: splits.texts]), splits, permuted=True).mean())
    assert probe_layers(subject, recorded).permuted == expected != embedding


def test_the_probe_is_fitted_on_as_many_texts_whatever_is_read() -> None:
    """The same run gave 74 % where 48 texts were read and 87 % where 96 were."""
    model = planted.uniform("encoder", "sinusoidal")
    values = [probe_layers(*planted.subject_of(model, texts)).position for texts in (48, 96)]
    assert values[0] == pytest.approx(values[1])


def test_a_network_sees_places_that_only_the_length_of_a_state_holds() -> None:
    """The mean of more and more words is shorter and shorter, under a causal mask; without one it is the same."""
    causal = answer("survival", *planted.subject_of(planted.uniform("decoder", keeps=False), 48))
    alike = answer("survival", *planted.subject_of(planted.alone("decoder"), 48))
    said = "Behind layer 1 a two-layer network, which sees lengths too, predicts the position with R² "
    told = [float(found.verdict.split(said)[1].split()[0].rstrip(".")) for found in (causal, alike)]
    assert told[0] > 0.05 and told[1] == 0.0
    heard = answer("survival", *planted.subject_of(planted.uniform("encoder", "sinusoidal")))
    assert "network" not in heard.verdict


@pytest.mark.parametrize(("pairs", "least", "most"), [([0, 1], 0.9, 1.01), ([5, 6, 7], -0.01, 0.1)])
def test_which_pairs_carry_the_logits(pairs: list[int], least: float, most: float) -> None:
    """Only fast pairs of the rotation, then only slow ones: 16 dimensions of a head are 8 pairs, half a head apart."""
    model: Any = planted.uniform("encoder", "rope")
    with torch.no_grad():
        rows = model.encoder.blocks[0].attention.qkv.weight[:64].unflatten(0, (2, 2, 16))
        both = [*pairs, *(pair + 8 for pair in pairs)]
        rows[:, :, both] = torch.randn(2, 2, len(both), 32, generator=torch.Generator().manual_seed(0))
    subject, recorded = planted.subject_of(model)
    found = answer("kernel.frequencies", subject, recorded)
    assert least < found.value < most  # type: ignore[operator]
    assert found.verdict.startswith("The fastest quarter of the rotated pairs carries")
    assert found.interval is not None and found.interval[0] <= found.value <= found.interval[1]  # type: ignore[operator]
    assert found.references[0].name == "equal pairs" and found.references[0].value == 0.25


def test_a_split_that_misses_the_logits_says_so() -> None:
    (exact,) = _splits(planted.copying(), 16)
    assert "The terms rebuild the logits to" in _of_splits("logits.layers", [exact]).verdict
    missed = _of_splits("logits.layers", [replace(exact, error=0.3)])
    assert "But the terms miss the logits by up to 30 % of the largest" in missed.verdict and missed.light == "warn"


def test_how_much_of_the_state_is_position() -> None:
    heard = answer("survival.share", *planted.subject_of(planted.uniform("encoder", "sinusoidal")))
    deaf = answer("survival.share", *planted.subject_of(planted.uniform()))
    assert heard.value > 0.1 and abs(deaf.value) < 0.02  # type: ignore[operator, arg-type]
