"""Each warning is given where it is true, and not where it is false."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clockhands.explanation.huggingface import read_huggingface
from clockhands.explanation.table import Positions
from clockhands.explanation.unread import mark_unread
from clockhands.explanation.warnings import list_warnings, name_layers

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
