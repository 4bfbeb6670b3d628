"""The loss in chunks against the whole logits, in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from clockhands.model import loss
from clockhands.model.loss import LabelSmoothing, cross_entropy

ROWS, WIDTH, VOCABULARY = 23, 6, 11


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    states = torch.randn(ROWS, WIDTH, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(VOCABULARY, WIDTH, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(VOCABULARY, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, VOCABULARY, (ROWS,))
    labels[::5] = -100
    return states, weight, bias, labels


def distribution(target: LabelSmoothing, labels: torch.Tensor) -> torch.Tensor:
    """What is learnt, word by word, from its definition."""
    q = torch.zeros(len(labels), VOCABULARY, dtype=torch.float64)
    for row, word in enumerate(labels.tolist()):
        others = [v for v in range(VOCABULARY) if v != word]
        if target.mode == "all":
            q[row] = target.rate / VOCABULARY
            q[row, word] += 1 - target.rate
        elif target.mode == "others":
            q[row, others] = target.rate / (VOCABULARY - 1)
            q[row, word] = 1 - target.rate
        else:
            others = [v for v in others if v != target.pad_token_id]
            q[row, others] = target.rate / (VOCABULARY - 2)
            q[row, word] = 1 - target.rate
    return q


TARGETS = [
    LabelSmoothing(), LabelSmoothing(0.1), LabelSmoothing(0.1, "others"), LabelSmoothing(0.1, "others-but-pad", 0),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.mode}-{target.rate}")
def test_equals_its_definition_with_gradients(target: LabelSmoothing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "CHUNK_ROWS", 4)
    monkeypatch.setattr(loss, "CHUNK_LOGITS", 0)
    *parameters, labels = inputs()
    if target.mode == "others-but-pad":
        labels[labels == target.pad_token_id] = 1
    kept = labels != -100
    states, weight, bias = parameters
    log_p = F.log_softmax(states[kept] @ weight.T + bias, dim=-1)
    expected = -(distribution(target, labels[kept]) * log_p).sum() / kept.sum()
    got = cross_entropy(states, weight, bias, labels, target)
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)
    for ours, theirs in zip(
        torch.autograd.grad(got, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


def test_accumulated_parts_make_the_gradient_of_the_whole() -> None:
    states, weight, _, labels = inputs()
    count = (labels != -100).sum()
    (whole,) = torch.autograd.grad(cross_entropy(states, weight, None, labels, LabelSmoothing(0.1)), weight)
    parts = [
        torch.autograd.grad(cross_entropy(states[s], weight, None, labels[s], LabelSmoothing(0.1), count), weight)[0]
        for s in (slice(0, 3), slice(3, None))
    ]
    torch.testing.assert_close(parts[0] + parts[1], whole)


def test_nothing_to_learn_is_zero() -> None:
    states, weight, bias, labels = inputs()
    got = cross_entropy(states, weight, bias, torch.full_like(labels, -100), LabelSmoothing(0.1))
    assert got == 0
    got.backward()
    assert weight.grad is not None and not weight.grad.any()


def test_half_precision_under_autocast_stays_near() -> None:
    states, weight, bias, labels = (t.float().detach() if t.is_floating_point() else t for t in inputs())
    weight.requires_grad_()
    exact = cross_entropy(states, weight, bias, labels, LabelSmoothing(0.1))
    (expected,) = torch.autograd.grad(exact, weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = cross_entropy(states, weight, bias, labels, LabelSmoothing(0.1))
    (got,) = torch.autograd.grad(low, weight)
    assert low.dtype == torch.float32 and got.dtype == torch.float32
    torch.testing.assert_close(low, exact, atol=0.03, rtol=0.02)
    torch.testing.assert_close(got, expected, atol=0.03, rtol=0.05)


def test_evaluation_prepares_no_gradients() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    states, weight = torch.randn(2, 5, 8), torch.nn.Parameter(torch.randn(11, 8))
    labels = torch.randint(0, 11, (2, 5))
    with FlopCounterMode(display=False) as evaluating, torch.no_grad():
        cross_entropy(states, weight, None, labels, LabelSmoothing())
    assert evaluating.get_total_flops() == 2 * 10 * 8 * 11
