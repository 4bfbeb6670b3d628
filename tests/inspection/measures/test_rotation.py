"""Pairs of channels are ordered by the speed at which they turn, and layers that turn none are told apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from clockhands.inspection.measures.rotation import (
    _compute_pair_sums,
    _compute_unrotated_r2,
    _describe_layers,
    _estimate_frequencies,
    _find_rotated_width,
    _read_rotation,
    _remove_rotation,
)
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.layer import Layer
from clockhands.model import PositionConfig
from clockhands.models.subject import Subject
from clockhands.scheme_pages.variants import complete_options

from .. import planted
from ..planted import answer
from ..tiny import tiny
from .readings import WINDOW, attend_to_content, draw_ids, read_own


def _order(position: PositionConfig, layer: int = 0) -> list[int] | None:
    subject, recorded = read_own(position)
    order_F = _read_rotation(subject, recorded.layers[layer]).order_F
    return None if order_F is None else order_F.tolist()


REVERSED = torch.tensor([1e-3, 1e-1, 1e1, 1e3]).log().tolist()


@torch.no_grad()
def _learn_frequencies(alpha: list[float]) -> Subject:
    """A decoder whose layers turn their four pairs of channels faster by exp(alpha)."""
    subject, _ = read_own(PositionConfig("rope", {"learned": True}))
    model: Any = subject.model
    for scheme in dict.fromkeys(model.schemes):
        scheme.alpha_F.copy_(torch.tensor(alpha))
    return subject


def test_pairs_are_ordered_by_speed_and_not_by_number() -> None:
    """Learned factors turn the frequencies 1, 0.1, 0.01, 0.001 into 0.001, 0.01, 0.1, 1."""
    subject = _learn_frequencies(REVERSED)
    recorded = capture(subject.model, subject.forward, draw_ids())
    rotation = _read_rotation(subject, recorded.layers[0])
    assert rotation.order_F is not None and rotation.order_F.tolist() == [3, 2, 1, 0] and rotation.resting == 0
    assert _order(PositionConfig("rope")) == [0, 1, 2, 3]


@pytest.mark.parametrize("scheme", ["ssmax", "temperature", "liere", "mixed", "fope"])
def test_what_rotates_no_pair_at_one_speed_has_no_order(scheme: str) -> None:
    """The first two scale queries, LieRE rotates blocks, and in the others a pair has several frequencies."""
    assert _order(PositionConfig(scheme, complete_options(scheme))) is None


def test_a_layer_without_rotation_has_no_order() -> None:
    assert _order(PositionConfig("rope", skip_every=2), layer=1) is None
    subject = Subject.of(tiny("smollm3"))
    recorded = capture(subject.model, subject.forward, draw_ids())
    first, second = (_read_rotation(subject, layer) for layer in recorded.layers)
    assert first.order_F is not None and first.order_F.tolist() == [0, 1, 2, 3] and second.order_F is None
    assert second.turns_nothing and not first.turns_nothing


@pytest.mark.parametrize("still", [0, 2])
def test_pairs_that_stand_still_are_counted_and_told(still: int) -> None:
    """The learned factors of some of four pairs make their frequencies zero."""
    subject = _learn_frequencies([0.0] * (4 - still) + [-1e4] * still)
    recorded = capture(subject.model, subject.forward, draw_ids())
    read = {index: _read_rotation(subject, layer) for index, layer in enumerate(recorded.layers)}
    assert [rotation.resting for rotation in read.values()] == [still, still]
    told = " In layers 1 and 2, 2 of 4 rotated pairs stand still: they see no position."
    assert _describe_layers(read) == (told if still else "")


def test_a_pair_that_turns_at_two_speeds_has_none() -> None:
    """Three pairs, of which the last turns by 0.3 and by 0.7 in turn."""
    steps = torch.stack([torch.full((16,), 0.5), torch.zeros(16), torch.tensor([0.3, 0.7] * 8)], dim=-1)
    angle_TF = steps.double().cumsum(0)
    frequencies = _estimate_frequencies(torch.polar(torch.ones_like(angle_TF), angle_TF)[None])
    assert frequencies[:2].tolist() == pytest.approx([0.5, 0.0]) and bool(frequencies[2].isnan())


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


def _compute_shares(subject: Subject, layer: Layer, ordinary_T: torch.Tensor) -> torch.Tensor:
    """Return the shares of the rotating pairs of one layer, and last that of the channels that do not rotate."""
    products_NF, squares_N = _compute_pair_sums(_read_rotation(subject, layer), layer, ordinary_T)
    return products_NF.sum(0) / squares_N.sum()


@pytest.mark.parametrize("name", ["llama", "gpt-neox", "roformer", "gpt-j", "cohere", "modernbert"])
def test_the_pairs_are_everything_where_there_is_no_bias(name: str) -> None:
    subject = Subject.of(tiny(name))
    recorded = capture(subject.model, subject.forward, draw_ids())
    for layer in recorded.layers:
        shares = _compute_shares(subject, layer, recorded.ordinary_T)
        assert float(shares.sum()) == pytest.approx(1.0, abs=1e-4)
        if name == "gpt-j":
            assert len(shares) == 2 + 1, "rotary_dim 4 makes two pairs"
            assert _find_rotated_width(subject, layer, 8) == 4


@torch.no_grad()
def _keep_channels(position: PositionConfig, channels: int | list[int]) -> tuple[Subject, Capture]:
    """A decoder whose heads have nothing in their queries and keys but in these of eight channels."""
    subject, _ = read_own(position)
    stack: Any = subject.model
    for block in stack.blocks:
        rows = block.attention.qkv.weight[:64].unflatten(0, (2, 4, 8))
        kept = rows[:, :, channels].clone()
        rows.zero_()
        rows[:, :, channels] = kept
    return subject, capture(subject.model, subject.forward, draw_ids())


@pytest.mark.parametrize(("channel", "expected"), [(0, 0), (2, 0), (1, 1), (3, 1), (4, 2), (7, 2)])
def test_own_partial_rotation_pairs_only_the_channels_that_rotate(channel: int, expected: int) -> None:
    """Half of eight channels rotate, so that channel c rotates with c + 2; one channel of a head carries all."""
    subject, recorded = _keep_channels(PositionConfig("rope", {"fraction": 0.5}), channel)
    shares = _compute_shares(subject, recorded.layers[0], recorded.ordinary_T)
    assert len(shares) == 2 + 1, "two pairs, and what does not rotate"
    assert shares.tolist() == pytest.approx([float(pair == expected) for pair in range(3)], abs=1e-4)


def test_what_products_without_rotation_explain_is_a_squared_correlation() -> None:
    """The slope of their covariance is no share: it changes when all rotated logits are scaled, and can be above 1."""
    recorded = read_own(PositionConfig("rope", {"fraction": 0.5}))[1]
    layer = recorded.layers[0]
    still = _remove_rotation(layer)
    assert still is not None
    logits, products = [], []
    for rows, call in layer.replay_all():
        other = still.replay(layer.inputs_NTD[rows])
        for values, kept in ((call.logits_BHST, logits), (other.q_BHSK @ other.k_BHTK.mT, products)):
            for t in range(1, WINDOW):
                seen = values[:, :, t, : t + 1].double()
                kept.append((seen - seen.mean(-1, keepdim=True)).flatten())
    x, y = torch.cat(products), torch.cat(logits)
    expected = float((x * y).sum() ** 2 / (x.square().sum() * y.square().sum()))
    share = _compute_unrotated_r2(layer, recorded.ordinary_T)
    assert share == pytest.approx(expected, rel=1e-4)
    slope = float((x * y).sum() / y.square().sum()) * layer.scale
    assert abs(slope - expected) > 0.01, "the two are told apart here"


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_the_planted_frequency_is_the_one_that_is_reported(layout: str) -> None:
    """Only the third pair of channels of every head carries anything."""
    pair = [2, 6] if layout == "half" else [4, 5]
    subject, recorded = _keep_channels(PositionConfig("rope", {"layout": layout}), pair)
    shares = _compute_shares(subject, recorded.layers[0], recorded.ordinary_T)
    assert int(shares.argmax()) == 2
    assert float(shares[2]) == pytest.approx(1.0, abs=1e-4)


def test_without_rotation_the_products_are_what_they_are_without_rotation() -> None:
    """A rotation by almost nothing changes almost nothing; the default one changes much."""
    still = read_own(PositionConfig("rope", {"base": 1e30}))[1]
    turning = read_own(PositionConfig("rope"))[1]
    layer = turning.layers[0]
    plain = _remove_rotation(layer)
    assert plain is not None
    q = plain.replay(layer.inputs_NTD[:4]).q_BHSK
    torch.testing.assert_close(q.norm(dim=-1), layer.replay(layer.inputs_NTD[:4]).q_BHSK.norm(dim=-1))
    assert not torch.allclose(q, layer.replay(layer.inputs_NTD[:4]).q_BHSK, atol=1e-3)
    share = _compute_unrotated_r2(turning.layers[0], turning.ordinary_T)
    slower = _compute_unrotated_r2(still.layers[0], still.ordinary_T)
    assert share is not None and slower is not None
    assert share < slower <= 1.0


def test_layers_without_rotation_are_left_out_and_named() -> None:
    found = answer("kernel.frequencies", *read_own(PositionConfig("rope", {"fraction": 0.5}, skip_every=2)))
    assert found.verdict.startswith("The fastest of 2 rotated pairs carries ")
    assert "; 25 % if all channels carried the same)" in found.verdict, "two channels of eight"
    assert found.verdict.endswith("Layer 2 rotates nothing.")
    assert [row[0] for row in found.table.rows] == [1]
    whole = answer("kernel.frequencies", *read_own(PositionConfig("rope")))
    assert "rotates nothing" not in whole.verdict and [row[0] for row in whole.table.rows] == [1, 2]


@pytest.mark.parametrize(
    ("scheme", "reason"), [("ssmax", "anything: none"), ("liere", "each of its pairs of channels")]
)
def test_a_scheme_that_turns_no_pair_at_one_speed_has_no_fastest_quarter(scheme: str, reason: str) -> None:
    found = answer("kernel.frequencies", *read_own(PositionConfig(scheme, complete_options(scheme))))
    assert found.light == "skip" and found.verdict.startswith(f"No layer rotates {reason}")


GLM4: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 8,
}
DEEPSEEK: dict[str, Any] = dict(
    GLM4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=4, v_head_dim=8
)


@pytest.mark.parametrize(
    ("config", "start", "width", "interleaved"),
    [
        (hf.Glm4Config(**GLM4, num_key_value_heads=2, vocab_size=97, pad_token_id=0), 0, 4, True),
        (hf.Olmo3Config(**GLM4, num_key_value_heads=2, vocab_size=97, pad_token_id=0), 0, 8, False),
        (hf.DeepseekV3Config(**DEEPSEEK, first_k_dense_replace=2, vocab_size=97, num_key_value_heads=4), 4, 8, False),
    ],
    ids=["glm4", "olmo3", "deepseek"],
)
def test_the_pairs_of_an_unlisted_architecture_are_found(
    config: Any, start: int, width: int, interleaved: bool
) -> None:
    """GLM-4 turns neighbouring channels of the first half, DeepSeek the last channels of a head."""
    torch.manual_seed(0)
    subject = Subject.of(hf.AutoModel.from_config(config).eval())
    assert subject.has_unlisted_architecture
    recorded = capture(subject.model, subject.forward, draw_ids())
    rotation = _read_rotation(subject, recorded.layers[0])
    assert (rotation.start, rotation.width, rotation.interleaved) == (start, width, interleaved)
    assert rotation.order_F is not None and rotation.order_F.tolist() == list(range(width // 2))
    assert float(_compute_shares(subject, recorded.layers[0], recorded.ordinary_T).sum()) == pytest.approx(1, abs=1e-4)


def test_the_fastest_quarter_is_that_of_the_fastest_pair() -> None:
    """Learned factors make the last pair the fastest, and it alone carries the logits; it was the slowest quarter."""
    subject = _learn_frequencies(REVERSED)
    model: Any = subject.model
    with torch.no_grad():
        for block in model.blocks:
            rows = block.attention.qkv.weight[:64].unflatten(0, (2, 4, 8))
            rows[:, :, [0, 1, 2, 4, 5, 6]] *= 1e-2
    found = answer("kernel.frequencies", subject, capture(subject.model, subject.forward, draw_ids()))
    assert found.value == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("scheme", ["none", "alibi", "rope"])
def test_without_a_rotation_there_are_no_frequencies(scheme: str) -> None:
    found = answer("kernel.frequencies", *planted.subject_of(attend_to_content(scheme)))
    assert found.verdict.startswith("No rotation was found. ") == (found.light == "skip") == (scheme != "rope")
