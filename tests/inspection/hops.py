"""Count what a reader has to follow: the functions of inspect that run, and those on the way to a sentence.

python -m tests.inspection.hops        # prints the figures that tests/inspection/test_hops.py holds
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import transformers as hf

import clockhands
from clockhands.inspection import Subject, capture, inspect, split_logits
from clockhands.inspection.measures.logits import LogitLayers

SOURCE = Path(clockhands.__file__).parent
UNNAMED = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>")
"""What stands within a function and is read with it."""
Place = tuple[str, str]
"""A file of the package and the name of a function in it."""
SPLIT = ("inspection/reading/logit_split.py", "split_logits")
TURNS: dict[Place, str] = {
    ("inspection/reading/attention_hooks.py", "_rebuild_attention"): "split",
    ("inspection/reading/logit_split.py", "_split"): "split",
    ("inspection/reading/logit_split.py", "_compute_covariances"): "split",
    ("inspection/reading/logit_split.py", "compute_positional_share"): "measure",
    ("inspection/measures/logits.py", "_describe_ends"): "measure",
    ("inspection/measures/measure.py", "make_finding"): "measure",
}
"""Where the share of position in the logits is on its way: queries and keys, parts, sums, share, sentence, finding.

Those of the split count where it is running, those of the measure where that measure is."""


def locate(frame: FrameType) -> Place | None:
    """Return where a function of the package stands; None for any other, and for what has no name of its own."""
    path, name = Path(frame.f_code.co_filename), frame.f_code.co_name
    if name in UNNAMED or SOURCE not in path.parents:
        return None
    return str(path.relative_to(SOURCE)), name


def trace(run: Callable[[], object], note: Callable[[FrameType, Place], None]) -> None:
    """Run, and call ``note`` with every function of the package that is called."""

    def profile(frame: FrameType, event: str, argument: object) -> None:
        place = locate(frame) if event == "call" else None
        if place is not None:
            note(frame, place)

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)


def make_gpt2() -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
    return hf.GPT2Model(hf.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()


def list_split() -> set[Place]:
    """List the functions that run when the logits of one layer are split, but for those of the model itself."""
    subject = Subject.of(make_gpt2())
    recorded = capture(subject.model, subject.forward, torch.randint(3, 50, (16, 12)))
    seen: set[Place] = set()
    split_logits(recorded.layers[0], recorded.ordinary_T)  # what is computed once is known now
    trace(lambda: split_logits(recorded.layers[0], recorded.ordinary_T), lambda frame, place: seen.add(place))
    return seen


def list_way() -> list[Place]:
    """List the functions between ``inspect`` and each turn of the way of position's share of the logits, both ends too.

    They are all that a reader passes from the weights to the sentence.
    """
    way: dict[Place, None] = {}
    turned: set[Place] = set()  # a turn counts where it is reached first

    def note(frame: FrameType, place: Place) -> None:
        if place not in TURNS or place in turned:
            return
        above: FrameType | None = frame
        stack: list[Place] = []
        measured = False
        while above is not None and above.f_code is not inspect.__code__:
            at = locate(above)
            stack += [] if at is None else [at]
            measured |= isinstance(above.f_locals.get("self"), LogitLayers)
            above = above.f_back
        if above is not None and (measured if TURNS[place] == "measure" else SPLIT in stack):
            turned.add(place)
            way.update(dict.fromkeys([("inspection/run.py", "inspect"), *reversed(stack)]))

    ids = torch.randint(3, 50, (16, 12), generator=torch.Generator().manual_seed(0))
    trace(lambda: inspect(make_gpt2(), ids=ids, control=False), note)
    return list(way)


if __name__ == "__main__":
    split = list_split()
    print(f"a logit split: {len(split)} functions in {len({file for file, _ in split})} files")
    for place in sorted(split):
        print("   ", *place)
    way = list_way()
    print(f"from weights to sentence: {len(way)} hops")
    for place in way:
        print("   ", *place)
