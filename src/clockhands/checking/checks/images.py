"""Texts with images and videos, whose tokens stand on three axes: what is made of their positions, and what is kept."""

from __future__ import annotations

from functools import partial

import torch

from clockhands.checking.checks.check import Measurement, check, difference, largest
from clockhands.checking.checks.prompts import (
    NEW,
    SMALL,
    STRIPE,
    TALL,
    WIDE,
    compare_in_pieces,
    compare_in_steps,
    compare_packed,
    compare_padded,
    compare_rows,
    compare_turns,
    cut_masked,
    generate_logits,
    read_in_steps,
)
from clockhands.checking.models.huggingface import Held
from clockhands.checking.models.images import draw_prompt, pad_left, read
from clockhands.checking.models.subject import Subject

_image_check = partial(check, huggingface=True, needs=("images",))


@_image_check(
    "images.steps",
    "After an image, one token at a time equals all at once.",
    "the distance that an image takes off the positions lost while decoding",
    uses=("images",),
)
def steps(subject: Subject) -> Measurement:
    """Read a prompt with an image, and six more tokens whose positions the model makes."""
    return compare_in_steps(subject, draw_prompt(subject, WIDE, 5, 9))


@_image_check(
    "images.chunks",
    "A prompt with an image, read in pieces with its positions, equals the whole.",
    "positions of a piece that are not those that were passed",
    uses=("images",),
)
def chunks(subject: Subject) -> Measurement:
    """Read text, an image, and text again, each with its part of the positions of the whole."""
    return compare_in_pieces(subject, draw_prompt(subject, WIDE, 6, 9), "text, an image, text")


@_image_check(
    "images.late",
    "An image behind text that stands in the cache gives what the whole gives, by positions that the model makes.",
    "positions of a piece counted from 0",
    uses=("images in a chat",),
)
def late(subject: Subject) -> Measurement:
    """Read text, and behind it text with an image, without positions."""
    prompt = draw_prompt(subject, WIDE, 12, 5)
    whole = read(subject.copy_untouched(), prompt.as_inputs())
    cache = Held()
    pieces = [read(subject, prompt.cut(start, stop), cache) for start, stop in ((0, 8), (8, prompt.length))]
    return Measurement(difference(torch.cat(pieces, 1), whole), "an image behind 8 cached tokens")


@_image_check(
    "images.stale",
    "What was read with an image changes nothing in a text that is read afterwards.",
    "rope_deltas kept from an earlier prompt",
    uses=("images",),
)
def stale(subject: Subject) -> Measurement:
    """Read a prompt with an image, then a text in two pieces with a cache of its own."""
    prompt, ids = draw_prompt(subject, WIDE, 5, 5), subject.tokens(1, 16, salt=3)
    whole = read(subject.copy_untouched(), {"input_ids": ids})
    read(subject, prompt.as_inputs(), Held())
    cache = Held()
    pieces = [read(subject, {"input_ids": piece}, cache) for piece in ids.split([10, 6], 1)]
    return Measurement(difference(torch.cat(pieces, 1), whole), "10 and 6 tokens after a prompt with an image")


@_image_check(
    "images.generate",
    "generate() gives a text after a prompt with an image what it gives it alone.",
    "rope_deltas kept from an earlier prompt",
    uses=("images",),
)
def generate(subject: Subject) -> Measurement:
    """Generate for a prompt with an image, for a text, and for the prompt again."""
    prompt = draw_prompt(subject, WIDE, 5, 5).as_inputs()
    text = {"input_ids": subject.tokens(1, 12, salt=3)}
    alone = [generate_logits(subject.copy_untouched(), inputs) for inputs in (text, prompt)]
    generate_logits(subject, prompt)
    after = [generate_logits(subject, inputs) for inputs in (text, prompt)]
    notes = ("a text after a prompt with an image", "a prompt with an image after a text")
    return largest(*(Measurement(difference(*pair), note) for *pair, note in zip(after, alone, notes, strict=True)))


@_image_check(
    "images.batch",
    "Rows with different images answer in a batch what each answers alone, also while decoding.",
    "one image's distance for all rows; images given to other rows",
    uses=("batches of images",),
)
def batch(subject: Subject) -> Measurement:
    """Read two rows of equal length, whose images have as many tokens in other shapes, and four tokens more."""
    whole = [draw_prompt(subject, grid, 5, 7 + NEW, salt) for salt, grid in enumerate((WIDE, STRIPE))]
    together = pad_left(subject, whole)
    return compare_rows(subject, read_in_steps(subject, together.cut, together.length, NEW), whole)


@_image_check(
    "images.mask",
    "After an image, one token at a time under a mask of ones equals all at once.",
    "positions of the whole mask in place of those of the new token",
    uses=("images",),
)
def masked(subject: Subject) -> Measurement:
    """Read a prompt with an image and four more tokens, each with the mask of everything up to it."""
    prompt = draw_prompt(subject, WIDE, 5, 7 + NEW)
    cut = partial(cut_masked, prompt)
    return compare_rows(subject, read_in_steps(subject, cut, prompt.length, NEW), [prompt])


@_image_check(
    "images.left_padded",
    "Left-padded prompts with different images generate in a batch what each generates alone.",
    "positions of an image counted from the first pad, or shared by the rows",
    uses=("batches of images",),
)
def left_padded(subject: Subject) -> Measurement:
    """Generate for two prompts with images of unequal size, the shorter padded on the left."""
    prompts = [draw_prompt(subject, WIDE, 5, 7), draw_prompt(subject, SMALL, 3, 6, salt=1)]
    return compare_padded(subject, prompts)


@_image_check(
    "images.resume",
    "A second turn about an image, from a kept cache, generates what the whole chat generates.",
    "positions that count an image by its tokens once it is in the cache",
    uses=("images in a chat",),
)
def resume(subject: Subject) -> Measurement:
    """Generate for a prompt with an image, and go on from its cache with seven tokens."""
    return compare_turns(subject, draw_prompt(subject, WIDE, 5, 5))


@_image_check(
    "images.packing",
    "Prompts with images, packed by position_ids of four rows alone, do not see each other.",
    "documents told by the axes of an image; images given to other documents",
    uses=("packing with images",),
)
def packing(subject: Subject) -> Measurement:
    """Pack two prompts: the first row counts the tokens of each, the others are the three axes."""
    prompts = [draw_prompt(subject, WIDE, 5, 4), draw_prompt(subject, TALL, 3, 6, salt=1)]
    return compare_packed(subject, prompts)
