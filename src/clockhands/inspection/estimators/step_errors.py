"""How well rows of a table are predicted from the rows some steps before, by one linear map or one rotation.

In names of tensors ``N`` are rows of the table, ``s`` the stretches of rows that are left out, ``k`` components.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands.inspection.estimators.intervals import estimate_mean_interval
from clockhands.inspection.estimators.matrix_statistics import count_leading
from clockhands.shapes import Float, Tensor

STRETCHES = 8
"""Stretches of neighbouring rows, each of which is left out once."""
RANDOM_SPLITS = 5
"""Random splits of the rows, where the studies compare tables."""
MOST_COMPONENTS = 64
"""Principal components in which the maps are fitted."""
SAME_MAP_ERROR = 0.1
"""The held-out error, relative to the squared length, below which a step is said to be the same map everywhere."""
LINEAR, ROTATION, STANDING_STILL, MULTIPLE = range(4)
"""The columns of ``StepErrors.by_stretch_s4``: two maps, the best affine one and the best orthogonal one (a rotation
that may include a reflection) with a translation, and two references, the row itself and its best multiple."""


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
    def means(self) -> list[float]:
        """The mean errors over the stretches, in the order of the columns."""
        return [float(column_s.mean()) for column_s in self.by_stretch_s4.T]

    def estimate_gain(self, column: int) -> tuple[float, float]:
        """Return the 95 % interval of how much smaller the error of a map is than that of a reference.

        There is one such interval for each of the two references. It is the one whose lower end is lower: where that
        is above zero, the map beats both.

        Args:
            column: ``LINEAR`` or ``ROTATION``.
        """
        errors = self.by_stretch_s4
        return min(
            estimate_mean_interval(errors[:, reference] - errors[:, column]) for reference in (STANDING_STILL, MULTIPLE)
        )

    @property
    def reported_map(self) -> int:
        """``ROTATION``, which says more; ``LINEAR`` where that is much better, or where it alone beats both references.

        Much better: the error of the rotation is at least 0.02 more than twice that of the linear map.
        """
        means = self.means
        is_close = means[ROTATION] < 2 * means[LINEAR] + 0.02
        gains = self.estimate_gain(ROTATION)[0] > 0 or self.estimate_gain(LINEAR)[0] <= 0
        return ROTATION if is_close and gains else LINEAR

    @property
    def reported_error(self) -> float:
        """Mean error of the reported map."""
        return self.means[self.reported_map]

    @property
    def is_same_map(self) -> bool:
        """Whether the reported map beats both references, and its error is below ``SAME_MAP_ERROR``."""
        return self.estimate_gain(self.reported_map)[0] > 0 and self.reported_error < SAME_MAP_ERROR


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
        fitted, rows = ~(left_out[:-step] | left_out[step:]), rows_ND[~left_out]
        mean = rows.mean(0)
        _, s, vt = torch.linalg.svd(rows - mean, full_matrices=False)
        # The leading principal axes: more than a quarter of the rows would leave a map free to fit them all.
        axes = vt[: max(1, min(count_leading(s.square(), 0.99), MOST_COMPONENTS, len(rows) // 4))].T
        points = [(part - mean) @ axes for part in (source, target)]
        # Errors are relative to the squared length of a row, as it is in these axes.
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
    # The best factor of a row is ⟨p_t, p_t+k⟩ / ⟨p_t, p_t⟩ over all of them.
    multiple = (source * target).sum() / source.square().sum().clamp_min(1e-300)
    return target_mean + centred @ linear, target_mean + centred @ (u @ vt), judged, target_mean + multiple * centred


def project_rows(rows_ND: Tensor) -> Float[Tensor, "N k"]:
    """Return the coordinates of rows in their leading principal components: 99 % of the variance, at most ten."""
    u, s, _ = torch.linalg.svd(rows_ND, full_matrices=False)
    count = min(10, count_leading(s.square(), 0.99))
    return u[:, :count] * s[:count]


def measure_random_split(points_Nk: Float[Tensor, "N k"], step: int) -> tuple[float, float]:
    """Return the errors of the best linear map and of the best rotation from row t to row t + step.

    A rotation may include a reflection. The maps are judged on a quarter of the rows held out at random. The studies
    compare these errors between schemes, so that no reference is needed; ``measure_step`` judges one table by itself.
    They are averaged over ``RANDOM_SPLITS`` splits.

    Args:
        points_Nk: rows in few dimensions (``project_rows``).
        step: in rows.

    Returns:
        Both errors relative to the squared length of the rows held out.
    """
    source, target = points_Nk[:-step], points_Nk[step:]
    generator = torch.Generator().manual_seed(0)
    linear = rotation = 0.0
    square = float(points_Nk.square().sum(1).mean())
    for _ in range(RANDOM_SPLITS):
        order = torch.randperm(len(source), generator=generator)
        fitted, held_out = order[len(order) // 4 :], order[: len(order) // 4]
        scale = max(float(target[held_out].square().sum()), 1e-9 * square)
        matrix = torch.linalg.lstsq(source[fitted], target[fitted]).solution
        u, _, vt = torch.linalg.svd(source[fitted].T @ target[fitted])
        linear += float((source[held_out] @ matrix - target[held_out]).square().sum() / scale)
        rotation += float((source[held_out] @ (u @ vt) - target[held_out]).square().sum() / scale)
    return linear / RANDOM_SPLITS, rotation / RANDOM_SPLITS
