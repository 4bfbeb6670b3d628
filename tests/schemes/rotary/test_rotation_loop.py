"""The compiled loop gives the bits of PyTorch's own operations, wherever it may run, and is left out elsewhere."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from clockhands.schemes import RoPE
from clockhands.schemes.rotary import loop_choice, loop_code, rotation, rotation_loop
from clockhands.schemes.rotary.base import rotate_pairs
from tests.schemes.rotary.programs import Ended, run_programs

pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="PyTorch rounds elsewhere here"
)

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
HEADS, LENGTH, WIDTH = 6, 300, 64
POS = torch.arange(LENGTH)[None].expand(2, -1)


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No rotation is too early for the loop; the number of threads is restored."""
    monkeypatch.setattr(loop_choice, "LOOP_AFTER", 0)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    loop_choice._find_loop.cache_clear()


def draw(dtype: torch.dtype, where: str = "split") -> Tensor:
    """Draw heads [2, 6, 300, 64]."""
    torch.manual_seed(0)
    if where == "dense":
        return torch.randn(2, HEADS, LENGTH, WIDTH).to(dtype)
    if where == "split":
        return torch.randn(2, LENGTH, HEADS, WIDTH).to(dtype).transpose(1, 2)
    if where == "of three":
        return torch.randn(2, LENGTH, 3 * HEADS, WIDTH).to(dtype)[:, :, HEADS : 2 * HEADS].transpose(1, 2)
    return torch.randn(1, 1, LENGTH, WIDTH).to(dtype).expand(2, HEADS, -1, -1)


@contextmanager
def looping(loop: bool = True) -> Iterator[list[int]]:
    """Inside the block the loop is used, or is not; what it yields has an entry for each time that one ran."""
    calls: list[int] = []
    rotate = rotation_loop.rotate_halves_in_loop

    def count(*arguments: Any) -> Tensor:
        calls.append(1)
        return rotate(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotation_loop, "rotate_halves_in_loop", count)
        patch.setattr(loop_choice, "LOOP_AFTER", 0 if loop else 1 << 60)
        loop_choice._find_loop.cache_clear()
        for dtype in DTYPES:
            loop_choice._find_loop(dtype, rotation._rotate_halves)  # compiles it, and compares
        calls.clear()
        yield calls
    loop_choice._find_loop.cache_clear()


def turn(scheme: RoPE, x: Tensor, *, loop: bool) -> Tensor:
    """Rotate with or without the loop, and make sure that it was so."""
    with looping(loop) as calls:
        rotated = scheme.rotate(x, x, POS, POS)[0]
    assert bool(calls) == loop
    return rotated


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("where", ["dense", "split", "of three", "expanded"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("threads", [1, 3])
def test_bits_are_those_of_pytorch(
    dtype: torch.dtype, where: str, fraction: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(threads)
    monkeypatch.setattr(rotation_loop, "FEWEST_PER_THREAD", 1)
    scheme, x = RoPE(WIDTH, layout="half", fraction=fraction), draw(dtype, where)
    with_loop, without = (turn(scheme, x, loop=loop) for loop in (True, False))
    assert torch.equal(with_loop, without) and with_loop.stride() == without.stride()
    assert not torch.equal(with_loop, x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_no_number_stays_none(dtype: torch.dtype) -> None:
    """A NaN whose bits are all ones would round to zero, and the largest number to an infinity."""
    x = draw(dtype)
    special = [float("nan"), float("inf"), -float("inf"), torch.finfo(dtype).max, torch.finfo(dtype).tiny / 4, -0.0]
    for place, value in enumerate(special):
        x[0, 0, place, 3] = value
    if dtype == torch.bfloat16:
        x.view(torch.int16)[0, 0, 9, 3] = -1
    scheme = RoPE(WIDTH, layout="half")
    with_loop, without = (turn(scheme, x, loop=loop) for loop in (True, False))
    assert torch.equal(with_loop.isnan(), without.isnan()) and with_loop.isnan().sum() >= 2
    assert torch.equal(with_loop.nan_to_num(7.0, 8.0, 9.0), without.nan_to_num(7.0, 8.0, 9.0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gradient_goes_through_the_loop(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, gradients = RoPE(WIDTH, layout="half"), []
    for loop in (True, False):
        x = draw(dtype).requires_grad_()
        rotated = turn(scheme, x, loop=loop)
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


def test_what_is_compiled_or_traced_has_the_operations() -> None:
    """Also where the table was made before: a loop that it does not see would break its graph."""
    scheme, x = RoPE(WIDTH, layout="half"), draw(torch.float32)

    def rotate(x: Tensor) -> Tensor:
        return scheme.rotate(x, x, POS, POS)[0]

    plain = rotate(x)
    with looping() as calls:
        compiled = torch.compile(rotate, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), plain, atol=1e-6, rtol=1e-6)
        traced = make_fx(rotate, tracing_mode="real")(x)
        assert not calls
    torch.testing.assert_close(traced(2 * x), rotate(2 * x), atol=1e-6, rtol=1e-6)


def test_tables_that_are_broadcast_are_those_of_pytorch() -> None:
    """Of the whole batch, of each text, of each head, or without the axes that they share."""
    x = draw(torch.bfloat16)
    for shape in ((1, 1, LENGTH, 20), (2, 1, LENGTH, 20), (1, HEADS, LENGTH, 20), (2, HEADS, LENGTH, 20)):
        angle = torch.randn(shape)
        for tables in ((angle.cos(), angle.sin()), (angle[0].cos(), angle[0].sin())):
            both = []
            for loop in (True, False):
                with looping(loop):
                    both.append(rotate_pairs(x, *tables, "half"))
            assert torch.equal(*both)
        with looping() as calls:
            rotate_pairs(x, angle.cos(), angle.sin(), "half")
        assert calls


def test_what_does_not_fit_is_refused_by_pytorch_as_ever() -> None:
    """The loop looks at no bounds: it must not see a table that is too short, or heads that are too narrow."""
    x, scheme = draw(torch.float32), RoPE(WIDTH, layout="half")
    for shape in ((1, 1, LENGTH - 10, WIDTH // 2), (3, 1, LENGTH, WIDTH // 2), (1, HEADS + 1, LENGTH, WIDTH // 2)):
        angle = torch.randn(shape)
        with looping() as calls, pytest.raises(RuntimeError):
            rotate_pairs(x, angle.cos(), angle.sin(), "half")
        assert not calls
    with looping() as calls, pytest.raises(RuntimeError):
        scheme.rotate(x, x[..., : WIDTH // 2].contiguous(), POS, POS)
    assert not calls
    table = rotation.make_table(torch.ones(1, 1, LENGTH, 8), torch.zeros(1, 1, LENGTH, 8), "half", 24, x.dtype)
    with looping() as calls, pytest.raises(RuntimeError):
        rotation.rotate_heads(table, x)
    assert not calls


def test_windows_that_overlap_keep_their_channels_together() -> None:
    """Of such heads PyTorch makes new ones in another order of memory."""
    x = torch.randn(2, HEADS, 40 + WIDTH - 1).unfold(-1, WIDTH, 1)
    assert torch.empty_like(x).stride(-1) != 1
    scheme, at, both = RoPE(WIDTH, layout="half"), torch.arange(40)[None].expand(2, -1), []
    for loop in (True, False):
        with looping(loop) as calls:
            both.append(scheme.rotate(x, x, at, at)[0])
        assert bool(calls) == loop
    assert torch.equal(*both)


def test_tensors_with_a_sign_to_come_take_the_operations() -> None:
    x = torch._neg_view(draw(torch.float32))
    scheme = RoPE(WIDTH, layout="half")
    assert torch.equal(scheme.rotate(x, x, POS, POS)[0], scheme.rotate(x.resolve_neg(), x.resolve_neg(), POS, POS)[0])


@pytest.fixture(scope="module")
def programs() -> dict[str, Ended]:
    """How whole programs ended."""
    return run_programs()


def test_a_thread_that_outlives_the_program_rotates(programs: dict[str, Ended]) -> None:
    """After the main thread has ended no thread can be started, and the loop runs in the one that calls it."""
    code, printed, errors = programs["outliving"]
    assert (code, printed) == (0, "rotated (2, 6, 300, 64)\n"), errors


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_forked_while_another_thread_compiles_rotates_without_the_loop(programs: dict[str, Ended]) -> None:
    """The lock of LLVM is held by a thread that the new process does not have, and nobody releases it."""
    code, printed, errors = programs["forking"]
    assert (code, printed) == (0, "child ended with 0\n"), errors


def test_a_program_ends_while_a_thread_compiles(programs: dict[str, Ended]) -> None:
    """Without a message, whatever LLVM is at: the thread compiles again and again, and nobody waits for it."""
    assert programs["compiling"] == (0, "ends\n", "")


def test_threads_that_rotate_at_once_all_have_the_bits_of_pytorch() -> None:
    """Each is there before the loop is, and compiles it or waits for another's."""
    scheme, x = RoPE(WIDTH, layout="half"), draw(torch.float32)
    plain = turn(scheme, x, loop=False)
    loop_choice._find_loop.cache_clear()
    loop_code.compile_loop.cache_clear()
    together = threading.Barrier(4)

    def rotate(_: int) -> Tensor:
        together.wait(timeout=60)
        return scheme.rotate(x, x, POS, POS)[0]

    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(rotated, plain) for rotated in pool.map(rotate, range(4)))
    assert loop_choice._find_loop(torch.float32, rotation._rotate_halves)


def test_heads_of_any_shape_have_the_bits_of_pytorch() -> None:
    """None is too small: blocks of pairs and what is left of them, channels that stay, and no number at all."""
    draw_from = random.Random(0)
    for _ in range(400):
        dtype, pairs = draw_from.choice(DTYPES), draw_from.choice((0, 1, 2, 3, 8, 15, 16, 17, 32, 33, 64))
        batch, heads, length = draw_from.choice((0, 1, 2)), draw_from.choice((1, 3)), draw_from.choice((0, 1, 2, 17))
        x = torch.randn(batch, heads, length, 2 * pairs + draw_from.choice((1, 2, 16)), dtype=torch.float64).to(dtype)
        angle = torch.randn(draw_from.choice((1, batch)), draw_from.choice((1, heads)), length, pairs)
        table = rotation.make_table(angle.cos(), angle.sin(), "half", x.shape[-1], dtype)
        assert isinstance(table, rotation.HalvesTable)
        with_loop = rotation_loop.rotate_halves_in_loop(x, *table)
        assert torch.equal(with_loop, rotation._rotate_halves(x, *table, -2)), (x.shape, angle.shape, dtype)


def test_heads_of_float16_take_the_operations() -> None:
    scheme, x = RoPE(WIDTH, layout="half"), draw(torch.float16)
    with looping() as calls:
        assert scheme.rotate(x, x, POS, POS)[0].shape == x.shape
    assert not calls


def test_a_loop_is_compiled_once_enough_was_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 tensors of 2 × 6 × 300 × 64 numbers a call: the third call has 921,600 before it. No bit changes with it."""
    scheme, x = RoPE(WIDTH, layout="half"), draw(torch.float32)
    plain = turn(scheme, x, loop=False)
    monkeypatch.setattr(loop_choice, "_rotated", 0)
    with looping() as calls:
        monkeypatch.setattr(loop_choice, "LOOP_AFTER", 900_000)
        counts = []
        for _ in range(3):
            assert torch.equal(scheme.rotate(x, x, POS, POS)[0], plain)
            counts.append(len(calls))
    assert counts == [0, 0, 2]


@pytest.mark.parametrize("fault", [ImportError, OSError, AttributeError, SystemError])
def test_whatever_llvm_raises_pytorch_rotates(fault: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, x = RoPE(WIDTH, layout="half"), draw(torch.float32)
    plain = turn(scheme, x, loop=False)

    def fail(*_: object) -> object:
        raise fault("LLVM")

    loop_choice._find_loop.cache_clear()
    monkeypatch.setattr(rotation_loop, "compile_loop", fail)
    assert torch.equal(scheme.rotate(x, x, POS, POS)[0], plain)
    assert loop_choice._find_loop(torch.float32, rotation._rotate_halves) is None


def test_a_loop_that_rounds_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    loop_choice._find_loop.cache_clear()
    run = rotation_loop.rotate_halves_in_loop
    monkeypatch.setattr(rotation_loop, "rotate_halves_in_loop", lambda *arguments: run(*arguments) * (1 + 2e-7))
    assert loop_choice._find_loop(torch.float32, rotation._rotate_halves) is None
