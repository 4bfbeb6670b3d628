"""What each token sees is told by changing one token, of models that see all, some, those before, or none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.inspection.reading.reading import _find_influence
from clockhands.models.subject import Subject
from tests.inspection import planted


@pytest.mark.parametrize(
    ("make", "sentence", "causal"),
    [
        (planted.uniform, "every token sees all others", False),
        (lambda: planted.uniform("decoder"), "each token sees those before it", True),
        (planted.alone, "no token sees another one", False),
        (lambda: planted.alone("decoder"), "no token sees another one", False),
        (planted.copying, "each token sees some of those before it", True),
    ],
)
def test_what_tokens_see(make: Any, sentence: str, causal: bool) -> None:
    subject = Subject.of(make())
    found = _find_influence(subject.forward, planted.ids(8))
    assert (found.sentence, found.causal) == (sentence, causal)


@pytest.mark.parametrize("token", [7, 0])
def test_in_a_text_of_one_token_another_id_takes_its_place(token: int) -> None:
    ids = torch.full((4, 8), token)
    for make, sentence in ((planted.uniform, "every token sees all others"), (planted.alone, "no token sees another")):
        assert _find_influence(Subject.of(make()).forward, ids).sentence.startswith(sentence)
