"""What probes read back after every layer, and what they are compared with."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.measures.layer_probes import draw_splits, probe_layers, probe_positions

from .. import planted


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
