"""The texts of a choice: more of short ones, for the cost of the long ones for which the numbers are meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

from clockhands.errors import DataError, UsageError
from clockhands.extension import Tuning, apply, encode_text, list_methods, tune, write_extended
from clockhands.extension.choose import Setting, choose_judged_tail, judge
from clockhands.extension.measure import measure
from clockhands.extension.methods import Method, stretch_table
from clockhands.extension.reading import (
    APART,
    can_read,
    cut_texts,
    mask_tail,
    measure_drift,
    measure_losses,
    multiply_texts,
)
from clockhands.extension.retrieval import PLAIN, Writing
from clockhands.models import LanguageModel, open_language_model
from tests.extension.planted import make_planted, make_stream
from tests.runs.tiny import LENGTH, make_masking_tokenizer, save_model, save_own_model


def make_sized(parameters: int) -> LanguageModel:
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.empty(parameters, device="meta"))
    return LanguageModel("planted", module, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameters", "times"), [(10_000_000, [8, 8, 4, 2, 1, 1]), (300_000, [8, 8, 8, 8, 4, 1]), (7_000_000_000, [1] * 6)]
)
def test_shorter_texts_and_smaller_models_are_read_so_much_oftener(parameters: int, times: list[int]) -> None:
    model = make_sized(parameters)
    assert [multiply_texts(model, longest) for longest in (64, 256, 500, 1024, 2048, 9999)] == times


def test_half_the_trained_length_is_scored_where_the_text_has_room() -> None:
    assert [choose_judged_tail(trained) for trained in (6, 64, 512, 4096)] == [4, 32, 256, 256]
    assert choose_judged_tail(4096, 30) == 30 and choose_judged_tail(4096, -5) == 4


def test_the_judgement_reads_as_many_more_texts_and_asks_as_much_more() -> None:
    model, stream = make_planted(), make_stream(30_000, 0)
    for longest, texts, questions in ((256, 8 * 8, 8 * 10), (2048, 4 * 8, 4 * 10)):
        setting = Setting(model, stream, (longest // 2, longest), 16, 10, ("recall",))
        judged, _ = judge(setting, [Method("none", ""), Method("same", "")])
        assert judged.drift.losses_NR.shape == (texts, 2)
        assert judged.retrieval is not None and judged.retrieval.questions["recall"] == questions


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
    assert write_extended(model, methods[1], LENGTH, LONG, tmp_path / "longer").error < 1e-5
    written = open_language_model(tmp_path / "longer", masked=True)
    assert written.max_length == written.trained_length == written.tokenizer.model_max_length == LONG
    with torch.inference_mode():
        plain = AutoModelForMaskedLM.from_pretrained(tmp_path / "longer")(input_ids=long_BS).logits
    torch.testing.assert_close(plain, written.compute_logits(long_BS))


def test_a_masked_model_is_given_no_method_that_counts_distances_backward(tmp_path: Path) -> None:
    model = open_language_model(save_own_model(tmp_path, "rope", side="encoder"), masked=True)
    names = [method.name for method in list_methods(model, LENGTH, LONG)]
    assert "yarn" in names and "self-extend" not in names, "this model reads both ways"


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
