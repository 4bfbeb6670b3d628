"""A method laid over a model computes what transformers computes with that configuration, and leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, GPTNeoXConfig, Phi3Config, PhiConfig, PreTrainedConfig, SmolLM3Config

from clockhands.errors import UsageError
from clockhands.extension import apply, list_methods, write_extended
from clockhands.extension.choose import Judged, list_able
from clockhands.extension.methods import (
    STRETCHES,
    Method,
    can_write,
    explain_left_out,
    find_refusal,
    lay_scheme,
    list_attention_methods,
    stretch_table,
)
from clockhands.extension.retrieval import can_branch
from clockhands.models import LanguageModel, open_language_model
from tests.extension.test_choose import make_judged
from tests.runs.tiny import LENGTH, make_tokenizer, save_model, save_own_model

LONG = 4 * LENGTH


def make_ids(length: int) -> torch.Tensor:
    return torch.randint(3, 99, (2, length), generator=torch.Generator().manual_seed(0))


def test_every_rule_is_transformers_own(tmp_path: Path) -> None:
    folder = save_model(tmp_path, "llama")
    model = open_language_model(folder)
    long_BS, short_BS = make_ids(LONG), make_ids(LENGTH - 1)
    before = model.compute_logits(long_BS), model.compute_logits(short_BS)
    methods = list_methods(model, LENGTH, LONG)
    assert [method.name for method in methods][:3] == ["none", "linear", "ntk"] and len(methods) == 17
    for method in methods[1:11]:
        opened = open_language_model(folder, position=method.options)
        with apply(model, method) as extended:
            short = extended.compute_logits(short_BS)
            found = extended.compute_logits(long_BS)
        torch.testing.assert_close(found, opened.compute_logits(long_BS), atol=1e-5, rtol=0)
        assert (found - before[0]).abs().max() > 1e-3, method.name
        spared = bool((short - before[1]).abs().max() < 1e-6)
        assert spared == method.spares_short_texts == ("beyond" in method.name or "dynamic" in method.name)
        if spared:
            torch.testing.assert_close(short, before[1])
    assert torch.equal(model.compute_logits(long_BS), before[0])


WINDOWS = {"scheme": "rope", "layers": [{"scheme": "window", "left": 7}, "none"]}


@pytest.mark.parametrize(("position", "methods"), [("rope", 17), (WINDOWS, 11)])
def test_every_rule_on_a_model_of_ours_is_that_of_its_configuration(
    position: str | dict[str, object], methods: int, tmp_path: Path
) -> None:
    """Where layers differ, no method replaces all of them by one scheme."""
    folder = save_own_model(tmp_path, position)
    model = open_language_model(folder)
    before = model.compute_logits(make_ids(LONG))
    listed = list_methods(model, LENGTH, LONG)
    assert len(listed) == methods
    for method in listed[1:11]:
        with apply(model, method) as extended:
            found = extended.compute_logits(make_ids(LONG))
        opened = open_language_model(folder, position=method.options)
        torch.testing.assert_close(found, opened.compute_logits(make_ids(LONG)))
        assert (found - before).abs().max() > 1e-4, method.name
    assert torch.equal(model.compute_logits(make_ids(LONG)), before)


LEARNED = {"scheme": "learned", "options": {"max_length": LENGTH, "std": 1.0}}
TABLES: dict[str, tuple[Callable[[Path], Path], bool]] = {
    "gpt2": (lambda folder: save_model(folder, "gpt2"), False),
    "ours": (lambda folder: save_own_model(folder, LEARNED), False),
    "ours, masked": (lambda folder: save_own_model(folder, LEARNED, side="encoder"), True),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_learned_table_is_made_longer_and_written(kind: str, tmp_path: Path) -> None:
    save, masked = TABLES[kind]
    model = open_language_model(save(tmp_path / "model"), masked=masked)
    assert model.max_length == LENGTH
    before = model.compute_logits(make_ids(LENGTH))
    for method in list_methods(model, LENGTH, LONG)[1:]:
        with apply(model, method) as extended:
            assert extended.max_length == LONG
            long = extended.compute_logits(make_ids(LONG))
            same = torch.allclose(extended.compute_logits(make_ids(LENGTH)), before, atol=1e-5)
        assert same == method.spares_short_texts == (method.name != "interpolated"), method.name
    assert torch.equal(model.compute_logits(make_ids(LENGTH)), before)
    assert write_extended(model, method, LENGTH, LONG, tmp_path / "longer").error < 1e-5
    written = open_language_model(tmp_path / "longer", masked=masked)
    assert written.max_length == LONG and written.model.config.dtype == torch.float32
    torch.testing.assert_close(written.compute_logits(make_ids(LONG)), long)
    with pytest.raises(UsageError, match="a table of 32 positions"):
        model.compute_logits(make_ids(LONG))


def test_a_model_without_extendable_positions_is_refused(tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path, "mpt"))
    with pytest.raises(UsageError, match="has no positions that can be extended"):
        list_methods(model, LENGTH, LONG)
    assert isinstance(model.model, type(AutoModelForCausalLM.from_config(model.model.config)))


TABLE = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]])


def test_the_ways_on_a_straight_line() -> None:
    assert stretch_table(TABLE, 5, "interpolated")[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert stretch_table(TABLE, 5, "tiled")[:, 0].tolist() == [0, 2, 4, 0, 2]
    assert stretch_table(TABLE, 5, "held")[:, 0].tolist() == [0, 2, 4, 4, 4]
    for name in STRETCHES:
        assert stretch_table(TABLE, 5, name).shape == (5, 2)


def test_a_wave_goes_on_as_it_began() -> None:
    angle_P1 = torch.arange(80.0)[:, None] * torch.tensor([0.9, 0.3, 0.1])
    wave_PD = torch.cat([angle_P1.cos(), angle_P1.sin()], 1)
    continued = stretch_table(wave_PD[:60], 80, "extrapolated")
    torch.testing.assert_close(continued[:60].float(), wave_PD[:60])
    assert (continued[60:] - wave_PD[60:]).abs().max() < 0.1


BASE = 10_000.0
METHODS = {method.name: method for method in list_attention_methods(BASE, LENGTH, LONG)}


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


def open_of(config: type[PreTrainedConfig], folder: Path, layers: int, **changed: Any) -> LanguageModel:
    """Open a tiny model of transformers that was saved with fresh weights."""
    sizes = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": LENGTH, "pad_token_id": 0}
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config(**sizes, initializer_range=0.2, **changed)).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return open_language_model(folder)


@pytest.mark.parametrize("config", [PhiConfig, GPTNeoXConfig])
def test_what_rotates_a_part_of_its_channels_is_not_given_a_rule_for_all(config: Any, tmp_path: Path) -> None:
    """Laid over Phi the rule raised, and over GPT-NeoX it turned other pairs, as the folder that was written did."""
    share = {"rotary_pct" if config is GPTNeoXConfig else "partial_rotary_factor": 0.5}
    model = open_of(config, tmp_path, 1, **share)
    methods = list_methods(model, LENGTH, LONG)
    assert "yarn" in {method.name for method in methods} and "clipped" not in {method.name for method in methods}
    for method in methods:
        with apply(model, method) as extended:
            assert extended.compute_logits(make_ids(LONG)).isfinite().all()
    with pytest.raises(UsageError, match=r"rotate all channels of a head, and this one rotates 0\.5 of them"):
        open_language_model(tmp_path, position={"spectrum": "proportional", "share": 0.5})


def test_a_model_whose_layers_differ_is_not_given_them(tmp_path: Path) -> None:
    """SmolLM3 leaves every fourth layer without rotation, and ours would turn it."""
    model = open_of(SmolLM3Config, tmp_path, 4)
    assert "its logits differ by" in find_refusal(model, 16, model.model.config.rope_parameters["rope_theta"])
    methods = list_methods(model, LENGTH, LONG)
    assert not set(METHODS) & {method.name for method in methods}
    assert "its logits differ by" in explain_left_out(model, methods)
    plain = open_language_model(save_model(tmp_path / "llama", "llama"))
    assert explain_left_out(plain, list_methods(plain, LENGTH, LONG)) == ""
    rounded = open_language_model(tmp_path / "llama", dtype=torch.bfloat16)
    assert find_refusal(rounded, 16, BASE) == "", "what 16 bits round off is no other attention"


def test_what_plain_transformers_cannot_open_is_judged_and_not_chosen(tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path, "llama"))
    assert {method.name for method in list_methods(model, LENGTH, LONG) if not can_write(model, method)} == set(METHODS)
    phi = open_of(Phi3Config, tmp_path / "phi", 1)  # whose class takes LongRoPE alone
    methods = {method.name: method for method in list_methods(phi, LENGTH, LONG)}
    assert [can_write(phi, methods[name]) for name in ("none", "linear", "yarn", "ntk", "ntk-beyond")] == [
        True, False, False, True, True,
    ]  # fmt: skip
    plain, best = make_judged("none", 3.0, 0.0), make_judged("rerope", 2.0, 0.0)
    unwritten = Judged(best.method, best.drift, None, best.cost, best.short_loss, writable=False)
    assert list_able([plain, unwritten]) == [plain] and list_able([plain, best])[0] is best
    assert np.isfinite(unwritten.long_loss)
