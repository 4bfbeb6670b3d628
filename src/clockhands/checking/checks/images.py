"""Texts with images, whose tokens stand on three axes: what is made of their positions, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import Measurement, check, difference, largest
from clockhands.checking.models.huggingface import Held
from clockhands.checking.models.images import Prompt, count_positions, draw_prompt, pad_left, read
from clockhands.checking.models.subject import Subject

_WIDE, _TALL, _STRIPE = (4, 8), (8, 4), (16, 2)
_NEW = 4


@check(
    "images.steps",
    "After an image, one token at a time equals all at once.",
    "the distance that an image takes off the positions lost while decoding",
    huggingface=True,
    needs=("images",),
    uses=("images",),
)
def steps(subject: Subject) -> Measurement:
    """Read a prompt with an image, and six more tokens whose positions the model makes."""
    prompt = draw_prompt(subject, _WIDE, 5, 9)
    whole = read(subject.copy_untouched(), prompt.as_inputs())
    actual = _read_in_steps(subject, prompt.cut, prompt.length, 6)
    return Measurement(difference(actual, whole), "6 single steps")


@check(
    "images.chunks",
    "A prompt with an image, read in pieces with its positions, equals the whole.",
    "positions of a piece that are not those that were passed",
    huggingface=True,
    needs=("images",),
    uses=("images",),
)
def chunks(subject: Subject) -> Measurement:
    """Read text, an image, and text again, each with its part of the positions of the whole."""
    prompt = draw_prompt(subject, _WIDE, 6, 9)
    positions = count_positions(subject, prompt)
    whole = read(subject.copy_untouched(), prompt.as_inputs())
    cache, pieces = Held(), []
    for start, stop in ((0, 5), (5, prompt.length - 6), (prompt.length - 6, prompt.length)):
        pieces.append(read(subject, {**prompt.cut(start, stop), "position_ids": positions[..., start:stop]}, cache))
    return Measurement(difference(torch.cat(pieces, 1), whole), "text, an image, text")


@check(
    "images.late",
    "An image behind text that stands in the cache gives what the whole gives, by positions that the model makes.",
    "positions of a piece counted from 0",
    huggingface=True,
    needs=("images",),
    uses=("images in a chat",),
)
def late(subject: Subject) -> Measurement:
    """Read text, and behind it text with an image, without positions."""
    prompt = draw_prompt(subject, _WIDE, 12, 5)
    whole = read(subject.copy_untouched(), prompt.as_inputs())
    cache = Held()
    pieces = [read(subject, prompt.cut(start, stop), cache) for start, stop in ((0, 8), (8, prompt.length))]
    return Measurement(difference(torch.cat(pieces, 1), whole), "an image behind 8 cached tokens")


@check(
    "images.stale",
    "What was read with an image changes nothing in a text that is read afterwards.",
    "rope_deltas kept from an earlier prompt",
    huggingface=True,
    needs=("images",),
    uses=("images",),
)
def stale(subject: Subject) -> Measurement:
    """Read a prompt with an image, then a text in two pieces with a cache of its own."""
    prompt, ids = draw_prompt(subject, _WIDE, 5, 5), subject.tokens(1, 16, salt=3)
    whole = read(subject.copy_untouched(), {"input_ids": ids})
    read(subject, prompt.as_inputs(), Held())
    cache = Held()
    pieces = [read(subject, {"input_ids": piece}, cache) for piece in ids.split([10, 6], 1)]
    return Measurement(difference(torch.cat(pieces, 1), whole), "10 and 6 tokens after a prompt with an image")


@check(
    "images.generate",
    "generate() gives a text after a prompt with an image what it gives it alone.",
    "rope_deltas kept from an earlier prompt",
    huggingface=True,
    needs=("images",),
    uses=("images",),
)
def generate(subject: Subject) -> Measurement:
    """Generate for a prompt with an image, for a text, and for the prompt again."""
    prompt = draw_prompt(subject, _WIDE, 5, 5).as_inputs()
    text = {"input_ids": subject.tokens(1, 12, salt=3)}
    alone = [_generate(subject.copy_untouched(), inputs) for inputs in (text, prompt)]
    _generate(subject, prompt)
    after = [_generate(subject, inputs) for inputs in (text, prompt)]
    notes = ("a text after a prompt with an image", "a prompt with an image after a text")
    return largest(*(Measurement(difference(*pair), note) for *pair, note in zip(after, alone, notes, strict=True)))


@check(
    "images.batch",
    "Rows with different images answer in a batch what each answers alone, also while decoding.",
    "one image's distance for all rows; images given to other rows",
    huggingface=True,
    needs=("images",),
    uses=("batches of images",),
)
def batch(subject: Subject) -> Measurement:
    """Read two rows of equal length, whose images have as many tokens in other shapes, and four tokens more."""
    whole = [draw_prompt(subject, grid, 5, 7 + _NEW, salt) for salt, grid in enumerate((_WIDE, _STRIPE))]
    together = pad_left(whole)
    return _compare_rows(subject, _read_in_steps(subject, together.cut, together.length, _NEW), whole)


@check(
    "images.mask",
    "After an image, one token at a time under a mask of ones equals all at once.",
    "positions of the whole mask in place of those of the new token",
    huggingface=True,
    needs=("images",),
    uses=("images",),
)
def masked(subject: Subject) -> Measurement:
    """Read a prompt with an image and four more tokens, each with the mask of everything up to it."""
    prompt = draw_prompt(subject, _WIDE, 5, 7 + _NEW)
    cut = partial(_cut_masked, prompt)
    return _compare_rows(subject, _read_in_steps(subject, cut, prompt.length, _NEW), [prompt])


@check(
    "images.left_padded",
    "Left-padded prompts with different images generate in a batch what each generates alone.",
    "positions of an image counted from the first pad, or shared by the rows",
    huggingface=True,
    needs=("images",),
    uses=("batches of images",),
)
def left_padded(subject: Subject) -> Measurement:
    """Generate for two prompts with images of unequal size, the shorter padded on the left."""
    prompts = [draw_prompt(subject, _WIDE, 5, 7), draw_prompt(subject, (4, 4), 3, 6, salt=1)]
    together = _run(subject, pad_left(prompts).as_inputs())
    effects = []
    for row, prompt in enumerate(prompts):
        alone = _run(subject.copy_untouched(), prompt.as_inputs())
        effects.append(_compare_steps(together, alone, row))
    return largest(*effects)


@check(
    "images.resume",
    "A second turn about an image, from a kept cache, generates what the whole chat generates.",
    "positions that count an image by its tokens once it is in the cache",
    huggingface=True,
    needs=("images",),
    uses=("images in a chat",),
)
def resume(subject: Subject) -> Measurement:
    """Generate for a prompt with an image, and go on from its cache with seven tokens."""
    prompt = draw_prompt(subject, _WIDE, 5, 5)
    answer = _run(subject, prompt.as_inputs())
    ids = torch.cat([answer.sequences, subject.tokens(1, 7, salt=4)], 1)
    kinds = torch.nn.functional.pad(prompt.mm_token_type_ids, (0, ids.shape[1] - prompt.length))
    chat = {"input_ids": ids, "mm_token_type_ids": kinds}
    images = {"pixel_values": prompt.pixel_values, "image_grid_thw": prompt.image_grid_thw}
    whole = _run(subject.copy_untouched(), {**chat, **images})
    return _compare_steps(_run(subject, chat, past_key_values=answer.past_key_values), whole, 0)


@check(
    "images.packing",
    "Prompts with images, packed by position_ids of four rows alone, do not see each other.",
    "documents told by the axes of an image; images given to other documents",
    huggingface=True,
    needs=("images",),
    uses=("packing with images",),
)
def packing(subject: Subject) -> Measurement:
    """Pack two prompts: the first row counts the tokens of each, the others are the three axes."""
    prompts = [draw_prompt(subject, _WIDE, 5, 4), draw_prompt(subject, _TALL, 3, 6, salt=1)]
    axes = torch.cat([count_positions(subject, prompt) for prompt in prompts], -1)
    line = torch.cat([torch.arange(prompt.length, device=axes.device) for prompt in prompts])
    joined: dict[str, Any] = {
        "input_ids": torch.cat([p.input_ids for p in prompts], 1),
        "mm_token_type_ids": torch.cat([p.mm_token_type_ids for p in prompts], 1),
        "pixel_values": torch.cat([p.pixel_values for p in prompts]),
        "image_grid_thw": torch.cat([p.image_grid_thw for p in prompts]),
        "position_ids": torch.cat([line.expand(1, 1, -1), axes]),
    }
    parts = read(subject, joined).split([prompt.length for prompt in prompts], 1)
    effects = []
    for number, (actual, prompt) in enumerate(zip(parts, prompts, strict=True), 1):
        inputs = prompt.as_inputs()
        inputs.pop("attention_mask")
        alone = read(subject.copy_untouched(), inputs)
        effects.append(Measurement(difference(actual, alone), f"document {number} of 2"))
    return largest(*effects)


def _read_in_steps(subject: Subject, cut: Callable[[int, int], dict[str, Any]], length: int, steps: int) -> Tensor:
    """Read all but the last ``steps`` tokens at once and those one at a time; ``cut`` makes the inputs of a piece."""
    cache, border = Held(), length - steps
    pieces = [read(subject, cut(0, border), cache)]
    pieces += [read(subject, cut(place, place + 1), cache) for place in range(border, length)]
    return torch.cat(pieces, 1)


def _cut_masked(prompt: Prompt, start: int, stop: int) -> dict[str, Any]:
    """Return a piece with the mask of everything up to its end."""
    return {**prompt.cut(start, stop), "attention_mask": prompt.attention_mask[:, :stop]}


def _compare_rows(subject: Subject, rows: Tensor, prompts: Sequence[Prompt]) -> Measurement:
    """Compare each row with its prompt, read whole and alone by a model that nothing has touched."""
    effects = []
    for row, prompt in enumerate(prompts):
        alone = read(subject.copy_untouched(), prompt.as_inputs())
        note = f"row {row + 1} of {len(prompts)}"
        effects.append(Measurement(difference(rows[row : row + 1, -prompt.length :], alone), note))
    return largest(*effects)


def _compare_steps(actual: Any, alone: Any, row: int) -> Measurement:
    """Compare one row of what was generated with what was generated for it alone, until the tokens part."""
    effects = []
    for step in range(_NEW):
        note = f"row {row + 1}, step {step + 1} of {_NEW}"
        effects.append(Measurement(difference(actual.logits[step][row], alone.logits[step][0]), note))
        if actual.sequences[row, step - _NEW] != alone.sequences[0, step - _NEW]:
            break
    return largest(*effects)


def _generate(subject: Subject, inputs: dict[str, Any]) -> Tensor:
    return torch.stack(_run(subject, inputs).logits, 1)


def _run(subject: Subject, inputs: dict[str, Any], **extra: Any) -> Any:
    module: Any = subject.module
    options: dict[str, Any] = {"max_new_tokens": _NEW, "min_new_tokens": _NEW, "do_sample": False, "pad_token_id": 0}
    options |= {"output_logits": True, "return_dict_in_generate": True, **extra}
    options["attention_mask"] = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))
    return module.generate(**{**inputs, **options})
