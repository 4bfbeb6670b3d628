"""How loud is position next to the word, where both enter?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from clockhands.findings import Figure, Finding, Light, Panel, Table
from clockhands.inspection.drawing import chance_line, mark, percent, percent_range, reference_untrained
from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.inspection.measures.measure import INPUT, TEXT, Measure
from clockhands.inspection.reading.capture import WITHOUT_FIRST, Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.subject.tables import Tables
from clockhands.shapes import Float, Tensor


@dataclass(frozen=True)
class Levels:
    """Mean squared lengths of the parts of the input; that of the tokens of each text gives the interval."""

    word: float
    position: float
    constant: float
    word_N: Float[Tensor, " N"]

    @property
    def share(self) -> float:
        """Position's part of the whole."""
        return self.position / max(self.total, 1e-30)

    @property
    def silent(self) -> bool:
        """Whether all position rows are equal, up to rounding."""
        return self.position <= 1e-12 * self.total

    @property
    def total(self) -> float:
        """The mean squared length of what enters the first block."""
        return self.word + self.position + self.constant

    @property
    def ratio(self) -> float:
        """Length of a word over length of a position, both centred."""
        return math.sqrt(self.word / max(self.position, 1e-30))


def measure_levels(tables: Tables, capture: Capture) -> Levels:
    """Measure the input on the tokens of the captured text that count."""
    ids, number_NT = capture.ids_NT[:, capture.counted_T].unique(return_inverse=True)
    rows_TD = tables.positions_ND[: capture.length][capture.counted_T]
    # In float64, for the squares of rows of 1e18 and more leave the range of float32.
    words, places = _centre(tables, tables.tokens_VD[ids].double()), _centre(tables, rows_TD.double())
    shares = torch.bincount(number_NT.flatten(), minlength=len(ids)).double() / number_NT.numel()
    mean, place_mean = shares @ words, places.mean(0)
    word_N = (words - mean).square().sum(-1)[number_NT].mean(1)
    constant = _centre(tables, tables.segment_D.double()) + mean + place_mean
    position = (places - place_mean).square().sum(-1).mean()
    return Levels(float(word_N.mean()), float(position), float(constant.square().sum()), word_N)


def _centre(tables: Tables, rows: Tensor) -> Tensor:
    """What a layer norm will keep of a vector; nothing is removed where none follows, or one that does not centre."""
    centres = tables.norm is not None and "rms" not in type(tables.norm).__name__.lower()
    return rows - rows.mean(-1, keepdim=True) if centres else rows


class Loudness(Measure):
    """Shares of token, position and constant in the input; outlying rows; the factor √d."""

    name = "loudness"
    question = "How loud is position next to the word?"
    references = ("untrained",)
    method = (
        "What enters the first block is w_i + p_i + s: token row (scaled as the model scales it), position row and "
        "the rest. Both means are moved to the constant, so that the shares are E‖w−w̄‖² over the tokens of the text,"
        " E‖p−p̄‖² over the positions in use, and ‖s+w̄+p̄‖², each divided by their sum. Where a layer norm follows, "
        "its centring is applied first. Uncentred norms would count the shared mean vector as signal. Interval: texts"
        " resampled. Untrained: the same class with fresh weights." + WITHOUT_FIRST
    )
    source = "Vaswani et al. 2017, section 3.4, for the factor √d; norms centred as in Song & Zhong 2023"
    group = INPUT
    rests_on = TEXT

    def run(self, reading: Reading) -> Finding:
        subject, capture = reading.subject, reading.capture
        tables = subject.read_tables()
        if tables is None:
            return self.skip(subject.explain_absence("Nothing is added at the input of this model."))
        trained = measure_levels(tables, capture)
        fresh_tables = reading.control.subject.read_tables() if reading.control else None
        fresh = measure_levels(fresh_tables, capture) if fresh_tables else None
        rest = trained.position + trained.constant
        low, high = bootstrap_ratio(torch.full_like(trained.word_N, trained.position), trained.word_N + rest)
        light, comment = _judge(trained)
        untrained = f"; untrained {percent(fresh.share)}" if fresh else ""
        verdict = (
            f"Words carry {percent(trained.word / (trained.word + rest))} of the input, positions "
            f"{percent(trained.share)} (95 % interval {percent_range(low, high)}{untrained}): {comment}."
        )
        return self.finding(
            verdict + _factor(tables, trained, fresh) + _outliers(tables),
            trained.share,
            interval=(low, high),
            references=reference_untrained(fresh.share if fresh else None),
            light=light,
            table=_table(tables, trained, fresh),
            figure=_figure(tables, trained, fresh),
            details={"ratio": trained.ratio, "scale": tables.scale},
        )


def _judge(found: Levels) -> tuple[Light, str]:
    if found.silent:
        return "bad", "all position rows are equal, so that they tell no place from another"
    heard = found.position / (found.position + found.word)
    if heard < 0.01:
        return "bad", f"a word is {found.ratio:.0f} times as long as a position, which is hardly audible"
    if heard > 0.8:
        return "warn", f"a position is {1 / found.ratio:.1f} times as long as a word and drowns it"
    return "good", f"a word is {found.ratio:.1f} times as long as a position, and both are heard"


def _factor(tables: Tables, trained: Levels, fresh: Levels | None) -> str:
    """What the factor on the words does, at initialisation and now; empty without one."""
    if abs(tables.scale - 1) < 1e-6 or trained.silent:
        return ""
    bare = trained.ratio / tables.scale
    start = f" (untrained {fresh.ratio:.2g}, and {fresh.ratio / tables.scale:.2g} without it)" if fresh else ""
    return (
        f" Words are multiplied by {tables.scale:.1f}; without that factor a word would be {bare:.2g} times as long as "
        f"a position, not {trained.ratio:.2g}{start}."
    )


def outlier_rows(tables: Tables) -> list[int]:
    """Positions whose row is more than three times as long, or short, as the median row."""
    norms = tables.positions_ND.double().norm(dim=-1)
    median = norms.quantile(0.5)
    return torch.nonzero((norms > 3 * median) | (norms < median / 3)).flatten().tolist()


def _outliers(tables: Tables) -> str:
    rows = outlier_rows(tables)
    if not rows:
        return ""
    shown = ", ".join(str(row) for row in rows[:5]) + (" …" if len(rows) > 5 else "")
    return f" Outlying rows: {shown}."


def _table(tables: Tables, trained: Levels, fresh: Levels | None) -> Table:
    """Every level, as it is and without the factor on the words, trained and untrained."""
    rows = []
    for name, found in (("trained", trained), ("untrained", fresh)):
        if found is not None:
            bare = found.ratio / tables.scale
            rms = [math.sqrt(value) for value in (found.word, found.position, found.constant)]
            rows.append((name, *rms, found.share, found.ratio, tables.scale, bare))
    columns = (
        "model",
        "word length",
        "position length",
        "constant length",
        "position share",
        "word/position",
        "word factor",
        "word/position without the factor",
    )
    return Table.of(columns, rows)


def _figure(tables: Tables, trained: Levels, fresh: Levels | None) -> Figure:
    names = ("word", "position", "constant")
    bars = []
    for label, found in (("trained", trained), ("untrained", fresh)):
        if found is not None:
            total = found.word + found.position + found.constant
            shares = [found.word / total, found.position / total, found.constant / total]
            bars.append(mark("bars", names, shares, label=label, emphasis="" if found is trained else "reference"))
    norms = tables.positions_ND.double().norm(dim=-1)
    rows = outlier_rows(tables)
    lengths = [mark("line", range(len(norms)), norms, label="position rows", emphasis="main")]
    if rows:
        lengths.append(mark("points", rows, norms[rows], label="outliers"))
    lengths.append(chance_line(math.sqrt(trained.word), "a centred word"))
    return Figure(
        (
            Panel(tuple(bars), title="Share of the input", ylabel="share of squared length"),
            Panel(tuple(lengths), title="Length of each position row", xlabel="position", ylabel="length"),
        ),
        columns=2,
    )
