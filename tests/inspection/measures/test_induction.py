"""Heads of induction are found where they were planted, and what they need is found by removing it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.findings import Finding
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.induction import _draw_halves, _InductionTexts, _remove_heads

from .. import planted, planted_gpt2
from ..planted_gpt2 import Kind, draw, make, make_language_model


def find(*layers: tuple[Kind, ...], output: bool = True) -> Finding:
    """What is found of a GPT-2 with these heads."""
    model = make_language_model(*layers) if output else make(*layers)
    return MEASURES["heads.induction"].run(planted_gpt2.read(model, draw()))


def test_an_induction_head_that_uses_the_previous_token_head_is_told_so() -> None:
    found = find(("previous", "uniform"), ("uniform", "induction"))
    assert found.value == 1.0
    assert found.verdict.startswith("One head looks at what followed the same token before: layer 2 head 2 (")
    assert "these look at the previous token: layer 1 head 1. With that head removed" in found.verdict
    assert "of the same layers removed): they use that head." in found.verdict
    scores, probability = found.details["score"], found.details["probability"]
    assert scores["removed"] < 0.1 < 0.5 < scores["others"] == pytest.approx(scores["whole"], abs=0.01)
    assert probability["removed"] < 0.1 < 0.3 < probability["others"] == pytest.approx(probability["whole"], abs=0.01)
    assert "whether it falls" not in found.verdict
    assert found.figure is not None and len(found.figure.panels) == 2
    rows = {row[:2]: row[2:4] for row in found.table.rows}
    assert rows[2, 2][0] > 0.5 > 0.1 > rows[2, 2][1]


def test_an_induction_head_that_uses_another_head_is_not_said_to_use_the_one_that_was_found() -> None:
    """The head that passes the token on looks back a little too weakly to be named; the one that is named does not."""
    found = find(("weak previous", "previous"), ("uniform", "induction"))
    assert found.value == 1.0 and "the previous token: layer 1 head 2. With that head removed" in found.verdict
    assert "): whether they use that head is undecided." in found.verdict
    assert "whether it falls by more than with others is undecided." in found.verdict
    scores = found.details["score"]
    assert scores["removed"] == pytest.approx(scores["whole"], abs=0.01) and scores["others"] < scores["whole"] / 2


def test_without_other_heads_or_an_output_layer_less_is_said() -> None:
    alone = find(("previous", "previous"), ("uniform", "induction"), output=False)
    assert "it is undecided whether they use these heads." in alone.verdict
    assert "probability" not in alone.verdict and "probability" not in alone.details


def test_the_heads_that_are_removed_are_those_and_no_others() -> None:
    """The output of a head becomes its mean over tokens and texts, by hand from the module's own values."""
    reading = planted_gpt2.read(make(("previous", "uniform"), ("uniform", "induction")), draw(texts=6))
    projection: Any = reading.capture.layers[0].module.c_proj

    def run() -> torch.Tensor:
        """What the projection behind the heads is given."""
        kept: list[torch.Tensor] = []
        with torch.no_grad(), projection.register_forward_pre_hook(lambda module, args: kept.append(args[0])):
            reading.subject.forward(reading.capture.ids_NT)
        return kept[0]

    before = run()
    with _remove_heads(reading, [(0, 1)]):
        removed = run()
    assert torch.equal(before, run())
    half = before.shape[-1] // 2
    assert torch.equal(removed[..., :half], before[..., :half])
    mean = before[..., half:].mean((0, 1)).expand_as(before[..., half:])
    assert torch.allclose(removed[..., half:], mean, atol=1e-6)


def test_heads_whose_outputs_meet_outside_of_their_module_are_not_removed() -> None:
    """The last matrix of BERT's attention makes values; its input has a width that heads divide too."""
    subject, recorded = planted.subject_of(planted.bert())
    reading = planted_gpt2.read(subject.model, recorded.ids_NT)
    with pytest.raises(ValueError, match="BertSelfAttention ends with no projection"), _remove_heads(reading, [(0, 0)]):
        pass


def test_without_the_previous_token_there_is_no_induction() -> None:
    """The second layer is the same: it finds no token that knows what stands before it."""
    for first in ("uniform", "first position"):
        found = find((first, "uniform"), ("uniform", "induction"), output=False)  # type: ignore[arg-type]
        assert found.value == 0.0 and found.verdict.startswith("No head was found that looks at what followed the same")
    assert find(("previous", "first position"), output=False).value == 0.0, "heads that go by position do none"


def test_an_encoder_is_left_out() -> None:
    subject, recorded = planted.subject_of(planted.bert())
    reading = planted_gpt2.read(subject.model, recorded.ids_NT)
    assert MEASURES["heads.induction"].run(reading).light == "skip"


def test_no_token_of_the_control_stands_before_a_target() -> None:
    reading = planted_gpt2.read(make(("uniform", "uniform")), draw(texts=8))
    texts = _draw_halves(reading.capture)
    assert isinstance(texts, _InductionTexts)
    queries = texts.ids_NT.gather(1, texts.queries_Nn)
    assert torch.equal(texts.ids_NT.gather(1, texts.targets_Nn - 1), queries)
    assert not bool((texts.control_NT.gather(1, texts.targets_Nn - 1) == queries).any())
    assert torch.equal(texts.control_NT.gather(1, texts.queries_Nn), queries)
