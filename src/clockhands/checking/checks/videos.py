"""Texts with videos, whose frames stand on an axis of their own: the same laws as with images, and those of time."""

from __future__ import annotations

from functools import partial

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference
from clockhands.checking.checks.prompts import (
    LONG,
    SHORT,
    WIDE,
    compare_in_pieces,
    compare_in_steps,
    compare_packed,
    compare_padded,
    compare_rows,
    compare_turns,
)
from clockhands.checking.models.images import Prompt, draw_prompt, draw_row, pad_left, read
from clockhands.checking.models.subject import Subject

_video_check = partial(check, huggingface=True, needs=("videos",), uses=("videos",))


@_video_check(
    "videos.steps",
    "After a video, one token at a time equals all at once.",
    "the distance that a video takes off the positions lost while decoding",
)
def steps(subject: Subject) -> Measurement:
    """Read a prompt with a video, and six more tokens whose positions the model makes."""
    return compare_in_steps(subject, draw_prompt(subject, LONG, 5, 9, video=True))


@_video_check(
    "videos.chunks",
    "A prompt with a video, read in pieces with its positions, equals the whole.",
    "positions of a piece that are not those that were passed",
)
def chunks(subject: Subject) -> Measurement:
    """Read text, a video, and text again, each with its part of the positions of the whole."""
    return compare_in_pieces(subject, draw_prompt(subject, LONG, 6, 9, video=True), "text, a video, text")


@_video_check(
    "videos.batch",
    "Rows with an image and with a video, padded on the left, answer in a batch what each answers alone.",
    "the grid of an image taken for a video, or one row's for another",
)
def batch(subject: Subject) -> Measurement:
    """Read a row with a video, one with an image, and one with both, as the processor pads them."""
    rows = [draw_prompt(subject, SHORT, 5, 7, video=True), draw_prompt(subject, WIDE, 4, 6, salt=1)]
    rows.append(draw_row(subject, [3, (WIDE, False), 2, (LONG, True), 4], salt=2))
    together = read(subject, pad_left(subject, rows).as_inputs())
    return compare_rows(subject, together, rows)


@_video_check(
    "videos.left_padded",
    "Left-padded prompts with different videos generate in a batch what each generates alone.",
    "positions of a video counted from the first pad, or shared by the rows",
)
def left_padded(subject: Subject) -> Measurement:
    """Generate for two prompts with videos of unequal length, the shorter padded on the left."""
    prompts = [draw_prompt(subject, LONG, 5, 7, video=True), draw_prompt(subject, SHORT, 3, 6, salt=1, video=True)]
    return compare_padded(subject, prompts)


@_video_check(
    "videos.resume",
    "A second turn about a video, from a kept cache, generates what the whole chat generates.",
    "positions that count a video by its tokens once it is in the cache",
)
def resume(subject: Subject) -> Measurement:
    """Generate for a prompt with a video, and go on from its cache with seven tokens."""
    return compare_turns(subject, draw_prompt(subject, LONG, 5, 5, video=True))


@_video_check(
    "videos.packing",
    "Prompts with videos, packed by position_ids of four rows alone, do not see each other.",
    "documents told by the axes of a video; frames given to other documents",
)
def packing(subject: Subject) -> Measurement:
    """Pack two prompts: the first row counts the tokens of each, the others are the three axes."""
    prompts = [draw_prompt(subject, LONG, 5, 4, video=True), draw_prompt(subject, SHORT, 3, 6, salt=1, video=True)]
    return compare_packed(subject, prompts)


@_video_check(
    "videos.time",
    "The same frames, further apart in time, give other logits where the processor tells the time in numbers.",
    "seconds between frames that are passed and never reach the positions",
)
def time(subject: Subject) -> Measurement:
    """Read one video at 4 frames a second and at a quarter of one."""
    fast, slow = (draw_prompt(subject, LONG, 5, 9, video=True, fps=fps) for fps in (4.0, 0.25))
    if _same(fast, slow):
        raise Inapplicable("the processor tells the time as text, or not at all")
    answers = [read(subject.copy_untouched(), prompt.as_inputs()) for prompt in (fast, slow)]
    return Measurement(difference(*answers), "4 frames a second, and one in 4 seconds", wanted=True)


def _same(prompt: Prompt, other: Prompt) -> bool:
    """Whether two prompts are the same arguments."""
    pairs = zip(prompt.as_inputs().values(), other.as_inputs().values(), strict=True)
    return all(a.shape == b.shape and bool((a == b).all()) for a, b in pairs)
