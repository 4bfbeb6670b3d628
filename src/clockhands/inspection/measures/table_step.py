"""The position table as such: whether a step along it is the same map everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import mark, percent
from clockhands.inspection.estimators.intervals import estimate_mean_interval
from clockhands.inspection.estimators.matrix_statistics import count_leading
from clockhands.inspection.measures.measure import INPUT, Measure
from clockhands.inspection.measures.position_rows import read_rows
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

STEPS = (1, 2, 4, 8, 16)
STRETCHES = 8
MOST_COMPONENTS = 64
SAME = 0.1
"""Below this held-out error, relative to the squared length, a step is said to be the same map everywhere."""


@dataclass(frozen=True)
class StepErrors:
    """Held-out errors of four ways to tell the row a step later, for each stretch that was left out; their means."""

    step: int
    by_stretch_S4: Float[Tensor, "S four"]

    @property
    def linear(self) -> float:
        """Of the best affine map."""
        return float(self.by_stretch_S4[:, 0].mean())

    @property
    def rotation(self) -> float:
        """Of the best rotation with a translation."""
        return float(self.by_stretch_S4[:, 1].mean())

    @property
    def still(self) -> float:
        """Of the row itself."""
        return float(self.by_stretch_S4[:, 2].mean())

    @property
    def multiple(self) -> float:
        """Of the best multiple of the row."""
        return float(self.by_stretch_S4[:, 3].mean())

    def gain(self, map_at: int) -> tuple[float, float]:
        """Return the 95 % interval of what a map (0 linear, 1 rotation) gains over that reference which it beats least.

        It is the interval with the lower end that is lower, so that above zero the map beats both.
        """
        return min(estimate_mean_interval(self.by_stretch_S4[:, at] - self.by_stretch_S4[:, map_at]) for at in (2, 3))

    @property
    def best(self) -> int:
        """The map to speak of: the rotation (1), unless only the linear one (0) gains or misses less than half as much.

        A rotation says more, so that it may miss up to twice as much as the best linear map, and 0.02.
        """
        return 1 if self.rotation < 2 * self.linear + 0.02 and (self.gain(1)[0] > 0 or self.gain(0)[0] <= 0) else 0

    @property
    def same(self) -> bool:
        """Whether the map of which is spoken beats both references, and misses next to nothing."""
        return self.gain(self.best)[0] > 0 and (self.rotation if self.best else self.linear) < SAME


class TableStep(Measure):
    """Whether one linear map, or a rotation, carries every position to the one k later, better than standing still."""

    name = "table.shift"
    question = "Is a step along the sequence always the same turn?"
    references = ("standing still", "best multiple of the row")
    method = (
        "The best affine map, and the best rotation with a translation (orthogonal Procrustes), from p_t to p_t+k are "
        "fitted in the leading principal components (99 % of the variance, at most 64 and at most a quarter of the "
        "rows) of seven eighths of the rows and judged on the eighth left out, a stretch of neighbouring rows, in "
        "turn: mean squared error over mean squared length, 0 for a perfect clock, 1 for guessing the mean. "
        "References: standing still, p_t in place of p_t+k, and the best multiple of p_t, fitted likewise; any smooth "
        "table is predicted well by these. A map counts only if its error is smaller than both by more than the 95 % "
        "interval (t, over the eight stretches) of the difference; the step is said to be the same everywhere if its "
        f"error is below {SAME} besides."
    )
    source = "Vaswani et al. 2017, section 3.5: PE(t+k) is a linear function of PE(t)"
    group = INPUT

    def run(self, reading: Reading) -> Finding:
        rows = read_rows(reading.subject)
        if isinstance(rows, str):
            return self.skip(rows)
        found = [step_errors(rows.centred_ND, k) for k in STEPS if 4 * k <= len(rows.centred_ND)]
        first = found[0]
        value = first.rotation if first.best else first.linear
        return self.finding(
            _shift_verdict(found),
            value,
            interval=estimate_mean_interval(first.by_stretch_S4[:, 0 if not first.best else 1]),
            references=(
                Reference("standing still", first.still),
                Reference("best multiple of the row", first.multiple),
            ),
            light="good" if first.same else "info",
            table=Table.of(
                ("step", "linear map", "rotation", "standing still", "best multiple", "gain of the map, low", "high"),
                [(err.step, err.linear, err.rotation, err.still, err.multiple, *err.gain(err.best)) for err in found],
            ),
            figure=_shift_figure(found),
        )


def _shift_verdict(found: list[StepErrors]) -> str:
    first = found[0]
    low, high = first.gain(first.best)
    value = first.rotation if first.best else first.linear
    what = "rotation" if first.best else "linear map"
    errors = (
        f"the best {what} misses stretches of rows that it has not seen by {percent(value)} of their squared length, "
        f"standing still by {percent(first.still)}, the best multiple by {percent(first.multiple)}"
    )
    if first.same:
        further = f" So it is for steps up to {found[-1].step}." if all(err.same for err in found) and found[1:] else ""
        return f"A step by one is the same {what} everywhere: {errors}.{further}"
    if low > 0:
        return f"One {what} predicts the next row better than standing still or a multiple of the row: {errors}."
    if high < 0:
        return f"No one {what} predicts the next row better than standing still or a multiple of the row: {errors}."
    return f"Undecided whether one {what} predicts the next row better than these: {errors}."


def _shift_figure(found: list[StepErrors]) -> Figure:
    steps = [one.step for one in found]
    lines = (
        mark("line", steps, [one.linear for one in found], label="linear map"),
        mark("line", steps, [one.rotation for one in found], label="rotation", emphasis="main"),
        mark("line", steps, [one.still for one in found], label="standing still", emphasis="reference"),
        mark("line", steps, [one.multiple for one in found], label="best multiple", emphasis="reference"),
    )
    return Figure((Panel(lines, xlabel="step k", ylabel="held-out error", xscale="log"),))


def step_errors(rows_ND: Float[Tensor, "N D"], step: int) -> StepErrors:
    """Held-out errors, relative to the mean square of what they tell, of telling row t + step from row t."""
    source, target = rows_ND[:-step], rows_ND[step:]
    found = []
    for held in torch.arange(len(source)).tensor_split(STRETCHES):
        near = torch.zeros(len(rows_ND), dtype=torch.bool)
        near[held[0] : held[-1] + step + 1] = True
        # no row of a pair that is judged has a part in the fit
        fit = ~(near[:-step] | near[step:])
        mean, axes = _principal_axes(rows_ND[~near])
        points = [(part - mean) @ axes for part in (source, target)]
        scale = ((rows_ND - mean) @ axes).square().sum(1).mean().clamp_min(1e-300)
        told = _told(points[0][fit], points[1][fit], points[0][held])
        found.append([float((guess - points[1][held]).square().sum(1).mean() / scale) for guess in told])
    return StepErrors(step, torch.tensor(found, dtype=torch.float64))


def _told(source: Tensor, target: Tensor, judged: Tensor) -> tuple[Tensor, ...]:
    """What a linear map, a rotation, standing still and a multiple make of the judged rows."""
    from_mean, to_mean = source.mean(0), target.mean(0)
    source, target, centred = source - from_mean, target - to_mean, judged - from_mean
    linear = torch.linalg.lstsq(source, target, driver="gelsd").solution
    u, _, vt = torch.linalg.svd(source.T @ target)
    multiple = (source * target).sum() / source.square().sum().clamp_min(1e-300)
    return to_mean + centred @ linear, to_mean + centred @ (u @ vt), judged, to_mean + multiple * centred


def _principal_axes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the leading principal axes: 99 % of the variance, at most a quarter as many as rows."""
    mean = rows.mean(0)
    _, s, vt = torch.linalg.svd(rows - mean, full_matrices=False)
    held = count_leading(s.square(), 0.99)
    return mean, vt[: max(1, min(held, MOST_COMPONENTS, len(rows) // 4))].T


def principal(rows: Tensor, most: int = 10) -> Float[Tensor, "N k"]:
    """Coordinates in the leading principal components, as many as hold 99 % of the variance, at most ``most``."""
    u, s, _ = torch.linalg.svd(rows, full_matrices=False)
    count = min(most, count_leading(s.square(), 0.99))
    return u[:, :count] * s[:count]


def shift_errors(points_Nk: Float[Tensor, "N k"], step: int, splits: int = 5) -> tuple[float, float]:
    """Errors of the best linear map and of the best rotation from p_t to p_t+step, relative to the squared length.

    Judged on rows held out at random, without a reference: what the studies compare between schemes. ``step_errors``
    judges one table by itself.
    """
    source, target = points_Nk[:-step], points_Nk[step:]
    generator = torch.Generator().manual_seed(0)
    linear = rotated = 0.0
    square = float(points_Nk.square().sum(1).mean())
    for _ in range(splits):
        order = torch.randperm(len(source), generator=generator)
        fit, held = order[len(order) // 4 :], order[: len(order) // 4]
        scale = max(float(target[held].square().sum()), 1e-9 * square)
        free = torch.linalg.lstsq(source[fit], target[fit]).solution
        u, _, vt = torch.linalg.svd(source[fit].T @ target[fit])
        linear += float((source[held] @ free - target[held]).square().sum() / scale)
        rotated += float((source[held] @ (u @ vt) - target[held]).square().sum() / scale)
    return linear / splits, rotated / splits
