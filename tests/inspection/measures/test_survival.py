"""What probes read back after every layer, and what they are compared with."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.inspection.measures.survival import draw_splits, probe_layers, probe_positions

from .. import planted
from ..planted import LENGTH, answer


def test_the_permuted_control_is_that_of_the_last_layer() -> None:
    """Beside what is read after the last layer stood the control of the embedding."""
    subject, recorded = planted.subject_of(planted.uniform("encoder", "sinusoidal"))
    recorded.hidden[0] = torch.zeros_like(recorded.hidden[0])
    states, splits = recorded.hidden[-1][:, recorded.measured_T].float(), draw_splits(recorded)
    expected = float(probe_positions(states[: splits.num_texts], splits, permuted=True).mean())
    embedding = float(probe_positions(torch.zeros_like(states[: splits.num_texts]), splits, permuted=True).mean())
    assert probe_layers(subject, recorded).permuted_share == expected != embedding


def test_the_probe_is_fitted_on_as_many_texts_whatever_is_read() -> None:
    """The same run gave 74 % where 48 texts were read and 87 % where 96 were."""
    model = planted.uniform("encoder", "sinusoidal")
    values = [probe_layers(*planted.subject_of(model, texts)).position_shares for texts in (48, 96)]
    assert values[0] == pytest.approx(values[1])


def test_whether_positions_can_be_read_behind_the_last_layer() -> None:
    kept = answer("survival", *planted.subject_of(planted.uniform("encoder", "sinusoidal")))
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
    heard = answer("survival", *planted.subject_of(planted.uniform("encoder", "sinusoidal")))
    assert "network" not in heard.verdict


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
    _, _, cut = answer("survival", *planted.subject_of(model)).verdict.partition(
        "With the residual connections removed, "
    )
    assert ("of positions are read back after the last layer." in cut) == kept
    assert ("it is undecided whether any position can be read back after the last layer" in cut) == (not kept)
