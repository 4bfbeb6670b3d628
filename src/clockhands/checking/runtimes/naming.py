"""Name what breaks a law: a fault is named only where a model that has it gives the very scores that were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from clockhands.checking.checks.check import TOLERANCE
from clockhands.checking.runtimes.bench import Bench
from clockhands.checking.runtimes.laws import compare_with_reference
from clockhands.checking.runtimes.reference import Place, Reference, score
from clockhands.checking.runtimes.runtime import WHOLE, Way

_CHUNK, _PADS = 7, 9
_SCANNED = 256


@dataclass(frozen=True)
class Guess:
    """A fault in words, and the scores of a model that has it."""

    words: str
    scores: Callable[[], list[float]]


def name_fault(bench: Bench, law: str, raised: str = "") -> str:
    """Return what explains that a law is broken; empty where nothing that was tried gives the same scores."""
    try:
        if raised:
            return _name_refusal(bench)
        return _NAMERS[law](bench) if law in _NAMERS else ""
    except Exception:  # a runtime may raise anything on a text that was not tried before
        return ""


def _choose(bench: Bench, actual: list[float], wanted: list[float], guesses: Iterator[Guess]) -> str:
    """Return the guess that is nearest to what was measured, if it is as near as arithmetic allows."""
    size = bench.difference(actual, wanted)
    best, words = float("inf"), ""
    for guess in guesses:
        left = bench.difference(actual, guess.scores())
        if left < best:
            best, words = left, guess.words
    return words if best <= min(bench.reference_tolerance, size / 2) else ""


def _name_difference(bench: Bench) -> str:
    """What explains the difference from the reference: other positions, another configuration, or two such things."""
    reference = bench.get_reference()
    text, actual, wanted = compare_with_reference(bench)
    guesses = [*_guess_places(bench, text, actual, wanted), *_guess_variants(reference, text)]
    return _choose(bench, actual, wanted, iter(guesses)) or _choose(
        bench, actual, wanted, _guess_pairs(reference, text)
    )


def _guess_places(bench: Bench, text: list[int], actual: list[float], wanted: list[float]) -> Iterator[Guess]:
    reference = bench.get_reference()
    if not reference.subject.takes("positions"):
        return

    def predict(words: str, place: Place) -> Guess:
        return Guess(words, lambda: reference.score([text], place)[0])

    yield predict("all tokens stand at position 0: positions are lost", lambda p: p * 0)
    for offset in (1, 2):
        yield predict(f"positions begin {offset} too late", lambda p, by=offset: p + by)  # type: ignore[misc]
    gaps = np.abs(np.subtract(actual, wanted)) / bench.scale > bench.reference_tolerance
    first = int(np.argmax(gaps))
    for count in range(max(1, first - 6), first + 2):
        stopped = f"positions stop at {count - 1}: a table frozen at {count} positions"
        yield predict(stopped, lambda p, last=count - 1: p.clamp(max=last))  # type: ignore[misc]
        again = f"positions begin again after {count}: a table frozen at {count} positions"
        yield predict(again, lambda p, period=count: p % period)  # type: ignore[misc]


def _guess_variants(reference: Reference, text: list[int], before: str = "") -> Iterator[Guess]:
    for variant in reference.list_variants():
        yield Guess(before + variant.words, lambda variant=variant: score(variant.make(), [text])[0])  # type: ignore[misc]


def _guess_pairs(reference: Reference, text: list[int]) -> Iterator[Guess]:
    for variant in reference.list_variants():
        yield from _guess_variants(Reference(variant.make()), text, f"{variant.words}; and ")


def _name_chunks(bench: Bench) -> str:
    """What explains that a text read in chunks scores otherwise: positions that begin again, or an unread cache."""
    (text,) = bench.draw(1, bench.length)
    actual, wanted = bench.score(text, Way(chunk=_CHUNK)), bench.score(text)
    starts = range(0, len(text), _CHUNK)
    alone = Guess(
        "what is in the KV cache is not seen",
        lambda: [x for start in starts for x in bench.score(text[start : start + _CHUNK + 1])],
    )
    return _choose(bench, actual, wanted, iter([alone, *_guess_restart(bench, text)]))


def _guess_restart(bench: Bench, text: list[int]) -> Iterator[Guess]:
    words = "positions are counted from the beginning of each call, not from the KV cache"
    if "positions" in bench.runtime.offers:
        again = Way(positions=tuple(p % _CHUNK for p in range(len(text))))
        yield Guess(words, lambda: bench.score(text, again))
    reference = bench.reference
    if reference is not None and reference.subject.takes("positions"):
        yield Guess(words, lambda: reference.score([text], lambda p: p % _CHUNK)[0])


def _name_padding(bench: Bench) -> str:
    """What explains that pads on the left change scores: they are seen, or counted."""
    if "left" not in bench.runtime.offers:
        return ""
    (text,) = bench.draw(1, bench.length // 2)
    padded = Way(together=True, side="left", pads=_PADS)
    actual, wanted = bench.runtime.score([text], padded)[0], bench.score(text)
    if bench.difference(actual, wanted) <= bench.tolerance:
        return "right where a text is alone under its pads: rows get the positions or the mask of another row"
    return _choose(bench, actual, wanted, _guess_padding(bench, text))


def _guess_padding(bench: Bench, text: list[int]) -> Iterator[Guess]:
    seen, counted = "the pads are seen: the mask is lost", "the pads are counted: positions begin at the first pad"
    longer, later = [0] * _PADS + text, tuple(range(_PADS, _PADS + len(text)))
    if "positions" in bench.runtime.offers:
        places = (0,) * _PADS + tuple(range(len(text)))
        yield Guess(seen, lambda: bench.score(longer, Way(positions=places))[_PADS:])
        yield Guess(counted, lambda: bench.score(text, Way(positions=later)))
    yield Guess(seen, lambda: bench.score(longer)[_PADS:])
    reference = bench.reference
    if reference is not None and reference.subject.takes("positions"):
        yield Guess(counted, lambda: reference.score([text], lambda p: p + _PADS)[0])


def _name_moved_cache(bench: Bench) -> str:
    """What explains that moved keys score otherwise: as long as before, or scaled by YaRN's temperature once more."""
    gain = None if bench.reference is None else bench.reference.temperature
    if gain is None:
        return ""
    (text,) = bench.draw(1, bench.length)
    half = len(text) // 2
    actual, wanted = bench.score(text, Way(chunk=half, shift=32)), bench.score(text, Way(chunk=half))
    again = Guess(
        f"keys that are moved are multiplied by YaRN's temperature ({gain:.4g}) once more",
        lambda: bench.reference.score_scaled(text, half, gain),  # type: ignore[union-attr]
    )
    return _choose(bench, actual, wanted, iter([again]))


def _name_positions(bench: Bench) -> str:
    """Positions without any effect are lost; that is what was measured."""
    return "the input position_ids is not used"


def _name_shift(bench: Bench) -> str:
    """Look for the last position that is told from later ones: all beyond it are read as it is."""
    if "positions" not in bench.runtime.offers:
        return ""
    (text,) = bench.draw(1, bench.length)
    wanted, last = bench.score(text), (bench.limit or 0) - len(text)

    def measure(places: range, stop: int) -> list[float]:
        return bench.score(text, Way(positions=tuple(min(place, stop) for place in places)))

    def moves(start: int) -> bool:
        places = range(start, start + len(text))
        return bench.difference(measure(places, places[-1]), wanted) > bench.tolerance

    start = _bisect(moves, 1, last)  # the first start at which the text reaches beyond the table
    places = range(len(text)) if start == 1 else range(start + len(text) // 2, start + len(text) // 2 + len(text))
    actual = measure(places, places[-1])
    stop = _bisect(lambda n: bench.difference(measure(places, n), actual) <= bench.tolerance, places[0], places[-1])
    if bench.floor > TOLERANCE or stop > places[-1] - len(text) // 4:  # else the number is a guess
        return ""
    return f"positions stop at {stop}: a table frozen at {stop + 1} positions"


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first number for which it holds, if it does for all after that; ``high`` where it never does."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _name_refusal(bench: Bench) -> str:
    """Which lengths are read at all, if some are not: one alone, or those up to a table's end."""
    last = min(_SCANNED, bench.limit or _SCANNED)
    end = _bisect(lambda length: not _is_read(bench, length), 2, last + 1) - 1
    if end == last:
        return ""
    if end > 1 and all(_is_read(bench, length) for length in (2, end // 2 + 1, end)):
        return f"no text of more than {end} tokens is read: a table ends there"
    read = [length for length in range(2, last + 1) if _is_read(bench, length)]
    return f"only texts of {read[0]} tokens are read: the length of the example is frozen" if len(read) == 1 else ""


def _is_read(bench: Bench, length: int) -> bool:
    try:
        bench.runtime.score(bench.draw(1, length), WHOLE)
    except Exception:  # as above
        return False
    return True


_NAMERS: dict[str, Callable[[Bench], str]] = {
    "runtime.reference": _name_difference,
    "runtime.chunks": _name_chunks,
    "runtime.padded_chunks": lambda bench: _name_chunks(bench) or _name_padding(bench),
    "runtime.left": _name_padding,
    "runtime.right": _name_padding,
    "runtime.positions": _name_positions,
    "runtime.shift": _name_shift,
    "runtime.moved_cache": _name_moved_cache,
}
