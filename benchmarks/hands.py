"""How often the clock hands of a position table are found, and how often some are seen where there are none.

python benchmarks/hands.py [--tables 200] [--null-tables 40]

Planted: 1 to 32 hands (one of them zeroed where there are several), noise of up to a tenth of their radius, 128 to
1024 rows, 64 or 384 columns, as they stand or mixed by a random rotation. ``encoding``: the speeds of the sinusoidal
encoding, 10000^(-k/K), many of them slower than the table. ``spread``: speeds drawn at random. ``trend``: these on a
smooth trend of five times their radius. To be found, within 1 % of its period, is every hand that makes two turns or
more within the table (on a trend: three) and, if mixed, two turns more or fewer than any other. Smooth: tables
without hands.
Writes ``results/hands.json``.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from clockhands.inspection.estimators.hands import Array, find_lines

Random = np.random.Generator


def rotation(size: int, rng: Random) -> Array:
    """A random rotation of so many dimensions."""
    return np.asarray(np.linalg.qr(rng.standard_normal((size, size)))[0])


def hands_of(count: int, width: int, speeds: Array, rng: Random, noise: float, mixed: bool) -> tuple[Array, Array]:
    """Rows 1 to n of sinusoids with noise, one hand zeroed; and the speeds of those left."""
    angle = np.outer(np.arange(1, count + 1), speeds)
    rows = np.zeros((count, width))
    rows[:, 0 : 2 * len(speeds) : 2], rows[:, 1 : 2 * len(speeds) : 2] = np.sin(angle), np.cos(angle)
    kept = np.ones(len(speeds), dtype=bool)
    if len(speeds) > 1:
        gone = int(rng.integers(len(speeds)))
        rows[:, 2 * gone : 2 * gone + 2], kept[gone] = 0, False
    rows += noise * rng.standard_normal(rows.shape)
    return (rows @ rotation(width, rng) if mixed else rows), speeds[kept]


def encoding_speeds(hands: int, count: int, rng: Random) -> Array:
    """Those of the sinusoidal encoding of twice as many dimensions, in radians per row."""
    return np.asarray(10000.0 ** (-np.arange(hands) / hands))


def spread_speeds(hands: int, count: int, rng: Random) -> Array:
    """Between two turns within the table and nine rows in four turns, two turns apart at least, many slow ones."""
    hands = min(hands, count // 8)
    room = 0.44 * count - 2 * hands
    steps = np.sort(rng.random(hands) ** 2) * room
    return np.asarray((2.02 + steps + 2 * np.arange(hands)) * 2 * np.pi / count)


def trend(count: int, width: int, rng: Random) -> Array:
    """A cubic, a logarithm and an exponential in directions of their own."""
    place = (np.arange(count) + 0.5) / count
    shapes = np.stack([place, place**2, place**3, np.log(place + 0.02), np.exp(-5 * place)], axis=1)
    rows = shapes @ rng.standard_normal((5, width))
    rows -= rows.mean(0)
    return np.asarray(rows / np.sqrt((rows**2).sum(1).mean()))


def findable(speeds: Array, count: int, mixed: bool, fewest: float) -> Array:
    """The turns of those hands that a table of so many rows can tell."""
    turns = np.sort(speeds) * count / (2 * np.pi)
    apart = np.full(len(turns), np.inf)
    if len(turns) > 1:
        gaps = np.diff(turns)
        apart = np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf))
    return np.asarray(turns[(turns >= fewest) & (turns < count / 2) & ((apart >= 2) | (not mixed))])


def planted(seed: int) -> dict[str, float | str | bool]:
    """One planted table: what was to be found, and what was."""
    rng = np.random.default_rng(seed)
    count, width = int(rng.choice([128, 256, 512, 1024])), int(rng.choice([64, 384]))
    kind, mixed = str(rng.choice(["encoding", "spread", "trend"])), bool(rng.random() < 0.7)
    mixed = mixed or kind == "trend"
    speeds_of = encoding_speeds if kind == "encoding" else spread_speeds
    speeds = speeds_of(int(rng.integers(1, 33)), count, rng)
    rows, left = hands_of(count, width, speeds, rng, float(rng.uniform(0, 0.1)), mixed)
    if kind == "trend":
        rows = rows + 5 * trend(count, width, rng)
    start = time.process_time()
    turns = np.array([count / line.period for line in find_lines(rows).rotating])
    seconds = time.process_time() - start
    wanted = findable(left, count, mixed, fewest=3 if kind == "trend" else 2)
    every = left * count / (2 * np.pi)
    missed = sum(not (np.abs(turns / one - 1) < 0.01).any() for one in wanted)
    invented = sum(not (np.abs(every / one - 1) < 0.01).any() for one in turns)
    base = {"kind": kind, "mixed": mixed, "rows": count, "columns": width, "hands": len(left), "wanted": len(wanted)}
    return base | {"missed": missed, "invented": invented, "seconds": round(seconds, 2), "seed": seed}


def walk(count: int, width: int, rng: Random) -> Array:
    """A random walk."""
    return np.asarray(np.cumsum(rng.standard_normal((count, width)), axis=0))


def autoregressive(past: float) -> Callable[[int, int, Random], Array]:
    """AR(1) noise, settled."""
    from scipy.signal import lfilter

    def make(count: int, width: int, rng: Random) -> Array:
        return np.asarray(lfilter([1.0], [1.0, -past], rng.standard_normal((count + 500, width)), axis=0)[500:])

    return make


def smoothed(reach: float) -> Callable[[int, int, Random], Array]:
    """White noise under a Gaussian of so many rows."""
    from scipy.ndimage import gaussian_filter1d

    def make(count: int, width: int, rng: Random) -> Array:
        edge = int(6 * reach) + 1
        drawn = rng.standard_normal((count + 2 * edge, width))
        return np.asarray(gaussian_filter1d(drawn, reach, axis=0)[edge : edge + count])

    return make


def steps(count: int, width: int, rng: Random) -> Array:
    """One step, with a little noise."""
    place = rng.uniform(0.1, 0.9) * count
    rows = (np.arange(count) > place)[:, None] * rng.standard_normal(width)
    return np.asarray(rows + 0.02 * rng.standard_normal((count, width)))


def special_row(count: int, width: int, rng: Random) -> Array:
    """A random walk with one row that is far from the rest."""
    rows = walk(count, width, rng)
    rows[int(rng.integers(count))] += 30 * rng.standard_normal(width)
    return rows


def noisy_trend(count: int, width: int, rng: Random) -> Array:
    """A smooth trend and white noise."""
    return np.asarray(trend(count, width, rng) + 0.02 * rng.standard_normal((count, width)))


def of_rank(rank: int, make: Callable[[int, int, Random], Array]) -> Callable[[int, int, Random], Array]:
    """The same in few dimensions, spread over all columns."""
    return lambda count, width, rng: make(count, rank, rng) @ rng.standard_normal((rank, width))


SMOOTH: dict[str, Callable[[int, int, Random], Array]] = {
    "white noise": autoregressive(0.0),
    "random walk": walk,
    **{f"AR(1), {past}": autoregressive(past) for past in (0.3, 0.6, 0.9, 0.95, 0.99)},
    **{f"Gaussian-smoothed, {reach}": smoothed(reach) for reach in (1, 2, 4, 8, 16, 32)},
    "trend": trend,
    "trend and noise": noisy_trend,
    "one step": steps,
    "a special row": special_row,
    **{f"random walk of rank {rank}": of_rank(rank, walk) for rank in (1, 2, 3, 10)},
    **{f"AR(1), 0.9, of rank {rank}": of_rank(rank, autoregressive(0.9)) for rank in (1, 2, 3, 10)},
    **{f"Gaussian-smoothed, 4, of rank {rank}": of_rank(rank, smoothed(4)) for rank in (1, 2, 3, 10)},
}


def invented(kind: str, count: int, width: int, seed: int) -> bool:
    """Whether hands are seen in a smooth table."""
    found = find_lines(SMOOTH[kind](count, width, np.random.default_rng(seed)))
    return bool(found.rotating)


def main() -> None:
    """Print and keep both rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--null-tables", type=int, default=40)
    options = parser.parse_args()
    tables = [planted(seed) for seed in range(options.tables)]
    whole = sum(table["missed"] == 0 for table in tables)
    none = sum(table["invented"] == 0 for table in tables)
    slowest = max(float(table["seconds"]) for table in tables)
    print(f"planted: all found in {whole} of {len(tables)}, none invented in {none}; slowest {slowest} CPU seconds")
    for table in tables:
        if table["missed"] or table["invented"]:
            print("  ", table)
    rates: dict[str, list[int]] = {}
    for kind in SMOOTH:
        for count, width in ((128, 64), (256, 384)):
            seen = sum(invented(kind, count, width, seed) for seed in range(options.null_tables))
            rates[f"{kind}, {count} x {width}"] = [seen, options.null_tables]
            print(f"{kind}, {count} x {width}: hands in {seen} of {options.null_tables}", flush=True)
    result = {"machine": platform.processor() or platform.machine(), "planted": tables, "smooth": rates}
    folder = Path(__file__).parent / "results"
    (folder / "hands.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
