"""How loud is position next to the token, where both enter, and how far does it move each channel?

In names of tensors ``D`` are the channels of the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from clockhands.findings import (
    SHARE,
    Figure,
    Finding,
    Light,
    Panel,
    Table,
    draw_columns,
    make_mark,
    make_reference_line,
    put_together,
)
from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.inspection.measures.measure import INPUT_HEADING, WINDOWS, Measure
from clockhands.inspection.number_format import describe_untrained, format_estimate, format_percent, format_ratio
from clockhands.inspection.reading.capture import FIRST_POSITION_NOTE, Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.models.input_table import Tables
from clockhands.shapes import Float, Tensor

LEAST_PART, MOST_PART = 0.01, 0.8
"""Position's part of the variance of token and position together, below which the finding is bad and
above which it warns."""
MOST_NAMED = 5
"""Outlying rows that a verdict lists."""


@dataclass(frozen=True)
class Levels:
    """How long tokens and positions are where they enter, and how much they vary: two quantities that differ.

    *Length* is the mean length of the rows as they are added, the factor of the embedding in them. *Variation* is how
    far rows lie from their mean, which all share: the root of ``token`` and ``position``, mean squared lengths of
    centred rows. ``constant`` is the squared length of what every token of every text is given alike: both means and a
    segment vector. A slow hand of a clock is long and hardly varies. ``token_N`` is the part ``token`` text by text.
    """

    token: float
    position: float
    constant: float
    token_N: Float[Tensor, " N"]
    token_length: float
    position_length: float

    @property
    def total(self) -> float:
        """The sum of the three parts: the mean squared length of the input, if tokens do not depend on positions."""
        return self.token + self.position + self.constant

    @property
    def share(self) -> float:
        """Position's part of the total."""
        return self.position / max(self.total, 1e-30)

    @property
    def length(self) -> float:
        """How many times as long a token is as a position."""
        return self.token_length / max(self.position_length, 1e-30)

    @property
    def variation(self) -> float:
        """How many times as much tokens vary as positions."""
        return math.sqrt(self.token / max(self.position, 1e-30))

    @property
    def is_silent(self) -> bool:
        """Whether all position rows are equal, up to rounding."""
        return self.position <= 1e-12 * self.total

    @property
    def has_equal_tokens(self) -> bool:
        """Whether all tokens of the text have the same row, up to rounding: the variation then says nothing."""
        return self.token <= 1e-12 * self.total


def measure_levels(tables: Tables, capture: Capture) -> Levels:
    """Measure the input on the tokens of the captured text, special tokens and position 0 left out.

    Tokens count as often as they occur. Where a layer norm follows, the mean over the channels of each vector is
    subtracted before its variation is measured, as that norm does; lengths are those of the rows as they are added.
    """
    ids, index_NT = capture.ids_NT[:, capture.measured_T].unique(return_inverse=True)
    # In float64, for the squares of rows of 1e18 and more leave the range of float32.
    added_tokens = tables.tokens_VD[ids].double()
    added_positions = tables.positions_ND[: capture.length][capture.measured_T].double()
    # Norms centre that have no "rms" in the names of their classes, except T5's, and no model with that adds a table.
    centres = tables.norm is not None and "rms" not in type(tables.norm).__name__.lower()
    tokens, positions, segment = (
        rows - rows.mean(-1, keepdim=True) if centres else rows
        for rows in (added_tokens, added_positions, tables.segment_D.double())
    )
    frequencies = torch.bincount(index_NT.flatten(), minlength=len(ids)).double() / index_NT.numel()
    token_mean, position_mean = frequencies @ tokens, positions.mean(0)
    token_N = (tokens - token_mean).square().sum(-1)[index_NT].mean(1)
    constant = segment + token_mean + position_mean
    return Levels(
        token=float(token_N.mean()),
        position=float((positions - position_mean).square().sum(-1).mean()),
        constant=float(constant.square().sum()),
        token_N=token_N,
        token_length=float(frequencies @ added_tokens.norm(dim=-1)),
        position_length=float(added_positions.norm(dim=-1).mean()),
    )


class Loudness(Measure):
    """Shares of token, position and constant in the input; outlying rows; the factor √d."""

    name = "loudness"
    question = "How loud is position next to the token?"
    references = ("untrained",)
    method = (
        "What enters the first block is w_i + p_i + s: token row (scaled as the model scales it), position row and "
        "the rest. Length: the mean length of the rows w_i over the tokens of the text, and of p_i over the positions "
        "in use. Variation: √E‖w−w̄‖² and √E‖p−p̄‖², how far they lie from their means, which all share and which tell "
        "nothing apart. The shares of the input are E‖w−w̄‖², E‖p−p̄‖² and the constant ‖s+w̄+p̄‖², each divided by their "
        "sum; where a layer norm follows, its centring is applied to them first. Interval: texts resampled. "
        "Untrained: the same class with fresh weights." + FIRST_POSITION_NOTE
    )
    source = "Vaswani et al. 2017, section 3.4, for the factor √d; norms centred as in Song & Zhong 2023"
    heading = INPUT_HEADING
    by_hand = ("loudness",)
    rests_on = WINDOWS  # the positions in use are those of a window

    def run(self, reading: Reading) -> Finding:
        """Measure what enters the first block; the value is position's share of it."""
        subject, capture = reading.subject, reading.capture
        tables = subject.read_tables(capture.length)
        if tables is None:
            return self.skip(subject.explain_missing_table("Nothing is added at the input of this model."))
        trained = measure_levels(tables, capture)
        control_tables = reading.control.subject.read_tables(capture.length) if reading.control else None
        untrained = measure_levels(control_tables, capture) if control_tables else None
        rest = trained.position + trained.constant
        low, high = bootstrap_ratio(torch.full_like(trained.token_N, trained.position), trained.token_N + rest)
        light, comment = _judge(trained)
        untrained_share = untrained.share if untrained else None
        share, interval = format_estimate(trained.share, low, high)
        verdict = (
            f"Tokens carry {format_percent(trained.token / (trained.token + rest))} of the input, positions {share} "
            f"({interval}{describe_untrained(untrained_share)}): {comment}."
        )
        verdict += _describe_factor(tables, trained, untrained)
        norms = tables.positions_ND.double().norm(dim=-1)
        median = norms.quantile(0.5)
        outliers = torch.nonzero((norms > 3 * median) | (norms < median / 3)).flatten().tolist()
        if outliers:
            numbers = ", ".join(map(str, outliers[:MOST_NAMED])) + (" …" if len(outliers) > MOST_NAMED else "")
            longer = "over three times as long as the median row or under a third of it"
            verdict += f" Outlying position rows, {longer}: {numbers}."
        return self.make_finding(
            verdict,
            trained.share,
            untrained=untrained_share,
            unit=SHARE,
            interval=(low, high),
            light=light,
            table=_make_table(tables, trained, untrained),
            figure=_draw_figure(norms, outliers, trained, untrained),
            details={"length": trained.length, "variation": trained.variation, "scale": tables.scale},
        )


def _judge(levels: Levels) -> tuple[Light, str]:
    """Return the light and the comment for position's part of what varies."""
    if levels.is_silent:
        return "bad", "all position rows are equal, so that they do not tell one position from another"
    if levels.has_equal_tokens:
        return "warn", "all tokens of this text have the same row, so that there is nothing of tokens to compare with"
    part = levels.position / (levels.position + levels.token)
    comment = (
        f"a token is {format_ratio(levels.length)} times as long as a position, and tokens vary "
        f"{format_ratio(levels.variation)} times as much as positions"
    )
    if part < LEAST_PART:
        return "bad", f"{comment}, and positions have less than {format_percent(LEAST_PART)} of the variance of both"
    if part > MOST_PART:
        return "warn", f"{comment}, and positions have more than {format_percent(MOST_PART)} of the variance of both"
    return "good", comment


def _describe_factor(tables: Tables, trained: Levels, untrained: Levels | None) -> str:
    """Say what the factor on the token rows does to their length, trained and untrained; empty without a factor."""
    if abs(tables.scale - 1) < 1e-6 or trained.is_silent or trained.has_equal_tokens:
        return ""
    untrained_note = ""
    if untrained and not untrained.is_silent:
        fresh, without = (format_ratio(value) for value in (untrained.length, untrained.length / tables.scale))
        untrained_note = f" (untrained {fresh}, and {without} without it)"
    return (
        f" Token rows are multiplied by {tables.scale:.1f}; without that factor a token would be "
        f"{format_ratio(trained.length / tables.scale)} times as long as a position, not "
        f"{format_ratio(trained.length)}{untrained_note}."
    )


def _make_table(tables: Tables, trained: Levels, untrained: Levels | None) -> Table:
    """List lengths and variations of tokens and positions, the constant, and the length without the factor."""
    columns = (
        "model", "token length", "position length", "token over position, length", "token variation",
        "position variation", "token over position, variation", "constant length", "position's share", "token factor",
        "token over position, length, without the factor",
    )  # fmt: skip
    rows = [
        (
            name, levels.token_length, levels.position_length, levels.length, math.sqrt(levels.token),
            math.sqrt(levels.position), levels.variation, math.sqrt(levels.constant), levels.share, tables.scale,
            levels.length / tables.scale,
        )
        for name, levels in (("trained", trained), ("untrained", untrained))
        if levels is not None
    ]  # fmt: skip
    return Table.of(columns, rows)


def _draw_figure(norms: Tensor, outliers: list[int], trained: Levels, untrained: Levels | None) -> Figure:
    """Draw the three shares as bars, and the length of every position row."""
    shares = draw_columns(
        "bars",
        ("token", "position", "constant"),
        {
            name: levels and [part / levels.total for part in (levels.token, levels.position, levels.constant)]
            for name, levels in (("trained", trained), ("untrained", untrained))
        },
        reference=("untrained",),
        panel="Share of the input",
        ylabel="share of squared length",
    )
    lengths = [make_mark("line", range(len(norms)), norms, label="position rows", emphasis="main")]
    if outliers:
        lengths.append(make_mark("points", outliers, norms[outliers], label="outliers"))
    lengths.append(make_reference_line(trained.token_length, "a token row, on average"))
    of_each_row = Panel(
        tuple(lengths),
        title="Length of each position row",
        xlabel="position",
        ylabel="length",
        ylim=(0.0, 1.08 * max(float(norms.max()), trained.token_length)),
    )
    title = "Length of tokens and of positions at the input"
    return put_together((shares, Figure((of_each_row,))), columns=2, title=title)


STILL = 0.1
"""A channel that positions move by less than this share of the tokens' spread hardly moves."""


def measure_channel_moves(tables: Tables, capture: Capture) -> Float[Tensor, " D"] | None:
    """Return how far the positions in use move each channel: their standard deviation over that of the tokens there.

    Tokens count as often as they occur; special tokens and position 0 are left out. Both are taken as they are added,
    before a norm. None where tokens do not vary in some channel, as where positions have channels of their own.
    """
    tokens = tables.tokens_VD[capture.ids_NT[:, capture.measured_T].flatten()].double()
    variance_D = tokens.var(0, correction=0)
    if bool((variance_D <= 1e-12 * variance_D.max()).any()):
        return None
    positions_TD = tables.positions_ND[: capture.length][capture.measured_T].double()
    return positions_TD.std(0, correction=0) / variance_D.sqrt()
