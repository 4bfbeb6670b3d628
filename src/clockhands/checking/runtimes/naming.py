"""Name what breaks a law in a program: a fault is named only where a model that has it gives the very same scores.

The model that has it is the program itself, asked in another way, or the reference: at other positions, or with another
configuration. Scores are the log-probabilities of a text's own tokens.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.caching import read_moved
from clockhands.checking.checks.check import TOLERANCE, difference
from clockhands.checking.models.subject import Subject
from clockhands.checking.runtimes.program import LENGTH, MARGIN, score_tokens
from clockhands.model.huggingface_base import get_cache, name_cache

_CHUNK, _PADS, _SCANNED, _SHORT = 7, 9, 256, 64
_Guess = tuple[str, Callable[[], Tensor]]
"""A fault in words, and the scores of a model that has it."""


def name_fault(subject: Subject, check: str) -> str:
    """Return what explains that a check fails; empty where nothing that was tried gives the same scores."""
    group = check.rpartition(".")[0] or check
    namer = _NAMERS.get(check, _NAMERS.get(group))
    try:
        return namer(subject) if namer else ""
    except Exception:  # a program may raise anything on a text that was not tried before
        return ""


def name_refusal(subject: Subject) -> str:
    """Return which lengths are read at all, if some are not: one alone, or those up to a table's end."""
    last = min(_SCANNED, subject.facts.limit or _SCANNED)
    end = _bisect(lambda length: not _is_read(subject, length), 2, last + 1) - 1
    if end == last:
        return ""
    if end > 1 and all(_is_read(subject, length) for length in (2, end // 2 + 1, end)):
        return f"no text of more than {end} tokens is read: a table ends there"
    read = [length for length in range(2, last + 1) if _is_read(subject, length)]
    return f"only texts of {read[0]} tokens are read: the length of the example is frozen" if len(read) == 1 else ""


def _is_read(subject: Subject, length: int) -> bool:
    try:
        subject.logits(subject.tokens(1, length))
    except Exception:  # as above
        return False
    return True


def compare_scores(ours: Subject, theirs: Subject) -> tuple[float, float, Tensor, Tensor, Tensor]:
    """Return how far a program is from its reference, from where on that counts, the text, and both scores of it.

    The text is the shortest of the usual length and of the claimed, up to 256, of which the scores differ. What
    rounding and quantised weights do is seen where position plays no part: in the second token of a text, which
    attends to the first alone, however both are rotated.
    """
    pairs = theirs.tokens(_SHORT, 2, salt=92)
    rows = torch.cat([score_tokens(ours, ids) for ids in pairs.split(1)])
    gaps = (rows - score_tokens(theirs, pairs)).abs() / score_tokens(theirs, theirs.tokens(4, 32, salt=90)).std()
    noise = float(gaps.quantile(0.95))
    most = 0.1 if theirs.facts.absolute else 0.25  # a position may be added to the first tokens too
    tolerance = max(getattr(ours.adapter, "tolerance", TOLERANCE), MARGIN * min(most, noise))
    length = min(LENGTH, ours.facts.limit or LENGTH)
    for count in sorted({length, min(_SCANNED, ours.facts.limit or length)}):
        ids = theirs.tokens(1, count, salt=3)
        actual, wanted = score_tokens(ours, ids), score_tokens(theirs, ids)
        size = difference(actual[..., None], wanted[..., None])
        if size > tolerance:
            break
    return size, tolerance, ids, actual, wanted


def name_difference(ours: Subject, theirs: Subject) -> str:
    """Return what explains the difference from the reference: other positions, another configuration, or two such."""
    _, tolerance, ids, actual, wanted = compare_scores(ours, theirs)
    first = int(((actual - wanted).abs() / wanted.std() > tolerance).nonzero()[0, 1])
    guesses = [*_guess_places(theirs, ids, first), *_guess_variants(theirs, ids)]
    return _choose(actual, wanted, guesses, tolerance) or _choose(actual, wanted, _guess_pairs(theirs, ids), tolerance)


def _choose(actual: Tensor, wanted: Tensor, guesses: Iterator[_Guess] | list[_Guess], tolerance: float) -> str:
    """Return the guess that is nearest to what was measured, if it is as near as arithmetic allows."""
    size, best, words = difference(actual[..., None], wanted[..., None]), float("inf"), ""
    for said, scores in guesses:
        left = difference(actual[..., None], scores()[..., None])
        if left < best:
            best, words = left, said
    return words if best <= min(tolerance, size / 2) else ""


def _score_at(subject: Subject, ids: Tensor, place: Callable[[Tensor], Tensor]) -> Tensor:
    """Return scores at other positions than 0, 1, …; without a mask those that begin again are packed documents."""
    positions = place(torch.arange(ids.shape[1]))[None] + subject.facts.first
    mask = torch.ones_like(ids, dtype=torch.bool) if subject.takes("mask") else None
    return score_tokens(subject, ids, mask, positions)


def _guess_places(theirs: Subject, ids: Tensor, first: int) -> Iterator[_Guess]:
    if not theirs.takes("positions"):
        return

    def predict(words: str, place: Callable[[Tensor], Tensor]) -> _Guess:
        return words, lambda: _score_at(theirs, ids, place)

    yield predict("all tokens stand at position 0: positions are lost", lambda p: p * 0)
    for offset in (1, 2):
        yield predict(f"positions begin {offset} too late", lambda p, by=offset: p + by)  # type: ignore[misc]
    for count in range(max(1, first - 6), first + 2):
        stopped = f"positions stop at {count - 1}: a table frozen at {count} positions"
        yield predict(stopped, lambda p, last=count - 1: p.clamp(max=last))  # type: ignore[misc]
        again = f"positions begin again after {count}: a table frozen at {count} positions"
        yield predict(again, lambda p, period=count: p % period)  # type: ignore[misc]


def _guess_variants(theirs: Subject, ids: Tensor, before: str = "") -> Iterator[_Guess]:
    for words, make in _list_variants(theirs):
        yield before + words, lambda make=make: score_tokens(make(), ids)  # type: ignore[misc]


def _guess_pairs(theirs: Subject, ids: Tensor) -> Iterator[_Guess]:
    for words, make in _list_variants(theirs):
        yield from _guess_variants(make(), ids, f"{words}; and ")


def _list_variants(theirs: Subject) -> Iterator[tuple[str, Callable[[], Subject]]]:
    """Yield the reference with each fault that its weights and configuration allow."""
    module: Any = theirs.get_module()
    if any(name.endswith(("q_proj", "k_proj")) for name, _ in module.named_modules()):
        for forward in (True, False):
            yield (
                "q and k are not permuted as the engine pairs channels: halves and neighbours are confused",
                lambda forward=forward: _change(theirs, lambda model: permute(model, forward)),  # type: ignore[misc]
            )
    rope = getattr(getattr(module, "config", None), "rope_parameters", None)
    if not isinstance(rope, dict) or "rope_theta" not in rope:
        return
    kind, base = rope.get("rope_type", "default"), rope["rope_theta"]
    if kind != "default":
        plain = {"rope_type": "default", "rope_theta": base}
        yield f"the scaling {kind!r} is dropped", lambda: _rebuild(theirs, plain)
    if kind == "yarn":
        untempered = {**rope, "attention_factor": 1.0}
        yield "YaRN without its attention factor (temperature)", lambda: _rebuild(theirs, untempered)
    if base != 10_000:
        usual = {**rope, "rope_theta": 10_000.0}
        yield f"the base is 10,000 in place of {base:,g}", lambda: _rebuild(theirs, usual)


def _change(theirs: Subject, change: Callable[[nn.Module], None]) -> Subject:
    changed = theirs.copy_model(theirs.seed, theirs.dtype)
    module: Any = copy.deepcopy(changed.module)
    change(module)
    changed.adapter.module = module  # type: ignore[attr-defined]
    return changed


def _rebuild(theirs: Subject, rope: dict[str, Any]) -> Subject:
    """Return the same weights under other settings of RoPE."""
    module: Any = theirs.module
    config = copy.deepcopy(module.config)
    config.rope_parameters = dict(rope)
    model = type(module)._from_config(config, dtype=theirs.dtype).eval()
    model.load_state_dict(dict(module.named_parameters()), strict=False)
    changed = theirs.copy_model(theirs.seed, theirs.dtype)
    changed.adapter.module = model  # type: ignore[attr-defined]
    return changed


@torch.no_grad()
def permute(model: nn.Module, forward: bool) -> None:
    """Reorder the rows of q and k within each head: halves to neighbours, or back."""
    config: Any = getattr(model, "config", None)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    for name, layer in model.named_modules():
        if name.endswith(("q_proj", "k_proj")) and isinstance(layer, nn.Linear):
            for tensor in (layer.weight, layer.bias):
                if tensor is not None:
                    sizes = (2, width // 2) if forward else (width // 2, 2)
                    heads = tensor.reshape(-1, *sizes, *tensor.shape[1:])
                    tensor.copy_(heads.transpose(1, 2).reshape(tensor.shape))


def _name_chunks(subject: Subject) -> str:
    """What explains that a text read in pieces is answered otherwise: positions begin again, or the cache is unread."""
    program: Any = subject.adapter
    ids = subject.tokens(1, min(LENGTH, subject.facts.limit or LENGTH))
    wanted, cache, read = score_tokens(subject, ids), program.new_cache(), []
    starts = range(0, ids.shape[1], _CHUNK)
    for start, stop in pairwise((*starts, ids.shape[1])):
        read.append(subject.logits(ids[:, start:stop], cache=cache))
    logs = torch.cat(read, 1)[:, :-1].double().log_softmax(-1)
    actual = logs.gather(-1, ids[:, 1:, None])[..., 0]

    def alone() -> Tensor:
        return torch.cat([score_tokens(subject, ids[:, start : start + _CHUNK + 1]) for start in starts], 1)

    guesses: list[_Guess] = [("what is in the KV cache is not seen", alone)]
    words = "positions are counted from the beginning of each call, not from the KV cache"
    for model in (subject, program.reference):
        if model is not None and model.takes("positions"):
            guesses.append((words, lambda model=model: _score_at(model, ids, lambda p: p % _CHUNK)))  # type: ignore
    return _choose(actual, wanted, guesses, program.tolerance)


def _name_padding(subject: Subject) -> str:
    """What explains that pads on the left change scores: they are seen, or counted."""
    program: Any = subject.adapter
    ids, pads = subject.tokens(1, LENGTH // 2), subject.tokens(1, _PADS, salt=7)
    longer, total = torch.cat([pads, ids], 1), _PADS + ids.shape[1]
    mask = torch.arange(total)[None] >= _PADS
    wanted, positions = score_tokens(subject, ids), subject.positions(mask) if subject.takes("positions") else None
    actual = score_tokens(subject, longer, mask, positions)[:, _PADS:]
    if difference(actual[..., None], wanted[..., None]) <= program.tolerance:
        return "right where a text is alone under its pads: rows get the positions or the mask of another row"
    seen, counted = "the pads are seen: the mask is lost", "the pads are counted: positions begin at the first pad"
    guesses: list[_Guess] = [(seen, lambda: score_tokens(subject, longer)[:, _PADS:])]
    if subject.takes("positions"):
        guesses.append((seen, lambda: score_tokens(subject, longer, None, positions)[:, _PADS:]))
    for model in (subject, program.reference):
        if model is not None and model.takes("positions"):
            guesses.append((counted, lambda model=model: _score_at(model, ids, lambda p: p + _PADS)))  # type: ignore
    return _choose(actual, wanted, guesses, program.tolerance)


def _name_moved(subject: Subject) -> str:
    """What explains that moved keys are read otherwise: they are scaled by YaRN's temperature once more."""
    theirs: Subject | None = getattr(subject.adapter, "reference", None)
    rope = getattr(getattr(getattr(theirs, "module", None), "config", None), "rope_parameters", None)
    if theirs is None or not isinstance(rope, dict) or rope.get("rope_type") != "yarn":
        return ""
    gain = float(rope.get("attention_factor") or 0.1 * math.log(rope["factor"]) + 1)
    ids, module = subject.tokens(1, LENGTH), theirs.get_module()

    def again() -> Tensor:
        half = LENGTH // 2
        with torch.no_grad():
            first = module(input_ids=ids[:, :half], use_cache=True)
            for layer in get_cache(first).layers:
                layer.keys = layer.keys * gain
            second = module(input_ids=ids[:, half:], use_cache=True, **name_cache(get_cache(first)))
        return torch.cat([first.logits, second.logits], 1)

    words = f"keys that are moved are multiplied by YaRN's temperature ({gain:.4g}) once more"
    tolerance = getattr(subject.adapter, "tolerance", TOLERANCE)
    actual, wanted = read_moved(subject, ids, 32), read_moved(subject, ids, 0)
    size, left = difference(actual, wanted), difference(actual, again()[..., : actual.shape[-1]])
    return words if left <= min(max(tolerance, MARGIN * TOLERANCE), size / 2) else ""


def _name_shift(subject: Subject) -> str:
    """Look for the last position that is told from later ones: all beyond it are read as it is."""
    ids = subject.tokens(1, LENGTH)
    wanted, length, program = subject.logits(ids), LENGTH, subject.adapter
    last = (subject.facts.limit or 0) - length
    tolerance = getattr(program, "tolerance", TOLERANCE)

    def read(start: int, stop: int) -> Tensor:
        return subject.logits(ids, positions=subject.arange(1, length, start).clamp(max=stop))

    def moves(start: int) -> bool:
        return difference(read(start, start + length), wanted) > tolerance

    start = _bisect(moves, 1, last)  # the first start at which the text reaches beyond the table
    begin = 0 if start == 1 else start + length // 2
    actual = read(begin, begin + length)
    stop = _bisect(lambda n: difference(read(begin, n), actual) <= tolerance, begin, begin + length - 1)
    if getattr(program, "noise", 0.0) > TOLERANCE or stop > begin + length - 1 - length // 4:  # the number is a guess
        return ""
    return f"positions stop at {stop}: a table frozen at {stop + 1} positions"


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first number for which it holds, if it does for all after that; ``high`` where it never does."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


_NAMERS: dict[str, Callable[[Subject], str]] = {
    "cache": _name_chunks,
    "cache.padded": lambda subject: _name_chunks(subject) or _name_padding(subject),
    "cache.prefill": lambda subject: _name_chunks(subject) or _name_padding(subject),
    "cache.left_mask": lambda subject: _name_chunks(subject) or _name_padding(subject),
    "cache.reused": lambda subject: "",
    "cache.moved": _name_moved,
    "padding": _name_padding,
    "padding.left": _name_padding,
    "positions.matter": lambda subject: "the input position_ids is not used",
    "shift": _name_shift,
}
