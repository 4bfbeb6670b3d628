"""The trained length goes where a scheme asks for it, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands import positions
from clockhands.attention import attend
from clockhands.options import options_of
from clockhands.schemes import CATALOGUE, RoPE, Sizes, build
from clockhands.schemes.rotary.trained_length import LENGTHS, WINDOWS, add_trained_length, lacks_trained_length

YARN = {"spectrum": "yarn", "factor": 4.0}
WITH = {**YARN, "original_length": 64}
FOPE = {"scheme": "fope", "original_length": 64}


@pytest.mark.parametrize(
    ("position", "completed"),
    [
        ({"scheme": "rope", **YARN}, {"scheme": "rope", **WITH}),
        ({"scheme": "rope", **YARN, "original_length": 8}, None),
        ({"scheme": "rope", "options": YARN}, {"scheme": "rope", "options": WITH}),
        ({"scheme": "rope", "encoder": YARN}, {"scheme": "rope", "encoder": WITH}),
        ({"scheme": "rope", "original_length": 8, "encoder": YARN}, None),
        ({"scheme": "rope", "spectrum": "linear", "factor": 4.0}, None),
        ({"scheme": "alibi", **YARN}, None),
        ({"layers": ["a", {"schemes": [{"scheme": "rope", **YARN}]}], "kinds": {"a": {"scheme": "rope", **YARN}}},
         {"layers": ["a", {"schemes": [{"scheme": "rope", **WITH}]}], "kinds": {"a": {"scheme": "rope", **WITH}}}),
        ({"scheme": "fope", "std": 0.5}, {**FOPE, "std": 0.5}),
        ({"scheme": "fope", "original_length": 8}, None),
        ({"scheme": "fope", "options": {"std": 0.5}},
         {"scheme": "fope", "options": {"std": 0.5, "original_length": 64}}),
        ({"scheme": "fope", "options": {"original_length": 8}}, None),
        ({"scheme": "fope", "decoder": {"std": 0.5}}, {**FOPE, "decoder": {"std": 0.5}}),
        ({"scheme": "fope", "original_length": 8, "decoder": {"std": 0.5}}, None),
        ({"scheme": "alibi", "decoder": "fope"}, {"scheme": "alibi", "decoder": FOPE}),
        # Cross-attention takes nothing from the table around it.
        ({**FOPE, "cross": "fope"}, {**FOPE, "cross": FOPE}),
        ({"scheme": "composition", "schemes": ["fope", "t5"]}, {"scheme": "composition", "schemes": [FOPE, "t5"]}),
        ({"scheme": "axial", "shares": (4, 4)}, None),
        ({"scheme": "dual-chunk"}, {"scheme": "dual-chunk", "original_length": 64}),
        ({"scheme": "rerope"}, {"scheme": "rerope", "original_length": 64}),
        ({"scheme": "rerope", "window": 9}, {"scheme": "rerope", "window": 9, "original_length": 64}),
        ({"scheme": "rerope", "window": 9, "original_length": None}, None),
        ({"scheme": "self-extend", "original_length": None}, {"scheme": "self-extend", "original_length": 64}),
    ],
)  # fmt: skip
def test_the_trained_length_goes_where_a_scheme_asks_for_it(position: Any, completed: Any) -> None:
    assert add_trained_length(position, 64) == (position if completed is None else completed)


def test_a_window_is_enough_to_build_a_scheme_and_nothing_is_enough_for_the_others() -> None:
    """The truth is the constructor: a position lacks the length where the scheme cannot be built without it."""
    for scheme in (*LENGTHS, *WINDOWS):
        assert lacks_trained_length({"scheme": scheme})
        assert not lacks_trained_length({"scheme": scheme, "original_length": 64})
    for scheme in WINDOWS:
        told = {"scheme": scheme, "window": 9}
        assert not lacks_trained_length(told) and add_trained_length(told, 64, only_needed=True) == told
    assert lacks_trained_length(YARN) and not lacks_trained_length(WITH)


def test_every_scheme_with_the_option_is_known() -> None:
    have = {name for name, kind in CATALOGUE.items() if "original_length" in options_of(kind)}
    assert have == {"rope", *LENGTHS, *WINDOWS}


@pytest.mark.parametrize(("name", "near"), [("rerope", 100), ("self-extend", 50), ("dual-chunk", 200)])
def test_a_text_is_read_as_plain_rope_reads_it_only_as_far_as_the_trained_length_says(name: str, near: int) -> None:
    """At their former defaults these three were RoPE on all texts of a model that was trained on 200 tokens.

    Dual chunks are RoPE up to the trained length, the others up to their window.
    """
    length = 200
    scheme = build(CATALOGUE, name, Sizes(32, 32, 2, 16), {"original_length": length})
    assert getattr(scheme, "window", near) == near
    q, k, v = torch.randn(3, 1, 2, 2 * length, 16, generator=torch.Generator().manual_seed(1)).unbind(0)
    pos = positions.count_up(1, 2 * length)
    got, plain = (attend(one, q, k, v, pos, pos, causal=True) for one in (scheme, RoPE(16)))
    torch.testing.assert_close(got[:, :, :near], plain[:, :, :near])
    assert float((got - plain)[:, :, near + 10 : near + 20].abs().max()) > 1e-3
