"""Continuing a prompt."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from clockhands.errors import CheckpointError, ClockhandsWarning, UsageError
from clockhands.generation import generate
from clockhands.generation.generate import estimate_bytes
from clockhands.model.huggingface import ClockhandsForSeq2SeqLM
from clockhands.runs import Run
from tests.generation.engines.writers import END, writer
from tests.model.tiny import model, words
from tests.runs.tiny import save_model


def test_it_goes_on_as_it_learnt(writer: Run) -> None:
    assert generate(writer, "the cat sat on the", tokens=6, temperature=0)[0] == "the cat sat on the mat. "


def test_a_seed_draws_the_same_again_and_a_whole_number_is_a_temperature_too(writer: Run) -> None:
    one, other = (generate(writer, "the ", tokens=20, temperature=2.0, seed=seed) for seed in (3, 4))
    assert generate(writer, "the ", tokens=20, temperature=2, seed=3) == one != other


def test_samples_differ_and_an_empty_prompt_starts_a_text(writer: Run) -> None:
    assert len(set(generate(writer, tokens=20, temperature=3.0, samples=3, seed=1))) > 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tokens": 0}, "tokens is 0, but must be at least 1"),
        ({"tokens": None, "seed": 10**30}, "tokens is None, but must be a whole number; seed is 10.*64 bits"),
        ({"temperature": -1.0}, "temperature is -1.0, but must be at least 0"),
        ({"top_p": 1.5}, "top_p is 1.5, but must be from 1e-09 to 1"),
        (
            {"samples": 2, "temperature": 0.0},
            "with temperature 0 all would be the same; leave samples out, or give a temperature of at least 0.001",
        ),
        ({"samples": 2, "beam": 2}, "but a beam search gives one continuation; leave out samples or beam"),
        ({"temperature": 1e-320}, "temperature is 1e-320; the least is 0.001, or 0 for the likeliest token"),
        ({"temperature": math.nan}, "temperature is nan, but must be a finite number"),
        ({"temperature": math.inf}, "temperature is inf, but must be a finite number"),
        ({"top_p": 1e-10}, "top_p is 1e-10, but must be from 1e-09 to 1"),
        ({"top_p": math.nan}, "top_p is nan, but must be a finite number"),
        ({"top_k": -3}, "top_k is -3, but must be at least 0"),
        ({"max_prompt": 0}, "max_prompt is 0, but must be at least 1"),
        ({"beam": 2, "top_k": 3}, "with beam 2 nothing is sampled: leave out top_k"),
        ({"beam": 2, "temperature": 0.5, "seed": 1}, "nothing is sampled: leave out temperature, seed"),
        ({"temperature": 0, "top_p": 0.5}, "with temperature 0 nothing is sampled: leave out top_p"),
        (
            {"tokens": 10**13},
            "1 text of 10,000,000,000,001 tokens at a time needs .* of memory, and .* are free; lower",
        ),
        ({"samples": 10**12}, "1,000,000,000,000 texts of .* need .* of memory"),
    ],
)
def test_impossible_values_are_named(writer: Run, given: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        generate(writer, "x", **given)


def test_of_a_long_prompt_the_end_is_read_and_that_is_said(writer: Run) -> None:
    with pytest.warns(ClockhandsWarning, match="the prompt has 24 tokens, and the last 18 are read; raise max_prompt"):
        long = generate(writer, "xxxxxxthe cat sat on the", tokens=6, temperature=0, max_prompt=18)
    assert long == ["xxxxxxthe cat sat on the mat. "]
    assert long[0][6:] == generate(writer, "the cat sat on the", tokens=6, temperature=0)[0]


def test_a_seed_leaves_the_random_numbers_of_the_caller_alone(writer: Run) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = generate(writer, "the", tokens=5, seed=7)
    assert torch.equal(torch.rand(2), expected)
    assert generate(writer, "the", tokens=5, seed=7) == first


def test_sampling_options_that_are_off_are_taken_where_nothing_is_sampled(writer: Run) -> None:
    plain = generate(writer, "the", tokens=5, temperature=0)
    assert generate(writer, "the", tokens=5, temperature=0, top_k=0, top_p=1.0) == plain


@pytest.mark.parametrize("eos", ["none", [None, "x"], True, [1.5]])
def test_an_end_of_texts_that_is_no_token_is_named(eos: Any, tmp_path: Path) -> None:
    settings = save_model(tmp_path / "gpt2", "gpt2") / "generation_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "eos_token_id": eos}))
    with pytest.raises(CheckpointError, match=r"generation_config\.json sets eos_token_id = .*no id of a token"):
        generate(tmp_path / "gpt2", "x", tokens=2)


BATCH, BEAM, LENGTH, SOURCE = 3, 4, 6, 5


def measure_bytes(model: ClockhandsForSeq2SeqLM) -> int:
    """Count the bytes of the cached tokens and of the encoder's output, at the end of texts of ``LENGTH`` tokens.

    ``generate`` holds what the source gave once for each hypothesis; the estimate is a lower bound, and counts it once.
    """
    model.transformer.output.bias.data[END] = -100.0
    ids_BT = torch.randint(3, 20, (BATCH, SOURCE))
    # The last token is written, not read: LENGTH tokens are cached when LENGTH more than the start token are asked for.
    out = model.generate(ids_BT, num_beams=BEAM, max_new_tokens=LENGTH, do_sample=False, return_dict_in_generate=True)
    own = sum(layer.keys.nbytes + layer.values.nbytes for layer in out.past_key_values.self_attention_cache.layers)
    source = sum(layer.keys.nbytes + layer.values.nbytes for layer in out.past_key_values.cross_attention_cache.layers)
    width, size = model.config.transformer_config.d_model, next(model.parameters()).element_size()
    return own + source // BEAM + BATCH * SOURCE * width * size


def estimate(model: ClockhandsForSeq2SeqLM) -> int:
    return estimate_bytes(model, batch=BATCH, beam=BEAM, length=LENGTH, source_length=SOURCE)


VALUES_OF_A_WIDTH_OF_THEIR_OWN = [{"latent_width": 8, "value_dim": 2}, {"latent_width": 8, "value_dim": 12}]


@pytest.mark.parametrize("options", [{}, *VALUES_OF_A_WIDTH_OF_THEIR_OWN, {"num_kv_heads": 1}, {"num_kv_heads": 2}])
def test_a_search_holds_what_is_estimated(options: dict[str, int]) -> None:
    """Values may be of another width than keys, and of a group of heads keys are cached once."""
    made = writer("rope", **options)
    config = made.config.transformer_config
    assert config.resolved_head_dim not in (2, 12) and config.num_heads > 2
    assert estimate(made) == measure_bytes(made)


def test_where_positions_are_cached_too_a_search_holds_more() -> None:
    made = writer("rope", decoder="cope")
    assert estimate(made) <= measure_bytes(made)


def test_where_nothing_can_be_cached_one_layer_at_a_time_has_keys() -> None:
    by_length: Any = {"scheme": "index", "normalise": "length"}
    assert estimate(writer("rope", decoder=by_length)) < estimate(writer("rope"))


def test_layers_with_windows_hold_their_windows_and_others_all_tokens() -> None:
    window = {"schemes": ["rope", {"scheme": "window", "left": 4}]}
    made, length = model(decoder={"layers": [window, "rope"]}), 24
    cache = made.generate(
        words(2, 5), max_new_tokens=length - 4, min_new_tokens=length - 4, return_dict_in_generate=True
    ).past_key_values
    # Of the layer with a window, positions are kept beside the keys; they are not counted.
    held = sum(layer.values.nbytes * 2 for layer in cache.layers)
    assert estimate_bytes(made, batch=2, beam=1, length=length) == held
    everywhere = model(decoder="rope")
    assert estimate_bytes(everywhere, batch=2, beam=1, length=length) * (4 + length) == held * 2 * length


def test_the_states_of_a_wide_encoder_layer_count_where_they_are_more_than_the_cache() -> None:
    made = model(encoder_layers=1, decoder_layers=1, d_model=32, d_ff=4096)
    size = next(made.parameters()).element_size()
    assert estimate_bytes(made, batch=2, beam=1, length=4, source_length=100) == size * 2 * 100 * (2 * 32 + 4096)
