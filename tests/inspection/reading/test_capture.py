"""What a capture refuses to record."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.bert.modeling_bert import BertAttention, BertSelfAttention

from clockhands.errors import CheckpointError
from clockhands.inspection.reading.capture import capture
from clockhands.models.subject import Subject

from .. import planted


def test_the_layer_that_gives_another_number_of_states_is_told() -> None:
    """It named the largest number of states, so that a layer with fewer was said to give 20 for 20 tokens."""
    subject, recorded = planted.subject_of(planted.uniform(), 3)
    ids_NT = recorded.ids_NT[:, :20]

    def pool(ids_BT: torch.Tensor) -> tuple[torch.Tensor, ...]:
        states = subject.forward(ids_BT)
        return (*states[:-1], states[-1][:, ::2])

    with pytest.raises(CheckpointError, match="gives 10 states for 20 tokens"):
        capture(subject.model, pool, ids_NT)


def eager_attention_forward(module: torch.nn.Module, q: Any, k: Any, v: Any, mask: Any, **options: Any) -> Any:
    """The attention function of ``Mixer``, found beside its class: its weights are no softmax of its logits."""
    weights = 0.5 * (q @ k.transpose(-1, -2)).softmax(-1)
    return (weights @ v).transpose(1, 2), weights


class Mixer(BertSelfAttention):
    """An attention whose class does not say that it is one."""


class Block(BertAttention):
    """What is around it."""


def test_why_an_attention_is_refused_is_told_whatever_its_class_is_called() -> None:
    """It was said that no attention was seen, where no class had "attention" in its name."""
    subject = Subject.of(planted.bert())
    for layer in subject.model.encoder.layer:
        layer.attention.__class__ = Block
        layer.attention.self.__class__ = Mixer
    recorded = capture(subject.model, subject.forward, planted.ids(3))
    assert recorded.layers == []
    assert recorded.unread_reason.startswith("Mixer computes its attention in a way that inspect does not understand")
