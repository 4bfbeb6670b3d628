"""Continuing a prompt with a trained language model."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import torch

from clockhands.errors import ClockhandsWarning, UsageError
from clockhands.generation.memory_check import check_memory
from clockhands.runs import Run, open_run

__all__ = ["generate"]

LOWEST = {"tokens": 1, "temperature": 0, "top_p": 1e-9, "top_k": 0, "beam": 1, "samples": 1, "max_prompt": 1}
USUAL = {"temperature": 0.8, "top_k": 0, "top_p": 1.0}
MIN_TEMPERATURE = 1e-3
"""Below this, sampling is greedy in all but name."""


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
    run = open_run(run)
    run.require("decoder", "generate")
    if seed is not None:
        torch.manual_seed(seed)
    ids = _encode_prompt(run, prompt, max_prompt)
    together = max(beam, samples)
    check_memory(run.model, batch=1, beam=together, length=len(ids) + tokens, advice="tokens, beam or samples")
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    drawing = {name: USUAL[name] if value is None else value for name, value in options.items() if sampling}
    count = samples if sampling else 1
    added = _generate_ids(run, ids, max_new_tokens=tokens, num_beams=beam, num_return_sequences=count,
                          do_sample=sampling, **drawing)  # fmt: skip
    return [prompt + text for text in run.tokenizers.source.batch_decode(added, skip_special_tokens=True)]


def _encode_prompt(run: Run, prompt: str, longest: int) -> list[int]:
    """Return the token ids of a prompt, of a long one the last; of an empty one the end of a text."""
    tokenizer = run.tokenizers.source
    ids: list[int] = tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"] or [tokenizer.eos_token_id]
    if len(ids) > longest:
        text = f"the prompt has {len(ids):,} tokens, and the last {longest:,} are read; raise max_prompt for more"
        warnings.warn(text, ClockhandsWarning, stacklevel=3)
    return ids[-longest:]


@torch.inference_mode()
def _generate_ids(run: Run, ids: list[int], **options: Any) -> torch.Tensor:
    """Return the token ids that ``generate`` of transformers adds to a prompt: [samples, tokens]."""
    ids_BS = torch.tensor([ids], device=run.model.device)
    out_BS = run.model.generate(  # type: ignore[operator]
        input_ids=ids_BS,
        attention_mask=torch.ones_like(ids_BS),
        pad_token_id=run.tokenizers.source.pad_token_id,
        **options,
    )
    added: torch.Tensor = out_BS[:, len(ids) :]
    return added


def _refuse(**values: float | int | None) -> None:
    """Raise UsageError naming every value that is out of range; None is one that was not given."""
    known = {name: value for name, value in values.items() if value is not None}
    # Written so that NaN, of which no comparison is true, is refused.
    wrong = [f"{name} is {value}; it must be {LOWEST[name]} or more" for name, value in known.items()
             if not value >= LOWEST[name]]  # fmt: skip
    wrong += [f"{name} is {value}; it must be finite" for name, value in known.items() if value == math.inf]
    if known.get("top_p", 1) > 1:
        wrong.append(f"top_p is {known['top_p']}; it is a share, at most 1")
    if 0 < known.get("temperature", 1) < MIN_TEMPERATURE:
        least = f"the least is {MIN_TEMPERATURE}, or 0 for the likeliest token"
        wrong.append(f"temperature is {known['temperature']}; {least}")
    if known["samples"] > 1 and (known.get("temperature") == 0 or known["beam"] > 1):
        wrong.append(f"samples is {known['samples']}, but without sampling all would be the same")
    if wrong:
        raise UsageError("; ".join(wrong))


def _refuse_drawing(beam: int, **values: float | int | None) -> None:
    """Raise UsageError for options of drawing that were given although nothing is drawn."""
    names = [name for name, value in values.items() if value is not None]
    if names:
        why = f"beam is {beam}, a search" if beam > 1 else "temperature is 0, the likeliest token each time"
        raise UsageError(f"{why}, and nothing is drawn: leave out {', '.join(names)}")
