"""Layers with windows keep only their windows' keys while they generate, and compute what they do with all keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache

from clockhands import positions, schemes
from clockhands.errors import PositionError
from clockhands.model.kv_cache import find_window
from clockhands.model.window_cache import WindowLayer, keep_windows, may_drop_keys
from tests.model.tiny import model, words

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
    for got, wanted in zip(ours.logits, plain.logits, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-6)
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
        (["rope", WINDOW], 4),
        ([WINDOW, {"scheme": "window", "left": 2}], 2),
        ([{"scheme": "chunks", "size": 8}, "rope"], 7),
        (["alibi", WINDOW, "sinks", "sinusoidal"], 4),
        (["rope", "sinks"], None),
        (["cope", WINDOW], None),
        (["forgetting", WINDOW], None),
        (["stick-breaking", WINDOW], None),
        ([{"scheme": "ssmax", "count": "visible"}, WINDOW], None),
        (["ssmax", WINDOW], 4),
    ],
)
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
