"""The tests that run with the annotated shapes of all tensors checked: few that meet every function on tensors.

Tests that call the same functions once more, on more or other numbers, run without.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PLACES = tuple(
    TESTS / name
    for name in (
        "model/test_laws.py",
        "attention",
        "test_positions.py",
        "schemes/rotary",
        "inspection/test_run.py",
        "generation/test_translate.py",
    )
)
SOME = {TESTS / "inspection/test_run.py": ("[sum]", "[rope]", "[bert]", "[t5]", "[encoder-decoder]")}
"""Of these files only the tests with one of these parameters: the others meet no other function on tensors."""
UNCHECKED = tuple(TESTS / "attention" / name for name in ("test_flex.py", "test_request.py", "test_install.py"))
"""One compiles, and what checks shapes cannot be compiled; the others give what is wrong, to be told of it by us."""
AGAIN = (
    "compiled", "gradients_twice", "makes_a_tensor_of_all_pairs", "low_precision", "memory_for_attention",
    "any_factor_on_the_products", "trap_39", "gradients_reach_every_parameter", "recorded_reference_path",
    "static]", "order_is_kept_whatever", "that_does_not_end_does_not", "bfloat16_is_the_reference", "a_trace_holds",
    "kernel_does_not_take_is_computed",
)  # fmt: skip


def is_place(path: Path) -> bool:
    """Whether a file, or a folder above one, has tests whose shapes are checked."""
    return any(path.is_relative_to(place) or place.is_relative_to(path) for place in PLACES)


def is_shaped(path: Path, name: str) -> bool:
    """Whether the shapes of this test are checked; ``name`` is the name of its function with its parameters."""
    if not _is_below_a_place(path) or path in UNCHECKED or any(word in name for word in AGAIN):
        return False
    return path not in SOME or any(word in name for word in SOME[path])


@cache
def _is_below_a_place(path: Path) -> bool:
    """Asked once for every file, not for each of its hundreds of tests."""
    return any(path.is_relative_to(place) for place in PLACES)
