"""Count the functions of ours, and the files, through which one operation goes: ``python tests/hops.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

OURS = str(Path(__file__).resolve().parent.parent / "src" / "clockhands")


def list_hops(operation: Callable[[], Any]) -> list[tuple[str, str]]:
    """The functions of ours that an operation calls, each once, in the order of their first call: file and name."""
    found: dict[tuple[str, str], None] = {}

    def watch(frame: Any, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(OURS) and frame.f_code.co_name != "<module>":
            found[file.removeprefix(OURS + "/"), frame.f_code.co_qualname] = None

    sys.setprofile(watch)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return list(found)


def make_operations() -> dict[str, Callable[[], Any]]:
    """The operations that are counted, ready to run: what stands around them runs before."""
    import torch

    from clockhands.attention import attend
    from clockhands.schemes import RoPE

    q, pos = torch.randn(1, 2, 5, 16), torch.arange(5)[None]
    rope, other = RoPE(16), RoPE(16)
    return {
        "RoPE.rotate": lambda: rope.rotate(q, q, pos, pos),
        "attend(RoPE)": lambda: attend(other, q, q, q, pos, pos, causal=True),
    }


if __name__ == "__main__":
    for name, operation in make_operations().items():
        hops = list_hops(operation)
        print(f"{name}: {len(hops)} functions in {len({file for file, _ in hops})} files")
        for file, function in hops:
            print(f"    {file}: {function}")
