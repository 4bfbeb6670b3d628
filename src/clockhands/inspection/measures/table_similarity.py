"""The position table as such: similarity of its rows by distance."""

from __future__ import annotations

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import chance_line, format_signed, heatmap, mark, percent
from clockhands.inspection.estimators.intervals import compute_central_range
from clockhands.inspection.estimators.matrix_statistics import average_diagonals, compute_toeplitz_r2
from clockhands.inspection.measures.measure import INPUT, Measure
from clockhands.inspection.measures.position_rows import read_rows
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

DRAWS = 20
"""Orders of the rows that the similarity is compared with."""


class TableSimilarity(Measure):
    """How the cosine of two positions depends on their distance."""

    name = "table.similarity"
    question = "Are neighbouring positions similar?"
    references = ("rows shuffled",)
    method = (
        "Cosines of the centred position rows (row 0 left out: it is an outlier in most trained models). 'Distance "
        "only' is R² of the cosines against the means of their diagonals, the main diagonal left out, for with it "
        "random vectors score 0.4. Monotone: Spearman correlation of mean cosine and distance up to half the length. "
        "Symmetric: correlation of cos(p_t, p_t+m) with cos(p_t, p_t−m) for m up to 16. Rows shuffled: the same rows "
        "in random order. A random walk scores high too: this is evidence of smoothness more than of translation. "
        "The table is measured whole, so that there is no sampling error and no interval."
    )
    source = "Wang et al. 2021 (translation invariance, monotonicity, symmetry), each with a reference"
    group = INPUT

    def run(self, reading: Reading) -> Finding:
        rows = read_rows(reading.subject)
        if isinstance(rows, str):
            return self.skip(rows)
        gram = _cosines(rows.centred_ND)
        generator = torch.Generator().manual_seed(0)
        orders = [_shuffled(rows.centred_ND, generator) for _ in range(DRAWS)]
        chance = torch.tensor([compute_toeplitz_r2(_cosines(order)) for order in orders])
        value, by_distance = compute_toeplitz_r2(gram), average_diagonals(gram)
        falling = monotonicity(by_distance)
        return self.finding(
            f"Distance alone explains {percent(value)} of the similarities ({percent(float(chance.mean()))} with the "
            f"rows shuffled); neighbours have cosine {format_signed(float(by_distance[0]))}, and "
            f"similarity {_trend(falling)} with distance.",
            value,
            references=(Reference("rows shuffled", float(chance.mean()), compute_central_range(chance)),),
            light="good" if value > 2 * compute_central_range(chance)[1] else "warn",
            table=Table.of(("distance", "mean cosine"), list(enumerate(by_distance, start=1))),
            figure=_similarity_figure(gram, by_distance),
            details={"monotonicity": falling, "symmetry": symmetry(gram)},
        )


def _shuffled(rows: Tensor, generator: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator)]


def _cosines(rows: Tensor) -> Tensor:
    unit = rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return unit @ unit.T


def _trend(correlation: float) -> str:
    """Say how similarity goes with distance, by their rank correlation."""
    if correlation < -0.9:
        return "falls steadily"
    return f"falls on the whole (ρ = {format_signed(correlation)})" if correlation < -0.3 else "does not fall"


def monotonicity(by_distance_R: Float[Tensor, " R"]) -> float:
    """Spearman correlation of mean cosine and distance, up to half the length: −1 falls all the way."""
    from scipy.stats import spearmanr

    half = by_distance_R[: max(2, len(by_distance_R) // 2)]
    if float(half.max() - half.min()) < 1e-9:
        return 0.0
    return float(spearmanr(range(len(half)), half.tolist()).statistic)


def symmetry(gram_TT: Float[Tensor, "T T"], reach: int = 16) -> float:
    """Correlation over t and m of the cosines m ahead and m behind: 1 if looking either way is the same."""
    size = len(gram_TT)
    reach = min(reach, (size - 2) // 2)
    inner = torch.arange(reach, size - reach)
    ahead = torch.stack([gram_TT[inner, inner + m] for m in range(1, reach + 1)])
    behind = torch.stack([gram_TT[inner, inner - m] for m in range(1, reach + 1)])
    if min(float(ahead.std()), float(behind.std())) < 1e-9:
        return 0.0
    return float(torch.corrcoef(torch.stack([ahead.flatten(), behind.flatten()]))[0, 1])


def _similarity_figure(gram: Tensor, by_distance: Tensor) -> Figure:
    step = max(1, len(gram) // 128)
    ticks = tuple(range(1, len(gram) + 1, step))
    return Figure(
        (
            Panel((heatmap(gram[::step, ::step], x=ticks, y=ticks, diverging=True),), title="Cosine of position rows"),
            Panel(
                (
                    mark("line", range(1, len(by_distance) + 1), by_distance, label="mean cosine", emphasis="main"),
                    chance_line(0.0, "no similarity"),
                ),
                title="By distance",
                xlabel="distance in tokens",
                ylabel="cosine",
            ),
        ),
        columns=2,
        height=0.8,
    )
