"""Is a step along the position table the same map everywhere?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands.findings import SHARE, Figure, Finding, Number, Panel, Reference, Table, join_words
from clockhands.inspection.drawing import make_mark
from clockhands.inspection.estimators.intervals import estimate_mean_interval
from clockhands.inspection.estimators.matrix_statistics import count_leading
from clockhands.inspection.measures.measure import INPUT_HEADING, Measure
from clockhands.inspection.measures.position_rows import read_rows
from clockhands.inspection.number_format import format_percent
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

STEPS = (1, 2, 4, 8, 16)
"""Steps, in positions, that are measured; a table of fewer than four times as many rows is too short for one."""
STRETCHES = 8
"""Stretches of neighbouring rows, each of which is left out once."""
MOST_COMPONENTS = 64
"""Principal components in which the maps are fitted."""
SAME = 0.1
"""The held-out error, relative to the squared length, below which a step is said to be the same map everywhere."""
LINEAR, ROTATION, STANDING_STILL, MULTIPLE = range(4)
"""The columns of ``StepErrors.by_stretch_s4``: two maps, and two references."""


@dataclass(frozen=True)
class StepErrors:
    """Held-out errors of four predictions of the row a step later, for each stretch of rows that was left out.

    Attributes:
        step: how many positions later.
        by_stretch_s4: mean squared error over mean squared length, in the columns ``LINEAR``, ``ROTATION``,
            ``STANDING_STILL`` and ``MULTIPLE``.
    """

    step: int
    by_stretch_s4: Float[Tensor, "s four"]

    @property
    def linear(self) -> float:
        """Mean error of the best affine map."""
        return float(self.by_stretch_s4[:, LINEAR].mean())

    @property
    def rotation(self) -> float:
        """Mean error of the best orthogonal map, a rotation that may include a reflection, with a translation."""
        return float(self.by_stretch_s4[:, ROTATION].mean())

    @property
    def standing_still(self) -> float:
        """Mean error of the row itself in the place of a later one."""
        return float(self.by_stretch_s4[:, STANDING_STILL].mean())

    @property
    def multiple(self) -> float:
        """Mean error of the best multiple of the row."""
        return float(self.by_stretch_s4[:, MULTIPLE].mean())

    def estimate_gain(self, column: int) -> tuple[float, float]:
        """Return the 95 % interval of how much smaller the error of a map is than that of the better reference.

        Of the two intervals it is the one whose lower end is lower: where that is above zero, the map beats both.

        Args:
            column: ``LINEAR`` or ``ROTATION``.
        """
        errors = self.by_stretch_s4
        return min(
            estimate_mean_interval(errors[:, reference] - errors[:, column]) for reference in (STANDING_STILL, MULTIPLE)
        )

    @property
    def reported_map(self) -> int:
        """``ROTATION``, unless only the linear map gains or has about half the error or less.

        A rotation says more, so it is reported as long as its error is below 0.02 more than twice that of the best
        linear map.
        """
        is_close = self.rotation < 2 * self.linear + 0.02
        gains = self.estimate_gain(ROTATION)[0] > 0 or self.estimate_gain(LINEAR)[0] <= 0
        return ROTATION if is_close and gains else LINEAR

    @property
    def reported_error(self) -> float:
        """Mean error of the reported map."""
        return self.rotation if self.reported_map == ROTATION else self.linear

    @property
    def is_same_map(self) -> bool:
        """Whether the reported map beats both references, and its error is below ``SAME``."""
        return self.estimate_gain(self.reported_map)[0] > 0 and self.reported_error < SAME


class TableStep(Measure):
    """Whether one linear map, or a rotation, carries each position to the one k later, better than standing still."""

    name = "table.shift"
    question = "Is a step along the sequence always the same rotation?"
    references = ("standing still", "best multiple of the row")
    method = (
        "The best affine map, and the best rotation with a translation (orthogonal Procrustes), from p_t to p_t+k are "
        "fitted in the leading principal components (99 % of the variance, at most 64 and at most a quarter of the "
        "rows) of seven eighths of the rows and judged on the eighth left out, a stretch of neighbouring rows, in "
        "turn: mean squared error over mean squared length, 0 for a perfect clock, 1 for guessing the mean. "
        "References: standing still, p_t in place of p_t+k, and the best multiple of p_t, fitted likewise; any smooth "
        "table is predicted well by these. A map counts only if its error is smaller than both by more than the 95 % "
        "interval (t, over the eight stretches) of the difference; the step is said to be the same everywhere if its "
        f"error is also below {SAME}."
    )
    source = "Vaswani et al. 2017, section 3.5: PE(t+k) is a linear function of PE(t)"
    heading = INPUT_HEADING

    def run(self, reading: Reading) -> Finding:
        """Measure the table at the input; the value is the held-out error of a step by one."""
        rows = read_rows(reading.subject)
        if isinstance(rows, str):
            return self.skip(rows)
        errors = [measure_step(rows.centred_ND, k) for k in STEPS if 4 * k <= len(rows.centred_ND)]
        first = errors[0]
        columns = ("step", "linear map", "rotation", "standing still", "best multiple", "gain of the map, low", "high")
        return self.make_finding(
            _describe(errors),
            first.reported_error,
            unit=SHARE,
            interval=estimate_mean_interval(first.by_stretch_s4[:, first.reported_map]),
            references=(
                Reference("standing still", first.standing_still),
                Reference("best multiple of the row", first.multiple),
            ),
            light="good" if first.is_same_map else "info",
            table=Table.of(columns, [_make_row(error) for error in errors]),
            figure=_draw_figure(errors),
        )


def _make_row(errors: StepErrors) -> tuple[Number, ...]:
    """Return the row of one step in the table of the finding."""
    gain = errors.estimate_gain(errors.reported_map)
    return (errors.step, errors.linear, errors.rotation, errors.standing_still, errors.multiple, *gain)


def _describe(errors: list[StepErrors]) -> str:
    """Say whether one map predicts the next row better than the references do, or that this is undecided."""
    first = errors[0]
    low, high = first.estimate_gain(first.reported_map)
    name = "rotation" if first.reported_map == ROTATION else "linear map"
    numbers = (
        f"on stretches of rows that it was not fitted on, the best {name} has an error of "
        f"{format_percent(first.reported_error)} of their squared length, standing still "
        f"{format_percent(first.standing_still)}, the best multiple of the row {format_percent(first.multiple)}"
    )
    if first.is_same_map:
        longer = errors[1:]
        all_same = longer and all(error.is_same_map and error.reported_map == first.reported_map for error in longer)
        further = f" So is a step by {join_words(str(error.step) for error in longer)}." if all_same else ""
        return f"A step by one is the same {name} everywhere: {numbers}.{further}"
    if low > 0:
        return f"One {name} predicts the next row better than standing still or a multiple of the row: {numbers}."
    if high < 0:
        return f"No one {name} predicts the next row better than standing still or a multiple of the row: {numbers}."
    return (
        f"It is undecided whether one {name} predicts the next row better than standing still or a multiple of the "
        f"row: {numbers}."
    )


def _draw_figure(errors: list[StepErrors]) -> Figure:
    """Draw the errors of the maps and of the references by step."""
    steps = [error.step for error in errors]
    lines = (
        make_mark("line", steps, [error.linear for error in errors], label="linear map"),
        make_mark("line", steps, [error.rotation for error in errors], label="rotation", emphasis="main"),
        make_mark(
            "line", steps, [error.standing_still for error in errors], label="standing still", emphasis="reference"
        ),
        make_mark("line", steps, [error.multiple for error in errors], label="best multiple", emphasis="reference"),
    )
    panel = Panel(lines, xlabel="step k, in positions", ylabel="held-out error", xscale="log")
    return Figure((panel,), title="Error of the next row as predicted from this one, by step")


def measure_step(rows_ND: Float[Tensor, "N D"], step: int) -> StepErrors:
    """Measure how well row t + step is predicted from row t, on stretches of rows that are left out of the fit.

    Args:
        rows_ND: a centred table in float64, with at least four times as many rows as the step.
        step: in rows.

    Returns:
        Squared errors relative to the mean squared length of the rows.
    """
    source, target = rows_ND[:-step], rows_ND[step:]
    errors = []
    for held_out in torch.arange(len(source)).tensor_split(STRETCHES):
        left_out = torch.zeros(len(rows_ND), dtype=torch.bool)
        left_out[held_out[0] : held_out[-1] + step + 1] = True
        # No row of a pair that is judged has a part in the fit.
        fitted = ~(left_out[:-step] | left_out[step:])
        mean, axes = _find_principal_axes(rows_ND[~left_out])
        points = [(part - mean) @ axes for part in (source, target)]
        scale = ((rows_ND - mean) @ axes).square().sum(1).mean().clamp_min(1e-300)
        predictions = _predict(points[0][fitted], points[1][fitted], points[0][held_out])
        errors.append([float((guess - points[1][held_out]).square().sum(1).mean() / scale) for guess in predictions])
    return StepErrors(step, torch.tensor(errors, dtype=torch.float64))


def _predict(source: Tensor, target: Tensor, judged: Tensor) -> tuple[Tensor, ...]:
    """Fit the four predictions, ``LINEAR`` to ``MULTIPLE``, to pairs of rows and apply them to the judged rows."""
    source_mean, target_mean = source.mean(0), target.mean(0)
    source, target, centred = source - source_mean, target - target_mean, judged - source_mean
    linear = torch.linalg.lstsq(source, target, driver="gelsd").solution
    u, _, vt = torch.linalg.svd(source.T @ target)  # orthogonal Procrustes: the best is u vᵀ, reflections included
    multiple = (source * target).sum() / source.square().sum().clamp_min(1e-300)
    return target_mean + centred @ linear, target_mean + centred @ (u @ vt), judged, target_mean + multiple * centred


def _find_principal_axes(rows_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the leading principal axes: 99 % of the variance, at most a quarter as many as rows."""
    mean = rows_ND.mean(0)
    _, s, vt = torch.linalg.svd(rows_ND - mean, full_matrices=False)
    count = count_leading(s.square(), 0.99)
    return mean, vt[: max(1, min(count, MOST_COMPONENTS, len(rows_ND) // 4))].T


def project_rows(rows_ND: Tensor, most: int = 10) -> Float[Tensor, "N k"]:
    """Return the coordinates of rows in their leading principal components: 99 % of the variance, at most ``most``."""
    u, s, _ = torch.linalg.svd(rows_ND, full_matrices=False)
    count = min(most, count_leading(s.square(), 0.99))
    return u[:, :count] * s[:count]


def measure_random_split(points_Nk: Float[Tensor, "N k"], step: int, splits: int = 5) -> tuple[float, float]:
    """Return the errors of the best linear map and of the best rotation from row t to row t + step.

    A rotation may include a reflection. They are judged on a quarter of the rows held out at random, without a
    reference: what the studies compare between schemes. ``measure_step`` judges one table by itself.

    Args:
        points_Nk: rows in few dimensions (``project_rows``).
        step: in rows.
        splits: random splits that the errors are averaged over.

    Returns:
        Both errors relative to the squared length of the rows held out.
    """
    source, target = points_Nk[:-step], points_Nk[step:]
    generator = torch.Generator().manual_seed(0)
    linear = rotation = 0.0
    square = float(points_Nk.square().sum(1).mean())
    for _ in range(splits):
        order = torch.randperm(len(source), generator=generator)
        fitted, held_out = order[len(order) // 4 :], order[: len(order) // 4]
        scale = max(float(target[held_out].square().sum()), 1e-9 * square)
        matrix = torch.linalg.lstsq(source[fitted], target[fitted]).solution
        u, _, vt = torch.linalg.svd(source[fitted].T @ target[fitted])
        linear += float((source[held_out] @ matrix - target[held_out]).square().sum() / scale)
        rotation += float((source[held_out] @ (u @ vt) - target[held_out]).square().sum() / scale)
    return linear / splits, rotation / splits
