"""Continuing a prompt with a trained language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from clockhands.errors import UsageError
from clockhands.generation.opened import Opened, open_run


@torch.inference_mode()
def generate(
    run: str | Path | Opened | Any,
    prompt: str = "",
    *,
    tokens: int = 200,
    temperature: float | int = 0.8,
    top_k: int = 0,
    top_p: float | int = 1.0,
    beam: int = 1,
    samples: int = 1,
    seed: int | None = None,
) -> list[str]:
    """The prompt and what the model adds, ``samples`` times.

    ``temperature`` 0 takes the likeliest token each time; ``beam`` above 1 searches and does not sample. An empty
    prompt starts after the end of a text. Raises UsageError for values out of range or a run that is no language model.
    """
    _refuse(tokens=tokens, temperature=temperature, top_p=top_p, beam=beam, samples=samples)
    opened = open_run(run)
    opened.require("decoder", "generate")
    if seed is not None:
        torch.manual_seed(seed)
    tokenizer = opened.tokenizers.source
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"] or [tokenizer.eos_token_id]
    sampling = temperature > 0 and beam == 1
    drawn: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p} if sampling else {}
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


def _refuse(**given: float | int) -> None:
    lowest = {"tokens": 1, "temperature": 0, "top_p": 1e-9, "beam": 1, "samples": 1}
    wrong = [f"{name} is {value}; it must be {lowest[name]} or more" for name, value in given.items()
             if value < lowest[name]]  # fmt: skip
    if given["top_p"] > 1:
        wrong.append(f"top_p is {given['top_p']}; it is a share, at most 1")
    if given["samples"] > 1 and (given["temperature"] == 0 or given["beam"] > 1):
        wrong.append(f"samples is {given['samples']}, but without sampling all would be the same")
    if wrong:
        raise UsageError("; ".join(wrong))
