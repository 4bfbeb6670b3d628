"""Continuing a prompt with a trained language model."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import torch

from clockhands.errors import ClockhandsWarning, UsageError
from clockhands.generation.room import check_room
from clockhands.runs import Run, open_run

LOWEST = {"tokens": 1, "temperature": 0, "top_p": 1e-9, "top_k": 0, "beam": 1, "samples": 1, "max_prompt": 1}
COLDEST = 1e-3
"""Logits divided by less than this leave the range in which float32 tells them apart."""


@torch.inference_mode()
def generate(
    run: str | Path | Run,
    prompt: str = "",
    *,
    tokens: int = 200,
    temperature: float | int | None = None,
    top_k: int | None = None,
    top_p: float | int | None = None,
    beam: int = 1,
    samples: int = 1,
    seed: int | None = None,
    max_prompt: int = 1024,
) -> list[str]:
    """Return the prompt and what the model adds, ``samples`` times.

    Each token is drawn: with ``temperature`` (0.8 where it is not given), among the ``top_k`` likeliest tokens (0:
    all), among the likeliest that make up the share ``top_p``. ``temperature`` 0 takes the likeliest token each time;
    ``beam`` above 1 searches; neither draws. An empty prompt starts after the end of a text. Of a prompt of more than
    ``max_prompt`` tokens the last ones are read, with a ClockhandsWarning.

    Raises UsageError for values out of range, for options of drawing where nothing is drawn, for more than fits the
    memory, and for a run that is no language model.
    """
    sampling = beam == 1 and temperature != 0
    _refuse(tokens=tokens, temperature=temperature, top_p=top_p, top_k=top_k, beam=beam, samples=samples,
            max_prompt=max_prompt)  # fmt: skip
    if not sampling:
        _refuse_drawing(beam, temperature=temperature or None, top_k=top_k or None, top_p=top_p, seed=seed)
    opened = open_run(run)
    opened.require("decoder", "generate")
    if seed is not None:
        torch.manual_seed(seed)
    tokenizer = opened.tokenizers.source
    ids = tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"] or [tokenizer.eos_token_id]
    if len(ids) > max_prompt:
        said = f"the prompt has {len(ids):,} tokens, and the last {max_prompt:,} are read; raise max_prompt for more"
        warnings.warn(said, ClockhandsWarning, stacklevel=2)
        ids = ids[-max_prompt:]
    check_room(opened.model, rows=max(beam, samples), length=len(ids) + tokens, advice="tokens, beam or samples")
    usual = {"temperature": 0.8, "top_k": 0, "top_p": 1.0}
    chosen = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    drawn: dict[str, Any] = {
        name: usual[name] if value is None else value for name, value in chosen.items() if sampling
    }
    ids_BS = torch.tensor([ids], device=opened.model.device)
    out_BS = opened.model.generate(  # type: ignore[operator]
        input_ids=ids_BS,
        attention_mask=torch.ones_like(ids_BS),
        max_new_tokens=tokens,
        do_sample=sampling,
        num_beams=beam,
        num_return_sequences=samples if sampling else 1,
        pad_token_id=tokenizer.pad_token_id,
        **drawn,
    )
    added: list[str] = tokenizer.batch_decode(out_BS[:, len(ids) :], skip_special_tokens=True)
    return [prompt + text for text in added]


def _refuse(**given: float | int | None) -> None:
    """Raise UsageError naming every value that is out of range; None is one that was not given."""
    known = {name: value for name, value in given.items() if value is not None}
    # Written so that NaN, of which no comparison is true, is refused.
    wrong = [f"{name} is {value}; it must be {LOWEST[name]} or more" for name, value in known.items()
             if not value >= LOWEST[name]]  # fmt: skip
    wrong += [f"{name} is {value}; it must be finite" for name, value in known.items() if value == math.inf]
    if known.get("top_p", 1) > 1:
        wrong.append(f"top_p is {known['top_p']}; it is a share, at most 1")
    if 0 < known.get("temperature", 1) < COLDEST:
        wrong.append(f"temperature is {known['temperature']}; the least is {COLDEST}, or 0 for the likeliest token")
    if known["samples"] > 1 and (known.get("temperature") == 0 or known["beam"] > 1):
        wrong.append(f"samples is {known['samples']}, but without sampling all would be the same")
    if wrong:
        raise UsageError("; ".join(wrong))


def _refuse_drawing(beam: int, **given: float | int | None) -> None:
    """Raise UsageError for options of drawing that were given although nothing is drawn."""
    names = [name for name, value in given.items() if value is not None]
    if names:
        why = f"beam is {beam}, a search" if beam > 1 else "temperature is 0, the likeliest token each time"
        raise UsageError(f"{why}, and nothing is drawn: leave out {', '.join(names)}")
