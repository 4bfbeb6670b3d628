"""The rows of the position table at the input: how similar they are, and whether a step along them is one map."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands.findings import (
    SHARE,
    Finding,
    Reference,
    Table,
    draw_columns,
    draw_heatmap,
    join_words,
    put_together,
)
from clockhands.inspection.estimators.intervals import compute_central_range, estimate_mean_interval
from clockhands.inspection.estimators.matrix_statistics import average_diagonals, compute_toeplitz_r2, count_leading
from clockhands.inspection.estimators.step_errors import (
    MULTIPLE,
    ROTATION,
    SAME_MAP_ERROR,
    STANDING_STILL,
    StepErrors,
    measure_step,
)
from clockhands.inspection.measures.measure import INPUT_HEADING, Measure
from clockhands.inspection.number_format import format_decimal, format_percent, format_percent_range
from clockhands.inspection.reading.reading import Reading
from clockhands.models.subject import Subject
from clockhands.shapes import Float, Tensor

DEFAULT_ROWS = 256
"""Rows that are read unless a measure asks for more: those of the positions that most texts reach."""
FEWEST_ROWS = 16
"""Rows, besides row 0, that a table needs to be measured."""


@dataclass(frozen=True)
class PositionRows:
    """N rows of a position table in float64, from that of position 1 on: as the model adds them, and centred.

    ``centred_ND`` are the rows less their mean; ``added_ND`` are scaled as the model scales them before it adds them.
    """

    added_ND: Float[Tensor, "N D"]
    centred_ND: Float[Tensor, "N D"]


def compute_cosines(rows_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N N"]:
    """Return the cosine of every pair of rows, as they are."""
    unit_ND = rows_ND / rows_ND.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return unit_ND @ unit_ND.T


def read_rows(subject: Subject, most: int = DEFAULT_ROWS) -> PositionRows | str:
    """Return at most ``most`` rows of the table at the input, or the reason why there is nothing to measure."""
    tables = subject.read_tables()
    if tables is None:
        return subject.explain_missing_table("There is no position table at the input.")
    count = len(tables.positions_ND)
    if count <= FEWEST_ROWS:
        size = "1 row" if count == 1 else f"{count} rows"
        return f"The position table has {size}; {FEWEST_ROWS + 1} are needed to measure this."
    added_ND = tables.positions_ND[1 : most + 1].double()
    centred_ND = added_ND - added_ND.mean(0)
    if float(centred_ND.norm()) <= 1e-9 * float(added_ND.norm()):
        return "All position rows are equal: this table does not tell one position from another."
    return PositionRows(added_ND, centred_ND)


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
        cosines_NN = compute_cosines(rows.centred_ND)
        generator = torch.Generator().manual_seed(0)
        shuffles = [rows.centred_ND[torch.randperm(len(rows.centred_ND), generator=generator)] for _ in range(SHUFFLES)]
        chance = torch.tensor([compute_toeplitz_r2(compute_cosines(shuffled)) for shuffled in shuffles])
        low, high = compute_central_range(chance)
        value, mean_cosines_R = compute_toeplitz_r2(cosines_NN), average_diagonals(cosines_NN)
        monotonicity = _compute_monotonicity(mean_cosines_R)
        neighbours, share = format_decimal(float(mean_cosines_R[0])), format_percent(value)
        explained = f"Distance alone explains {share} of the variance of the similarities"
        if value <= high:
            explained = f"No effect of distance on the similarities was found: it explains {share} of their variance"
        step = max(1, len(cosines_NN) // 128)
        ticks = tuple(range(1, len(cosines_NN) + 1, step))
        cosines = draw_heatmap(
            cosines_NN[::step, ::step],
            panel="Cosine of position rows, less their mean",
            xlabel="position",
            ylabel="position",
            x=ticks,
            y=ticks,
            diverging=True,
        )
        by_distance = draw_columns(
            "line",
            range(1, len(mean_cosines_R) + 1),
            {"mean cosine": mean_cosines_R},
            main="mean cosine",
            levels={"no similarity": 0.0},
            panel="By distance",
            xlabel="distance in tokens",
            ylabel="cosine",
        )
        return self.make_finding(
            f"{explained} (rows shuffled {format_percent_range(low, high)}); neighbours have cosine {neighbours}, "
            f"and similarity {_describe_trend(monotonicity)} with distance up to half the length."
            f"{_describe_rank(rows.centred_ND)}",
            value,
            unit=SHARE,
            references=(Reference("rows shuffled", float(chance.mean()), (low, high)),),
            light="good" if value > CLEAR * high else "warn",
            table=Table.of(("distance", "mean cosine"), list(enumerate(mean_cosines_R, start=1))),
            figure=put_together(
                (cosines, by_distance), columns=2, height=0.8, title="Similarity of the rows of any two positions"
            ),
            details={"monotonicity": monotonicity, "symmetry": _compute_symmetry(cosines_NN)},
        )


def _describe_rank(centred_ND: Float[Tensor, "N D"]) -> str:
    """Say in how few directions most of the table lies, where these are few of those that its rows could fill."""
    room = min(len(centred_ND) - 1, centred_ND.shape[1])
    count = count_leading(torch.linalg.svdvals(centred_ND).square(), RANK_SHARE)
    if count > LOW_RANK * room:
        return ""
    directions = "1 direction" if count == 1 else f"{count} directions"
    return f" The table has a low rank: {format_percent(RANK_SHARE)} of its variance lies in {directions} of {room}."


def _describe_trend(correlation: float) -> str:
    """Say how similarity goes with distance, from their rank correlation."""
    if correlation < -0.9:
        return "falls steadily"
    trend = "falls on the whole" if correlation < -0.3 else "does not fall on the whole"
    return f"{trend} (ρ = {format_decimal(correlation)})"


def _compute_monotonicity(mean_cosines_R: Float[Tensor, " R"]) -> float:
    """Return the Spearman correlation of mean cosine and distance, up to half the length; −1 for a steady fall.

    ``mean_cosines_R`` are the mean cosines at distances 1 to R. Source: Wang et al. 2021.
    """
    half = mean_cosines_R[: max(2, len(mean_cosines_R) // 2)]
    if float(half.max() - half.min()) < 1e-9:
        return 0.0
    # Spearman's correlation is that of the ranks; equal values share the mean of theirs.
    _, inverse, counts = half.unique(return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1) / 2)[inverse].double()
    return float(torch.corrcoef(torch.stack([torch.arange(len(half)).double(), ranks]))[0, 1])


def _compute_symmetry(cosines_NN: Float[Tensor, "N N"], reach: int = 16) -> float:
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


PREDICTIONS = ("linear map", "rotation", "standing still", "best multiple")
"""What is judged, in the order of ``StepErrors.means``."""
STEPS = (1, 2, 4, 8, 16)
"""Steps, in positions, that are measured; a table of fewer than four times as many rows is too short for one."""


class TableStep(Measure):
    """Whether one linear map, or a rotation, carries each position to the one k later, better than standing still."""

    name = "table.shift"
    question = "Is a step along the sequence always the same rotation?"
    references = ("standing still", "best multiple of the row")
    method = (
        "The best affine map, and the best rotation with a translation (orthogonal Procrustes; it may include a "
        "reflection), from p_t to p_t+k are "
        "fitted in the leading principal components (99 % of the variance, at most 64 and at most a quarter of the "
        "rows) of seven eighths of the rows and judged on the eighth left out, a stretch of neighbouring rows, in "
        "turn: mean squared error over mean squared length, 0 for a perfect clock, 1 for guessing the mean. "
        "References: standing still, p_t in place of p_t+k, and the best multiple of p_t, fitted likewise; any smooth "
        "table is predicted well by these. A map counts only if its error is smaller than both by more than the 95 % "
        "interval (t, over the eight stretches) of the difference; the step is said to be the same everywhere if its "
        f"error is also below {SAME_MAP_ERROR}."
    )
    source = "Vaswani et al. 2017, section 3.5: PE(t+k) is a linear function of PE(t)"
    heading = INPUT_HEADING
    by_hand = ("shift",)

    def run(self, reading: Reading) -> Finding:
        """Measure the table at the input; the value is the held-out error of a step by one."""
        rows = read_rows(reading.subject)
        if isinstance(rows, str):
            return self.skip(rows)
        errors = [measure_step(rows.centred_ND, k) for k in STEPS if 4 * k <= len(rows.centred_ND)]
        first = errors[0]
        return self.make_finding(
            _describe(errors),
            first.reported_error,
            unit=SHARE,
            interval=estimate_mean_interval(first.by_stretch_s4[:, first.reported_map]),
            references=(
                Reference("standing still", first.means[STANDING_STILL]),
                Reference("best multiple of the row", first.means[MULTIPLE]),
            ),
            light="good" if first.is_same_map else "info",
            table=Table.of(
                ("step", *PREDICTIONS, "gain of the map, low", "high"),
                [(error.step, *error.means, *error.estimate_gain(error.reported_map)) for error in errors],
            ),
            figure=draw_columns(
                "line",
                [str(error.step) for error in errors],
                dict(zip(PREDICTIONS, zip(*(error.means for error in errors), strict=True), strict=True)),
                title="Error of the row k positions later, predicted from this one",
                main="rotation",
                reference=("standing still", "best multiple"),
                xlabel="step k, in positions",
                ylabel="share of squared length that is wrong",
            ),
        )


def _describe(errors: list[StepErrors]) -> str:
    """Say whether one map predicts the next row better than the references do, or that this is undecided."""
    first = errors[0]
    low, high = first.estimate_gain(first.reported_map)
    name = "rotation" if first.reported_map == ROTATION else "linear map"
    numbers = (
        f"on stretches of rows that it was not fitted on, the best {name} has an error of "
        f"{format_percent(first.reported_error)} of their squared length, standing still "
        f"{format_percent(first.means[STANDING_STILL])}, the best multiple of the row "
        f"{format_percent(first.means[MULTIPLE])}"
    )
    if first.is_same_map:
        longer = errors[1:]
        all_same = longer and all(error.is_same_map and error.reported_map == first.reported_map for error in longer)
        further = f" So is a step by {join_words(str(error.step) for error in longer)}." if all_same else ""
        return f"A step by one is the same {name} everywhere: {numbers}.{further}"
    if low > 0:
        return f"One {name} predicts the next row better than standing still and than a multiple of the row: {numbers}."
    if high < 0:
        return (
            f"No one {name} predicts the next row better than both standing still and a multiple of the row: {numbers}."
        )
    return (
        f"It is undecided whether one {name} predicts the next row better than both standing still and a multiple of "
        f"the row: {numbers}."
    )
