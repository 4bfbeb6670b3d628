"""Models that fill in masked tokens: what is scored, and tables that are made longer as those of other models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

from clockhands.errors import UsageError
from clockhands.extension import Tuning, apply, list_methods, tune, write_extended
from clockhands.extension.drift import measure_losses
from clockhands.extension.facts import PLAIN, Writing
from clockhands.extension.masked import APART, mask_tail
from clockhands.extension.measure import measure
from clockhands.extension.tables import stretch_table
from clockhands.models import LanguageModel, open_language_model
from tests.runs.tiny import LENGTH, make_masking_tokenizer, save_own_model

LONG = 3 * LENGTH
MODELS = {"bert": (BertConfig, BertForMaskedLM, 0), "roberta": (RobertaConfig, RobertaForMaskedLM, 2)}
"""Configuration and class of transformers, and the rows before that of the first token."""


def make_model(kind: str, rows: int) -> Any:
    config, model, before = MODELS[kind]
    torch.manual_seed(0)
    return model(
        config(
            vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
            max_position_embeddings=rows + before, pad_token_id=1, initializer_range=0.2,
        )
    ).eval()  # fmt: skip


def open_masked(folder: Path, kind: str = "bert") -> LanguageModel:
    make_model(kind, LENGTH).save_pretrained(folder)
    make_masking_tokenizer(model_max_length=LENGTH).save_pretrained(folder)
    return open_language_model(folder, masked=True)


def make_ids(count: int, length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(6, 99, (count, length))


def test_the_loss_is_that_of_the_masked_tokens_of_the_tail(tmp_path: Path) -> None:
    model = open_masked(tmp_path)
    assert (model.mask_id, model.start_ids, model.end_ids) == (4, (2,), (3,))
    ids_NS, tail = make_ids(9, 20), 16
    places = [[(text + APART * k) % 15 for k in range(2)] for text in range(9)]
    expected = []
    for ids_S, own in zip(ids_NS, places, strict=True):
        seen_S = torch.tensor([*ids_S[:-1], 3])
        where = [4 + place for place in own]
        seen_S[where] = 4
        with torch.inference_mode():
            logits_SV = model.model(input_ids=seen_S[None]).logits[0]
        expected.append(float(F.cross_entropy(logits_SV[where], torch.from_numpy(ids_S[where]))))
    np.testing.assert_allclose(measure_losses(model, ids_NS, tail), expected, rtol=1e-5)
    longer_NS = np.concatenate([make_ids(9, 7), ids_NS], axis=1)
    np.testing.assert_array_equal(mask_tail(model, longer_NS, tail)[0][:, 7:], mask_tail(model, ids_NS, tail)[0])


@pytest.mark.parametrize("kind", list(MODELS))
def test_a_longer_table_is_that_of_a_longer_model_of_transformers(kind: str, tmp_path: Path) -> None:
    model, before = open_masked(tmp_path / "model", kind), MODELS[kind][2]
    assert (model.trained_length, model.max_length) == (LENGTH, LENGTH)
    short_BS, long_BS = (torch.from_numpy(make_ids(2, length)) for length in (LENGTH, LONG))
    own = model.compute_logits(short_BS)
    state = model.model.state_dict()
    (key,) = [key for key in state if key.endswith("position_embeddings.weight")]
    methods = list_methods(model, LENGTH, LONG)
    assert [method.name for method in methods] == ["none", "interpolated", "tiled", "held", "extrapolated"]
    for method in methods[1:]:
        longer = make_model(kind, LONG)
        rows_PD = torch.cat([state[key][:before], stretch_table(state[key][before:], LONG, method.table)])
        longer.load_state_dict({**state, key: rows_PD})
        with apply(model, method) as extended, torch.inference_mode():
            torch.testing.assert_close(extended.compute_logits(long_BS), longer(input_ids=long_BS).logits)
            same = torch.allclose(extended.compute_logits(short_BS), own, atol=1e-5)
        assert same == method.spares_short_texts, method.name
    assert torch.equal(model.compute_logits(short_BS), own)
    with pytest.raises(UsageError, match="a table of 32 positions"):
        model.compute_logits(long_BS)
    assert write_extended(model, methods[1], LONG, tmp_path / "longer") < 1e-5
    written = open_language_model(tmp_path / "longer", masked=True)
    assert written.max_length == written.trained_length == written.tokenizer.model_max_length == LONG
    with torch.inference_mode():
        plain = AutoModelForMaskedLM.from_pretrained(tmp_path / "longer")(input_ids=long_BS).logits
    torch.testing.assert_close(plain, written.compute_logits(long_BS))


def test_a_masked_model_of_ours_is_made_longer_too(tmp_path: Path) -> None:
    table = {"scheme": "learned", "options": {"max_length": LENGTH, "std": 1.0}}
    model = open_language_model(save_own_model(tmp_path / "ours", table, side="encoder"), masked=True)
    long_BS = torch.from_numpy(make_ids(2, LONG))
    method = list_methods(model, LENGTH, LONG)[1]
    with apply(model, method) as extended:
        long = extended.compute_logits(long_BS)
    assert write_extended(model, method, LONG, tmp_path / "longer") < 1e-5
    written = open_language_model(tmp_path / "longer", masked=True)
    torch.testing.assert_close(written.compute_logits(long_BS), long)
    turned = open_language_model(save_own_model(tmp_path / "turned", "rope", side="encoder"), masked=True)
    names = [method.name for method in list_methods(turned, LENGTH, LONG)]
    assert "yarn" in names and "self-extend" not in names, (
        "it counts distances backward, and this model reads both ways"
    )


def test_a_fact_is_asked_for_by_a_mask_in_the_place_of_its_value(tmp_path: Path) -> None:
    model = open_masked(tmp_path)
    writing = Writing.of(model, PLAIN)
    assert writing.ask(9) == [9, 4, 3] and writing.state(9, 8)[:2] == [9, 8]
    measured = measure(model, np.resize(make_ids(1, 500), 4000), (16, 32, 64), LENGTH, texts=8, items=10)
    assert (
        np.isnan(measured.drift.losses_NR[:, 2]).all() and not np.isnan(measured.retrieval.ranks["recall"][:, 1]).any()
    )
    assert not measured.usable.learned


def test_training_lowers_the_loss_of_masked_tokens(tmp_path: Path) -> None:
    model = open_masked(tmp_path)
    stream = np.resize(np.arange(10, 20), 600)
    method = list_methods(model, LENGTH, LONG)[1]
    with apply(model, method) as extended:
        losses = tune(extended, stream, Tuning(30, learning_rate=3e-3), LENGTH, LONG)
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.5
