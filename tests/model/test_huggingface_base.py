"""The KV cache under the two names that transformers has had for it: its own models decide which one is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache, GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import EncoderDecoderCache

from clockhands import positions, schemes
from clockhands.errors import CheckpointError, PositionError, UsageError
from clockhands.model.huggingface_base import (
    CACHE_NAME,
    MODEL_CLASSES,
    WindowLayer,
    check_padding_mask,
    get_cache,
    keep_windows,
    may_drop_keys,
)
from clockhands.model.kv_cache import find_window
from tests.model.tiny import model, words

BOTH = ("cache", "past_key_values")


def make_cache(architecture: str) -> DynamicCache | EncoderDecoderCache:
    return DynamicCache() if architecture == "decoder" else EncoderDecoderCache(DynamicCache(), DynamicCache())


def make_inputs(architecture: str, text: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"input_ids": text} if architecture == "decoder" else {"input_ids": words(1, 5), "decoder_input_ids": text}


@torch.no_grad()
def test_the_name_is_that_of_the_library_s_own_models() -> None:
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "vocab_size"), 8)
    llama = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=1, num_attention_heads=1))
    output = llama(torch.tensor([[1, 2, 3]]), use_cache=True)
    assert CACHE_NAME in output
    assert get_cache(output).get_seq_length() == 3
    assert get_cache(llama(torch.tensor([[1, 2, 3]]), use_cache=False)) is None


@torch.no_grad()
@pytest.mark.parametrize("architecture", ["decoder", "encoder-decoder"])
def test_a_cache_is_used_under_either_name_and_refused_under_both(architecture: str) -> None:
    made, text = model(architecture), words(1, 6)
    whole = made(**make_inputs(architecture, text), use_cache=False).logits
    for name in BOTH:
        cache = make_cache(architecture)
        output = made(**make_inputs(architecture, text[:, :4]), **{name: cache})
        assert get_cache(output) is cache
        rest = made(**make_inputs(architecture, text[:, 4:]), **{name: cache}).logits
        torch.testing.assert_close(torch.cat([output.logits, rest], 1), whole)
        assert cache.get_seq_length() == 6
    with pytest.raises(UsageError, match="two names of the same KV cache; pass one of them"):
        made(**make_inputs(architecture, text), **{name: make_cache(architecture) for name in BOTH})


@torch.no_grad()
@pytest.mark.parametrize("architecture", ["decoder", "encoder-decoder"])
def test_generate_goes_on_from_a_cache_that_it_returned(architecture: str) -> None:
    made, text = model(architecture), words(1, 5)
    options = {"max_new_tokens": 4, "do_sample": False, "return_dict_in_generate": True, "eos_token_id": None}
    first = made.generate(text, **options)
    kept = get_cache(first)
    assert kept.get_seq_length() > 0
    if architecture == "encoder-decoder":  # whose own text would start anew
        return
    turn = torch.cat([first.sequences, words(1, 3)], 1)
    resumed = made.generate(turn, **options, **{CACHE_NAME: kept}).sequences
    assert resumed.tolist() == made.generate(turn, **options, use_cache=False).sequences.tolist()


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


LEFT, LENGTH = 4, 19
WINDOW = {"scheme": "window", "left": LEFT}
LAYOUTS: dict[str, Any] = {
    "mistral": {"schemes": ["rope", WINDOW]},
    "window alone": WINDOW,
    "gemma": {"layers": [{"schemes": ["rope", WINDOW]}, {"scheme": "rope", "base": 100.0}]},
    "gpt-oss": {"layers": [{"schemes": ["rope", WINDOW, "sinks"]}, {"schemes": ["rope", "sinks"]}]},
    "llama-4": {"layers": [{"schemes": ["rope", {"scheme": "chunks", "size": LEFT + 1}]}, "temperature"]},
    "alibi": {"schemes": ["alibi", WINDOW]},
    "table": {"schemes": [{"scheme": "learned", "max_length": 64}, WINDOW]},
    "rotated values": {"schemes": [{"scheme": "rope", "values": True}, WINDOW, "sinks"]},
    "of no token before": {"schemes": ["rope", {"scheme": "window", "left": 0}]},
}
STEPS = ((0, 1), (1, 3), (3, 12), (12, 13), (13, 14), (14, LENGTH))


def make(layout: str, kind: str = "decoder") -> Any:
    return model(kind, decoder=LAYOUTS[layout], num_kv_heads=2).double()


def count_kept(cache: Any) -> list[tuple[bool, int]]:
    return [(isinstance(layer, WindowLayer), layer.keys.shape[2]) for layer in cache.layers]


@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_windows_alone_give_what_all_keys_give(layout: str, padded: bool) -> None:
    made, text = make(layout), words(2, LENGTH)
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[0, : 7 if padded else 0] = 0
    whole, cache = made(input_ids=text, attention_mask=mask).logits, DynamicCache()
    keep_windows(cache, made.model.decoder)
    for start, end in STEPS:
        got = made(input_ids=text[:, start:end], attention_mask=mask[:, :end], past_key_values=cache).logits
        real = mask[:, start:end].bool()
        torch.testing.assert_close(got[real], whole[:, start:end][real], atol=1e-6, rtol=1e-6)
        left = 1 if layout == "of no token before" else LEFT
        kept = count_kept(cache)
        assert kept[0] == (True, min(end, left))
        assert kept[1] in ((True, min(end, left)), (False, end))
    assert cache.get_seq_length() == LENGTH


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("layout", ["mistral", "gemma", "gpt-oss"])
def test_generate_keeps_windows_and_writes_the_same(layout: str, kind: str, beams: int) -> None:
    made, text = make(layout, kind), words(2, 7)
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, :5] = 0
    options = {
        "attention_mask": mask, "max_new_tokens": 12, "min_new_tokens": 12, "num_beams": beams, "do_sample": False,
        "return_dict_in_generate": True, "output_logits": True,
    }  # fmt: skip
    ours = made.generate(text, **options)
    plain = made.generate(text, **options, use_cache=False)
    assert torch.equal(ours.sequences, plain.sequences)
    torch.testing.assert_close(ours.logits, plain.logits, atol=1e-6, rtol=1e-6)
    cache = getattr(ours.past_key_values, "self_attention_cache", ours.past_key_values)
    assert (True, LEFT) in count_kept(cache)
    if kind == "encoder-decoder":
        assert count_kept(ours.past_key_values.cross_attention_cache) == [(False, 7)] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1, 0]])},
        {"attention_mask": torch.tensor([[1, 1, 0, 0, 0, 0, 1]])},
        {"position_ids": torch.tensor([[0, 1, 2, 3, 3, 3, 4]])},
        {"position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2]])},
        {"past_key_values": DynamicCache()},
        {"prompt_lookup_num_tokens": 2},
    ],
    ids=["behind", "between", "equal", "again", "passed", "assisted"],
)
def test_all_keys_are_kept_where_a_window_is_not_the_last_of_them(options: dict[str, Any]) -> None:
    made, text = make("mistral"), words(1, 7)
    out = made.generate(
        text, **options, max_new_tokens=9, min_new_tokens=9, do_sample=False, return_dict_in_generate=True
    )
    assert not any(windowed for windowed, _ in count_kept(out.past_key_values))
    plain = {name: value for name, value in options.items() if name in ("attention_mask", "position_ids")}
    again = made.generate(text, **plain, use_cache=False, max_new_tokens=9, min_new_tokens=9, do_sample=False)
    assert torch.equal(out.sequences, again)


@torch.no_grad()
def test_padding_behind_tokens_is_refused_once_keys_may_be_gone() -> None:
    made, text, cache = make("mistral"), words(1, 8), DynamicCache()
    keep_windows(cache, made.model.decoder)
    made(input_ids=text[:, :7], past_key_values=cache)
    mask = torch.tensor([[1, 1, 0, 0, 0, 0, 0, 1]])
    with pytest.raises(PositionError, match=r"padding after tokens, .* pass a DynamicCache\(\) of your own"):
        made(input_ids=text[:, 7:], attention_mask=mask, past_key_values=cache)


@torch.no_grad()
def test_columns_of_a_mask_beyond_the_tokens_are_ignored() -> None:
    """A mask may be as wide as a cache of fixed size: the columns without tokens are no padding after tokens."""
    made, text, wide = make("mistral"), words(1, 8), torch.tensor([[1] * 8 + [0] * 4])
    logits = []
    for mask in (wide[:, :8], wide):
        cache = DynamicCache()
        keep_windows(cache, made.model.decoder)
        logits.append([
            made(input_ids=text[:, a:b], attention_mask=mask, past_key_values=cache).logits
            for a, b in ((0, 7), (7, 8))
        ])  # fmt: skip
    assert all(map(torch.equal, *logits))


def test_a_transform_of_positions_keeps_all_keys() -> None:
    made, cache = model(decoder={**LAYOUTS["mistral"], "transform": "shifted"}), DynamicCache()
    keep_windows(cache, made.model.decoder)
    assert not any(isinstance(layer, WindowLayer) for layer in cache.layers)


@pytest.mark.parametrize("beside", [{"axis": 3}, {}], ids=["places", "coordinates"])
@torch.no_grad()
def test_windows_beside_several_coordinates_keep_all_keys_and_read_text_as_beside_one(beside: dict[str, int]) -> None:
    """All coordinates of a text are its places, where M-RoPE is RoPE."""
    made = model(decoder={"schemes": ["mrope", {**WINDOW, **beside}]}, num_kv_heads=2).double()
    text, cache = words(2, LENGTH), DynamicCache()
    whole = make("mistral")(input_ids=text).logits
    keep_windows(cache, made.model.decoder)
    for start, end in STEPS:
        got = made(input_ids=text[:, start:end], past_key_values=cache).logits
        torch.testing.assert_close(got, whole[:, start:end], atol=1e-6, rtol=1e-6)
        assert count_kept(cache) == [(False, end)] * 2


@torch.no_grad()
def test_layers_with_a_window_or_a_temperature_stand_between_layers_of_a_grid() -> None:
    """The positions of all layers have two coordinates, and a step of a cache gives what all tokens at once give."""
    layers = [{"schemes": ["axial", WINDOW]}, WINDOW, {"scheme": "temperature", "length": 2, "axis": 1}, "axial"]
    made, text = model(decoder={"layers": layers}, decoder_layers=4).double(), words(1, 6)
    grid, cache = positions.make_grid(1, 2, 3), DynamicCache()
    whole = made(input_ids=text, position_ids=grid).logits
    for start, end in ((0, 2), (2, 3), (3, 6)):
        got = made(input_ids=text[:, start:end], position_ids=grid[:, start:end], past_key_values=cache).logits
        torch.testing.assert_close(got, whole[:, start:end], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("names", "window"),
    [
        (["rope", WINDOW], 4), ([WINDOW, {"scheme": "window", "left": 2}], 2),
        ([{"scheme": "chunks", "size": 8}, "rope"], 7), (["alibi", WINDOW, "sinks", "sinusoidal"], 4),
        (["rope", "sinks"], None), (["cope", WINDOW], None), (["forgetting", WINDOW], None),
        (["stick-breaking", WINDOW], None), ([{"scheme": "ssmax", "count": "visible"}, WINDOW], None),
        (["ssmax", WINDOW], 4),
    ],
)  # fmt: skip
def test_a_window_is_found_where_nothing_else_reads_older_keys(names: list[Any], window: int | None) -> None:
    sizes = schemes.Sizes(width=16, d_model=16, num_heads=2, head_dim=8, num_layers=1, causal=True)
    assert find_window(schemes.build(schemes.CATALOGUE, "composition", sizes, {"schemes": names})) == window


@pytest.mark.parametrize(
    ("inputs", "may"),
    [
        ({}, True),
        ({"attention_mask": torch.tensor([[0, 0, 1], [1, 1, 1]])}, True),
        ({"attention_mask": torch.tensor([[1, 0, 1]])}, False),
        ({"attention_mask": torch.ones(1, 1, 3, 3)}, False),
        ({"attention_mask": torch.tensor([[0, 0, 1]]), "position_ids": torch.tensor([[1, 1, 0]])}, True),
        ({"position_ids": torch.tensor([[0, 5, 6]])}, True),
        ({"position_ids": torch.tensor([[0.0, 0.5, 1.0]])}, False),
        ({"position_ids": torch.zeros(1, 3, 2)}, False),
    ],
)
def test_tokens_must_stand_as_far_apart_as_their_positions_say(inputs: dict[str, Any], may: bool) -> None:
    assert may_drop_keys(inputs) is may
    assert may_drop_keys({f"decoder_{name}": value for name, value in inputs.items()}, "decoder_") is may
