"""Are neighbouring positions similar? The cosines of position rows by their distance."""

from __future__ import annotations

import torch
from scipy.stats import spearmanr

from clockhands.findings import SHARE, Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import make_heatmap, make_mark, make_reference_line
from clockhands.inspection.estimators.intervals import compute_central_range
from clockhands.inspection.estimators.matrix_statistics import average_diagonals, compute_toeplitz_r2, count_leading
from clockhands.inspection.measures.measure import INPUT_HEADING, Measure
from clockhands.inspection.measures.position_rows import compute_cosines, read_rows
from clockhands.inspection.number_format import format_decimal, format_percent, format_percent_range
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

SHUFFLES = 20
"""Random orders of the rows that the similarity is compared with."""
CLEAR = 2.0
"""The finding is good if distance explains more than so many times the 97.5 % quantile of what it explains of
shuffled rows."""
RANK_SHARE, LOW_RANK = 0.99, 0.25
"""A table has a low rank if so much of its variance lies in this part of the directions that its rows could fill."""


class TableSimilarity(Measure):
    """How the cosine of two position rows depends on their distance."""

    name = "table.similarity"
    question = "Are neighbouring positions similar?"
    references = ("rows shuffled",)
    method = (
        "Cosines of the centred position rows (row 0 left out: it is an outlier in most trained models). 'Distance "
        "only' is R² of the cosines against the means of their diagonals; the main diagonal, all ones, is left out: "
        "with it random vectors score high. Monotone: Spearman correlation of mean cosine and distance up to half the "
        "length. Symmetric: correlation of cos(p_t, p_t+m) with cos(p_t, p_t−m) for m up to 16. Rows shuffled: the "
        "same rows in random order. A random walk scores high too: this is evidence of smoothness more than of "
        "translation. The table is measured whole, so that there is no sampling error and no interval."
    )
    source = "Wang et al. 2021 (translation invariance, monotonicity, symmetry)"
    heading = INPUT_HEADING

    def run(self, reading: Reading) -> Finding:
        """Measure the table at the input; the value is R² of the cosines given the distance."""
        rows = read_rows(reading.subject)
        if isinstance(rows, str):
            return self.skip(rows)
        cosines_NN = rows.compute_cosines()
        generator = torch.Generator().manual_seed(0)
        shuffles = [_shuffle(rows.centred_ND, generator) for _ in range(SHUFFLES)]
        chance = torch.tensor([compute_toeplitz_r2(compute_cosines(shuffled)) for shuffled in shuffles])
        low, high = compute_central_range(chance)
        value, mean_cosines_R = compute_toeplitz_r2(cosines_NN), average_diagonals(cosines_NN)
        monotonicity = compute_monotonicity(mean_cosines_R)
        neighbours = format_decimal(float(mean_cosines_R[0]))
        return self.make_finding(
            f"{_describe_share(value, low, high)}; neighbours have cosine {neighbours}, and similarity "
            f"{_describe_trend(monotonicity)} with distance up to half the length."
            f"{describe_rank(rows.centred_ND)}",
            value,
            unit=SHARE,
            references=(Reference("rows shuffled", float(chance.mean()), (low, high)),),
            light="good" if value > CLEAR * high else "warn",
            table=Table.of(("distance", "mean cosine"), list(enumerate(mean_cosines_R, start=1))),
            figure=_draw_figure(cosines_NN, mean_cosines_R),
            details={"monotonicity": monotonicity, "symmetry": compute_symmetry(cosines_NN)},
        )


def describe_rank(centred_ND: Float[Tensor, "N D"]) -> str:
    """Say in how few directions most of a table lies, where these are few of those that its rows could fill."""
    room, squares = min(len(centred_ND) - 1, centred_ND.shape[1]), torch.linalg.svdvals(centred_ND).square()
    count = count_leading(squares, RANK_SHARE)
    if count > LOW_RANK * room:
        return ""
    directions = "1 direction" if count == 1 else f"{count} directions"
    return f" The table has a low rank: {format_percent(RANK_SHARE)} of its variance lies in {directions} of {room}."


def _shuffle(rows_ND: Tensor, generator: torch.Generator) -> Tensor:
    """Return the rows in random order."""
    return rows_ND[torch.randperm(len(rows_ND), generator=generator)]


def _describe_share(value: float, low: float, high: float) -> str:
    """Say what distance explains of the similarities, if more than of those of shuffled rows (``low`` to ``high``)."""
    if value <= high:
        return (
            f"No effect of distance on the similarities was found: it explains {format_percent(value)} of their "
            f"variance (rows shuffled {format_percent_range(low, high)})"
        )
    return (
        f"Distance alone explains {format_percent(value)} of the variance of the similarities (rows shuffled "
        f"{format_percent_range(low, high)})"
    )


def _describe_trend(correlation: float) -> str:
    """Say how similarity goes with distance, from their rank correlation."""
    if correlation < -0.9:
        return "falls steadily"
    trend = "falls on the whole" if correlation < -0.3 else "does not fall on the whole"
    return f"{trend} (ρ = {format_decimal(correlation)})"


def compute_monotonicity(mean_cosines_R: Float[Tensor, " R"]) -> float:
    """Return the Spearman correlation of mean cosine and distance, up to half the length; −1 for a steady fall.

    ``mean_cosines_R`` are the mean cosines at distances 1 to R. Source: Wang et al. 2021.
    """
    half = mean_cosines_R[: max(2, len(mean_cosines_R) // 2)]
    if float(half.max() - half.min()) < 1e-9:
        return 0.0
    return float(spearmanr(range(len(half)), half.tolist()).statistic)


def compute_symmetry(cosines_NN: Float[Tensor, "N N"], reach: int = 16) -> float:
    """Return the correlation of the cosines m rows ahead and m rows behind, over all rows and m up to ``reach``.

    1 if each row is as similar to the one m later as to the one m earlier; 0 where the cosines do not vary. Source:
    Wang et al. 2021.
    """
    size = len(cosines_NN)
    reach = min(reach, (size - 2) // 2)
    inner = torch.arange(reach, size - reach)
    ahead = torch.stack([cosines_NN[inner, inner + m] for m in range(1, reach + 1)])
    behind = torch.stack([cosines_NN[inner, inner - m] for m in range(1, reach + 1)])
    if min(float(ahead.std()), float(behind.std())) < 1e-9:
        return 0.0
    return float(torch.corrcoef(torch.stack([ahead.flatten(), behind.flatten()]))[0, 1])


def _draw_figure(cosines_NN: Tensor, mean_cosines_R: Tensor) -> Figure:
    """Draw the cosines as a heatmap, and their mean by distance."""
    step = max(1, len(cosines_NN) // 128)
    ticks = tuple(range(1, len(cosines_NN) + 1, step))
    cosines = make_heatmap(cosines_NN[::step, ::step], x=ticks, y=ticks, diverging=True)
    distances = range(1, len(mean_cosines_R) + 1)
    return Figure(
        (
            Panel((cosines,), title="Cosine of position rows, less their mean", xlabel="position", ylabel="position"),
            Panel(
                (
                    make_mark("line", distances, mean_cosines_R, label="mean cosine", emphasis="main"),
                    make_reference_line(0.0, "no similarity"),
                ),
                title="By distance",
                xlabel="distance in tokens",
                ylabel="cosine",
            ),
        ),
        columns=2,
        height=0.8,
        title="Similarity of the rows of any two positions",
    )
