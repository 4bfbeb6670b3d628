"""Measure how often the sentences of a comparison are false, and write docs/studies/calibration.md.

python docs/tools/calibration/calibrate.py            # writes the page from docs/tools/calibration/calibration.json
python docs/tools/calibration/calibrate.py --measure  # first measures every cell that the file does not have
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from laws import LAWS, Law
from simulation import (
    MARGIN,
    SEEDS,
    VARIANTS,
    Cell,
    Equality,
    Rate,
    measure_cell,
    measure_equality,
)

from clockhands import __version__
from clockhands.files import write_text

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "calibration.json", HERE.parents[1] / "studies" / "calibration.md"
DRAWN = {1: 300, 11: 100, 42: 30}
"""Comparisons of a cell, by its number of variants."""
DRAWN_EQUAL = {1: 200, 11: 50, 42: 15}
"""Comparisons of a cell of equality where one variant is worse by the margin; as many again where all are equal."""
AGAIN, OTHER_SEED = {1: 600, 11: 200, 42: 60}, 1
"""A cell that misses the aim of false differences, though its interval holds that aim, is measured again by so many
comparisons of other random numbers, and these count."""
MOST_FALSE, LEAST_COVERED = 0.07, 0.93
HEAD = """# Does the comparison itself tell the truth?

Scores of equal variants are drawn by laws whose truth is known, made into trials, and judged as `clockhands compare`
judges them. So every "better" and every "worse" is **false**; with many variants, a comparison counts as false if any
of its sentences is. **Covered** is how often the 95 % interval of the baseline's score holds the true score of the
seeds that learn; **learned**, how often the exact interval of the share of seeds that learn holds the true share. Where
a verdict says which difference could have been detected with 80 % power, the median of these is **promised**. Then the
same variants are studied again, one of them better by what was promised of it: **shown** is how often that study says
so. The aim: at most 7 % false, at least 93 % covered. Brackets hold exact 95 % intervals of the simulation's own chance
(Clopper & Pearson 1934).

| scores | seeds | variants | false | covered | learned | promised | shown |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
TAIL = """
The laws, on 300 test items unless it is said: *seeds decide*: standard deviations of 2 points by seed, 10 by chance;
*items decide*: 15 by item of a variant, 10 by chance, 0.2 by seed; *twins*: 15 by item, 10 by chance, 0.5 by seed, with
items in 150 pairs of equal difficulty, known as groups; *99.94 % right*: that is the chance of every item to be right;
*a fifth of the seeds fails*: these get nothing right, the others about 90 %; *unequal spreads*: as the first, but
the variants' standard deviations differ (0.7 is the standard deviation of their logarithm); *a quiet baseline*: as the
first, but the baseline's are a fifth of the others'. *Neighbours alike*: 28 items, as many as the texts of *stdlib* on
which language models are scored, where neighbours have a correlation of 0.2; 3 by item of a variant, 3 by chance, 1 by
seed. *Two kinds of seeds*: as the first, but one seed of five scores 15 points less, and has learned all the same; *a
seed in ten collapses*: one of ten. *Documents of 12*: items in documents of 12 that are all alike in what is hard, in
what is hard for a variant (6) and by chance (3), 1 by seed; *a hundred documents of 12*: the same of 1,200 items;
*neighbours at 0.7*: as documents, but neighbours have a correlation of 0.7. *Heavy tails*: seeds (0.5) and items of a
variant (6) vary as t with two degrees of freedom, whose variance is infinite.

Of documents and neighbours the comparison is told nothing. Where sums of neighbouring items vary more than in random
order, it takes blocks of neighbours as one item (variance ratio, permutation test at 0.5 %), so that its intervals are
of blocks, whose variance is corrected by that of blocks of half the length. Of 300 items few are left, and the variance
of few is not known well: a promise is kept somewhat less often than it says. Among 28 items with a correlation of 0.2
neighbours are not always found to hang together, and verdicts are too sure by as much as the table shows.

Where one of five seeds is of another kind, a third of all draws of five seeds has none of that kind (0.8⁵); where one
of ten is, 59 % (0.9⁵). No interval of their mean can know of it: the more such a seed scores less, the fewer intervals
hold the mean over all seeds. So a comparison in which all seeds learned says that a kind of seed which did not come up
is not covered, and how large a share of all seeds it may be.

{draws}

Where seeds fail, no interval of a mean over all of five seeds can hold. So scores are of the seeds that learned, with
intervals from three such seeds on; the share that learned is told beside them, and nothing is promised.

{power}

{aims}
{again}
## How often is “equivalent” false?

Of variants as above one is worse than the baseline by {margin:g} points, which is just the margin of equality. So every
"equivalent" of it is **false**, and at most 5 % should be. Where all are equal, **shown** is how often it is called
equivalent.

| scores | seeds | variants | false | shown |
| --- | --- | --- | --- | --- |
{equality}

{equal_aims}

Where nearly all is right, the worse variant also varies by seed, as any with a share below 99 % does here.

What was not tried: {untried}differences on longer text; seeds of two kinds among the worse variant alone.

Written by `python docs/tools/calibration/calibrate.py`; `--measure` measures what is missing. `{signature}`
"""


Cells = dict[tuple[str, int, int], Cell]
"""What has been measured, by law, seeds and variants."""


def read_cells(measured: str = "cells") -> Cells:
    """Return what has been measured, or with ``again`` measured again."""
    written = json.loads(RESULTS.read_text("utf8")).get(measured, ()) if RESULTS.is_file() else ()
    cells = [Cell.from_dict(cell) for cell in written]
    return {(cell.law, cell.seeds, cell.variants): cell for cell in cells}


def read_equality() -> list[Equality]:
    """Return what has been measured of equality."""
    written = json.loads(RESULTS.read_text("utf8")).get("equality", ()) if RESULTS.is_file() else ()
    return [Equality.from_dict(row) for row in written]


def _find_place(cell: Cell | Equality) -> tuple[int, int, int]:
    """Return where a cell stands in the tables."""
    return [law.name for law in LAWS].index(cell.law), cell.seeds, cell.variants


def write_equality(rows: Sequence[Equality]) -> None:
    """Store what has been measured of equality beside the cells."""
    content = {
        **json.loads(RESULTS.read_text("utf8")),
        "equality": [row.to_dict() for row in sorted(rows, key=_find_place)],
    }
    write_text(RESULTS, json.dumps(content, indent=1) + "\n")


def write_cells(cells: Sequence[Cell], again: Sequence[Cell]) -> None:
    """Store what has been measured, with the signature."""
    versions = f"numpy:{np.__version__}|scipy:{scipy.__version__}|python:{platform.python_version()}"
    drawn = "|".join(
        f"{name}:{','.join(map(str, counts.values()))}"
        for name, counts in (("drawn", DRAWN), ("again", AGAIN), ("equal", DRAWN_EQUAL))
    )
    content = {
        "signature": f"calibrate|{drawn}|null:50000|items:300|seed:0|{versions}|v:{__version__}",
        "cells": [cell.to_dict() for cell in sorted(cells, key=_find_place)],
        "again": [cell.to_dict() for cell in sorted(again, key=_find_place)],
        "equality": [row.to_dict() for row in read_equality()],
    }
    write_text(RESULTS, json.dumps(content, indent=1) + "\n")


def measure() -> None:
    """Measure every cell that is missing, as many at a time as there are processors, each stored as it ends."""
    cells, again = read_cells(), read_cells("again")

    def store(cell: Cell, where: Cells) -> None:
        print(_row(cell), flush=True)
        where[cell.law, cell.seeds, cell.variants] = cell
        write_cells(list(cells.values()), list(again.values()))

    measure_missing(measure_cell, DRAWN, set(cells), lambda cell: store(cell, cells))
    known = {name for name, cell in cells.items() if not is_unclear(cell) or name in again}
    measure_missing(measure_again, AGAIN, known, lambda cell: store(cell, again))
    rows = read_equality()

    def store_row(row: Equality) -> None:
        print(_equality_row(row), flush=True)
        rows.append(row)
        write_equality(rows)

    measure_missing(measure_equality, DRAWN_EQUAL, {(row.law, row.seeds, row.variants) for row in rows}, store_row)


def measure_missing(
    measure_one: Callable[..., Any],
    drawn: Mapping[int, int],
    known: set[tuple[str, int, int]],
    store: Callable[..., None],
) -> None:
    """Call a measure of a law, a number of seeds and of variants where the result is not known, and store what ends."""
    names = [(law, seeds, variants) for variants in sorted(VARIANTS, reverse=True) for law in LAWS for seeds in SEEDS]
    pool = ProcessPoolExecutor()
    try:
        missing = [(law, *name) for law, *name in names if (law.name, *name) not in known]
        ended = [pool.submit(measure_one, law, seeds, variants, drawn[variants]) for law, seeds, variants in missing]
        for future in as_completed(ended):
            if future.exception() is None:
                store(future.result())
        for future in ended:
            future.result()  # raises what went wrong, once all else is stored
    finally:
        pool.shutdown(cancel_futures=True)


def measure_again(law: Law, seeds: int, variants: int, drawn: int) -> Cell:
    """Measure a cell by other random numbers than the first time."""
    return measure_cell(law, seeds, variants, drawn, OTHER_SEED)


def is_unclear(cell: Cell) -> bool:
    """Tell whether a cell misses the aim of false differences by what may be the chance of its simulation."""
    return cell.false.interval[0] <= MOST_FALSE < cell.false.value


def write_page() -> str:
    """Return the page of what has been measured; a cell that was measured again stands there as it was then."""
    first, again = read_cells(), read_cells("again")
    cells = {**first, **again}
    names = [(law.name, seeds, variants) for law in LAWS for seeds in SEEDS for variants in VARIANTS]
    ordered = [cells[name] for name in names if name in cells]
    signature = json.loads(RESULTS.read_text("utf8"))["signature"]
    power = describe_power(ordered)
    equality = {(row.law, row.seeds, row.variants): row for row in read_equality()}
    rows = [equality[name] for name in names if name in equality]
    missing = dict.fromkeys(name[0] for name in names if name not in equality)
    untried = f"equality in all cells of *{'*, *'.join(missing)}*;\n" if missing else ""
    tail = TAIL.format(
        untried=untried,
        draws=describe_draws(cells.values()), power=power,
        aims=describe_aims(ordered), again=describe_again(first, again), signature=signature,
        margin=MARGIN, equality="\n".join(map(_equality_row, rows)), equal_aims=describe_equality(rows),
    )  # fmt: skip
    return HEAD + "\n".join(map(_row, ordered)) + "\n" + tail


def describe_again(first: Cells, again: Cells) -> str:
    """Say which cells were measured again, and what they were before."""
    sentences = []
    for (law, seeds, variants), cell in again.items():
        before = first[law, seeds, variants].false
        sentences.append(
            f"\n{law}, {seeds} seeds, {variants} variants, was measured again by {cell.false.drawn:,} comparisons of "
            "other random\nnumbers, as any cell is that misses the aim while its interval holds it: of the first "
            f"{before.drawn} comparisons\n{_share(before)} were false.\n"
        )
    return "".join(sentences)


def describe_draws(cells: Iterable[Cell]) -> str:
    """Say how many comparisons a row is of, and which rows are of an earlier measurement, of other numbers."""
    told = ", ".join(f"{count:,} of {variants}" for variants, count in DRAWN.items())
    equal = ", ".join(map(str, DRAWN_EQUAL.values()))
    text = f"Drawn are, by the number of variants, {told} comparisons, and where equality is tried {equal}."
    now = {variants: {DRAWN[variants], AGAIN[variants]} for variants in VARIANTS}
    earlier = dict.fromkeys(cell.law for cell in cells if cell.false.drawn not in now[cell.variants])
    if not earlier:
        return text
    return (
        f"{text}\nRows of *{'*, *'.join(earlier)}* of other numbers were measured before blocks of neighbours counted "
        "as one\nitem. Where items are independent or known as groups the test finds such blocks in one of 200 "
        "comparisons."
    )


def describe_power(cells: Sequence[Cell]) -> str:
    """Say how often what was promised is shown, by law."""
    shown: dict[str, list[Rate]] = {}
    for cell in cells:
        if cell.shown is not None:
            shown.setdefault(cell.law, []).append(cell.shown)
    together = {law: Rate(sum(rate.count for rate in rates), sum(rate.drawn for rate in rates))
                for law, rates in shown.items()}  # fmt: skip
    told = "; ".join(f"{law}, {_share(rate)}" for law, rate in together.items())
    return f"Of promises of 80 %, another study kept, over all cells of a law:\n{told}."


def describe_equality(rows: Sequence[Equality]) -> str:
    """Say in how many rows "equivalent" is false more often than it should be, beyond the simulation's own chance."""
    if not rows:
        return "Nothing has been measured yet."
    over = [row for row in rows if row.false.interval[0] > 0.05]
    together = Rate(sum(row.false.count for row in rows), sum(row.false.drawn for row in rows))
    named = "".join(f" {row.law}, {row.seeds} seeds, {row.variants} variants." for row in over)
    many = f"It is shown to be false more often than that in {len(over)} of {len(rows)} rows"
    return f"Over all rows {_share(together)} are false. {many}{':' + named if named else '.'}"


def describe_aims(cells: Sequence[Cell]) -> str:
    """Return which cells miss an aim, in a sentence each. Coverage is of all numbers of variants together."""
    missed = [
        f"{cell.law}, {cell.seeds} seeds, {cell.variants} variants: {_share(cell.false)} false."
        for cell in cells
        if cell.false.value > MOST_FALSE
    ]
    for law, seeds in dict.fromkeys((cell.law, cell.seeds) for cell in cells):
        rates = [cell.covered for cell in cells if (cell.law, cell.seeds) == (law, seeds)]
        together = Rate(sum(rate.count for rate in rates), sum(rate.drawn for rate in rates))
        if together.value < LEAST_COVERED:
            missed.append(f"{law}, {seeds} seeds: {_share(together)} covered.")
    why = (
        "The number of variants does not enter the interval of a score;\ncoverage is judged over all cells of a "
        "law and a number of seeds."
    )
    if not missed:
        open_ = sum(cell.false.interval[1] > MOST_FALSE for cell in cells)
        chance = f"In {open_} of them the simulation is too short to exclude that more than 7 % are false.\n"
        return f"All {len(cells)} cells keep both aims. {chance if open_ else ''}{why}"
    texts = [f"- {text}" for text in missed]
    return "\n".join([f"{len(cells)} cells were measured. {why}", "", "These miss an aim:", "", *texts])


def _row(cell: Cell) -> str:
    promised = "" if cell.promised is None else f"{cell.promised:.2f}"
    shown = "" if cell.shown is None else _share(cell.shown)
    rates = map(_share, (cell.false, cell.covered, cell.learned))
    return "| " + " | ".join([cell.law, str(cell.seeds), str(cell.variants), *rates, promised, shown]) + " |"


def _equality_row(row: Equality) -> str:
    return "| " + " | ".join([row.law, str(row.seeds), str(row.variants), _share(row.false), _share(row.shown)]) + " |"


def _share(rate: Rate) -> str:
    low, high = rate.interval
    return f"{100 * rate.value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


if __name__ == "__main__":
    if "--measure" in sys.argv[1:]:
        measure()
    write_text(PAGE, write_page())
