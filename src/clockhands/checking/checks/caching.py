"""Decoding with a cache, and generate(): they equal one pass over the whole text, under a mask too."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import (
    Inapplicable,
    Measurement,
    check,
    compare_rows,
    difference,
    new_cache,
    read_in_pieces,
    refusals,
    worst,
)
from clockhands.checking.models.huggingface import KV_CACHES, fixed_source
from clockhands.checking.models.subject import Subject
from clockhands.model.huggingface_base import get_cache, name_cache

_LENGTH = 40  # crosses the windows of 16 that the shrunk models have
_LONG = 88  # of a cache that drops what is far behind; what `fitting` reads of a plain text is longer
_MASKED = 24
_cache_check = partial(check, needs=("cache",), causal=True)
_masked_check = partial(check, needs=("cache", "mask"), causal=True)
_placed_check = partial(check, needs=("cache", "mask", "positions"), causal=True)
_generate_check = partial(check, causal=True, huggingface=True)
_NEW = 6  # tokens that are generated


def _compare_pieces(subject: Subject, stops: list[int], tokens: int = _LENGTH) -> Measurement:
    ids = subject.tokens(2, stops[-1])
    size, position = worst(read_in_pieces(subject, ids, stops), subject.logits(ids))
    return Measurement(size, f"largest at token {position} of {stops[-1]}", tokens=tokens)


@_cache_check(
    "cache.steps",
    "an offset dropped; a window cut wrongly",
    uses=("cached decoding", "resume", "rollback", "left-padded generate"),
)
def _steps(subject: Subject) -> Iterator[Measurement]:
    """One token at a time equals all at once, also past the window, and behind a longer text that is claimed."""
    longest = min((subject.facts.limit or 0) - subject.facts.first, _LONG)
    longest = longest if longest > 2 * _LENGTH else _LENGTH
    yield _compare_pieces(subject, list(range(8, _LENGTH + 1)), longest)
    if longest > _LENGTH:
        yield _compare_pieces(subject, [longest - 2, longest - 1, longest], longest)


@_cache_check("cache.chunks", "a mask or a state that restarts at the second chunk", uses=("resume",))
def _chunks(subject: Subject) -> Measurement:
    """Continuing with several tokens equals all at once."""
    return _compare_pieces(subject, [11, 18, 31, _LENGTH])


@_cache_check("cache.rollback", "rejected drafts that stay; an offset that is not taken back", uses=("rollback",))
def _rollback(subject: Subject) -> Measurement:
    """Tokens taken back leave no trace in the cache.

    Five tokens are taken back, and others read in their place, inside the window.
    """
    back = getattr(subject.adapter, "roll_back", None)
    if back is None:
        raise Inapplicable("the cache cannot be rolled back")
    ids, wrong = subject.tokens(1, 14), subject.tokens(1, 5, salt=3)
    cache = new_cache(subject)
    subject.logits(ids[:, :8], cache=cache)
    subject.logits(wrong, cache=cache)
    kinds = (NotImplementedError, ValueError, AttributeError, TypeError, RuntimeError)
    with refusals("the cache refuses", *kinds, most=120):
        back(cache, 5)
    actual = subject.logits(ids[:, 8:], cache=cache)
    return Measurement(difference(actual, subject.logits(ids)[:, 8:]), "5 tokens taken back of 13")


@_placed_check(
    "cache.padded",
    "one position shared by all rows at a decoding step",
    uses=("left padding with position_ids", "left-padded generate"),
)
def _padded(subject: Subject) -> Measurement:
    """Rows of unequal length, padded on the left, decode with a cache as each does alone."""
    ids = subject.tokens(1, 20)
    pads = subject.tokens(1, 4, salt=5)
    text = torch.cat([torch.cat([pads, ids], 1), subject.tokens(1, 24, salt=6)])
    mask = _mask_first(text, 4)
    together = read_in_pieces(subject, text, range(12, 25), mask, subject.positions(mask))
    return Measurement(difference(together[:1, 4:], subject.logits(ids)), "4 pads, 12 single steps")


def _mask_first(ids: Tensor, pads: int) -> Tensor:
    """Return a mask [B, S] under which the first tokens of the first row are pads."""
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[0, :pads] = False
    return mask


@_cache_check("cache.static", "slots that were never written looked at", huggingface=True, uses=("static cache",))
def _static(subject: Subject) -> Measurement:
    """A cache of fixed size gives what a growing one gives."""
    ids, cache = subject.tokens(1, 24), new_cache(subject)
    cache.state = make_static_cache(subject)
    return Measurement(difference(read_in_pieces(subject, ids, range(8, 25), cache=cache), subject.logits(ids)))


def make_static_cache(subject: Subject) -> Any:
    """Return a static cache for 32 tokens. Raises Inapplicable where the model has none."""
    from transformers import StaticCache

    adapter: Any = subject.adapter
    if getattr(adapter, "task", "") != "causal" or getattr(adapter, "cache_name", "") not in KV_CACHES:
        raise Inapplicable("only decoders with a KV cache have one")
    if not getattr(subject.module, "_can_compile_fullgraph", True):
        raise Inapplicable("the model declares no support for a static cache")
    return StaticCache(config=adapter.config, max_cache_len=32)


@_masked_check(
    "cache.mask",
    "positions counted from the part of the mask that belongs to the new tokens",
    uses=("cached decoding", "left-padded generate"),
)
def _ones(subject: Subject) -> Measurement:
    """Under a mask of ones, one token at a time equals all at once."""
    return _compare_masked_steps(subject, 0)


@_masked_check(
    "cache.left_mask",
    "pads that count at a decoding step and not in a whole text, or the other way round",
    uses=("left-padded generate", "left padding by the mask alone"),
)
def _left_mask(subject: Subject) -> Measurement:
    """Padded on the left, under the mask alone, one token at a time equals all at once."""
    return _compare_masked_steps(subject, 4)


def _compare_masked_steps(subject: Subject, pads: int) -> Measurement:
    """Compare with the same padded rows in one pass, so that it does not matter whether pads count as positions."""
    ids = subject.tokens(2, _MASKED)
    mask = _mask_first(ids, pads)
    actual = read_in_pieces(subject, ids, range(10, _MASKED + 1), mask)
    kept = mask.unsqueeze(-1)
    return Measurement(difference(actual * kept, subject.logits(ids, mask) * kept), f"{_MASKED - 10} single steps")


@_placed_check(
    "cache.prefill", "a mask or positions cut wrongly at the border of a chunk", uses=("resume", "left-padded generate")
)
def _prefill(subject: Subject) -> Iterator[Measurement]:
    """A batch of unequal rows read in chunks equals each row alone.

    One row has pads on the left; its first chunk of seven is pads alone.
    """
    ids = subject.tokens(2, _MASKED)
    mask = _mask_first(ids, 8)
    together = read_in_pieces(subject, ids, [7, 14, 21, _MASKED], mask, subject.positions(mask))
    return compare_rows(subject, together, [ids[:1, 8:], ids[1:]], "chunks of 7")


@_placed_check(
    "cache.rollback_rows",
    "one count of tokens for all rows; rejected drafts that are still attended to",
    uses=("rollback",),
)
def _rollback_rows(subject: Subject) -> Iterator[Measurement]:
    """Drafts that one row rejects and another keeps leave no trace.

    Two rows read five drafts; the last three of one row are masked, and both go on, each at its own position. All of it
    is shorter than the windows of 16 that the shrunk models have, which count slots and not positions.
    """
    if getattr(subject.adapter, "packs", False):
        raise Inapplicable("where a position falls the model begins a document")
    prompt, drafts, rest = subject.tokens(2, 5), subject.tokens(2, 5, salt=3), subject.tokens(2, 5, salt=4)
    cache, read = new_cache(subject), torch.cat([prompt, drafts], 1)
    mask = torch.ones(2, 15, dtype=torch.bool, device=prompt.device)
    subject.logits(read, mask[:, :10], subject.arange(2, 10), cache)
    mask[0, 7:10] = False
    positions = torch.cat([subject.arange(1, 5, 7), subject.arange(1, 5, 10)])
    after = subject.logits(rest, mask, positions, cache)
    alone = [torch.cat([read[row : row + 1, :kept], rest[row : row + 1]], 1) for row, kept in ((0, 7), (1, 10))]
    return compare_rows(subject, after, alone, "2 and 5 drafts of 5 kept")


@_cache_check("cache.prefix", "state that is kept beside the cache, and not copied with it", uses=("prefix cache",))
def _prefix(subject: Subject) -> Iterator[Measurement]:
    """Two texts continued from copies of one cache equal the whole texts."""
    start, cache = subject.tokens(1, 12), new_cache(subject)
    subject.logits(start, cache=cache)
    for salt, length in ((5, 9), (6, 4)):  # the longer first
        rest = subject.tokens(1, length, salt=salt)
        with refusals("the cache cannot be copied", TypeError, RuntimeError, NotImplementedError):
            again = copy.deepcopy(cache)
        whole = subject.logits(torch.cat([start, rest], 1))[:, 12:]
        yield Measurement(difference(subject.logits(rest, cache=again), whole), f"{length} tokens after 12")


@_cache_check("cache.reorder", "a part of the cache that is not reordered with the rest", uses=("beam search",))
def _reorder(subject: Subject) -> Measurement:
    """Rows of a cache in another order decode as those rows do.

    Three rows are read; the third, the first and the first again go on, as in beam search.
    """
    change = getattr(subject.adapter, "reorder", None)
    if change is None:
        raise Inapplicable("the adapter has no reorder()")
    ids, rest = subject.tokens(3, 18), subject.tokens(3, 6, salt=5)
    rows, cache = torch.tensor([2, 0, 0], device=ids.device), new_cache(subject)
    subject.logits(ids[:, :12], cache=cache)
    change(cache, rows)
    actual = read_in_pieces(subject, rest, range(1, 7), cache=cache)
    whole = subject.logits(torch.cat([ids[rows, :12], rest], 1))[:, 12:]
    return Measurement(difference(actual, whole), "row 3, row 1 and row 1 in place of 1, 2 and 3")


@check(
    "cache.reused",
    "keys of another text or at other positions taken from the prefix cache",
    uses=("prefix cache",),
    needs=("reuse",),
)
def _reused(subject: Subject) -> Measurement:
    """A text whose beginning is in the program's prefix cache is read as without."""
    adapter: Any = subject.adapter
    first, second = subject.tokens(2, 48).split(1)
    second = torch.cat([first[:, :24], second[:, 24:]], 1)
    adapter.reuse(first)
    return Measurement(difference(adapter.reuse(second), subject.logits(second)), "the first 24 tokens cached")


@check(
    "cache.moved",
    "keys that are rotated by another rule than when they were made",
    uses=("moved positions", "resume"),
    needs=("move",),
    shared=True,
)
def _moved(subject: Subject) -> Measurement:
    """Where only distances count, keys in the cache that are moved on change nothing."""
    if subject.facts.absolute:
        raise Inapplicable("positions are absolute")
    ids = subject.tokens(1, 48)
    return Measurement(difference(read_moved(subject, ids, 32), read_moved(subject, ids, 0)), "moved by 32")


def read_moved(subject: Subject, ids: Tensor, by: int) -> Tensor:
    """Return the logits of a text of which the first half was moved on by so many positions before the rest is read."""
    adapter: Any = subject.adapter
    cache, half = adapter.new_cache(), ids.shape[1] // 2
    first = subject.logits(ids[:, :half], cache=cache)
    if by:
        adapter.move(cache, by)
    return torch.cat([first, subject.logits(ids[:, half:], cache=cache)], 1)


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
    "generate.left_padded", "positions shared by unequal rows", needs=("mask",), uses=("left-padded generate",)
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
    "generate.resume", "a mask or a state that restarts with the second turn", needs=("cache",), uses=("resume",)
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
