"""The loop that rotates halves, written in LLVM's language and made machine code: a block of pairs in each step.

LLVM takes 0.02 s for it, after 0.03 to 0.09 s to be loaded (processor time), so that nothing is kept on disk, and no
thread has to hide it. Numba, which derives such a loop from Python, took 0.9 to 1.2 s. A thread would have hidden a
third of that: type inference holds the interpreter, so that for 1.5 s forward passes took 2.3 times as long, and one
0.25 s more.

A block is a vector of LLVM's, so that no pass of its optimiser is needed. They take as long as all the rest, and make
blocks of 64 pairs, where heads of 64 channels have 32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import torch
from llvmlite import ir

__all__ = ["Code", "compile_loop"]

BLOCK = 64
"""Bytes of the float32 or float64 numbers of a block, which AVX-512 computes at once, AVX2 in two steps."""
SIZES = 18
"""Strides of the first three axes of heads, cosines, sines and what becomes of the heads; the lengths of the second and
third axis, pairs, width; the first row of the first two axes together, and the row after the last."""

Code = Callable[..., None]
"""The machine code. Its arguments are the addresses of x, cos, sin and out, and of the sizes as int64."""

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)


@cache
def compile_loop(dtype: torch.dtype) -> Code:
    """Compile the loop for float32, float64 or bfloat16.

    Raises:
        NotImplementedError: this processor has no fused step, for which LLVM would call a function that may be missing.
    """
    features = llvm.get_host_cpu_features()
    if features.get("fma") is False:  # processors other than x86 do not list it, and have it
        raise NotImplementedError("this processor does not multiply and add in one step (FMA)")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=2, jit=True
    )
    module = llvm.parse_assembly(str(_write_loop(dtype)))
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.POINTER(ctypes.c_int64))
    code = kind(engine.get_function_address("rotate"))

    def run(*arguments: Any, _engine: object = engine) -> None:  # the machine code is there as long as its engine
        code(*arguments)

    return run


class _Numbers(NamedTuple):
    """Arithmetic on ``lanes`` numbers, as PyTorch rounds it."""

    builder: ir.IRBuilder
    dtype: torch.dtype
    lanes: int

    def make_type(self, scalar: ir.Type) -> ir.Type:
        return ir.VectorType(scalar, self.lanes) if self.lanes > 1 else scalar

    @property
    def stored(self) -> ir.Type:
        """In memory; bfloat16 as its 16 bits."""
        return self.make_type(_get_stored(self.dtype))

    @property
    def computed(self) -> ir.Type:
        return self.make_type(_get_scalar(self.dtype))

    def make_integer(self, value: int) -> ir.Constant:
        return ir.Constant(self.make_type(_I32), [value] * self.lanes if self.lanes > 1 else value)

    def get_address(self, tensor: Any, index: Any) -> Any:
        """Return the address of the numbers from an index on."""
        return self.builder.bitcast(self.builder.gep(tensor, [index]), self.stored.as_pointer())

    def load(self, tensor: Any, index: Any) -> Any:
        return self.widen(self.builder.load(self.get_address(tensor, index), align=self.dtype.itemsize))

    def store(self, value: Any, tensor: Any, index: Any) -> None:
        self.builder.store(self.narrow(value), self.get_address(tensor, index), align=self.dtype.itemsize)

    def widen(self, stored: Any) -> Any:
        """Return a bfloat16, given as its 16 bits, as a float32; others as they are."""
        if self.dtype != torch.bfloat16:
            return stored
        bits = self.builder.zext(stored, self.make_type(_I32))
        return self.builder.bitcast(self.builder.shl(bits, self.make_integer(16)), self.computed)

    def narrow(self, number: Any) -> Any:
        """Return the 16 bits of the bfloat16 nearest to a float32, the even one of two that are equally near."""
        if self.dtype != torch.bfloat16:
            return number
        builder, half = self.builder, self.make_integer(16)
        bits = builder.bitcast(number, self.make_type(_I32))
        odd = builder.and_(builder.lshr(bits, half), self.make_integer(1))
        # What is no number stays none: it was made of bfloat16 or by the processor, so that its other bits are 0.
        rounded = builder.lshr(builder.add(bits, builder.add(odd, self.make_integer(0x7FFF))), half)
        return builder.trunc(rounded, self.stored)

    def multiply_add(self, a: Any, b: Any, c: Any, d: Any) -> Any:
        """Return a·b + c·d: a·b rounded, c·d added to it in one fused step."""
        product = self.widen(self.narrow(self.builder.fmul(a, b)))
        vector = f"v{self.lanes}" if self.lanes > 1 else ""
        kind = ir.FunctionType(self.computed, [self.computed] * 3)
        fused = f"llvm.fma.{vector}{_get_scalar(self.dtype).intrinsic_name}"
        return self.builder.call(_declare(self.builder.module, kind, fused), [c, d, product])


def _get_scalar(dtype: torch.dtype) -> Any:
    return ir.DoubleType() if dtype == torch.float64 else ir.FloatType()


def _get_stored(dtype: torch.dtype) -> Any:
    return _I16 if dtype == torch.bfloat16 else _get_scalar(dtype)


def _declare(module: ir.Module, kind: ir.FunctionType, name: str) -> Any:
    return module.globals.get(name) or ir.Function(module, kind, name)


def _write_loop(dtype: torch.dtype) -> ir.Module:
    """Write the loop over rows, the third axis, blocks of pairs, the rest of the pairs, and channels that stay."""
    module = ir.Module()
    kind = ir.FunctionType(ir.VoidType(), [_get_stored(dtype).as_pointer()] * 4 + [_I64.as_pointer()])
    function = ir.Function(module, kind, "rotate")
    builder = ir.IRBuilder(function.append_basic_block())
    *tensors, at = function.args
    sizes = [builder.load(builder.gep(at, [_I64(number)])) for number in range(SIZES)]
    strides, (second, third, pairs, width, first, last) = sizes[:12], sizes[12:]
    lanes = BLOCK // (8 if dtype == torch.float64 else 4)
    single, block = _Numbers(builder, dtype, 1), _Numbers(builder, dtype, lanes)
    whole = builder.mul(builder.sdiv(pairs, _I64(lanes)), _I64(lanes))
    with _count(builder, first, last) as row, _count(builder, _I64(0), third) as k:
        place = builder.sdiv(row, second), builder.srem(row, second), k
        starts = [_move(builder, tensor, place, strides[3 * n : 3 * n + 3]) for n, tensor in enumerate(tensors)]
        with _count(builder, _I64(0), whole, lanes) as pair:
            _rotate_pairs(block, starts, pair, pairs)
        with _count(builder, whole, pairs) as pair:
            _rotate_pairs(single, starts, pair, pairs)
        with _count(builder, builder.add(pairs, pairs), width) as channel:
            single.store(single.load(starts[0], channel), starts[3], channel)
    builder.ret_void()
    return module


def _rotate_pairs(numbers: _Numbers, starts: list[Any], pair: Any, pairs: Any) -> None:
    """Rotate the pairs from this one on: (a·cos - b·sin, b·cos + a·sin)."""
    x, cos, sin, out = starts
    other = numbers.builder.add(pair, pairs)
    a, b, cosine, sine = (numbers.load(*place) for place in ((x, pair), (x, other), (cos, pair), (sin, other)))
    numbers.store(numbers.multiply_add(a, cosine, numbers.builder.fneg(b), sine), out, pair)
    numbers.store(numbers.multiply_add(b, cosine, a, sine), out, other)


def _move(builder: ir.IRBuilder, tensor: Any, place: tuple[Any, ...], strides: list[Any]) -> Any:
    """Return the address of a head's first channel."""
    for index, stride in zip(place, strides, strict=True):
        tensor = builder.gep(tensor, [builder.mul(index, stride)])
    return tensor


@contextmanager
def _count(builder: ir.IRBuilder, start: Any, end: Any, step: int = 1) -> Iterator[Any]:
    """Count from ``start`` to below ``end``: yield the number, with which what is built inside the block is done."""
    before, head, body, after = builder.block, *(builder.append_basic_block() for _ in range(3))
    builder.branch(head)
    builder.position_at_end(head)
    number = builder.phi(_I64)
    number.add_incoming(start, before)
    builder.cbranch(builder.icmp_signed("<", number, end), body, after)
    builder.position_at_end(body)
    yield number
    number.add_incoming(builder.add(number, _I64(step)), builder.block)
    builder.branch(head)
    builder.position_at_end(after)
