"""generate() must do what the model's own forward pass does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, refusals
from clockhands.checking.models.huggingface import KV_CACHES, fixed_source
from clockhands.checking.models.subject import Subject
from clockhands.model.huggingface_base import get_cache, name_cache

_NEW = 6
_generate_check = partial(check, causal=True, huggingface=True)


@_generate_check(
    "generate.forward",
    "positions made differently for generation",
    uses=("cached decoding", "resume", "left-padded generate"),
)
def _forward(subject: Subject) -> Measurement:
    """generate() computes the logits that a forward pass over its output gives."""
    return _compare_forward(subject, None)


def compare_from_zero(subject: Subject) -> Measurement:
    """Compare as ``generate.forward`` does, with a forward pass that is given positions from 0."""
    return _compare_forward(subject, -subject.facts.first)


def _compare_forward(subject: Subject, start: int | None) -> Measurement:
    adapter: Any = subject.adapter
    seq2seq = getattr(adapter, "task", "") == "seq2seq"
    sequence, steps = _generate(subject, fixed_source(adapter, 1) if seq2seq else subject.tokens(1, 10))
    positions = None if start is None else subject.arange(1, sequence.shape[1], start)
    whole = subject.logits(sequence, positions=positions)[:, sequence.shape[1] - _NEW - 1 : -1]
    return Measurement(difference(steps, whole), f"{_NEW} new tokens")


@_generate_check(
    "generate.left_padded",
    "positions shared by rows of unequal length",
    needs=("mask",),
    uses=("left-padded generate",),
)
def _left_padded(subject: Subject) -> Iterator[Measurement]:
    """Left-padded rows of a batch generate what each generates alone."""
    _require_decoder(subject)
    short, long = subject.tokens(1, 9), subject.tokens(1, 14, salt=1)
    pads = subject.tokens(1, 5, salt=2)
    mask = torch.ones(2, 14, dtype=torch.long, device=short.device)
    mask[0, :5] = 0
    together = _generate(subject, torch.cat([torch.cat([pads, short], 1), long]), attention_mask=mask)
    return _compare_steps(together, _generate(subject, short))


@_generate_check(
    "generate.resume",
    "a mask or a state that restarts with the second turn",
    needs=("cache",),
    uses=("resume",),
)
def _resume(subject: Subject) -> Iterator[Measurement]:
    """Generation resumed from a kept cache equals generation from the whole text.

    A second turn of seven tokens follows the first answer.
    """
    _require_decoder(subject)
    if getattr(subject.adapter, "cache_name", "") not in KV_CACHES:
        raise Inapplicable("generate() returns no cache that it takes back")
    first = _run(subject, subject.tokens(1, 10))
    turn = torch.cat([first.sequences, subject.tokens(1, 7, salt=4)], 1)
    resumed = _generate(subject, turn, **name_cache(get_cache(first)))
    return _compare_steps(resumed, _generate(subject, turn))


@_generate_check("generate.beam", "a cache whose rows do not follow the beams", needs=("cache",), uses=("beam search",))
def _beam(subject: Subject) -> Measurement:
    """Beam search over a batch finds with a cache what it finds without.

    The scores of what three beams found from two prompts are compared.
    """
    _require_decoder(subject)
    ids = subject.tokens(2, 10)
    options = {"num_beams": 3, "num_return_sequences": 3, "output_scores": True}
    with refusals("the model refuses", ValueError, about="beam search", most=160):
        scores = [_run(subject, ids, **options, use_cache=use_cache).sequences_scores for use_cache in (True, False)]
    return Measurement(difference(*scores), "the scores of three beams for each of two prompts")


def _compare_steps(actual: tuple[Tensor, Tensor], alone: tuple[Tensor, Tensor]) -> Iterator[Measurement]:
    """Compare the first rows of two (sequences, logits of the new tokens) until the chosen tokens part."""
    for step in range(_NEW):
        yield Measurement(difference(actual[1][:1, step], alone[1][:1, step]), f"step {step + 1} of {_NEW}")
        if actual[0][0, step - _NEW] != alone[0][0, step - _NEW]:
            return


def _require_decoder(subject: Subject) -> None:
    if getattr(subject.adapter, "task", "") != "causal":
        raise Inapplicable("about decoders alone")


def _generate(subject: Subject, ids: Tensor, **extra: Any) -> tuple[Tensor, Tensor]:
    """Return the sequence [B, S] and the logits of the new tokens [B, steps, V]."""
    output = _run(subject, ids, **extra)
    return output.sequences, torch.stack(output.logits, 1)


def _run(subject: Subject, ids: Tensor, **extra: Any) -> Any:
    module: Any = subject.module
    if not getattr(module, "can_generate", lambda: False)():
        raise Inapplicable("the model does not generate")
    options: dict[str, Any] = {"max_new_tokens": _NEW, "min_new_tokens": _NEW, "do_sample": False, "num_beams": 1}
    if getattr(module.config, "is_encoder_decoder", False) and module.generation_config.decoder_start_token_id is None:
        options["decoder_start_token_id"] = 2
    options = {"attention_mask": torch.ones_like(ids), **options, **extra}
    output = module.generate(ids, **options, pad_token_id=0, output_logits=True, return_dict_in_generate=True)
    if len(output.logits) != _NEW:
        raise Inapplicable(f"generate() made {len(output.logits)} tokens of {_NEW}")
    return output
