"""The position as a plain number: how loud it gets, what a step means, and which numbers a precision can hold."""

from __future__ import annotations

import math

import torch

from exact.added import WIDTH, Numbers


def measure_index() -> Numbers:
    """Return the length of an index beside that of a word, the step of index/length, and what low precision keeps."""
    values: Numbers = {f"over the word at {index}": index / math.sqrt(WIDTH) for index in (10, 500, 5000)}
    values |= {f"step of {length} words": 1 / (length - 1) for length in (5, 500)}
    kinds = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    return values | {f"{name} counts to": count_whole(dtype) for name, dtype in kinds.items()}


def count_whole(dtype: torch.dtype) -> int:
    """Return the largest n such that 0 to n are all different in a precision."""
    numbers = torch.arange(1 << 14).to(dtype).double()
    return int((numbers[1:] == numbers[:-1]).int().argmax())
