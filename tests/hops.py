"""Count the functions of ours, and the files, through which one operation goes: ``python tests/hops.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

OURS = str(Path(__file__).resolve().parent.parent / "src" / "clockhands")
Place = tuple[str, str]
"""A file of the package, and the qualified name of a function in it."""


class Arrived(BaseException):
    """Every turn was reached: the rest of the operation is not run."""


def locate(frame: FrameType) -> Place | None:
    """Where a function of ours stands; None for any other, and for what has no name and is read with what is around."""
    code = frame.f_code
    named = code.co_filename.startswith(OURS) and not code.co_name.startswith("<")
    return (code.co_filename.removeprefix(OURS + "/"), code.co_qualname) if named else None


def watch(operation: Callable[[], Any], note: Callable[[FrameType, Place], None]) -> None:
    """Run an operation, and call ``note`` with every function of ours that is called."""

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (place := locate(frame)):
            note(frame, place)

    sys.setprofile(profile)
    try:
        operation()
    finally:
        sys.setprofile(None)


def list_hops(operation: Callable[[], Any]) -> list[Place]:
    """The functions of ours that an operation calls, each once, in the order of their first call."""
    hops: dict[Place, None] = {}
    watch(operation, lambda frame, place: hops.update({place: None}))
    return list(hops)


def list_way(operation: Callable[[], Any], turns: Mapping[str, str]) -> list[Place]:
    """The functions that a reader passes from an operation to each turn, both ends too.

    ``turns``: {the name of a function: that of one above it}; a turn counts where it is reached first.
    """
    way: dict[Place, None] = {}
    ahead = dict(turns)

    def note(frame: FrameType | None, place: Place) -> None:
        turn = place[1]
        if turn not in ahead:
            return
        stack: list[Place] = []
        while frame is not None:
            stack += [at] if (at := locate(frame)) else []
            frame = frame.f_back
        if any(name == ahead[turn] for _, name in stack):
            del ahead[turn]
            way.update(dict.fromkeys(reversed(stack)))
        if not ahead:
            raise Arrived

    with suppress(Arrived):
        watch(operation, note)
    assert not ahead, f"never reached: {ahead}"
    return list(way)


TO_THE_SENTENCE = {
    "_read_tapped": "split_logits",
    "_split": "split_logits",
    "_compute_covariances": "split_logits",
    "compute_positional_share": "LogitLayers.run",
    "_describe_ends": "LogitLayers.run",
    "Measure.make_finding": "LogitLayers.run",
}
"""Where the share of position in the logits is on its way: queries and keys, parts, sums, share, sentence, finding."""


def make_operations() -> dict[str, Callable[[], Any]]:
    """The operations that are counted, ready to run: what stands around them runs before."""
    import torch
    import transformers as hf

    from clockhands.attention import attend
    from clockhands.inspection import Subject, capture, inspect, split_logits
    from clockhands.schemes import RoPE

    q, pos = torch.randn(1, 2, 5, 16), torch.arange(5)[None]
    rope, other = RoPE(16), RoPE(16)
    sizes = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
    model = hf.GPT2Model(hf.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    subject, ids = Subject.of(model), torch.randint(3, 50, (16, 12), generator=torch.Generator().manual_seed(0))
    recorded = capture(subject.model, subject.forward, ids)
    split_logits(recorded.layers[0], recorded.ordinary_T)  # what is computed once is known now
    return {
        "RoPE.rotate": lambda: rope.rotate(q, q, pos, pos),
        "attend(RoPE)": lambda: attend(other, q, q, q, pos, pos, causal=True),
        "split_logits": lambda: split_logits(recorded.layers[0], recorded.ordinary_T),
        "inspect": lambda: inspect(model, ids=ids, control=False),
    }


if __name__ == "__main__":
    for name, operation in make_operations().items():
        hops = list_way(operation, TO_THE_SENTENCE) if name == "inspect" else list_hops(operation)
        print(f"{name}: {len(hops)} functions in {len({file for file, _ in hops})} files")
        for file, function in hops:
            print(f"    {file}: {function}")
