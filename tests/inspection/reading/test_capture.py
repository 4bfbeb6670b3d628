"""What a capture refuses to record, and texts that repeat each other are noticed in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.bert import modeling_bert

from clockhands.errors import CheckpointError
from clockhands.inspection.reading.capture import _group_repeats, _measure_fixed_share, capture
from clockhands.models.subject import Subject

from .. import planted


def test_the_layer_that_gives_another_number_of_states_is_told() -> None:
    subject, recorded = planted.subject_of(planted.uniform(), 3)
    ids_NT = recorded.ids_NT[:, :20]

    def pool(ids_BT: torch.Tensor) -> tuple[torch.Tensor, ...]:
        states = subject.forward(ids_BT)
        return (*states[:-1], states[-1][:, ::2])

    with pytest.raises(CheckpointError, match="gives 10 states for 20 tokens"):
        capture(subject.model, pool, ids_NT)


@pytest.mark.parametrize("softmax", [True, False])
def test_an_attention_that_is_no_softmax_is_refused_whatever_its_class_is_called(
    softmax: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mix(module: torch.nn.Module, q: Any, k: Any, v: Any, mask: Any, **options: Any) -> Any:
        logits = q @ k.transpose(-1, -2)
        weights = 0.5 * logits.softmax(-1) if softmax else logits.sigmoid()
        return (weights @ v).transpose(1, 2), weights

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", mix)
    subject = Subject.of(planted.bert())
    for layer in subject.model.encoder.layer:
        layer.attention.__class__ = type("Block", (modeling_bert.BertAttention,), {})
        layer.attention.self.__class__ = type("Mixer", (modeling_bert.BertSelfAttention,), {})
    if not softmax:
        with pytest.raises(CheckpointError, match="no attention was seen in BertModel: it has none, or computes it in"):
            capture(subject.model, subject.forward, planted.ids(3))
        return
    recorded, strange = (
        capture(subject.model, subject.forward, planted.ids(3)),
        "Mixer computes its attention in a way ",
    )
    assert recorded.layers == [] and recorded.unread_reason.startswith(f"{strange}that inspect does not understand")


def draw_text(texts: int = 24, length: int = 40, seed: int = 0) -> torch.Tensor:
    return torch.randint(200, (texts, length), generator=torch.Generator().manual_seed(seed))


def test_copies_with_some_changed_tokens_are_one_group() -> None:
    ids = draw_text()
    ids[5] = ids[2]
    ids[5, ::13] = 199  # four tokens of forty
    ids[9] = ids[2].roll(7)  # the same text, cut at another place
    found = _group_repeats(ids)
    assert found[2] == found[5] == found[9]
    assert len(found.unique()) == 22


def test_half_of_a_text_is_the_border() -> None:
    ids = draw_text(8)
    ids[1, :30] = ids[0, :30]
    ids[3, :12] = ids[2, :12]
    assert _group_repeats(ids).tolist() == [0, 0, 2, 3, 4, 5, 6, 7]


def test_what_is_fixed_is_counted_against_other_places() -> None:
    """One token that is everywhere is fixed by no place; one text many times is fixed whole."""
    assert _measure_fixed_share(torch.full((6, 10), 3)) == 0.0
    assert _measure_fixed_share(torch.arange(10).expand(6, -1)) == pytest.approx(1.0)
