"""Continuation of a prompt by a trained language model."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch

from clockhands.errors import ClockhandsWarning, UsageError
from clockhands.generation.memory_check import Beam, check_memory
from clockhands.options import Count, NotNegative, Range, check_value
from clockhands.runs import Run

if TYPE_CHECKING:
    from clockhands.models import LanguageModel

MIN_TEMPERATURE = 1e-3
"""The lowest temperature besides 0: below it, sampling practically always takes the likeliest token."""
VALUES: dict[str, Any] = {
    "tokens": Count,
    "temperature": NotNegative,
    "top_k": Annotated[int, Range(least=0)],
    # The least leaves only the likeliest token, whose probability is at least 1 / vocabulary size.
    "top_p": Annotated[float, Range(least=1e-9, most=1)],
    "beam": Beam,
    "samples": Count,
    "max_prompt": Count,
}
"""The values that the arguments take."""
OFF = {"temperature": 0, "top_k": 0, "top_p": 1}
"""The values of sampling options that say that nothing is sampled."""


def generate(
    run: str | Path | Run | LanguageModel | torch.nn.Module,
    prompt: str = "",
    *,
    tokenizer: Any = None,
    tokens: int = 200,
    temperature: float | int | None = None,
    top_k: int | None = None,
    top_p: float | int | None = None,
    beam: int = 1,
    samples: int = 1,
    seed: int | None = None,
    max_prompt: int = 1024,
) -> list[str]:
    """Continue a prompt, and return the prompt with its continuation, ``samples`` times.

    Args:
        run: a language model: a run of this project, or any causal model of transformers, which may be open already.
        prompt: the text to continue; if it is empty, the continuation begins after what the tokenizer puts before every
            text, or if it puts nothing there, after the token that ends a text.
        tokenizer: that of a model that is open already.
        tokens: the most tokens to add.
        temperature: the divisor of the logits before a token is sampled (None: 0.8); 0 takes the likeliest token each
            time and samples nothing.
        top_k: sample among this many of the likeliest tokens (None or 0: all).
        top_p: sample among the smallest set of tokens whose probabilities sum to this (None: 1, all tokens).
        beam: the number of hypotheses of a beam search; with more than 1 nothing is sampled.
        samples: the number of continuations; more than 1 only where tokens are sampled.
        seed: seeds the sampling and leaves the caller's random generators as they are; None: sample from those.
        max_prompt: the most tokens of the prompt to read; of a longer prompt the last are read, with a
            ClockhandsWarning.

    Raises UsageError for values out of range, for sampling options if nothing is sampled, for texts that do not fit the
    memory or the model's table of positions, for an empty prompt if the tokenizer has no token to begin with, and for a
    run that is not a language model; and what opening a model raises (``open_run``, ``open_language_model``).
    """
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    _check_values({"tokens": tokens, "beam": beam, "samples": samples, "max_prompt": max_prompt, **sampling}, seed)
    from clockhands.models import to_language_model  # late, as transformers is with it

    model = to_language_model(run, "generate", tokenizer=tokenizer)
    ids = _encode_prompt(model, prompt, max_prompt)
    length = len(ids) + tokens
    if model.max_length is not None and length > model.max_length:
        raise UsageError(
            f"prompt and continuation have up to {length:,} tokens, and {model.source} has a table of "
            f"{model.max_length:,} positions; lower tokens or max_prompt"
        )
    advice = "tokens, beam or samples"
    check_memory(model.model, model.device, batch=1, beam=max(beam, samples), length=length, advice=advice)
    options: dict[str, Any] = {"max_new_tokens": tokens, "num_beams": beam, "do_sample": beam == 1 and temperature != 0}
    if options["do_sample"]:
        chosen = {name: value for name, value in sampling.items() if value is not None}
        options |= {"temperature": 0.8, "top_k": 0, "top_p": 1.0, **chosen}
    tokenizer = model.tokenizer
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    ids_BS = torch.tensor([ids], device=model.device)
    forked = [model.device] if model.device.type == "cuda" else []
    # A seed leaves the caller's generators as they are.
    with torch.random.fork_rng(forked, enabled=seed is not None), torch.inference_mode():
        if seed is not None:
            torch.manual_seed(seed)
        written_NS = model.model.generate(
            input_ids=ids_BS, attention_mask=torch.ones_like(ids_BS), pad_token_id=pad, num_return_sequences=samples,
            **options,
        )  # fmt: skip
    return [prompt + text for text in tokenizer.batch_decode(written_NS[:, len(ids) :], skip_special_tokens=True)]


def _encode_prompt(model: LanguageModel, prompt: str, max_tokens: int) -> list[int]:
    """Return the last ``max_tokens`` token ids of a prompt, after what the tokenizer puts before every text.

    An empty prompt is that alone, or the token that ends a text. Raises UsageError where there is neither.
    """
    tokenizer = model.tokenizer
    ids: list[int] = tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"]
    if len(ids) > max_tokens:
        text = f"the prompt has {len(ids):,} tokens, and the last {max_tokens:,} are read; raise max_prompt for more"
        warnings.warn(text, ClockhandsWarning, stacklevel=3)
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    ids = [*model.start_ids, *ids[-max_tokens:]] or end
    if not ids:
        raise UsageError(f"the tokenizer of {model.source} has no token to begin a text with; give a prompt")
    return ids


def _check_values(values: dict[str, Any], seed: int | None) -> None:
    """Raise UsageError with every value that is out of range, and for those that exclude each other."""
    chosen = {name: value for name, value in values.items() if value is not None}
    chosen |= {name: value.item() for name, value in chosen.items() if isinstance(value, np.generic)}
    faults = [fault for name, value in chosen.items() for fault in check_value(name, value, VALUES[name])]
    if faults:
        raise UsageError("; ".join(faults))
    temperature = chosen.get("temperature", 1)
    if 0 < temperature < MIN_TEMPERATURE:
        faults.append(f"temperature is {temperature}; the least is {MIN_TEMPERATURE}, or 0 for the likeliest token")
    if chosen["samples"] > 1 and chosen["beam"] > 1:
        faults.append(
            f"samples is {chosen['samples']}, but a beam search gives one continuation; leave out samples or beam"
        )
    elif chosen["samples"] > 1 and temperature == 0:
        faults.append(
            f"samples is {chosen['samples']}, but with temperature 0 all would be the same; leave samples out, or give "
            f"a temperature of at least {MIN_TEMPERATURE}"
        )
    if not faults and (chosen["beam"] > 1 or temperature == 0):
        names = [name for name, off in OFF.items() if chosen.get(name, off) != off]
        names += [] if seed is None else ["seed"]
        if names:
            setting = f"beam {chosen['beam']}" if chosen["beam"] > 1 else "temperature 0"
            faults.append(f"with {setting} nothing is sampled: leave out {', '.join(names)}")
    if faults:
        raise UsageError("; ".join(faults))
