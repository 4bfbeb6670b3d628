"""What is told of a configuration: the numbers in the words are those of the table, and each warning is true."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest

from clockhands.explanation import compare, describe, describe_difference, list_warnings, to_json
from clockhands.explanation.huggingface import read_huggingface
from clockhands.explanation.table import Positions
from clockhands.explanation.text import name_layers
from clockhands.explanation.unread import mark_unread

RAW = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 3, "rope_theta": 1e4,
       "max_position_embeddings": 1000}  # fmt: skip


def test_hands_are_counted_by_hand() -> None:
    """Base 10,000 and 8 channels: 1, 0.1, 0.01 and 0.001 radians per token."""
    text = describe(read_huggingface(RAW, "config.json"))
    assert "3 layers (0 to 2), full_attention" in text
    assert f"4 hands, from {2 * math.pi:,.1f} to {2000 * math.pi:,.0f} tokens a turn" in text
    # 1,000 tokens are 1,000, 100, 10 and 1 radians: only the last is less than a turn.
    assert "the fastest turns 159 times, the slowest 0.159 times; 1 of 4 never come round" in text
    assert "can be wrong by 1 radian from position 257 on" in text
    longer = describe(read_huggingface({**RAW, "max_position_embeddings": 10_000}, "config.json"))
    assert "0 of 4 never come round" in longer


def test_json_holds_the_same_table() -> None:
    table = json.loads(json.dumps(to_json(read_huggingface(RAW, "config.json"))))
    (layer,) = table["layers"]
    assert layer["layers"] == [0, 1, 2]
    assert layer["rotation"]["frequencies"] == [1.0, 0.1, 0.01, 0.001]
    assert layer["rotation"]["origin"]["base"] == "rope_theta"


def test_a_difference_names_both_files_and_the_field() -> None:
    one, other = (read_huggingface({**RAW, "rope_theta": base}, f"{base}.json") for base in (1e4, 1e6))
    text = describe_difference(compare(one, other), one, other)
    for part in ("A: 10000.0.json", "B: 1000000.0.json", "part in layer 0", "because of base: 10,000 (rope_theta)"):
        assert part in text
    assert "the same" in describe_difference(compare(one, one), one, one)


PLAIN: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4,
    "max_position_embeddings": 32768, "rope_theta": 5e5,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "base": ("the base is not in the file", {"rope_theta": None}, {}, "transformers5"),
    "unread": ("changes nothing here", {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
               {"rope_scaling": None}, "transformers4"),
    "original": ("original_max_position_embeddings is not set", {"rope_scaling": {"rope_type": "yarn", "factor": 8.0}},
                 {"rope_scaling": YARN}, "transformers5"),
    "implied": ("original length is 4", {"rope_scaling": YARN, "max_position_embeddings": 16384},
                {"rope_scaling": YARN}, "transformers5"),
    "mscale": ("ignores them", {"rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
               {"rope_scaling": YARN}, "transformers5"),
    "no rule": ("rope_scaling.factor is set", {"rope_scaling": {"factor": 4.0}}, {"rope_scaling": YARN},
                "transformers5"),
    "proportional": ("stand still", {"rope_scaling": {"rope_type": "proportional", "partial_rotary_factor": 0.5}},
                     {"rope_scaling": YARN}, "transformers5"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_warning_is_given_where_it_is_true_and_only_there(case: str) -> None:
    words, true, false, program = CASES[case]

    def read(raw: Mapping[str, Any]) -> Positions:
        return read_huggingface(raw, "f", program)

    for changes in (true, false):
        raw = {**PLAIN, **changes}
        warned = any(words in warning for warning in list_warnings(mark_unread(raw, read(raw), read)))
        assert warned == (changes is true)


def test_layers_that_differ_are_warned_of() -> None:
    gemma = {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6, "sliding_window": 64,
             "rope_theta": 1e6, "rope_local_base_freq": 1e4,
             "rope_scaling": {"rope_type": "linear", "factor": 8.0}}  # fmt: skip
    assert any("scaled differently" in warning for warning in list_warnings(read_huggingface(gemma, "f")))
    bases = list_warnings(read_huggingface({**gemma, "rope_scaling": None}, "f"))
    assert any("different bases (10,000, 1,000,000)" in warning for warning in bases)
    smollm = {"model_type": "smollm3", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 8,
              "rope_theta": 1e6}  # fmt: skip
    assert any("2 attention layers do not rotate (3, 7)" in one for one in list_warnings(read_huggingface(smollm, "f")))
    assert list_warnings(read_huggingface(PLAIN, "f")) == []


@pytest.mark.parametrize(
    ("numbers", "told"),
    [([0], "0"), ([0, 1, 2, 3], "0 to 3"), ([0, 1, 2, 5], "0 to 2, 5"), ([0, 1, 2, 3, 8], "0 to 3, 8"),
     ([3, 7, 11, 15], "3, 7, … 15"), ([0, 1, 4, 5, 8], "0, 1, 4, 5, 8"),
     ([0, 2, 5, 7, 11], "0, 2, 5, 7 and 1 more runs"), ([0, 2, 5, 7, 11, 14], "0, 2, 5, 7 and 2 more runs")],
)  # fmt: skip
def test_layers_are_named_by_runs_or_steps(numbers: list[int], told: str) -> None:
    assert name_layers(numbers) == told
