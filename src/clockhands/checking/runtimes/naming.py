"""Name what breaks a law in a program: a fault is named only where a model that has it gives the very same scores.

The model that has it is the program itself, asked in another way, or the reference: at other positions, or with another
configuration. Scores are the log-probabilities of a text's own tokens.
"""

from __future__ import annotations

import contextlib
import copy
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.caching import read_moved
from clockhands.checking.checks.check import TOLERANCE, difference, read_in_pieces
from clockhands.checking.models.subject import Subject
from clockhands.checking.runtimes.program import LENGTH, MARGIN, score_tokens
from clockhands.model.huggingface_base import get_cache, name_cache

_CHUNK, _PADS, _SCANNED, _SHORT = 7, 9, 256, 64
_Guess = tuple[str, Tensor]  # a fault in words, and the scores of a model that has it


def name_fault(subject: Subject, check: str) -> str:
    """Return what explains that a check fails; empty where nothing that was tried gives the same scores."""
    namers = _NAMERS.get(check, _NAMERS.get(check.rpartition(".")[0], ()))
    try:
        return next(filter(None, (namer(subject) for namer in namers)), "")
    except Exception:  # a program may raise anything on a text that was not tried before
        return ""


def name_refusal(subject: Subject) -> str:
    """Return which lengths are read at all, if some are not: one alone, or those up to a table's end."""

    def is_read(length: int) -> bool:
        with contextlib.suppress(Exception):  # as above
            subject.logits(subject.tokens(1, length))
            return True
        return False

    last = min(_SCANNED, subject.facts.limit or _SCANNED)
    end = _find_first(lambda length: not is_read(length), 2, last + 1) - 1
    if end == last:
        return ""
    if end > 1 and all(map(is_read, (2, end // 2 + 1, end))):
        return f"no text of more than {end} tokens is read: a table ends there"
    read = [length for length in range(2, last + 1) if is_read(length)]
    return f"only texts of {read[0]} tokens are read: the length of the example is frozen" if len(read) == 1 else ""


def _find_first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first number for which it holds, if it does for all after that; ``high`` where it never does."""
    return low + bisect_left(range(low, high), True, key=holds)


def compare_scores(ours: Subject, theirs: Subject) -> tuple[float, float, Tensor, Tensor, Tensor]:
    """Return how far a program is from its reference, from where on that counts, the text, and both scores of it.

    The text is the shortest of the usual length and of the claimed, up to 256, of which the scores differ. What
    rounding and quantised weights do is seen where position plays no part: in the second token of a text, which
    attends to the first alone, however both are rotated.
    """
    pairs = theirs.tokens(_SHORT, 2, salt=92)
    rows = torch.cat([score_tokens(ours, ids) for ids in pairs.split(1)])
    gaps = (rows - score_tokens(theirs, pairs)).abs() / score_tokens(theirs, theirs.tokens(4, 32, salt=90)).std()
    most = 0.1 if theirs.facts.absolute else 0.25  # a position may be added to the first tokens too
    noise = min(most, float(gaps.quantile(0.95)))
    tolerance = max(getattr(ours.adapter, "tolerance", TOLERANCE), MARGIN * noise)
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
    line = torch.arange(ids.shape[1])
    places = {"all tokens stand at position 0: positions are lost": line * 0}
    places |= {f"positions begin {offset} too late": line + offset for offset in (1, 2)}
    for count in range(max(1, first - 6), first + 2):
        frozen = f"a table frozen at {count} positions"
        places[f"positions stop at {count - 1}: {frozen}"] = line.clamp(max=count - 1)
        places[f"positions begin again after {count}: {frozen}"] = line % count
    placed = places.items() if theirs.takes("positions") else ()
    guesses = [(words, _score_at(theirs, ids, stood)) for words, stood in placed]
    guesses += [(words, score_tokens(variant, ids)) for words, variant in _make_variants(theirs)]
    pairs = (
        (f"{words}; and {more}", score_tokens(twice, ids))
        for words, variant in _make_variants(theirs)
        for more, twice in _make_variants(variant)
    )
    return _choose(actual, wanted, guesses, tolerance) or _choose(actual, wanted, pairs, tolerance)


def _choose(actual: Tensor, wanted: Tensor, guesses: Iterable[_Guess], tolerance: float) -> str:
    """Return the guess that is nearest to what was measured, if it is as near as arithmetic allows."""
    near = [(difference(actual[..., None], scores[..., None]), words) for words, scores in guesses]
    best, words = min(near, key=lambda pair: pair[0], default=(math.inf, ""))
    return words if best <= min(tolerance, difference(actual[..., None], wanted[..., None]) / 2) else ""


def _score_at(subject: Subject, ids: Tensor, places: Tensor) -> Tensor:
    """Return scores at given places [S]; without a mask those that begin again are packed documents."""
    mask = torch.ones_like(ids, dtype=torch.bool) if subject.takes("mask") else None
    return score_tokens(subject, ids, mask, places[None] + subject.facts.first)


def _make_variants(theirs: Subject) -> Iterator[tuple[str, Subject]]:
    """Yield the reference with each fault that its weights and configuration allow."""
    module: Any = theirs.get_module()

    def put_in(model: nn.Module) -> Subject:
        changed = theirs.copy_model(theirs.seed, theirs.dtype)
        changed.adapter.module = model  # type: ignore[attr-defined]
        return changed

    if any(name.endswith(("q_proj", "k_proj")) for name, _ in module.named_modules()):
        words = "q and k are not permuted as the engine pairs channels: halves and neighbours are confused"
        for forward in (True, False):
            model = copy.deepcopy(module)
            permute(model, forward)
            yield words, put_in(model)
    rope = getattr(getattr(module, "config", None), "rope_parameters", None)
    if not isinstance(rope, dict) or "rope_theta" not in rope:
        return
    kind, base, changes = rope.get("rope_type", "default"), rope["rope_theta"], {}
    if kind != "default":
        changes[f"the scaling {kind!r} is dropped"] = {"rope_type": "default", "rope_theta": base}
    if kind == "yarn":
        changes["YaRN without its attention factor (temperature)"] = {**rope, "attention_factor": 1.0}
    if base != 10_000:
        changes[f"the base is 10,000 in place of {base:,g}"] = {**rope, "rope_theta": 10_000.0}
    for words, settings in changes.items():  # the same weights under other settings
        config = copy.deepcopy(module.config)
        config.rope_parameters = settings
        model = type(module)._from_config(config, dtype=theirs.dtype).eval()
        model.load_state_dict(dict(module.named_parameters()), strict=False)
        yield words, put_in(model)


@torch.no_grad()
def permute(model: nn.Module, forward: bool) -> None:
    """Reorder the rows of q and k within each head: halves to neighbours, or back."""
    config: Any = getattr(model, "config", None)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    sizes = (2, width // 2) if forward else (width // 2, 2)
    for name, layer in model.named_modules():
        if name.endswith(("q_proj", "k_proj")) and isinstance(layer, nn.Linear):
            for tensor in layer.parameters():
                heads = tensor.reshape(-1, *sizes, *tensor.shape[1:])
                tensor.copy_(heads.transpose(1, 2).reshape(tensor.shape))


def _guess_for_models(subject: Subject, words: str, ids: Tensor, places: Tensor) -> list[_Guess]:
    """Return a fault with the scores at other places, of the program and of its reference."""
    models = [model for model in (subject, subject.adapter.reference) if model is not None]  # type: ignore[attr-defined]
    return [(words, _score_at(model, ids, places)) for model in models if model.takes("positions")]


def _name_chunks(subject: Subject) -> str:
    """What explains that a text read in pieces is answered otherwise: positions begin again, or the cache is unread."""
    program: Any = subject.adapter
    ids = subject.tokens(1, min(LENGTH, subject.facts.limit or LENGTH))
    wanted, starts = score_tokens(subject, ids), range(0, ids.shape[1], _CHUNK)
    logs = read_in_pieces(subject, ids, [*starts[1:], ids.shape[1]])[:, :-1].double().log_softmax(-1)
    actual = logs.gather(-1, ids[:, 1:, None])[..., 0]
    alone = torch.cat([score_tokens(subject, ids[:, start : start + _CHUNK + 1]) for start in starts], 1)
    words = "positions are counted from the beginning of each call, not from the KV cache"
    counted = _guess_for_models(subject, words, ids, torch.arange(ids.shape[1]) % _CHUNK)
    return _choose(actual, wanted, [("what is in the KV cache is not seen", alone), *counted], program.tolerance)


def _name_padding(subject: Subject) -> str:
    """What explains that pads on the left change scores: they are seen, or counted."""
    program: Any = subject.adapter
    ids, pads = subject.tokens(1, LENGTH // 2), subject.tokens(1, _PADS, salt=7)
    longer = torch.cat([pads, ids], 1)
    mask = torch.arange(longer.shape[1])[None] >= _PADS
    wanted, positions = score_tokens(subject, ids), subject.positions(mask) if subject.takes("positions") else None
    actual = score_tokens(subject, longer, mask, positions)[:, _PADS:]
    if difference(actual[..., None], wanted[..., None]) <= program.tolerance:
        return "right where a text is alone under its pads: rows get the positions or the mask of another row"
    seen = "the pads are seen: the mask is lost"
    tried = [None] if positions is None else [None, positions]
    guesses = [(seen, score_tokens(subject, longer, None, places)[:, _PADS:]) for places in tried]
    counted = "the pads are counted: positions begin at the first pad"
    guesses += _guess_for_models(subject, counted, ids, torch.arange(ids.shape[1]) + _PADS)
    return _choose(actual, wanted, guesses, program.tolerance)


def _name_moved(subject: Subject) -> str:
    """What explains that moved keys are read otherwise: they are scaled by YaRN's temperature once more."""
    program: Any = subject.adapter
    rope = getattr(getattr(getattr(program.reference, "module", None), "config", None), "rope_parameters", None)
    if not isinstance(rope, dict) or rope.get("rope_type") != "yarn":
        return ""
    gain = float(rope.get("attention_factor") or 0.1 * math.log(rope["factor"]) + 1)
    ids, module, half = subject.tokens(1, LENGTH), program.reference.get_module(), LENGTH // 2
    with torch.no_grad():
        first = module(input_ids=ids[:, :half], use_cache=True)
        for layer in get_cache(first).layers:
            layer.keys = layer.keys * gain
        second = module(input_ids=ids[:, half:], use_cache=True, **name_cache(get_cache(first)))
    again, actual = torch.cat([first.logits, second.logits], 1), read_moved(subject, ids, 32)
    size, left = difference(actual, read_moved(subject, ids, 0)), difference(actual, again[..., : actual.shape[-1]])
    if left > min(max(program.tolerance, MARGIN * TOLERANCE), size / 2):
        return ""
    return f"keys that are moved are multiplied by YaRN's temperature ({gain:.4g}) once more"


def _name_shift(subject: Subject) -> str:
    """Look for the last position that is told from later ones: all beyond it are read as it is."""
    program: Any = subject.adapter
    ids = subject.tokens(1, LENGTH)
    wanted = subject.logits(ids)

    def read(start: int, stop: int) -> Tensor:
        return subject.logits(ids, positions=subject.arange(1, LENGTH, start).clamp(max=stop))

    def moves(start: int) -> bool:
        return difference(read(start, start + LENGTH), wanted) > program.tolerance

    # The first start at which the text reaches beyond the table.
    start = _find_first(moves, 1, (subject.facts.limit or 0) - LENGTH)
    begin = 0 if start == 1 else start + LENGTH // 2
    last = begin + LENGTH - 1
    actual = read(begin, last + 1)
    stop = _find_first(lambda place: difference(read(begin, place), actual) <= program.tolerance, begin, last)
    if program.noise > TOLERANCE or stop > last - LENGTH // 4:  # the number is a guess
        return ""
    return f"positions stop at {stop}: a table frozen at {stop + 1} positions"


_UNEVEN = (_name_chunks, _name_padding)
_NAMERS: dict[str, tuple[Callable[[Subject], str], ...]] = {
    "cache": (_name_chunks,),
    "cache.padded": _UNEVEN,
    "cache.prefill": _UNEVEN,
    "cache.left_mask": _UNEVEN,
    "cache.reused": (),
    "cache.moved": (_name_moved,),
    "padding": (_name_padding,),
    "padding.left": (_name_padding,),
    "positions.matter": (lambda subject: "the input position_ids is not used",),
    "shift": (_name_shift,),
}
