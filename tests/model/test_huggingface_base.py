"""What the three models do alike: the conventions of transformers for caches, states of layers, and outputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from clockhands.errors import CheckpointError, PositionError, UsageError
from clockhands.model.huggingface_base import MODEL_CLASSES, check_padding_mask
from tests.model.tiny import model, words

ARCHITECTURES = ("encoder-decoder", "decoder", "encoder")


def call(made: Any, **options: Any) -> Any:
    """A forward pass over five tokens."""
    decoder = {"decoder_input_ids": words(1, 4)} if made.config.is_encoder_decoder else {}
    return made(input_ids=words(1, 5), **decoder, **options)


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder"])
def test_use_cache_of_the_configuration_is_the_default_of_a_forward_pass(architecture: str) -> None:
    made = model(architecture)
    cache = call(made).past_key_values
    assert cache.get_seq_length() == (4 if architecture == "encoder-decoder" else 5)
    assert call(made, use_cache=False).past_key_values is None
    made.config.use_cache = False
    assert call(made).past_key_values is None
    assert call(made, use_cache=True).past_key_values is not None


def test_a_pass_with_the_cache_of_the_default_continues_as_without_one() -> None:
    made, ids = model(), words(2, 7)
    first = made(input_ids=ids[:, :6])
    last = made(input_ids=ids[:, 6:], past_key_values=first.past_key_values).logits
    torch.testing.assert_close(last[:, 0], made(input_ids=ids, use_cache=False).logits[:, 6])


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder"])
def test_generate_refuses_to_return_attention_weights(architecture: str) -> None:
    made = model(architecture)
    with pytest.raises(ValueError, match=r"output_attentions is set, but .* clockhands\.attention\.record"):
        made.generate(words(1, 5), max_new_tokens=2, output_attentions=True)
    made.generation_config.output_attentions = True
    with pytest.raises(ValueError, match="output_attentions is set"):
        made.generate(words(1, 5), max_new_tokens=2)
    made.generate(words(1, 5), max_new_tokens=2, output_attentions=False)


def test_a_generation_config_of_the_call_is_read_wherever_it_stands() -> None:
    made = model(decoder={"scheme": "rope", "transform": "randomised", "transform_options": {"maximum": 64}})
    settings = GenerationConfig(use_cache=True, max_new_tokens=3, pad_token_id=0)
    with pytest.raises(PositionError, match="cached keys become stale"):
        made.generate(words(1, 5), settings)
    with pytest.raises(PositionError, match="cached keys become stale"):
        made.generate(words(1, 5), generation_config=settings)
    settings = GenerationConfig(output_attentions=True, return_dict_in_generate=True, max_new_tokens=3)
    with pytest.raises(ValueError, match="output_attentions is set, but models of Clockhands"):
        made.generate(words(1, 5), settings)


def test_nothing_is_cached_in_training_with_labels_or_where_keys_become_stale() -> None:
    made = model()
    assert made(input_ids=words(1, 5), labels=words(1, 5)).past_key_values is None
    assert made.train()(input_ids=words(1, 5), use_cache=True).past_key_values is None
    changing = model(decoder={"scheme": "rope", "transform": "randomised", "transform_options": {"maximum": 64}})
    assert call(changing).past_key_values is None
    with pytest.raises(PositionError, match="cached keys become stale"):
        call(changing, use_cache=True)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_output_hidden_states_and_return_dict_of_the_configuration_are_the_defaults(architecture: str) -> None:
    made = model(architecture)
    name = "decoder_hidden_states" if architecture == "encoder-decoder" else "hidden_states"
    assert name not in call(made)
    made.config.output_hidden_states = True
    assert len(call(made)[name]) == 3, "the input of two layers and the last states"
    assert name not in call(made, output_hidden_states=False)
    assert isinstance(call(made, return_dict=False), tuple)
    made.config.return_dict = False
    assert isinstance(call(made), tuple)
    assert not isinstance(call(made, return_dict=True), tuple)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_class_of_another_architecture_is_named(architecture: str) -> None:
    wrong = MODEL_CLASSES["encoder" if architecture == "decoder" else "decoder"]
    right = MODEL_CLASSES[architecture]  # type: ignore[index]
    with pytest.raises(CheckpointError, match=rf"use {right.__name__} \({right.auto_class.__name__}\)"):
        wrong(model(architecture).config)


def test_a_padding_mask_of_any_type_becomes_boolean() -> None:
    assert check_padding_mask(None) is None
    mask_BT = check_padding_mask(torch.tensor([[0.0, 1.0, 1.0]]))
    assert mask_BT is not None and mask_BT.tolist() == [[False, True, True]]
    with pytest.raises(UsageError, match="the model adds causality"):
        check_padding_mask(torch.ones(1, 1, 3, 3))


def test_with_labels_there_are_logits_in_evaluation_and_none_in_training() -> None:
    made, ids = model().eval(), words(2, 5)
    evaluated, trained = made(input_ids=ids, labels=ids), made.train()(input_ids=ids, labels=ids)
    assert evaluated.logits.shape[:2] == (2, 5) and trained.logits is None
    assert evaluated.loss is not None and trained.loss is not None
