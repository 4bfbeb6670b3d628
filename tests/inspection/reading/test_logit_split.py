"""Every family: attention is read exactly, and its logits split exactly."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
import torch

from clockhands.inspection.reading.capture import capture
from clockhands.inspection.reading.logit_split import (
    POSITIONAL,
    compute_group_interval,
    compute_positional_share,
    split_logits,
)
from clockhands.models.subject import Subject

from ..measures.readings import check_order_of_parts, check_terms
from ..tiny import CONFIGS, LAYERS, UNLISTED, draw_ids, tiny

ROUNDS_INSIDE = {"modernbert", "qwen3", "gemma3", "cohere", "olmo2", "gpt-neo", "gpt-j", "mpt"}
"""Families whose own code drops to float32 on the way to the logits (a norm, a rotation, a softmax)."""


def _eager_attentions(model: Any, ids: torch.Tensor) -> Any:
    stack = model.get_encoder() if model.config.is_encoder_decoder else model
    if stack._can_set_attn_implementation():
        stack.set_attn_implementation("eager")
    else:
        stack.config._attn_implementation = "eager"
    with torch.no_grad():
        return stack(input_ids=ids, attention_mask=torch.ones_like(ids), output_attentions=True).attentions


@pytest.mark.parametrize("name", sorted({*CONFIGS, *UNLISTED} - {"falcon-alibi"}))
def test_captured_attention_is_the_eager_implementations(name: str) -> None:
    subject, ids = Subject.of(tiny(name)), draw_ids(5)
    recorded = capture(subject.model, subject.forward, ids, batch=5)
    assert len(recorded.layers) == LAYERS
    expected = _eager_attentions(tiny(name), ids)
    for layer, weights in zip(recorded.layers, expected, strict=True):
        (_, call), *_ = layer.replay_all()
        # Beside a sink, logits are told as their distance to it, which rounds once more.
        bound = 1e-6 if name == "gpt-oss" else 0.0
        torch.testing.assert_close(call.weights_BHST, weights, rtol=0.0, atol=bound)
        assert call.weights_BHST.std() > 0.05, "flat attention would prove little"


def test_falcon_with_alibi_is_read_as_published() -> None:
    """(q·k + slope · j) / √d_head, as in the code that came with falcon-rw; eager in transformers adds slopes twice."""
    subject, ids = Subject.of(tiny("falcon-alibi")), draw_ids(5)
    plain = tiny("falcon-alibi")
    assert plain.config._attn_implementation == "sdpa"
    with torch.no_grad():
        expected = plain(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True).hidden_states
    recorded = capture(subject.model, subject.forward, ids, batch=5)
    torch.testing.assert_close(recorded.hidden[-1], expected[-1])
    (_, call), *_ = recorded.layers[0].replay_all()
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])
    published = (call.q_BHSK @ call.k_BHTK.mT + slopes[:, None, None] * torch.arange(12.0)) * 8**-0.5
    torch.testing.assert_close(call.logits_BHST[call.mask_BHST], published[call.mask_BHST], rtol=1e-3, atol=1e-4)
    slope = recorded.layers[0].compute_bias(call)[0, 0, -1].diff()
    torch.testing.assert_close(slope, torch.full_like(slope, 2.0**-2 * 8**-0.5), rtol=1e-3, atol=1e-5)


# In float64, where a term that is missing shows most; in float32 one model for each way in which position enters.
IN_FLOAT32 = {"bert", "gpt2", "t5", "llama", "bloom", "deberta-v2"}
assert CONFIGS.keys() >= IN_FLOAT32


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if kind == torch.float64 or name in IN_FLOAT32 else pytest.mark.exhaustive)
        for kind in (torch.float64, torch.float32)
        for name in sorted(CONFIGS)
    ],
    ids=str,
)
def test_the_terms_sum_to_the_logits(name: str, kind: torch.dtype) -> None:
    subject = Subject.of(tiny(name).to(kind))
    recorded = capture(subject.model, subject.forward, draw_ids(5), batch=2)
    bound = 1e-10 if kind == torch.float64 and name not in ROUNDS_INSIDE else 1e-5
    for layer in recorded.layers:
        check_terms(layer, bound)


def test_the_interval_of_a_share_covers_what_other_texts_give() -> None:
    """It was half as wide, for the means by position change with the texts too, and covered six draws of ten."""
    subject, shares, intervals = Subject.of(tiny("gpt2")), [], []
    for seed in range(30):
        recorded = capture(subject.model, subject.forward, draw_ids(16, seed=seed))
        split = split_logits(recorded.layers[0], recorded.ordinary_T)
        shares.append(compute_positional_share(split.compute_layer_shares()))
        intervals.append(compute_group_interval(split, *POSITIONAL))
    mean = sum(shares) / len(shares)
    assert 0.1 < mean < 0.5
    assert sum(low < mean < high for low, high in intervals) >= 25
    widths = [(high - low) / 3.92 for low, high in intervals]
    assert sum(widths) / len(widths) < 1.6 * statistics.stdev(shares)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_each_part_alone_gives_its_own_queries_and_keys(name: str) -> None:
    """Parts are told apart by adding one after the other; the order does not decide."""
    subject = Subject.of(tiny(name).double())
    check_order_of_parts(capture(subject.model, subject.forward, draw_ids(5), batch=5).layers[-1], 1e-5)
