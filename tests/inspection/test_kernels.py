"""Relative schemes: the curves that are planted are the curves that are read."""

from __future__ import annotations

import math

import pytest
import torch
import transformers as hf

from clockhands.inspection.measures import content_distance, distance_curve, rotation_frequencies
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_split import compute_means, split, split_batches
from clockhands.inspection.reading.term_groups import DISTANCE, sum_groups
from clockhands.inspection.subject.subject import Subject
from clockhands.model import Position, Transformer, TransformerConfig
from clockhands.schemes import Alibi, Scheme

from .tiny import CONFIGS, VOCAB, tiny

LENGTH = 20


def _compute_shares(subject: Subject, layer: Layer, ordinary_T: torch.Tensor) -> torch.Tensor:
    """Return the shares of the rotating pairs of one layer, and last that of the channels that do not rotate."""
    return rotation_frequencies.divide_sums(*rotation_frequencies.compute_pair_sums(subject, layer, ordinary_T))


def _ids() -> torch.Tensor:
    return torch.randint(3, VOCAB, (16, LENGTH), generator=torch.Generator().manual_seed(0))


def _own(position: Position) -> tuple[Subject, Capture]:
    torch.manual_seed(0)
    config = TransformerConfig(
        kind="decoder", vocab_size=VOCAB, d_model=32, num_heads=4, d_ff=64, decoder_layers=2, decoder=position
    )
    subject = Subject.of(Transformer(config))
    return subject, capture(subject.model, subject.forward, _ids())


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon-alibi"])
def test_alibi_is_read_as_its_slopes(name: str) -> None:
    """Slopes of four heads: 2^-2, 2^-4, 2^-6, 2^-8; Falcon divides them by √d_head with the rest of the logits.

    The vectors of the constant part give a second term, which the model without words does not have.
    """
    model = tiny(name)
    with torch.no_grad():
        model.get_input_embeddings().weight.zero_()
        for label, weight in model.named_parameters():
            if label.endswith("bias"):
                weight.zero_()
    subject = Subject.of(model)
    recorded = capture(subject.model, subject.forward, _ids())
    found, spread = distance_curve.compute_distance_curve(recorded.layers[0])
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], dtype=torch.float64)
    slopes = slopes * 8**-0.5 if name == "falcon-alibi" else slopes
    offsets = torch.arange(1 - LENGTH, 1)
    torch.testing.assert_close(found[:, :LENGTH], slopes[:, None] * offsets, atol=1e-5, rtol=1e-2)
    assert found[:, LENGTH:].isnan().all(), "nothing is said of what a causal mask hides"
    assert spread < 1e-4 or name == "falcon-alibi"


def test_own_alibi_and_its_share() -> None:
    subject, recorded = _own(Position("alibi"))
    scheme = subject.model.schemes[0]
    assert isinstance(scheme, Scheme) and isinstance(scheme, Alibi)
    for _, batch in split_batches(recorded.layers[0]):
        expected = scheme.kernel(torch.arange(LENGTH)[:, None].sub(torch.arange(LENGTH)).flatten())
        expected = expected.unflatten(1, (LENGTH, LENGTH))
        allowed = batch.real.mask_BHST[0]
        assert torch.allclose(batch.compute_term("added, constant")[0][allowed], expected[allowed], atol=1e-5)
        assert not batch.compute_term("added, content").any()
    shares = [sum_groups(row)[DISTANCE] for row in split(recorded.layers[0], recorded.ordinary_T).head_shares()]
    assert shares[0] > shares[1] > shares[2] > shares[3], "the steeper the slope, the larger its part"


@pytest.mark.parametrize("name", ["llama", "gpt-neox", "roformer", "gpt-j", "cohere", "modernbert"])
def test_rotation_gives_a_kernel_of_distance_alone(name: str) -> None:
    subject = Subject.of(tiny(name))
    recorded = capture(subject.model, subject.forward, _ids())
    _, spread = distance_curve.compute_distance_curve(recorded.layers[0])
    norm = name == "cohere"  # queries divided by their own length depend on the word too
    assert (spread < 1e-5) or norm
    for layer in recorded.layers:
        shares = rotation_frequencies.divide_sums(
            *rotation_frequencies.compute_pair_sums(subject, layer, recorded.ordinary_T)
        )
        assert float(shares.sum()) == pytest.approx(1.0, abs=1e-4), "there is no bias, so the pairs are everything"


def test_partial_rotation_leaves_dimensions_unrotated() -> None:
    subject = Subject.of(tiny("gpt-j"))
    recorded = capture(subject.model, subject.forward, _ids())
    shares = rotation_frequencies.divide_sums(
        *rotation_frequencies.compute_pair_sums(subject, recorded.layers[0], recorded.ordinary_T)
    )
    assert len(shares) == 2 + 1, "rotary_dim 4 makes two pairs"
    assert rotation_frequencies.find_rotated_width(subject, recorded.layers[0], 8) == 4


@pytest.mark.parametrize(("channel", "expected"), [(0, 0), (2, 0), (1, 1), (3, 1), (4, 2), (7, 2)])
def test_own_partial_rotation_pairs_only_the_channels_that_rotate(channel: int, expected: int) -> None:
    """Half of eight channels rotate, so that channel c turns with c + 2; one channel of a head carries all."""
    subject, recorded = _own(Position("rope", {"fraction": 0.5}))
    with torch.no_grad():
        for block in subject.model.blocks:
            rows = block.attention.qkv.weight[:64].unflatten(0, (2, 4, 8))
            kept = rows[:, :, channel].clone()
            rows.zero_()
            rows[:, :, channel] = kept
    recorded = capture(subject.model, subject.forward, _ids())
    shares = rotation_frequencies.divide_sums(
        *rotation_frequencies.compute_pair_sums(subject, recorded.layers[0], recorded.ordinary_T)
    )
    assert len(shares) == 2 + 1, "two pairs, and what does not rotate"
    assert shares.tolist() == pytest.approx([float(pair == expected) for pair in range(3)], abs=1e-4)


def test_what_products_without_rotation_explain_is_a_squared_correlation() -> None:
    """The slope of their covariance is no share: it changes when all rotated logits are scaled, and can be above 1."""
    recorded = _own(Position("rope", {"fraction": 0.5}))[1]
    layer = recorded.layers[0]
    still = rotation_frequencies._remove_rotation(layer)
    assert still is not None
    logits, products = [], []
    for rows, call in layer.calls():
        other = still.replay(layer.inputs_NTD[rows])
        for values, kept in ((call.logits_BHST, logits), (other.q_BHSK @ other.k_BHTK.mT, products)):
            for t in range(1, LENGTH):
                seen = values[:, :, t, : t + 1].double()
                kept.append((seen - seen.mean(-1, keepdim=True)).flatten())
    x, y = torch.cat(products), torch.cat(logits)
    expected = float((x * y).sum() ** 2 / (x.square().sum() * y.square().sum()))
    share = rotation_frequencies.compute_unrotated_r2(layer, recorded.ordinary_T)
    assert share == pytest.approx(expected, rel=1e-4)
    slope = float((x * y).sum() / y.square().sum()) * layer.scale
    assert abs(slope - expected) > 0.01, "the two are told apart here"


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_the_planted_frequency_is_the_one_that_is_reported(layout: str) -> None:
    """Only the third pair of channels of every head carries anything."""
    subject, recorded = _own(Position("rope", {"layout": layout}))
    pair = [2, 6] if layout == "half" else [4, 5]
    with torch.no_grad():
        for block in subject.model.blocks:
            rows = block.attention.qkv.weight[:64].unflatten(0, (2, 4, 8))
            kept = rows[:, :, pair].clone()
            rows.zero_()
            rows[:, :, pair] = kept
    recorded = capture(subject.model, subject.forward, _ids())
    shares = rotation_frequencies.divide_sums(
        *rotation_frequencies.compute_pair_sums(subject, recorded.layers[0], recorded.ordinary_T)
    )
    assert int(shares.argmax()) == 2
    assert float(shares[2]) == pytest.approx(1.0, abs=1e-4)


def test_without_rotation_the_products_are_what_they_are_without_rotation() -> None:
    """A rotation by almost nothing changes almost nothing; the default one changes much."""
    still = _own(Position("rope", {"base": 1e30}))[1]
    turning = _own(Position("rope"))[1]
    layer = turning.layers[0]
    plain = rotation_frequencies._remove_rotation(layer)
    assert plain is not None
    q = plain.replay(layer.inputs_NTD[:4]).q_BHSK
    torch.testing.assert_close(q.norm(dim=-1), layer.replay(layer.inputs_NTD[:4]).q_BHSK.norm(dim=-1))
    assert not torch.allclose(q, layer.replay(layer.inputs_NTD[:4]).q_BHSK, atol=1e-3)
    share = rotation_frequencies.compute_unrotated_r2(turning.layers[0], turning.ordinary_T)
    slower = rotation_frequencies.compute_unrotated_r2(still.layers[0], still.ordinary_T)
    assert share is not None and slower is not None
    assert share < slower <= 1.0


def test_t5_shares_its_first_layers_bias_and_it_is_the_table() -> None:
    subject = Subject.of(tiny("t5"))
    recorded = capture(subject.model, subject.forward, _ids())
    table = subject.model.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    for layer in recorded.layers:
        for _, batch in split_batches(layer):
            bias = batch.compute_term("added, constant")
            torch.testing.assert_close(torch.diagonal(bias[0], dim1=1, dim2=2), table[0][:, None].expand(-1, LENGTH))
            assert math.isclose(float(bias[0, 1, 3, 2]), float(table[1, 1]), rel_tol=1e-5)


@pytest.mark.parametrize("name", ["deberta", "deberta-v2", "xlnet"])
def test_what_words_add_at_distances_is_what_the_split_calls_so(name: str) -> None:
    """Off the diagonal f and g add up to the split's term, which is computed in another way."""
    subject = Subject.of(tiny(name))
    recorded = capture(subject.model, subject.forward, _ids())
    layer = recorded.layers[0]
    asked, answered = content_distance.separate_terms(layer)
    x = layer.inputs_NTD[: layer.batch]
    mean, place = compute_means(layer, torch.arange(len(x), len(layer.inputs_NTD)))
    whole = layer.bias(layer.replay(x)) - layer.bias(layer.replay((mean + place).expand_as(x)))
    apart = ~torch.eye(x.shape[1], dtype=torch.bool)
    torch.testing.assert_close((asked + answered)[..., apart], whole[..., apart], atol=1e-5, rtol=1e-4)
    assert float(asked.abs().max()) > 1e-4
    assert (float(answered.abs().max()) > 1e-4) == name.startswith("deberta"), "q·r is all that Transformer-XL has"


@pytest.mark.parametrize(("kept", "lost"), [("c2p", 1), ("p2c", 0)])
@pytest.mark.parametrize("kind", ["hf", "own"])
def test_a_term_that_is_switched_off_is_found_to_be_nothing(kind: str, kept: str, lost: int) -> None:
    if kind == "own":
        subject, recorded = _own(Position("deberta", {"terms": kept}))
    else:
        config = {**CONFIGS["deberta"]().to_dict(), "pos_att_type": [kept]}
        subject = Subject.of(hf.DebertaModel(hf.DebertaConfig(**config)))
        recorded = capture(subject.model, subject.forward, _ids())
    for layer in recorded.layers:
        found = content_distance.separate_terms(layer)
        assert float(found[lost].abs().max()) < 1e-5
        assert float(found[1 - lost].abs().max()) > 1e-4
