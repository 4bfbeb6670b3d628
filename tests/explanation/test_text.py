"""What is told of a configuration: the numbers in the words are those of the table."""

from __future__ import annotations

import json
import math

from clockhands.explanation import compare, describe, describe_difference, to_json
from clockhands.explanation.huggingface import read_huggingface

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
