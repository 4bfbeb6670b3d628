"""What is recorded of models that do not run in a page is what their own code computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from clockhands.errors import UsageError
from clockhands.exploring.model_data import ExplorerModel
from clockhands.exploring.page import make_page
from clockhands.exploring.recorded import record_model
from clockhands.inspection import Subject
from tests.inspection.tiny import tiny
from tests.inspection.words import make_tokenizer

TEXT = "Tom bit a dog"


def record(name: str, *texts: str) -> tuple[Any, ExplorerModel]:
    model = tiny(name)
    return model, record_model(Subject.of(model, make_tokenizer()), name, name, texts, "Why not.")


def test_a_learned_table_and_the_attention_of_a_sentence_are_the_models(tmp_path: Any) -> None:
    model, recorded = record("gpt2", TEXT)
    assert not recorded.is_live and recorded.data["scheme"]["name"] == "learned"
    assert np.allclose(recorded.read_array("table"), model.wpe.weight.detach(), atol=1e-2)
    ids = torch.tensor([[token["id"] for token in recorded.data["sentences"][0]["tokens"]]])
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = torch.stack(model(ids, output_attentions=True).attentions)[:, 0]
    assert np.allclose(recorded.read_array("sentence.0"), weights, atol=1e-3)
    page = make_page([recorded], "clockhands explore x")
    told = page[: page.index('<script type="application/json"')]
    assert "Why not." in told and "a learned vector per position is added" in told.lower() and TEXT in told


def test_rotation_has_its_frequencies_and_their_base() -> None:
    model, recorded = record("llama")
    scheme = recorded.data["scheme"]
    width = model.config.hidden_size // model.config.num_attention_heads
    assert scheme["name"] == "rope" and scheme["options"]["base"] == pytest.approx(10_000, rel=1e-3)
    assert scheme["frequencies"] == pytest.approx([10_000 ** (-2 * pair / width) for pair in range(width // 2)])
    assert "base" not in record("llama-yarn")[1].data["scheme"]["options"]


def test_computed_sinusoids_are_hands() -> None:
    model, recorded = record("marian")
    scheme, half = recorded.data["scheme"], model.config.d_model // 2
    assert (scheme["name"], scheme["options"]["layout"]) == ("sinusoidal", "half")
    assert scheme["frequencies"] == pytest.approx([10_000 ** (-pair / half) for pair in range(half)], rel=1e-3)


@pytest.mark.parametrize("name", ["bloom", "t5"])
def test_a_bias_is_what_the_model_adds_by_distance(name: str) -> None:
    model, recorded = record(name, TEXT)
    kernels = recorded.read_array("kernels")
    reach = (kernels.shape[-1] - 1) // 2
    heads, distances = kernels.shape[1], np.arange(-reach, reach + 1)
    if name == "bloom":
        slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
        expected = -slopes[:, None] * np.where(distances > 0, distances, 0)  # keys after the query are masked
    else:
        attention = model.encoder.block[0].layer[0].SelfAttention
        bias_HST = attention.compute_bias(reach + 1, reach + 1)[0].detach().numpy()
        expected = np.stack([bias_HST[:, max(d, 0), max(-d, 0)] - bias_HST[:, 0, 0] for d in distances], axis=1)
    assert recorded.data["scheme"]["name"] == "bias"
    assert np.allclose(kernels, expected, atol=2e-2)


def test_what_cannot_be_shown_is_refused_in_one_sentence() -> None:
    with pytest.raises(UsageError, match=r'nothing to show of .*; give sentences \(--text "\.\.\."\) to record'):
        record("bloom")
    with pytest.raises(UsageError, match=r"--text is empty"):
        record("gpt2", " ")
