"""Our attention in a model of transformers computes what the model did, and its methods what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, SmolLM3Config

from clockhands.extension.choose import Judged, list_able
from clockhands.extension.methods import (
    Method,
    apply,
    can_write,
    explain_left_out,
    find_refusal,
    lay_scheme,
    list_attention_methods,
    list_methods,
)
from clockhands.extension.retrieval import can_branch
from clockhands.models import open_language_model
from tests.extension.test_choose import make_judged
from tests.runs.tiny import LENGTH, make_tokenizer, save_model, save_own_model

BASE, LONG = 10_000.0, 4 * LENGTH
METHODS = {method.name: method for method in list_attention_methods(BASE, LENGTH, LONG)}


def make_ids(length: int) -> torch.Tensor:
    return torch.randint(3, 99, (2, length), generator=torch.Generator().manual_seed(0))


def lay(model: object, **scheme: object) -> torch.Tensor:
    with lay_scheme(model, Method("m", "", scheme=scheme)) as laid:  # type: ignore[arg-type]
        return laid.compute_logits(make_ids(LONG))


def test_what_leaves_everything_as_it_is_changes_no_logit(tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path, "llama", num_key_value_heads=1))
    assert find_refusal(model, 16, BASE) == ""
    before = model.compute_logits(make_ids(LONG))
    for scheme in (
        {"scheme": "rope"}, {"scheme": "rerope", "window": LONG}, {"scheme": "rerope", "window": 8, "factor": 1.0},
        {"scheme": "self-extend", "window": 8, "group": 1}, {"scheme": "dual-chunk", "original_length": 2 * LONG},
    ):  # fmt: skip
        torch.testing.assert_close(lay(model, **scheme), before, atol=1e-4, rtol=1e-3)
    assert torch.equal(model.compute_logits(make_ids(LONG)), before), "nothing stays"


@pytest.mark.parametrize("values", [True, False])
def test_a_run_whose_values_turn_keeps_its_attention_and_takes_other_frequencies(values: bool, tmp_path: Path) -> None:
    model = open_language_model(save_own_model(tmp_path, {"scheme": "rope", "values": values}))
    assert find_refusal(model, 16, BASE).startswith("its values rotate with the keys (values = true)") is values
    methods = {method.name: method for method in list_methods(model, LENGTH, LONG)}
    assert bool(set(METHODS) & set(methods)) is not values
    with apply(model, methods["yarn"]) as laid:
        assert laid.model.transformer.decoder.schemes[0].rotates_values is values


def test_without_a_rotation_is_with_frequencies_of_zero(tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path, "llama"))
    found = lay(model, **METHODS["dropped"].scheme)
    model.model.model.rotary_emb.inv_freq.zero_()
    torch.testing.assert_close(found, model.compute_logits(make_ids(LONG)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_long_texts_change_and_a_cache_is_read_on_from(name: str, tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path, "llama"))
    long, short = make_ids(LONG), make_ids(LENGTH // 4)
    before = model.compute_logits(long), model.compute_logits(short)
    with apply(model, METHODS[name]) as laid:
        assert (laid.compute_logits(long) - before[0]).abs().max() > 1e-3
        same = torch.allclose(laid.compute_logits(short), before[1], atol=1e-5)
        assert can_branch(laid)
    assert same == (name != "dropped"), "shorter than any window"


def test_a_model_whose_layers_differ_is_not_given_them(tmp_path: Path) -> None:
    """SmolLM3 leaves every fourth layer without rotation, and ours would turn it."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 2}
    config = SmolLM3Config(
        vocab_size=100, num_key_value_heads=2, max_position_embeddings=LENGTH, initializer_range=0.2, pad_token_id=0,
        **sizes,
    )  # fmt: skip
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    model = open_language_model(tmp_path)
    assert "its logits differ by" in find_refusal(model, 16, model.model.config.rope_parameters["rope_theta"])
    methods = list_methods(model, LENGTH, LONG)
    assert not set(METHODS) & {method.name for method in methods}
    assert "its logits differ by" in explain_left_out(model, methods)
    plain = open_language_model(save_model(tmp_path / "llama", "llama"))
    assert explain_left_out(plain, list_methods(plain, LENGTH, LONG)) == ""


def test_what_plain_transformers_cannot_open_is_judged_and_not_chosen(tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path, "llama"))
    assert {method.name for method in list_methods(model, LENGTH, LONG) if not can_write(model, method)} == set(METHODS)
    plain, best = make_judged("none", 3.0, 0.0), make_judged("rerope", 2.0, 0.0)
    unwritten = Judged(best.method, best.drift, None, best.cost, best.short_loss, writable=False)
    assert list_able([plain, unwritten]) == [plain] and list_able([plain, best])[0] is best
    assert np.isfinite(unwritten.long_loss)
