"""The compiled loop gives the bits of PyTorch's own operations, wherever it may run, and is left out elsewhere."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from clockhands.schemes import RoPE
from clockhands.schemes.rotary import rotation
from clockhands.schemes.rotary.rotation import Layout

rotation_loop = pytest.importorskip("clockhands.schemes.rotary.rotation_loop", reason="numba is not installed")
pytestmark = pytest.mark.skipif(not rotation_loop.is_supported(), reason="the loop does not run on this processor")

FORMS = [
    pytest.param("half", torch.float32, id="half-float32"),
    pytest.param("half", torch.float64, id="half-float64"),
    pytest.param("half", torch.bfloat16, id="half-bfloat16"),
    pytest.param("interleaved", torch.bfloat16, id="interleaved-bfloat16"),
]
HEADS, LENGTH, WIDTH = 6, 300, 64
POS = torch.arange(LENGTH)[None]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def draw(dtype: torch.dtype, where: str = "split") -> Tensor:
    """Draw heads [2, 6, 300, 64], more numbers than the loop needs."""
    torch.manual_seed(0)
    if where == "dense":
        return torch.randn(2, HEADS, LENGTH, WIDTH).to(dtype)
    if where == "split":
        return torch.randn(2, LENGTH, HEADS, WIDTH).to(dtype).transpose(1, 2)
    if where == "of three":
        return torch.randn(2, LENGTH, 3 * HEADS, WIDTH).to(dtype)[:, :, HEADS : 2 * HEADS].transpose(1, 2)
    return torch.randn(1, 1, LENGTH, WIDTH).to(dtype).expand(2, HEADS, -1, -1)


def turn(scheme: RoPE, x: Tensor, *, loop: bool, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Rotate with or without the loop, and make sure that it was so."""
    calls: list[int] = []
    run = rotation_loop._run

    def count(*arguments: Any) -> Tensor:
        calls.append(1)
        return run(*arguments)  # type: ignore[no-any-return]

    with monkeypatch.context() as patch:
        patch.setattr(rotation_loop, "_run", count)
        patch.setattr(rotation, "_find_loops", lambda: rotation_loop if loop else None)
        rotated = scheme.rotate(x, x, POS, POS)[0]
    assert bool(calls) == loop
    return rotated


@pytest.mark.parametrize(("layout", "dtype"), FORMS)
@pytest.mark.parametrize("where", ["dense", "split", "of three", "expanded"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("threads", [1, 3])
def test_bits_are_those_of_pytorch(
    layout: Layout, dtype: torch.dtype, where: str, fraction: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(threads)
    monkeypatch.setattr(rotation_loop, "FEWEST_PER_THREAD", 1)
    scheme, x = RoPE(WIDTH, layout=layout, fraction=fraction), draw(dtype, where)
    with_loop, without = (turn(scheme, x, loop=loop, monkeypatch=monkeypatch) for loop in (True, False))
    assert torch.equal(with_loop, without) and with_loop.stride() == without.stride()
    assert not torch.equal(with_loop, x)


@pytest.mark.parametrize(("layout", "dtype"), FORMS)
def test_what_is_no_number_stays_none(layout: Layout, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN whose bits are all ones would round to zero, and the largest number to an infinity."""
    x = draw(dtype)
    special = [float("nan"), float("inf"), -float("inf"), torch.finfo(dtype).max, torch.finfo(dtype).tiny / 4, -0.0]
    for place, value in enumerate(special):
        x[0, 0, place, 3] = value
    if dtype == torch.bfloat16:
        x.view(torch.int16)[0, 0, 9, 3] = -1
    scheme = RoPE(WIDTH, layout=layout)
    with_loop, without = (turn(scheme, x, loop=loop, monkeypatch=monkeypatch) for loop in (True, False))
    assert torch.equal(with_loop.isnan(), without.isnan()) and with_loop.isnan().sum() >= 2
    assert torch.equal(with_loop.nan_to_num(7.0, 8.0, 9.0), without.nan_to_num(7.0, 8.0, 9.0))


@pytest.mark.parametrize(("layout", "dtype"), FORMS)
def test_the_gradient_goes_through_the_loop(
    layout: Layout, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme, gradients = RoPE(WIDTH, layout=layout), []
    for loop in (True, False):
        x = draw(dtype).requires_grad_()
        rotated = turn(scheme, x, loop=loop, monkeypatch=monkeypatch)
        gradients.append(torch.autograd.grad(rotated.square().sum() + rotated.sum(), x)[0])
    assert torch.equal(*gradients)


def test_transforms_of_functions_go_through_it_or_round_it() -> None:
    """What has no plain memory, as in ``vmap``, takes PyTorch's operations."""
    scheme, x = RoPE(WIDTH, layout="half"), draw(torch.float32)

    def rotate(x: Tensor) -> Tensor:
        return scheme.rotate(x, x, POS, POS)[0]

    plain = rotate(x)
    assert torch.equal(torch.func.vmap(rotate)(x[None])[0], plain)
    value, tangent = torch.func.jvp(rotate, (x,), (x,))
    assert torch.equal(value, plain) and torch.equal(tangent, plain)
    _, pull = torch.func.vjp(rotate, x)
    torch.testing.assert_close(pull(plain)[0], x, atol=1e-5, rtol=1e-5)
    with torch.inference_mode():
        assert torch.equal(rotate(x), plain)


def test_a_compiler_sees_the_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the table was made before: a loop that it does not see would break its graph."""
    scheme, x = RoPE(WIDTH, layout="half"), draw(torch.float32)
    plain = scheme.rotate(x, x, POS, POS)[0]
    monkeypatch.setattr(rotation, "_find_loops", lambda: pytest.fail("the loop was asked for"))
    compiled = torch.compile(lambda x: scheme.rotate(x, x, POS, POS)[0], backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), plain, atol=1e-6, rtol=1e-6)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    monkeypatch.setattr(rotation_loop, "FEWEST_PER_THREAD", 1)
    x = draw(torch.float32)
    cos, sin = torch.ones(1, 1, LENGTH, WIDTH), torch.zeros(1, 1, LENGTH, WIDTH)
    assert torch.equal(rotation_loop.rotate_halves_in_loop(x, cos, sin, WIDTH // 2), x)
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends the child, should it wait for threads that it does not have
        # No operation of PyTorch on many numbers: its own threads are not there either.
        rotated = rotation_loop.rotate_halves_in_loop(x, cos, sin, WIDTH // 2)
        os._exit(0 if (rotated.numpy() == x.numpy()).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_heads_of_float16_and_small_ones_take_the_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "_find_loops", lambda: pytest.fail("the loop was asked for"))
    scheme = RoPE(WIDTH, layout="half")
    half, few = draw(torch.float16), draw(torch.float32)[:1, :1]
    for x in (half, few):
        assert scheme.rotate(x, x, POS, POS)[0].shape == x.shape


def test_without_numba_pytorch_rotates(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, x = RoPE(WIDTH, layout="half"), draw(torch.float32)
    plain = scheme.rotate(x, x, POS, POS)[0]
    rotation._find_loops.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "clockhands.schemes.rotary.rotation_loop")
    monkeypatch.delattr("clockhands.schemes.rotary.rotation_loop")
    try:
        assert rotation._find_loops() is None
        assert torch.equal(scheme.rotate(x, x, POS, POS)[0], plain)
    finally:
        rotation._find_loops.cache_clear()


def test_the_loop_is_left_out_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation_loop.numba.config, "DISABLE_JIT", 1)
    assert not rotation_loop.is_supported()
    monkeypatch.undo()
    monkeypatch.setattr(rotation_loop.binding, "get_host_cpu_features", lambda: {"fma": False})
    assert not rotation_loop.is_supported()
