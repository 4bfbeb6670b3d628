"""Questions that go on from the cache of their text get the logits of the whole text, of every kind of model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from clockhands.extension.retrieval import ask, can_branch
from clockhands.model.huggingface_base import CACHE_NAME
from clockhands.models import LanguageModel, open_language_model
from tests.extension.planted import make_planted
from tests.runs.tiny import save_model, save_own_model


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mpt"])
def test_a_text_that_is_read_once_answers_as_one_that_is_read_for_each_question(kind: str, tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path, kind))
    rng = np.random.default_rng(0)
    context_NC, asked_NKQ = rng.integers(3, 99, (3, 20)), rng.integers(3, 99, (3, 4, 2))
    assert can_branch(model)
    found = ask(model, context_NC, asked_NKQ, branching=True)
    torch.testing.assert_close(found, ask(model, context_NC, asked_NKQ, branching=False), atol=1e-5, rtol=1e-4)
    whole = torch.from_numpy(np.concatenate([context_NC[1], asked_NKQ[1, 2]]))[None]
    torch.testing.assert_close(found[1, 2], model.compute_logits(whole)[0, -1], atol=1e-5, rtol=1e-4)


def test_a_model_that_forgets_its_cache_is_read_anew(tmp_path: Path) -> None:
    assert not can_branch(make_planted()), "it takes no cache"
    model = open_language_model(save_model(tmp_path, "llama"))

    class Forgetful(type(model.model)):  # type: ignore[misc]
        def forward(self, **named):  # type: ignore[no-untyped-def]
            return super().forward(**{name: value for name, value in named.items() if name != CACHE_NAME})

    model.model.__class__ = Forgetful
    assert not can_branch(LanguageModel("x", model.model, model.tokenizer))


def test_a_model_of_ours_whose_keys_grow_stale_is_read_whole(tmp_path: Path) -> None:
    """A base that grows with the text turns cached keys otherwise than the text with its question would."""
    table = {"scheme": "rope", "options": {"spectrum": "dynamic", "factor": 4.0, "original_length": 16}}
    model = open_language_model(save_own_model(tmp_path, table))
    rng = np.random.default_rng(0)
    context_NC, asked_NKQ = rng.integers(3, 99, (2, 40)), rng.integers(3, 99, (2, 2, 2))
    found = ask(model, context_NC, asked_NKQ, branching=True)
    torch.testing.assert_close(found, ask(model, context_NC, asked_NKQ, branching=False), atol=1e-5, rtol=1e-4)
