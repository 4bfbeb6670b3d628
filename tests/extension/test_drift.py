"""The same tokens are scored at every length, and their loss is that of a plain pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clockhands.errors import DataError, UsageError
from clockhands.extension import encode_text
from clockhands.extension.drift import can_read, measure_drift
from clockhands.extension.text import cut_texts
from clockhands.models import open_language_model
from tests.runs.tiny import save_model


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("start", [False, True])
def test_the_loss_is_that_of_the_last_tokens_after_less_and_more_text(kind: str, start: bool, tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path, kind, start=start))
    stream = np.random.default_rng(0).integers(3, 99, 700)
    drift = measure_drift(model, stream, (12, 32, 64), tail=5, texts=9)
    whole_NS = torch.from_numpy(cut_texts(stream, 64, 5, 9, model.start_ids))
    short_NS = torch.cat([whole_NS[:, : len(model.start_ids)], whole_NS[:, 64 - 12 + len(model.start_ids) :]], 1)
    with torch.inference_mode():
        logits_NSV = model.model(input_ids=short_NS).logits[:, -6:-1]
    expected_N = F.cross_entropy(logits_NSV.transpose(1, 2), short_NS[:, -5:], reduction="none").mean(1)
    np.testing.assert_allclose(drift.losses_NR[:, 0], expected_N, rtol=1e-5)
    assert np.isnan(drift.losses_NR[:, 2]).all() == (kind == "gpt2"), "a table of 32 rows ends before 64 tokens"
    assert can_read(model, 32)


def test_no_two_texts_share_a_tail() -> None:
    texts_NS = cut_texts(np.arange(1000), 100, 30, 50, (7,))
    assert len(texts_NS) == 31 and (texts_NS[:, 0] == 7).all()
    tails = texts_NS[:, -30:].ravel()
    assert len(set(tails.tolist())) == len(tails)
    with pytest.raises(UsageError, match="too few for 8 texts of 900"):
        cut_texts(np.arange(1000), 900, 30, 50, ())


def test_a_text_that_the_tokenizer_does_not_know_is_refused(tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path, "llama"))
    with pytest.raises(DataError, match=r"are tokens that the tokenizer of .* does not know"):
        encode_text(model, ["Это не ASCII." * 10])
