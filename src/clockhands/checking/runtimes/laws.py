"""The laws that every runtime has to keep, and what each needs of one. They measure; a verdict is made elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from clockhands.checking.checks.check import Inapplicable, Measurement, largest
from clockhands.checking.runtimes.bench import Bench
from clockhands.checking.runtimes.law import law
from clockhands.checking.runtimes.runtime import WHOLE, Way

_SHIFTS = (1, 300, 4_000)


def _judged(bench: Bench, size: float, note: str = "", wanted: bool = False) -> Measurement:
    return Measurement(size, note, wanted, bench.floor, bench.tolerance)


@law(
    "repeat",
    "The same call twice gives the same scores.",
    "randomness left on, or a state that stays behind",
    uses=("one text after another",),
)
def repeat(bench: Bench) -> Measurement:
    """Read a text, another one, and the first again."""
    first, second = bench.draw(2, bench.length)
    wanted = bench.score(first)
    bench.score(second)
    return _judged(bench, bench.difference(bench.score(first), wanted))


@law(
    "prefix",
    "A prefix of a text scores what it scores within the whole text.",
    "later tokens seen; tables of one length; frequencies that follow the length",
    uses=("one text after another",),
)
def prefix(bench: Bench) -> Measurement:
    """Prefixes of growing length, each alone."""
    (text,) = bench.draw(1, bench.length)
    wanted = bench.score(text)
    lengths = [n for n in (2, 3, 5, 8, 13, 21, 34) if n < len(text)]
    return largest(
        *(
            _judged(bench, bench.difference(bench.score(text[:n]), wanted[: n - 1]), f"the first {n} of {len(text)}")
            for n in lengths
        )
    )


@law(
    "mates",
    "A text scores in a batch what it scores alone.",
    "rows that reach each other; positions or a mask of the first row for all",
    uses=("batches",),
    needs=("together",),
)
def mates(bench: Bench) -> Measurement:
    """Three texts of one length together."""
    texts = bench.draw(3, bench.length)
    return _compare_alone(bench, texts, Way(together=True))


@law(
    "right",
    "Texts of unequal length, padded on the right, score what each scores alone.",
    "pads read as text",
    uses=("batches", "right padding"),
    needs=("together", "right"),
)
def right(bench: Bench) -> Measurement:
    """Three texts of unequal length together."""
    return _compare_alone(bench, _draw_unequal(bench), Way(together=True, side="right"))


@law(
    "left",
    "Texts of unequal length, padded on the left, score what each scores alone.",
    "pads seen; positions counted from the first pad",
    uses=("left-padded generate",),
    needs=("together", "left"),
)
def left(bench: Bench) -> Measurement:
    """Three texts of unequal length together, with position_ids from the mask where the runtime takes them."""
    return _compare_alone(bench, _draw_unequal(bench), Way(together=True, side="left"))


@law(
    "chunks",
    "A text read in chunks, the earlier ones in the KV cache, scores what it scores in one call.",
    "positions counted from the beginning of each call; a cache that is cut or in another order",
    uses=("cached decoding", "resume"),
    needs=("chunk",),
)
def chunks(bench: Bench) -> Measurement:
    """One token at a time, seven, and all but the last."""
    (text,) = bench.draw(1, bench.length)
    wanted = bench.score(text)
    return largest(
        *(
            _judged(bench, bench.difference(bench.score(text, Way(chunk=size)), wanted), f"{size} tokens a call")
            for size in (1, 7, len(text) - 1)
        )
    )


@law(
    "padded_chunks",
    "A batch padded on the left and read in chunks scores what each text scores alone.",
    "pads in the KV cache that are seen or counted",
    uses=("left-padded generate",),
    needs=("together", "left", "chunk"),
)
def padded_chunks(bench: Bench) -> Measurement:
    """Three texts of unequal length, five tokens a call."""
    return _compare_alone(bench, _draw_unequal(bench), Way(together=True, side="left", chunk=5))


@law(
    "positions",
    "The position_ids that the runtime takes have an effect.",
    "an input that the export does not use",
    uses=("positions with gaps", "given position_ids"),
    needs=("positions",),
)
def positions(bench: Bench) -> Measurement:
    """Every position twice as far from the first, and five times; the larger effect counts."""
    (text,) = bench.draw(1, bench.length // 2)
    wanted, factors = bench.score(text), [2, 5] if bench.length // 2 * 5 <= (bench.limit or 0) else [2]
    sizes = {
        factor: bench.difference(bench.score(text, Way(positions=tuple(factor * p for p in range(len(text))))), wanted)
        for factor in factors
    }
    best = max(sizes, key=lambda factor: sizes[factor])
    return _judged(bench, sizes[best], f"every distance times {best}", wanted=True)


@law(
    "shift",
    "Where only distances count, a text scores the same wherever it begins.",
    "tables that end; positions rounded to few digits",
    uses=("moved positions",),
    needs=("begin",),
)
def shift(bench: Bench) -> Measurement:
    """Begin at 1, which tells whether only distances count, and then as far on as the model claims to read."""
    (text,) = bench.draw(1, bench.length)
    wanted = bench.score(text)
    sizes: list[Measurement] = []
    for start in _choose_starts(bench):
        moved = bench.score(text, Way(positions=tuple(range(start, start + len(text)))))
        sizes.append(_judged(bench, bench.difference(moved, wanted), f"from position {start:,}"))
        absolute = bench.reference is None and not sizes[0].expected
        if absolute or (bench.reference is not None and bench.reference.subject.facts.absolute):
            raise Inapplicable("positions are absolute: the scores change with the first of them")
    return largest(*sizes)


def _choose_starts(bench: Bench) -> list[int]:
    """Return where a text may begin: at 1, and as far on as the claimed length allows; at 1 where none is known."""
    last = (bench.limit or 0) - bench.length
    return sorted({1, *(start for start in (*_SHIFTS, last) if 0 < start <= last)})


@law(
    "moved_cache",
    "Where only distances count, keys in the KV cache that are moved on change nothing.",
    "keys that are rotated by another rule than when they were made",
    uses=("moved positions", "resume"),
    needs=("shift",),
    shared=True,
)
def moved_cache(bench: Bench) -> Measurement:
    """Half a text, all keys 32 positions on, the other half."""
    (text,) = bench.draw(1, bench.length)
    moved = Way(chunk=len(text) // 2, shift=32)
    wanted = bench.score(text, replace(moved, shift=0))
    return _judged(bench, bench.difference(bench.score(text, moved), wanted), "moved by 32")


@law(
    "reuse",
    "A text whose beginning is in the prefix cache scores what it scores without.",
    "keys of another text or at other positions taken from the prefix cache",
    uses=("prefix cache",),
    needs=("reuse",),
)
def reuse(bench: Bench) -> Measurement:
    """Two texts of the same beginning, one after the other, with the prefix cache on and off."""
    first, second = bench.draw(2, bench.length)
    half = len(first) // 2
    second = first[:half] + second[half:]
    bench.score(first, Way(reuse=True))
    actual = bench.score(second, Way(reuse=True))
    return _judged(bench, bench.difference(actual, bench.score(second)), f"the first {half} tokens cached")


@law(
    "reference",
    "The scores are those of the reference.",
    "tables frozen while exporting; lost scaling; unpermuted q and k; another base",
    uses=("one text after another", "texts of the claimed length"),
)
def reference(bench: Bench) -> Measurement:
    """A text of the usual length, and one as long as the model claims, up to 256 tokens."""
    text, actual, wanted = compare_with_reference(bench)
    size, note = bench.difference(actual, wanted), f"a text of {len(text)} tokens"
    return Measurement(size, note, False, bench.reference_floor, bench.reference_tolerance)


def compare_with_reference(bench: Bench) -> tuple[list[int], list[float], list[float]]:
    """Return a text with its scores and the reference's: the shortest that differ, the longest where none does."""
    reference = bench.get_reference()
    for length in sorted({bench.length, min(256, bench.limit or bench.length)}):
        (text,) = bench.draw(1, length, salt=3)
        actual, wanted = bench.score(text), reference.score([text])[0]
        if bench.difference(actual, wanted) > bench.reference_tolerance:
            break
    return text, actual, wanted


def _draw_unequal(bench: Bench) -> list[list[int]]:
    length = bench.length
    return [text[:n] for text, n in zip(bench.draw(3, length), (length, length // 2, length // 5 + 2), strict=True)]


def _compare_alone(bench: Bench, texts: list[list[int]], way: Way) -> Measurement:
    """Compare texts read together with each read by itself, whole."""
    together = bench.runtime.score(texts, way)
    return largest(*_measure_rows(bench, texts, together))


def _measure_rows(bench: Bench, texts: list[list[int]], together: list[list[float]]) -> Iterator[Measurement]:
    for text, actual in zip(texts, together, strict=True):
        yield _judged(bench, bench.difference(actual, bench.score(text, WHOLE)), f"a text of {len(text)} tokens")
