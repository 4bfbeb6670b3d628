"""Reading prompts with images and videos: whole, in pieces, in batches, packed and in turns; and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import Measurement, difference, largest
from clockhands.checking.models.huggingface import Held
from clockhands.checking.models.images import Prompt, count_positions, pad_left, read
from clockhands.checking.models.subject import Subject
from clockhands.model.huggingface_cache import get_cache, name_cache

WIDE, TALL, STRIPE, SMALL = (1, 4, 8), (1, 8, 4), (1, 16, 2), (1, 4, 4)
LONG, SHORT = (8, 2, 2), (2, 4, 4)  # of videos: longer than wide, and wider than long
NEW = 4


def read_in_steps(subject: Subject, cut: Callable[[int, int], dict[str, Any]], length: int, steps: int) -> Tensor:
    """Read all but the last ``steps`` tokens at once and those one at a time; ``cut`` makes the inputs of a piece."""
    cache, border = Held(), length - steps
    pieces = [read(subject, cut(0, border), cache)]
    pieces += [read(subject, cut(place, place + 1), cache) for place in range(border, length)]
    return torch.cat(pieces, 1)


def compare_in_steps(subject: Subject, prompt: Prompt) -> Measurement:
    """Read the last six tokens of a prompt one at a time, at positions that the model makes; compare with the whole."""
    whole = read(subject.copy_untouched(), prompt.as_inputs())
    actual = read_in_steps(subject, prompt.cut, prompt.length, 6)
    return Measurement(difference(actual, whole), "6 single steps")


def compare_in_pieces(subject: Subject, prompt: Prompt, note: str) -> Measurement:
    """Read a prompt in three pieces, each with its part of the positions of the whole, and compare with the whole.

    The first has 5 tokens and the last has 6, so that what is seen is in the middle one; ``note`` names the three.
    """
    positions = count_positions(subject, prompt)
    whole = read(subject.copy_untouched(), prompt.as_inputs())
    cache, pieces = Held(), []
    for start, stop in ((0, 5), (5, prompt.length - 6), (prompt.length - 6, prompt.length)):
        pieces.append(read(subject, {**prompt.cut(start, stop), "position_ids": positions[..., start:stop]}, cache))
    return Measurement(difference(torch.cat(pieces, 1), whole), note)


def compare_padded(subject: Subject, prompts: Sequence[Prompt]) -> Measurement:
    """Generate for prompts in a batch, the shorter padded on the left, and compare each with itself alone."""
    together = generate_for(subject, pad_left(subject, prompts).as_inputs())
    effects = []
    for row, prompt in enumerate(prompts):
        alone = generate_for(subject.copy_untouched(), prompt.as_inputs())
        effects.append(compare_steps(together, alone, row))
    return largest(*effects)


def cut_masked(prompt: Prompt, start: int, stop: int) -> dict[str, Any]:
    """Return a piece with the mask of everything up to its end."""
    return {**prompt.cut(start, stop), "attention_mask": prompt.attention_mask[:, :stop]}


def compare_rows(subject: Subject, rows: Tensor, prompts: Sequence[Prompt]) -> Measurement:
    """Compare each row with its prompt, read whole and alone by a model that nothing has touched."""
    effects = []
    for row, prompt in enumerate(prompts):
        alone = read(subject.copy_untouched(), prompt.as_inputs())
        note = f"row {row + 1} of {len(prompts)}"
        effects.append(Measurement(difference(rows[row : row + 1, -prompt.length :], alone), note))
    return largest(*effects)


def compare_steps(actual: Any, alone: Any, row: int) -> Measurement:
    """Compare one row of what was generated with what was generated for it alone, until the tokens part."""
    effects = []
    for step in range(NEW):
        note = f"row {row + 1}, step {step + 1} of {NEW}"
        effects.append(Measurement(difference(actual.logits[step][row], alone.logits[step][0]), note))
        if actual.sequences[row, step - NEW] != alone.sequences[0, step - NEW]:
            break
    return largest(*effects)


def generate_logits(subject: Subject, inputs: dict[str, Any]) -> Tensor:
    """Return the logits [rows, steps, V] of what is generated."""
    return torch.stack(generate_for(subject, inputs).logits, 1)


def generate_for(subject: Subject, inputs: dict[str, Any], **extra: Any) -> Any:
    """Generate four tokens greedily, and return the output of ``generate`` with its logits."""
    module: Any = subject.module
    options: dict[str, Any] = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    options |= {"output_logits": True, "return_dict_in_generate": True, **extra}
    # What stands for a picture is never generated: a second turn would be about pictures that are not there.
    options["suppress_tokens"] = sorted(getattr(subject.adapter, "special", ()))
    options["attention_mask"] = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))
    return module.generate(**{**inputs, **options})


def compare_turns(subject: Subject, prompt: Prompt) -> Measurement:
    """Generate for a prompt, go on from its cache with seven tokens, and compare with the whole chat."""
    answer = generate_for(subject, prompt.as_inputs())
    ids = torch.cat([answer.sequences, subject.tokens(1, 7, salt=4)], 1)
    more = ids.shape[1] - prompt.length
    rows = {name: torch.nn.functional.pad(row, (0, more)) for name, row in prompt.rows.items()}
    chat = {**rows, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
    whole = generate_for(subject.copy_untouched(), {**chat, **prompt.seen})
    return compare_steps(generate_for(subject, chat, **name_cache(get_cache(answer))), whole, 0)


def compare_packed(subject: Subject, prompts: Sequence[Prompt]) -> Measurement:
    """Read prompts in one row, by positions whose first row counts the tokens of each, and compare each with itself."""
    axes = torch.cat([count_positions(subject, prompt) for prompt in prompts], -1)
    line = torch.cat([torch.arange(prompt.length, device=axes.device) for prompt in prompts]).to(axes.dtype)
    first = prompts[0]
    joined: dict[str, Any] = {
        **{name: torch.cat([p.rows[name] for p in prompts], 1) for name in first.rows if name != "attention_mask"},
        **{name: torch.cat([p.seen[name] for p in prompts]) for name in first.seen},
        "position_ids": torch.cat([line.expand(1, 1, -1), axes]),
    }
    parts = read(subject, joined).split([prompt.length for prompt in prompts], 1)
    effects = []
    for number, (actual, prompt) in enumerate(zip(parts, prompts, strict=True), 1):
        alone = read(subject.copy_untouched(), prompt.as_inputs())
        effects.append(Measurement(difference(actual, alone), f"document {number} of {len(prompts)}"))
    return largest(*effects)
