"""What is read of an attention at its softmax, and of which module."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clockhands.models.tap import MOST_PRODUCTS, TappedAttention, tap_attention


class _Products(nn.Module):
    """Multiplies more often than a softmax could need, as a layer without attention may."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3 * MOST_PRODUCTS):
            _ = x @ x.transpose(-1, -2)
        return x @ self.weight


def test_products_are_kept_of_the_running_module_and_never_more_than_some() -> None:
    inner = _Products()
    model = nn.Sequential(inner)
    with tap_attention(model, None, lambda *_: None) as tap:
        model(torch.ones(1, 2, 4, 3))
        assert [product.module for product in tap.products] == [inner] * MOST_PRODUCTS
        assert not tap.running


class _Einsum(nn.Module):
    """Attention by einsum, whose equation may leave out the axes of the result."""

    def __init__(self, equation: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))
        self.equation = equation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = torch.einsum(self.equation, x, x @ self.weight)
        return logits.softmax(-1)


@pytest.mark.parametrize(("equation", "seen"), [("abcd,abed->abce", 1), ("...cd,...ed", 0)])
def test_an_equation_without_an_arrow_is_left_out_and_does_not_stop_the_model(equation: str, seen: int) -> None:
    model, received = _Einsum(equation), list[TappedAttention]()
    x = torch.randn(2, 4, 5, 3, generator=torch.Generator().manual_seed(0))
    with tap_attention(model, None, lambda _, attention: received.append(attention)):
        weights = model(x)
    assert len(received) == seen
    torch.testing.assert_close(weights, (x @ x.transpose(-1, -2)).softmax(-1))


class _WithPositions(nn.Module):
    """Attention with a term of positions beside queries and keys; as many keys as a head is wide."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 4, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = x @ x.transpose(-1, -2)
        logits = logits + x @ self.table.expand(*x.shape[:-2], 4, 4)
        return logits.softmax(-1) @ x


def test_the_first_product_of_a_pass_is_that_of_queries_and_keys() -> None:
    """Neither the term of positions nor the values of the pass before, which have the same shape, are taken for it."""
    model, received = _WithPositions(), list[TappedAttention]()
    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    with tap_attention(nn.Sequential(model, model), None, lambda _, attention: received.append(attention)):
        model(model(x))
    assert [attention.name for attention in received] == ["0", "0"] and received[0].module is model
    torch.testing.assert_close(received[0].k_BHTK, x)
    torch.testing.assert_close(received[1].q_BHSK, model(x))


@pytest.mark.parametrize("rows", [None, 2])
def test_rows_and_heads_that_share_an_axis_are_told_apart(rows: int | None) -> None:
    """By the number of texts, or by what the module says of its heads; and other logits are what it goes on with."""
    model, received = _WithPositions(), list[TappedAttention]()
    if rows is None:
        model.num_heads = 3
    x = torch.randn(6, 4, 4, generator=torch.Generator().manual_seed(0))

    def look_at_the_first(_: int, attention: TappedAttention) -> torch.Tensor:
        received.append(attention)
        logits = torch.full_like(attention.logits_BHST, -1e9)
        logits[..., 0] = 0
        return logits

    with tap_attention(model, rows, look_at_the_first):
        output = model(x)
    torch.testing.assert_close(received[0].q_BHSK, x.unflatten(0, (2, 3)))
    torch.testing.assert_close(output, x[:, :1].expand_as(x))


def test_a_logit_of_no_key_takes_weight_and_the_others_are_told_beside_it() -> None:
    """As GPT-OSS writes it: the largest of a row is taken away from all, which changes no distance."""
    sink, received = torch.tensor(1.5), list[TappedAttention]()

    class WithSink(_WithPositions):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits = torch.cat([x @ x.transpose(-1, -2), sink.expand(*x.shape[:-1], 1)], dim=-1)
            return (logits - logits.amax(-1, keepdim=True)).softmax(-1)[..., :-1]

    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    with tap_attention(model := WithSink(), None, lambda _, attention: received.append(attention)):
        weights = model(x)
    assert received[0].sink
    torch.testing.assert_close(received[0].logits_BHST, x @ x.transpose(-1, -2) - sink)
    with tap_attention(model, None, lambda _, attention: torch.zeros_like(attention.logits_BHST)):
        torch.testing.assert_close(model(x), torch.full_like(weights, 1 / 5))  # four keys and the sink alike


class _TwoLayers(nn.Module):
    """Two attentions in one module, as in a GPT of a single class."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = (self.gain * x @ x.transpose(-1, -2)).softmax(-1) @ x.flip(-1)
        return x


@pytest.mark.parametrize("keys", [4, 5])
def test_the_values_of_the_layer_before_are_not_taken_for_queries_of_the_next(keys: int) -> None:
    """Also where there are as many keys as a head is wide, so that both products have one shape."""
    model, received = _TwoLayers(), list[TappedAttention]()
    x = torch.randn(2, 3, keys, 4, generator=torch.Generator().manual_seed(0))
    with tap_attention(model, None, lambda _, attention: received.append(attention)):
        model(x)
    second = (x @ x.mT).softmax(-1) @ x.flip(-1)
    for attention, state in zip(received, (x, second), strict=True):
        torch.testing.assert_close(attention.logits_BHST, attention.q_BHSK @ attention.k_BHTK.mT)
        torch.testing.assert_close(attention.k_BHTK, state)
