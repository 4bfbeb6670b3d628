"""Continuation of a prompt by a trained language model; and whether the texts to generate fit the memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch

from clockhands.devices import require_memory
from clockhands.errors import CheckpointError, ClockhandsWarning, UsageError, explain_overflow
from clockhands.model.kv_cache import find_window
from clockhands.options import Count, NotNegative, Range, Seed, check_value
from clockhands.progress import CountProgress, ignore_count
from clockhands.runs import Run

if TYPE_CHECKING:
    from clockhands.models import LanguageModel


Beam = Annotated[int, Range(least=1, most=1024)]
"""Hypotheses of a search. More find no better texts, and with 100,000 a sentence would take hours."""


def estimate_bytes(model: Any, *, batch: int, beam: int, length: int, source_length: int = 0) -> int:
    """Return a lower bound of the memory, in bytes, that a search takes, so that nothing is refused that would fit.

    It is in the type of the weights; ``ctranslate2`` with a smaller ``compute_type`` may take less. There is a time at
    which all states of one layer of the encoder exist, and another at which the KV cache exists with the encoder's
    output: the larger counts. The keys and values of a source are counted once, since its hypotheses may share them.

    Args:
        model: the model that generates, ours or one of transformers.
        batch: the number of sources, or of prompts.
        beam: the number of hypotheses of each.
        length: the tokens of a hypothesis.
        source_length: the tokens of a source; 0: the model has no encoder.
    """
    size = int(next(model.parameters()).element_size())
    if not hasattr(model.config, "transformer_config"):
        names = (
            "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "num_hidden_layers",
            "layer_types", "kv_lora_rank",
        )  # fmt: skip
        text = model.config.get_text_config(decoder=True)
        sizes = {name: getattr(text, name, None) for name in names}
        heads, head_dim = sizes["num_key_value_heads"] or sizes["num_attention_heads"], sizes["head_dim"]
        if head_dim is None and sizes["hidden_size"] and sizes["num_attention_heads"]:
            head_dim = sizes["hidden_size"] // sizes["num_attention_heads"]
        if not isinstance(heads, int) or not isinstance(head_dim, int) or sizes["kv_lora_rank"]:
            return 0  # it does not say its sizes, or caches compressed keys and values
        # Only layers that attend to the whole text are counted; the cache of other layers may be shorter.
        kinds = sizes["layer_types"] or ["full_attention"] * (sizes["num_hidden_layers"] or 0)
        return size * batch * beam * length * 2 * heads * head_dim * int(kinds.count("full_attention"))
    config, decoder = model.config.transformer_config, model.transformer.get_stack("decoder")
    # Where cached keys would be stale, one layer at a time has keys and values.
    layers = config.decoder_layers if decoder.cache_limit is None else 1
    # In self-attention values may have a width of their own, and a layer with a window holds no more tokens than that.
    heads, head_dim = config.resolved_num_kv_heads, config.resolved_head_dim
    windows = [find_window(decoder.schemes.get_scheme(layer)) for layer in range(layers)]
    tokens = sum(length if window is None else min(length, max(window, 1)) for window in windows)
    own = batch * beam * heads * (head_dim + (config.value_dim or head_dim)) * tokens
    # A layer's input, its output, and its inner states; of those of experts only a part exists at a time.
    has_plain_layer = not all(map(config.has_experts, range(config.encoder_layers)))
    encoder_width = 2 * config.d_model + (config.d_ff if has_plain_layer else config.shared_expert_width)
    # The encoder's output, and the keys and values that every layer of the decoder makes of it.
    cached_width = 2 * heads * head_dim * layers + config.d_model
    return size * max(batch * source_length * encoder_width, own + batch * source_length * cached_width)


def check_memory(
    model: Any, device: torch.device, *, batch: int, beam: int, length: int, source_length: int = 0, advice: str
) -> None:
    """Raise UsageError if the texts do not fit the memory that is free on the model's device.

    The sizes are those of ``estimate_bytes``; ``advice`` names the options to lower, such as "batch (--batch)".
    """
    needed = estimate_bytes(model, batch=batch, beam=beam, length=length, source_length=source_length)
    texts, need = ("1 text", "needs") if batch * beam == 1 else (f"{batch * beam:,} texts", "need")
    what = f"{texts} of {max(length, source_length):,} tokens at a time {need}"
    require_memory(needed, what, f"lower {advice}", device)


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
    "seed": Seed,
}
"""The values that the arguments take."""
OFF = {"temperature": 0, "top_k": 0, "top_p": 1}
"""The values of sampling options that say that nothing is sampled."""


def generate(
    run: str | Path | Run | LanguageModel | torch.nn.Module,
    prompt: str = "",
    *,
    tokenizer: Callable[..., Any] | None = None,
    tokens: int = 200,
    temperature: float | int | None = None,
    top_k: int | None = None,
    top_p: float | int | None = None,
    beam: int = 1,
    samples: int = 1,
    seed: int | None = None,
    max_prompt: int = 1024,
    progress: CountProgress = ignore_count,
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
        max_prompt: the most tokens of the prompt to read; of a longer one the last are read, with a ClockhandsWarning.
        progress: told how many tokens are written, of the most.

    Raises UsageError for values out of range, for sampling options if nothing is sampled, for texts that do not fit the
    memory or the model's table of positions, for an empty prompt if the tokenizer has no token to begin with, and for a
    run that is not a language model; CheckpointError for logits that are NaN or infinite; and what opening a model
    raises (``open_run``, ``open_language_model``).
    """
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    whole = {"tokens": tokens, "beam": beam, "samples": samples, "max_prompt": max_prompt}
    _check_values({**whole, **sampling, "seed": seed})
    from clockhands.models import to_language_model  # late, as transformers is with it

    model = to_language_model(run, "generate", tokenizer=tokenizer)
    own: Any = model.tokenizer
    ids = _encode_prompt(model, prompt, max_prompt)
    length = len(ids) + tokens
    if model.max_length is not None and length > model.max_length:
        raise UsageError(
            f"prompt and continuation have up to {length:,} tokens, and {model.source} has a table of "
            f"{model.max_length:,} positions; lower tokens or max_prompt"
        )
    sizes = {"batch": 1, "beam": max(beam, samples), "length": length}
    check_memory(model.model, model.device, **sizes, advice="tokens, beam or samples")
    pad = own.eos_token_id if own.pad_token_id is None else own.pad_token_id
    ids_BS = torch.tensor([ids], device=model.device)

    def refuse_overflow(written_BS: torch.Tensor, scores_BV: torch.Tensor) -> torch.Tensor:
        """Return the scores, of which those that sampling left out are −∞; raise CheckpointError for NaN and ∞."""
        progress("tokens", written_BS.shape[1] - len(ids), tokens)
        if bool((scores_BV.isnan() | scores_BV.isposinf()).any()):
            raise CheckpointError(explain_overflow(model.source))
        return scores_BV

    forked = [model.device] if model.device.type == "cuda" else []  # the caller's generators stay as they are
    with torch.random.fork_rng(forked, enabled=seed is not None), torch.inference_mode():
        if seed is not None:
            torch.manual_seed(seed)
        written_NS = model.model.generate(
            input_ids=ids_BS, attention_mask=torch.ones_like(ids_BS), pad_token_id=pad, num_return_sequences=samples,
            max_new_tokens=tokens, logits_processor=[refuse_overflow], **_make_search(beam, sampling),
        )  # fmt: skip
    return [prompt + text for text in own.batch_decode(written_NS[:, len(ids) :], skip_special_tokens=True)]


def _make_search(beam: int, sampling: dict[str, float | int | None]) -> dict[str, Any]:
    """Return the arguments of ``generate`` of transformers that say how tokens are chosen."""
    if beam > 1 or sampling["temperature"] == 0:
        return {"num_beams": beam, "do_sample": False}
    chosen = {name: value for name, value in sampling.items() if value is not None}
    temperature = float(chosen.pop("temperature", 0.8))  # transformers takes no other number
    return {"num_beams": 1, "do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0, **chosen}


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


def _check_values(values: dict[str, Any]) -> None:
    """Raise UsageError with every value that is out of range, and for those that exclude each other."""
    chosen = {name: value for name, value in values.items() if value is not None or name not in (*OFF, "seed")}
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
        names += ["seed"] if "seed" in chosen else []
        if names:
            setting = f"beam {chosen['beam']}" if chosen["beam"] > 1 else "temperature 0"
            faults.append(f"with {setting} nothing is sampled: leave out {', '.join(names)}")
    if faults:
        raise UsageError("; ".join(faults))
