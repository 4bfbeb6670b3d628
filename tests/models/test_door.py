"""What a checkpoint is opened as, and configurations that are refused since their positions are not understood."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clockhands.errors import CheckpointError
from clockhands.models import choose_class, find_task, refuse_unknown_positions

UNKNOWN: dict[str, Any] = {"rope_type": "spiral", "factor": 2.0}


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ({"rope_scaling": {"type": "spiral"}}, "rope_scaling.type"),
        ({"rope_parameters": {"full_attention": UNKNOWN}}, "rope_parameters.full_attention.rope_type"),
        ({"text_config": {"rope_scaling": UNKNOWN}}, "text_config.rope_scaling.rope_type"),
        (
            {"text_config": {"rope_parameters": {"full_attention": UNKNOWN}}},
            "text_config.rope_parameters.full_attention.rope_type",
        ),
    ],
)
def test_an_unknown_rope_type_is_named_wherever_it_lies(raw: dict[str, Any], key: str) -> None:
    with pytest.raises(CheckpointError, match=f"there sets {key} = 'spiral'; the rope types understood are .*yarn"):
        refuse_unknown_positions(raw, "there")


def test_known_rope_types_and_those_of_images_pass() -> None:
    refuse_unknown_positions({"text_config": {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}}, "there")
    refuse_unknown_positions({"vision_config": {"rope_parameters": UNKNOWN}, "notes": {"rope_type": "spiral"}}, "there")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, ("causal", True)),
        ({"model_type": "gpt2", "architectures": ["GPT2Model"]}, ("causal", False)),
        ({"model_type": "gpt2"}, ("causal", True)),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, ("masked", True)),
        ({"model_type": "bert", "architectures": ["BertForPreTraining"]}, ("masked", True)),
        ({"model_type": "bert", "architectures": ["BertLMHeadModel"], "is_decoder": True}, ("causal", True)),
        ({"model_type": "bert", "architectures": ["BertModel"]}, ("masked", False)),
        ({"model_type": "flaubert", "architectures": ["FlaubertWithLMHeadModel"]}, ("masked", True)),
        ({"model_type": "electra", "architectures": ["ElectraForPreTraining"]}, ("masked", False)),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
         ("seq2seq", True)),
        ({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"]}, ("causal", True)),
        ({"model_type": "theirs", "architectures": ["M"], "auto_map": {"AutoModelForCausalLM": "modelling.M"}},
         ("causal", True)),
        ({"model_type": "theirs", "architectures": ["M"], "auto_map": {"AutoModelForCausalLM": "a/b--m.M"}},
         ("causal", True)),
        ({"model_type": "theirs", "architectures": ["M"], "auto_map": {"AutoModel": "modelling.M"}},
         ("causal", False)),
    ],
)  # fmt: skip
def test_the_declared_class_says_what_a_model_is_for(keys: dict[str, Any], expected: tuple[str, bool]) -> None:
    config = SimpleNamespace(**{"architectures": None, **keys})
    assert find_task(config) == expected


@pytest.mark.parametrize(
    ("kind", "saved_from", "opener"),
    [
        ("gpt2", "GPT2LMHeadModel", "AutoModelForCausalLM"),
        ("gpt2", "GPT2Model", "AutoModel"),
        ("flaubert", "FlaubertWithLMHeadModel", "AutoModelForMaskedLM"),
        ("gemma3", "Gemma3ForConditionalGeneration", "AutoModelForCausalLM"),  # which opens that very class
        ("qwen2_vl", "Qwen2VLForConditionalGeneration", "AutoModelForMultimodalLM"),  # no causal class at all
        ("qwen3_5", "Qwen3_5ForConditionalGeneration", "AutoModelForMultimodalLM"),  # the causal one is its text part
        ("qwen3_5", "Qwen3_5ForCausalLM", "AutoModelForCausalLM"),
    ],
)
def test_a_model_is_opened_as_the_class_that_it_was_saved_from(kind: str, saved_from: str, opener: str) -> None:
    assert choose_class(SimpleNamespace(model_type=kind, architectures=[saved_from])).__name__ == opener
