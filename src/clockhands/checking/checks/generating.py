"""generate() must do what the model's own forward pass does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.huggingface import KV_CACHES
from clockhands.checking.models.subject import Subject
from clockhands.model.huggingface_base import get_cache, name_cache

_NEW = 6


@check(
    "generate.forward",
    "generate() computes the logits that a forward pass over its output gives.",
    "positions made differently for generation",
    causal=True,
    huggingface=True,
    uses=("cached decoding", "resume", "left-padded generate"),
)
def forward(subject: Subject) -> Measurement:
    """Greedy, six tokens, the logits of every step."""
    return _compare_forward(subject, None)


def compare_from_zero(subject: Subject) -> Measurement:
    """Compare as ``generate.forward`` does, with a forward pass that is given positions from 0."""
    return _compare_forward(subject, -subject.facts.first)


def _compare_forward(subject: Subject, start: int | None) -> Measurement:
    sequence, steps = _generate(subject, _prompt(subject, 10))
    positions = None if start is None else subject.arange(1, sequence.shape[1], start)
    whole = subject.logits(sequence, positions=positions)[:, sequence.shape[1] - _NEW - 1 : -1]
    return Measurement(difference(steps, whole), f"{_NEW} new tokens")


@check(
    "generate.left_padded",
    "Left-padded rows of a batch generate what each generates alone.",
    "positions shared by rows of unequal length",
    causal=True,
    huggingface=True,
    needs=("mask",),
    uses=("left-padded generate",),
)
def left_padded(subject: Subject) -> Measurement:
    """Generate from a short row beside a longer one, with its mask."""
    _decoder_only(subject)
    short, long = subject.tokens(1, 9), subject.tokens(1, 14, salt=1)
    pads = subject.tokens(1, 5, salt=2)
    mask = torch.ones(2, 14, dtype=torch.long, device=short.device)
    mask[0, :5] = 0
    together = _generate(subject, torch.cat([torch.cat([pads, short], 1), long]), attention_mask=mask)
    return _compare(together, _generate(subject, short))


@check(
    "generate.resume",
    "Generation resumed from a kept cache equals generation from the whole text.",
    "a mask or a state that restarts with the second turn",
    causal=True,
    huggingface=True,
    needs=("cache",),
    uses=("resume",),
)
def resume(subject: Subject) -> Measurement:
    """Continue with a second turn of seven tokens after a first answer."""
    _decoder_only(subject)
    if getattr(subject.adapter, "cache_name", "") not in KV_CACHES:
        raise Inapplicable("generate() returns no cache that it takes back")
    first = _run(subject, subject.tokens(1, 10))
    turn = torch.cat([first.sequences, subject.tokens(1, 7, salt=4)], 1)
    resumed = _generate(subject, turn, **name_cache(get_cache(first)))
    return _compare(resumed, _generate(subject, turn))


@check(
    "generate.beam",
    "Beam search over a batch finds with a cache what it finds without.",
    "a cache whose rows do not follow the beams",
    uses=("beam search",),
    causal=True,
    huggingface=True,
    needs=("cache",),
)
def beam(subject: Subject) -> Measurement:
    """Search with three beams from two prompts, and compare the scores of what was found."""
    _decoder_only(subject)
    ids = subject.tokens(2, 10)
    options = {"num_beams": 3, "num_return_sequences": 3, "output_scores": True}
    try:
        scores = [_run(subject, ids, **options, use_cache=use_cache).sequences_scores for use_cache in (True, False)]
    except ValueError as fault:
        if "beam search" not in str(fault):
            raise
        raise Inapplicable(f"the model refuses: {' '.join(str(fault).split())[:160]}") from fault
    return Measurement(difference(*scores), "the scores of three beams for each of two prompts")


def _compare(actual: tuple[Tensor, Tensor], alone: tuple[Tensor, Tensor]) -> Measurement:
    """Step by step until the chosen tokens part."""
    effects = []
    for step in range(_NEW):
        effects.append(Measurement(difference(actual[1][:1, step], alone[1][:1, step]), f"step {step + 1} of {_NEW}"))
        if actual[0][0, step - _NEW] != alone[0][0, step - _NEW]:
            break
    return largest(*effects)


def _prompt(subject: Subject, length: int) -> Tensor:
    if getattr(subject.adapter, "task", "") == "seq2seq":
        from clockhands.checking.models.huggingface import fixed_source

        return fixed_source(subject.adapter, 1)  # type: ignore[arg-type]
    return subject.tokens(1, length)


def _decoder_only(subject: Subject) -> None:
    if getattr(subject.adapter, "task", "") != "causal":
        raise Inapplicable("about decoders alone")


def _generate(subject: Subject, ids: Tensor, **extra: Any) -> tuple[Tensor, Tensor]:
    """The sequence and the logits of the new tokens, (row, step, vocabulary)."""
    output = _run(subject, ids, **extra)
    return output.sequences, torch.stack(output.logits, 1)


def _run(subject: Subject, ids: Tensor, **extra: Any) -> Any:
    module: Any = subject.module
    if not getattr(module, "can_generate", lambda: False)():
        raise Inapplicable("the model does not generate")
    options: dict[str, Any] = {"max_new_tokens": _NEW, "min_new_tokens": _NEW, "do_sample": False, "num_beams": 1}
    options |= extra
    config = module.generation_config
    if getattr(module.config, "is_encoder_decoder", False) and config.decoder_start_token_id is None:
        options["decoder_start_token_id"] = 2
    options = {"attention_mask": torch.ones_like(ids), **options}
    output = module.generate(ids, **options, pad_token_id=0, output_logits=True, return_dict_in_generate=True)
    if len(output.logits) != _NEW:
        raise Inapplicable(f"generate() made {len(output.logits)} tokens of {_NEW}")
    return output
