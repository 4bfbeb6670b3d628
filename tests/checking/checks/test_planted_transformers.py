"""Bugs planted in models of transformers: what only generate(), configurations and files can show."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    StaticCache,
    T5ForConditionalGeneration,
)

from clockhands.checking.checks.check import select
from clockhands.checking.models.make_subjects import from_build, from_model
from clockhands.checking.models.tiny import Build, build_model, find, tiny_config
from clockhands.checking.verdict.judge import run_checks
from clockhands.model.huggingface_base import CACHE_NAME, get_cache
from tests.checking.checks import planted

# What the library itself does wrong, with or without a planted bug.
LIBRARY = {"llama": {"packing.gaps", "precision.to"}, "gpt2": {"packing.gaps"}, "phi": {"packing.gaps", "precision.to"}}
LIBRARY["mistral"] = LIBRARY["llama"]


class GenerationOffByOne(GPT2LMHeadModel):
    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **kwargs):  # type: ignore[no-untyped-def]
        inputs = super().prepare_inputs_for_generation(input_ids, attention_mask=attention_mask, **kwargs)
        return {**inputs, "position_ids": inputs["position_ids"] + 1}


class GenerationForgetsPositions(GPT2LMHeadModel):
    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **kwargs):  # type: ignore[no-untyped-def]
        inputs = super().prepare_inputs_for_generation(input_ids, attention_mask=attention_mask, **kwargs)
        return {**inputs, "position_ids": None}


class SecondTurnFromNought(LlamaForCausalLM):
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, **named):  # type: ignore[no-untyped-def]
        cache = named.get(CACHE_NAME)
        if cache is not None and cache.get_seq_length() and input_ids.shape[1] > 1:
            position_ids = torch.arange(input_ids.shape[1])[None]
        return super().forward(input_ids, attention_mask, position_ids, **named)


class StaticStandsStill(LlamaForCausalLM):
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, **named):  # type: ignore[no-untyped-def]
        if isinstance(named.get(CACHE_NAME), StaticCache):
            position_ids = torch.zeros_like(input_ids)
        return super().forward(input_ids, attention_mask, position_ids, **named)


class ThetaOverwritten(LlamaForCausalLM):
    def __init__(self, config: LlamaConfig) -> None:
        plain = copy.deepcopy(config)
        plain.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}
        super().__init__(plain)
        plain.rope_parameters = config.rope_parameters


class PartialFixed(PhiForCausalLM):
    def __init__(self, config: PhiConfig) -> None:
        fixed = copy.deepcopy(config)
        fixed.rope_parameters["partial_rotary_factor"] = 0.5
        super().__init__(fixed)
        fixed.rope_parameters = config.rope_parameters


class EagerLouder(LlamaForCausalLM):
    def forward(self, *given: Any, **named: Any) -> Any:
        output = super().forward(*given, **named)
        if self.config._attn_implementation == "eager":
            output.logits = output.logits * 1.1
        return output


class BufferNotSaved(LlamaForCausalLM):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.register_buffer("gain", torch.rand(config.vocab_size), persistent=False)

    def forward(self, *given: Any, **named: Any) -> Any:
        output = super().forward(*given, **named)
        output.logits = output.logits * self.gain.to(output.logits)
        return output


class RoundedWhileLoading(LlamaForCausalLM):
    @classmethod
    def from_pretrained(cls, *given: Any, **named: Any) -> Any:
        model = super().from_pretrained(*given, **named)
        if named.get("dtype") == torch.bfloat16:
            model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.bfloat16()
        return model


class LostInTheFile(LlamaForCausalLM):
    pass


class EmbeddingsStandAtTheFirst(LlamaForCausalLM):
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, *given, **named):  # type: ignore
        if named.get("inputs_embeds") is not None:
            position_ids = torch.zeros(named["inputs_embeds"].shape[:2], dtype=torch.long)
        return super().forward(input_ids, attention_mask, position_ids, *given, **named)


class ChangedBySaving(LlamaForCausalLM):
    def save_pretrained(self, *given: Any, **named: Any) -> Any:
        super().save_pretrained(*given, **named)
        self.config.rope_parameters = {"rope_type": "default", "rope_theta": 77.0}


class WindowFixed(MistralForCausalLM):
    def __init__(self, config: MistralConfig) -> None:
        fixed = copy.deepcopy(config)
        fixed.sliding_window = 16
        super().__init__(fixed)


class RowsStay(LlamaForCausalLM):
    def forward(self, *given: Any, **named: Any) -> Any:
        output = super().forward(*given, **named)
        if get_cache(output) is not None:
            get_cache(output).reorder_cache = lambda rows: None
        return output


SECOND = {"cache.prefill", "cache.prefix", "cache.rollback_rows"}
PLANTED: dict[type, set[str]] = {
    EmbeddingsStandAtTheFirst: {"inputs.embeds"},
    ChangedBySaving: {"load.config"},
    WindowFixed: {"config.keys"},
    RowsStay: {"cache.reorder", "generate.beam"},
    GenerationOffByOne: {"generate.forward"},
    GenerationForgetsPositions: {"generate.left_padded"},
    SecondTurnFromNought: {"generate.resume", "cache.chunks", "cache.rollback", *SECOND},
    StaticStandsStill: {"cache.static"},
    ThetaOverwritten: {"config.theta", "config.scaling"},
    PartialFixed: {"config.partial"},
    EagerLouder: {"attention.sdpa"},
    BufferNotSaved: {"load.round_trip", "load.config"},
    RoundedWhileLoading: {"precision.load"},
    LostInTheFile: {"config.round_trip", "load.round_trip", "precision.load"},
}


@functools.cache
def registered(model: type) -> type:
    """A configuration class of its own for a planted model, known to the Auto classes."""
    base = model.__mro__[1].config_class  # type: ignore[attr-defined]
    extra: dict[str, Any] = {"model_type": f"planted_{model.__name__.lower()}"}
    if model is LostInTheFile:
        extra["to_diff_dict"] = lambda self: {k: v for k, v in base.to_diff_dict(self).items() if k != _ROPE}
    config = type(f"{model.__name__}Config", (base,), extra)
    model.config_class = config  # type: ignore[attr-defined]
    AutoConfig.register(config.model_type, config)
    AutoModelForCausalLM.register(config, model)
    return config


_ROPE = "rope_parameters"


def failures(model: type) -> set[str]:
    config_class = registered(model)
    base = model.__mro__[1].config_class.__mro__[0]  # type: ignore[attr-defined]
    (build,) = (each for each in find(base.model_type) if each.task == "causal" and not each.variant)
    raw = tiny_config(build).to_dict()
    if model is LostInTheFile:
        raw[_ROPE] = {"rope_type": "default", "rope_theta": 77.0}
    for name in ("model_type", "transformers_version"):
        raw.pop(name)
    config = config_class.from_dict(raw)  # type: ignore[attr-defined]
    (subject,) = from_build(Build(config.model_type, "causal"), config)
    found = {o.check for o in run_checks(subject, select()) if o.verdict == "FAIL"}
    return found - LIBRARY[base.model_type]


@pytest.mark.parametrize("model", PLANTED, ids=lambda model: model.__name__)
def test_one_bug_fails_its_checks_and_no_others(model: type) -> None:
    assert failures(model) == PLANTED[model]


@pytest.mark.parametrize("name", ["llama", "gpt2", "phi"])
def test_without_a_bug_only_the_library_fails(name: str) -> None:
    (build,) = (each for each in find(name) if not each.variant)
    (subject,) = from_build(build)
    assert {o.check for o in run_checks(subject, select()) if o.verdict == "FAIL"} == LIBRARY[name]


class LouderFromOutside(T5ForConditionalGeneration):
    def forward(self, *given: Any, **named: Any) -> Any:
        if named.get("encoder_outputs") is not None:
            named["encoder_outputs"].last_hidden_state = named["encoder_outputs"].last_hidden_state * 1.5
        return super().forward(*given, **named)


@pytest.mark.parametrize(("cls", "verdict"), [(T5ForConditionalGeneration, "PASS"), (LouderFromOutside, "FAIL")])
def test_a_source_that_was_encoded_before_is_told_from_its_ids(cls: type, verdict: str) -> None:
    (build,) = find("t5:seq2seq")
    model = build_model(tiny_config(build), "seq2seq", cls=cls)
    (outcome,) = run_checks(from_model(model)[0], select(["inputs.encoder_outputs"]))
    assert outcome.verdict == verdict


def test_every_check_has_a_planted_bug() -> None:
    by_hand = {"inputs.encoder_outputs", "deterministic", "length.beyond", "packing.mask", "packing.cache", "size.odd"}
    # Planted by test_axes.py, test_spectra.py, test_adapter.py, cli/test_check_results.py, the tests of programs.
    elsewhere = {each.name for each in select(["axes"])}
    elsewhere |= {"order.places", "spectrum.apart", "cache.reused", "cache.moved", "cache.across"}
    broken = set().union(*PLANTED.values(), *planted.PLANTED.values()) | by_hand | elsewhere
    assert {each.name for each in select()} - broken == set()
