"""Positions are read back from states, and their share of them is measured, where they were planted."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from clockhands.findings import Finding
from clockhands.inspection.measures.survival import (
    _describe_share,
    _draw_splits,
    _probe_positions,
    estimate_position_share,
    probe_layers,
)
from clockhands.inspection.reading.capture import capture
from clockhands.models.subject import Subject

from .. import planted
from ..planted import LENGTH, answer
from ..tiny import draw_ids, own


def test_the_permuted_control_is_that_of_the_last_layer() -> None:
    subject, recorded = planted.subject_of(planted.uniform("encoder", "sinusoidal"))
    recorded.hidden[0] = torch.zeros_like(recorded.hidden[0])
    states, splits = recorded.hidden[-1][:, recorded.measured_T].float(), _draw_splits(recorded)
    expected = float(_probe_positions(states[: splits.num_texts], splits, permuted=True).mean())
    embedding = float(_probe_positions(torch.zeros_like(states[: splits.num_texts]), splits, permuted=True).mean())
    assert probe_layers(subject, recorded).permuted_share == expected != embedding


def test_the_probe_is_fitted_on_as_many_texts_whatever_is_read() -> None:
    model = planted.uniform("encoder", "sinusoidal")
    values = [probe_layers(*planted.subject_of(model, texts)).position_shares for texts in (48, 96)]
    assert values[0] == pytest.approx(values[1])


@cache
def _find_sinusoid() -> Finding:
    return answer("survival", *planted.subject_of(planted.uniform("encoder", "sinusoidal")))


def test_whether_positions_can_be_read_behind_the_last_layer() -> None:
    kept = _find_sinusoid()
    assert "After the last layer positions are still read back more often than by chance." in kept.verdict
    lost = answer("survival", *planted.subject_of(planted.uniform()))
    assert "Whether any position can be read back after the last layer is undecided." in lost.verdict
    assert lost.interval is not None and lost.interval[0] <= 1 / (LENGTH - 1)
    names = [reference.name for reference in kept.references]
    assert names == ["chance", "positions permuted"]


def test_a_network_reads_positions_that_only_the_length_of_a_state_holds() -> None:
    """The mean of more and more tokens is shorter and shorter, under a causal mask; without one it is the same."""
    causal = answer("survival", *planted.subject_of(planted.uniform("decoder", keeps=False), 48))
    alike = answer("survival", *planted.subject_of(planted.alone("decoder"), 48))
    said = "also given the length of each state less the mean, predicts the position with R² "
    told = [float(found.verdict.split(said)[1].split()[0].rstrip(".")) for found in (causal, alike)]
    assert told[0] > 0.05 and told[1] == 0.0
    assert "network" not in _find_sinusoid().verdict


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
    verdict = (answer("survival", *planted.subject_of(model)) if kept else _find_sinusoid()).verdict
    _, _, cut = verdict.partition("With the residual connections removed, ")
    assert ("of positions are read back after the last layer." in cut) == kept
    assert ("it is undecided whether any position can be read back after the last layer" in cut) == (not kept)


def test_the_interval_is_that_of_the_last_layer() -> None:
    subject = Subject.of(own("sinusoidal"))
    recorded = capture(subject.model, subject.forward, draw_ids(24, 16))
    intervals = probe_layers(subject, recorded).position_intervals
    assert answer("survival", subject, recorded).interval == intervals[-1] != intervals[1]


TEXTS, TOKENS, WIDTH = 8, 16, 4


def _draw(texts: float, positions: float, seed: int) -> torch.Tensor:
    """Draw noise with an effect of the text and one of the position, of these standard deviations."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(TEXTS, TOKENS, WIDTH, generator=generator)
    text = texts * torch.randn(TEXTS, 1, WIDTH, generator=generator)
    return noise + text + positions * torch.randn(1, TOKENS, WIDTH, generator=generator)


@pytest.mark.parametrize(("texts", "positions", "share"), [(0.0, 0.0, 0.0), (3.0, 0.0, 0.0), (3.0, 3.0, 9 / 19)])
def test_texts_with_means_of_their_own_are_no_position(texts: float, positions: float, share: float) -> None:
    """A one-way analysis put what the texts have of their own into the noise: −0.12 on average with texts of 3."""
    shares = torch.tensor([estimate_position_share(_draw(texts, positions, seed))[0] for seed in range(200)])
    error = float(shares.std()) / len(shares) ** 0.5
    assert float(shares.mean()) == pytest.approx(share, abs=0.05 if share else 4 * error)
    assert share or error < 0.002


def test_the_same_states_at_every_text_are_all_position() -> None:
    states = torch.randn(1, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0)).expand(TEXTS, -1, -1)
    assert estimate_position_share(states)[0] == pytest.approx(1.0)
    assert estimate_position_share(states)[1] == pytest.approx((1.0, 1.0))


def test_two_texts_have_no_interval_and_three_have_one() -> None:
    assert estimate_position_share(_draw(0.0, 1.0, 0)[:2])[1] is None
    low, high = estimate_position_share(_draw(0.0, 1.0, 0)[:3])[1] or (0.0, 0.0)
    assert low < estimate_position_share(_draw(0.0, 1.0, 0)[:3])[0] < high


def test_the_interval_is_the_jackknife_by_hand() -> None:
    states = _draw(2.0, 1.0, 3)
    without = torch.tensor([estimate_position_share(torch.cat([states[:n], states[n + 1 :]]))[0] for n in range(TEXTS)])
    error = float(((TEXTS - 1) / TEXTS * (without - without.mean()).square().sum()).sqrt())
    low, high = estimate_position_share(states)[1] or (0.0, 0.0)
    assert (high - low) / 2 == pytest.approx(2.3646 * error, rel=1e-3), "t with 7 degrees of freedom"


def test_how_much_of_the_state_is_position() -> None:
    heard = answer("survival.share", *planted.subject_of(planted.uniform("encoder", "sinusoidal")))
    deaf = answer("survival.share", *planted.subject_of(planted.uniform()))
    assert "95 % interval" in heard.verdict and "undecided" not in heard.verdict
    assert deaf.verdict.endswith("Whether it accounts for any after the last layer is undecided.")
    assert heard.value > 0.1 and abs(deaf.value) < 0.02  # type: ignore[operator, arg-type]


def test_the_layer_with_most_position_is_named() -> None:
    assert _describe_share([0.1, 0.3, 0.05], (0.02, 0.08), [0.2, 0.04]) == (
        "Position accounts for 10 % of the variance of the states after the embedding and for 5.0 % after the last "
        "layer (95 % interval 2.0 % to 8.0 %; untrained 20 % and 4.0 %); the largest share is 30 %, after layer 1."
    )
    assert "the largest share is 40 %, after the embedding." in _describe_share([0.4, 0.3], None, None)
