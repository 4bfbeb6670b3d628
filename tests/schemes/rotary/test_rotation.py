"""Both forms of the rotation, in every memory layout and dtype, equal the formula; so do the compiled ones."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from clockhands.schemes import RoPE
from clockhands.schemes.rotary import rotation
from clockhands.schemes.rotary.rotation import Layout, Memo, compile_rotation, rotate_pairs


def plain(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Pair by pair, in float64."""
    out, pairs = x.double().clone(), cos.shape[-1]
    for c in range(pairs):
        a, b = (c, c + pairs) if layout == "half" else (2 * c, 2 * c + 1)
        out[..., a] = x[..., a].double() * cos[..., c] - x[..., b].double() * sin[..., c]
        out[..., b] = x[..., b].double() * cos[..., c] + x[..., a].double() * sin[..., c]
    return out


def memory(name: str, dtype: torch.dtype) -> Tensor:
    """Heads [2, 3, 5, 8] as they come: dense, split off a projection, or with steps that no complex view allows."""
    if name == "dense":
        return torch.randn(2, 3, 5, 8).to(dtype)
    if name == "split":
        return torch.randn(2, 5, 3, 8).to(dtype).transpose(1, 2)
    return torch.randn(2, 3, 5, 9).to(dtype)[..., 1:]


KERNELS = ("eager", "compiled")
WHERE = ("dense", "split", "odd")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def every_form() -> Iterator[Any]:
    """All forms eagerly; of the compiled ones, a second each, those in which any two values meet.

    Halves alone are compiled: neighbours take the same way as without.
    """
    for kernel, (p, pairs), (n, layout), (d, dtype), (w, where) in product(
        KERNELS, *(enumerate(values) for values in ((4, 3, 1), ("half", "interleaved"), DTYPES, WHERE))
    ):
        if kernel == "compiled" and layout == "interleaved":
            continue
        met = p == (d + w) % 3 and n == (d + w) % 2
        marks = () if kernel != "compiled" or met else pytest.mark.exhaustive
        yield pytest.param(kernel, layout, dtype, where, pairs, marks=marks)


@pytest.fixture(params=KERNELS)
def _kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    compile_rotation(request.param == "compiled", backend="eager")
    yield
    compile_rotation(False)


@pytest.mark.usefixtures("_kernel")
@pytest.mark.parametrize(
    ("_kernel", "layout", "dtype", "where", "pairs"), list(every_form()), indirect=["_kernel"], ids=str
)
def test_rotation_equals_the_formula(layout: Layout, dtype: torch.dtype, where: str, pairs: int) -> None:
    x, angle = memory(where, dtype), torch.randn(2, 1, 5, pairs, dtype=torch.float64)
    high = torch.float64 if dtype == torch.float64 else torch.float32
    got = rotate_pairs(x, angle.cos().to(high), angle.sin().to(high), layout)
    assert got.dtype == dtype
    limit = 4 * torch.finfo(dtype).eps * float(x.abs().max())
    torch.testing.assert_close(got.double(), plain(x, angle.cos(), angle.sin(), layout), atol=limit, rtol=0)


@pytest.mark.usefixtures("_kernel")
@pytest.mark.parametrize(
    ("_kernel", "layout", "learned"),
    [*product(["eager"], ["half", "interleaved"], [False, True]), ("compiled", "half", False)],
    indirect=["_kernel"],
)
def test_gradients_twice_equal_finite_differences(layout: Layout, learned: bool) -> None:
    x = memory("split", torch.float64)[:1, :2, :2].requires_grad_()
    angle = torch.randn(1, 1, 2, 3, dtype=torch.float64, requires_grad=learned)

    def rotated(x: Tensor, angle: Tensor) -> Tensor:
        return rotate_pairs(x, angle.cos(), angle.sin(), layout)

    assert torch.autograd.gradcheck(rotated, (x, angle))
    assert torch.autograd.gradgradcheck(rotated, (x, angle))


@pytest.mark.usefixtures("_kernel")
@pytest.mark.parametrize(
    ("_kernel", "layout"), [("eager", "half"), ("eager", "interleaved"), ("compiled", "half")], indirect=["_kernel"]
)
def test_queries_and_keys_in_one_call_are_each_alone(layout: Layout) -> None:
    """Also where they lie differently in memory, and where only one of them is asked for its gradient."""
    scheme, pos = RoPE(8, layout=layout), torch.arange(5)[None].expand(2, -1)
    for first, second in (("split", "split"), ("dense", "split"), ("odd", "dense")):
        q, k = memory(first, torch.float32).requires_grad_(), memory(second, torch.float32).requires_grad_()
        both, alone = scheme.rotate(q, k, pos, pos), scheme.rotate(q, k, pos, pos.clone())
        goal = torch.randn(2, 3, 5, 8)
        for at, x in enumerate((q, k)):
            assert torch.equal(both[at], alone[at])
            assert torch.equal(
                *(torch.autograd.grad((out[at] * goal).sum(), x, retain_graph=True)[0] for out in (both, alone))
            )


def test_what_does_not_rotate_keeps_every_bit() -> None:
    x = memory("dense", torch.bfloat16)
    angle = torch.randn(1, 1, 5, 2)
    for layout in ("half", "interleaved"):
        assert torch.equal(rotate_pairs(x, angle.cos(), angle.sin(), layout)[..., 4:], x[..., 4:])  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_every_row_of_vmap_and_the_derivative_forward_are_the_formula(layout: Layout) -> None:
    x, angle = torch.randn(3, 2, 3, 5, 8, dtype=torch.float64), torch.randn(3, 1, 1, 5, 3, dtype=torch.float64)

    def rotated(x: Tensor, angle: Tensor) -> Tensor:
        return rotate_pairs(x, angle.cos(), angle.sin(), layout)

    for in_dims in ((0, 0), (0, None), (None, 0)):
        given = [whole if axis == 0 else whole[0] for whole, axis in zip((x, angle), in_dims, strict=True)]
        got = torch.func.vmap(rotated, in_dims)(*given)
        for row in range(3):
            a, b = (whole if axis is None else whole[row] for whole, axis in zip(given, in_dims, strict=True))
            torch.testing.assert_close(got[row], plain(a, b.cos(), b.sin(), layout))
    value, tangent = torch.func.jvp(lambda x: rotated(x, angle[0]), (x[0],), (x[1],))
    torch.testing.assert_close(value, plain(x[0], angle[0].cos(), angle[0].sin(), layout))
    torch.testing.assert_close(tangent, plain(x[1], angle[0].cos(), angle[0].sin(), layout))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_blocks_end_anywhere(layout: Layout, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    angle = torch.randn(2, 1, 5, 3)
    for where in ("dense", "split", "odd"):
        x = memory(where, dtype)
        whole = rotate_pairs(x, angle.cos(), angle.sin(), layout)
        for block in (1, 100, 150):
            monkeypatch.setattr(rotation, "BLOCK", block)
            blocks = rotate_pairs(x, angle.cos(), angle.sin(), layout)
            torch.testing.assert_close(blocks, whole, atol=2 * torch.finfo(dtype).eps, rtol=2 * torch.finfo(dtype).eps)
        monkeypatch.undo()
    assert rotate_pairs(x[:, :, :0], angle[:, :, :0], angle[:, :, :0], layout).shape == (2, 3, 0, 8)


def test_rotation_is_compiled_until_told_otherwise() -> None:
    try:
        compile_rotation(backend="eager")
        assert rotation._compiled is not None
    finally:
        compile_rotation(False)
    assert rotation._compiled is None


def test_all_layers_share_one_table_and_another_position_tensor_does_not() -> None:
    memo, calls = Memo(), []
    pos = torch.arange(4)[None]
    for _ in range(3):
        memo(pos, ("a",), lambda *_: calls.append(0))
    assert len(calls) == 1
    memo(pos, ("b",), lambda *_: calls.append(0))
    memo(pos.clone(), ("b",), lambda *_: calls.append(0))
    assert len(calls) == 3


def test_trap_12_a_position_tensor_changed_in_place_or_freed_is_forgotten() -> None:
    memo = Memo()
    pos = torch.arange(4)[None]
    assert memo(pos, ("a",), lambda *_: "before") == "before"
    pos += 1
    assert memo(pos, ("a",), lambda *_: "after") == "after"
    del pos
    gc.collect()
    assert memo(torch.arange(4)[None], ("a",), lambda *_: "new") == "new"


def test_nothing_is_kept_in_inference_mode_or_for_positions_with_gradients() -> None:
    memo, pos = Memo(), torch.arange(4)[None]
    with torch.inference_mode():
        memo(pos, ("a",), lambda *_: "inside")
    assert memo(pos, ("a",), lambda *_: "outside") == "outside"
    learned = torch.zeros(1, 2, requires_grad=True)
    memo(learned, ("a",), lambda *_: 1)
    assert memo(learned, ("a",), lambda *_: 2) == 2


def test_what_was_made_in_inference_mode_can_be_trained_with_afterwards() -> None:
    scheme, pos, q = RoPE(8), torch.arange(3)[None], torch.randn(1, 1, 3, 8, requires_grad=True)
    with torch.inference_mode():
        scheme.rotate(q.detach(), q.detach(), pos, pos)
    scheme.rotate(q, q, pos, pos)[0].sum().backward()
    assert q.grad is not None
