"""Induction is named where it was planted, with the head that it needs, and nowhere else."""

from __future__ import annotations

import torch

from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.induction import InductionTexts, draw_texts

from .. import planted, planted_gpt2
from ..planted_gpt2 import draw, make


def test_a_hand_built_induction_head_is_named_with_the_previous_token_head() -> None:
    reading = planted_gpt2.read(make(("previous", "uniform"), ("uniform", "induction")), draw())
    found = MEASURES["heads.induction"].run(reading)
    assert found.value == 1.0
    assert found.verdict.startswith("One head looks at what followed the same token before: layer 2 head 2 (")
    assert "these look at the previous token, which induction needs: layer 1 head 1." in found.verdict
    scores = {row[:2]: row[2:4] for row in found.table.rows}
    assert scores[2, 2][0] > 0.5 > 0.1 > scores[2, 2][1]


def test_without_the_previous_token_there_is_no_induction() -> None:
    """The second layer is the same: it finds no token that knows what stands before it."""
    for first in ("uniform", "first position"):
        reading = planted_gpt2.read(make((first, "uniform"), ("uniform", "induction")), draw())  # type: ignore[arg-type]
        found = MEASURES["heads.induction"].run(reading)
        assert found.value == 0.0 and found.verdict.startswith("No head was found that looks at what followed the same")


def test_heads_that_go_by_position_do_no_induction() -> None:
    found = MEASURES["heads.induction"].run(planted_gpt2.read(make(("previous", "first position")), draw()))
    assert found.value == 0.0


def test_an_encoder_is_left_out() -> None:
    subject, recorded = planted.subject_of(planted.bert())
    reading = planted_gpt2.read(subject.model, recorded.ids_NT)
    assert MEASURES["heads.induction"].run(reading).light == "skip"


def test_no_token_of_the_control_stands_before_a_target() -> None:
    reading = planted_gpt2.read(make(("uniform", "uniform")), draw(texts=8))
    texts = draw_texts(reading.capture)
    assert isinstance(texts, InductionTexts)
    asked, before = (
        ids.gather(1, at) for ids, at in ((texts.ids_NT, texts.queries_Nn), (texts.ids_NT, texts.targets_Nn - 1))
    )
    assert torch.equal(asked, before)
    assert not bool((texts.control_NT.gather(1, texts.targets_Nn - 1) == asked).any())
    assert torch.equal(texts.control_NT.gather(1, texts.queries_Nn), asked)
