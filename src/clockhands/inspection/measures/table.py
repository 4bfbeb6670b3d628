"""The position table as such: similarity by distance, and what a step along it does."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import heatmap, level, mark, percent, skip
from clockhands.inspection.estimators.intervals import interval, off_diagonal_means, toeplitz_share
from clockhands.inspection.subject.subject import Subject
from clockhands.shapes import Float, Tensor

MOST_ROWS = 256
"""Rows looked at: those that most texts reach."""

SIMILARITY = "Are neighbouring positions similar?"
SIMILARITY_METHOD = (
    "Cosines of the centred position rows (row 0 left out: it is an outlier in most trained models). 'Distance "
    "only' is R² of the cosines against the means of their diagonals, the main diagonal left out, for with it "
    "random vectors score 0.4. Monotone: Spearman correlation of mean cosine and distance up to half the length. "
    "Symmetric: correlation of cos(p_t, p_t+m) with cos(p_t, p_t−m) for m up to 16. Null: the same rows in random"
    " order. A random walk scores high too: this is evidence of smoothness more than of translation."
)
SHIFT = "Is a step along the sequence always the same turn?"
SHIFT_METHOD = (
    "The best affine map, and the best rotation with a translation (orthogonal Procrustes), from p_t to p_t+k are "
    "fitted in the leading principal components (99 % of the variance, at most 64 and at most a quarter of the "
    "rows) of seven eighths of the rows and judged on the eighth left out, a stretch of neighbouring rows, in "
    "turn: mean squared error over mean squared length, 0 for a perfect clock, 1 for guessing the mean. "
    "References: standing still, p_t in place of p_t+k, and the best multiple of p_t, fitted likewise; any smooth "
    "table is predicted well by these. A map counts only if its error is smaller than both by more than the 95 % "
    "interval (t, over the eight stretches) of the difference."
)
FEWEST_ROWS = 16
"""Rows, besides row 0, without which nothing is measured."""


@dataclass(frozen=True)
class Rows:
    """Position rows from the second on: as the model adds them, and centred."""

    raw_PD: Float[Tensor, "P D"]
    centred_PD: Float[Tensor, "P D"]


def rows_of(subject: Subject, name: str, question: str, most: int = MOST_ROWS) -> Rows | Finding:
    """The rows to measure, or a finding that says why there is nothing to measure."""
    tables = subject.tables()
    if tables is None:
        return skip(name, question, subject.absent("There is no position table to look at."))
    count = len(tables.positions_PD)
    if count <= FEWEST_ROWS:
        had = "1 row" if count == 1 else f"{count} rows"
        return skip(name, question, f"The position table has {had}; {FEWEST_ROWS + 1} are needed to measure this.")
    raw = tables.positions_PD[1 : most + 1].double()
    centred = raw - raw.mean(0)
    if float(centred.norm()) <= 1e-9 * float(raw.norm()):
        return skip(name, question, "All position rows are equal: this table tells no position from another.")
    return Rows(raw, centred)


def rows_in_use(subject: Subject) -> Float[Tensor, "P D"] | None:
    """Position rows from the second on, centred; None where there is nothing to measure."""
    rows = rows_of(subject, "", "")
    return rows.centred_PD if isinstance(rows, Rows) else None


def _shuffled(rows: Tensor, generator: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator)]


def _cosines(rows: Tensor) -> Tensor:
    unit = rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return unit @ unit.T


def similarity(subject: Subject) -> Finding:
    """How the cosine of two positions depends on their distance."""
    found = rows_of(subject, "table.similarity", SIMILARITY)
    if isinstance(found, Finding):
        return found
    rows = found.centred_PD
    gram = _cosines(rows)
    generator = torch.Generator().manual_seed(0)
    chance = torch.tensor([toeplitz_share(_cosines(_shuffled(rows, generator))) for _ in range(20)])
    value, by_distance = toeplitz_share(gram), off_diagonal_means(gram)
    falling, mirrored = monotonicity(by_distance), symmetry(gram)
    near = float(by_distance[0])
    similar = value > 2 * interval(chance)[1]
    return Finding(
        name="table.similarity",
        question=SIMILARITY,
        verdict=(
            f"Distance alone explains {percent(value)} of the similarities ({percent(float(chance.mean()))} with the "
            f"rows shuffled); neighbours have cosine {near:.2f}, and similarity {_trend(falling)} with distance."
        ),
        value=value,
        references=(Reference("rows shuffled", float(chance.mean()), interval(chance)),),
        light="good" if similar else "warn",
        table=Table.of(("distance", "mean cosine"), list(zip(range(1, len(by_distance)), by_distance, strict=False))),
        figure=_similarity_figure(gram, by_distance),
        method=SIMILARITY_METHOD,
        source="Wang et al. 2021 (translation invariance, monotonicity, symmetry), with nulls",
        details={"monotonicity": falling, "symmetry": mirrored},
    )


def _trend(correlation: float) -> str:
    if correlation < -0.9:
        return "falls steadily"
    return "falls, with waves," if correlation < -0.3 else "does not fall"


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
                    level(0.0, "no similarity"),
                ),
                title="By distance",
                xlabel="distance in tokens",
                ylabel="cosine",
            ),
        ),
        columns=2,
        height=0.8,
    )


STEPS = (1, 2, 4, 8, 16)
STRETCHES = 8
MOST_COMPONENTS = 64


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
        """The 95 % interval of what a map (0 linear, 1 rotation) gains over the better of the two references."""
        return min(_t_interval(self.by_stretch_S4[:, at] - self.by_stretch_S4[:, map_at]) for at in (2, 3))

    @property
    def best(self) -> int:
        """The map to speak of: the rotation (1) where it is as good, else the linear one (0)."""
        return 1 if self.rotation < 2 * self.linear + 0.02 and (self.gain(1)[0] > 0 or self.gain(0)[0] <= 0) else 0


def _t_interval(values_S: Float[Tensor, " S"]) -> tuple[float, float]:
    from scipy.stats import t

    count = len(values_S)
    reach = float(t.ppf(0.975, count - 1)) * float(values_S.std()) / math.sqrt(count)
    mean = float(values_S.mean())
    return mean - reach, mean + reach


def shift(subject: Subject) -> Finding:
    """Whether one linear map, or a rotation, carries every position to the one k later, better than standing still."""
    rows = rows_of(subject, "table.shift", SHIFT)
    if isinstance(rows, Finding):
        return rows
    found = [step_errors(rows.centred_PD, k) for k in STEPS if 4 * k <= len(rows.centred_PD)]
    first = found[0]
    value = first.rotation if first.best else first.linear
    return Finding(
        name="table.shift",
        question=SHIFT,
        verdict=_shift_verdict(found),
        value=value,
        interval=_t_interval(first.by_stretch_S4[:, 0 if not first.best else 1]),
        references=(Reference("standing still", first.still), Reference("best multiple of the row", first.multiple)),
        light="good" if first.gain(first.best)[0] > 0 and value < 0.1 else "info",
        table=Table.of(
            ("step", "linear map", "rotation", "standing still", "best multiple", "gain of the map, low", "high"),
            [(one.step, one.linear, one.rotation, one.still, one.multiple, *one.gain(one.best)) for one in found],
        ),
        figure=_shift_figure(found),
        method=SHIFT_METHOD,
        source="Vaswani et al. 2017, section 3.5: PE(t+k) is a linear function of PE(t)",
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
    if low > 0:
        others = [one.step for one in found[1:] if one.gain(one.best)[0] > 0]
        further = f" So it is for steps up to {others[-1]}." if others and len(others) == len(found) - 1 else ""
        return f"A step by one is the same {what} everywhere: {errors}.{further}"
    if high < 0:
        return f"A step by one is not the same turn everywhere: {errors}."
    return f"Undecided whether a step by one is the same turn everywhere: {errors}."


def _shift_figure(found: list[StepErrors]) -> Figure:
    steps = [one.step for one in found]
    lines = (
        mark("line", steps, [one.linear for one in found], label="linear map"),
        mark("line", steps, [one.rotation for one in found], label="rotation", emphasis="main"),
        mark("line", steps, [one.still for one in found], label="standing still", emphasis="null"),
        mark("line", steps, [one.multiple for one in found], label="best multiple", emphasis="null"),
    )
    return Figure((Panel(lines, xlabel="step k", ylabel="held-out error", xscale="log"),))


def step_errors(rows_PD: Float[Tensor, "P D"], step: int) -> StepErrors:
    """Held-out errors, relative to the mean square of what they tell, of telling row t + step from row t."""
    source, target = rows_PD[:-step], rows_PD[step:]
    found = []
    for held in torch.arange(len(source)).tensor_split(STRETCHES):
        near = torch.zeros(len(rows_PD), dtype=torch.bool)
        near[held[0] : held[-1] + step + 1] = True
        # no row of a pair that is judged has a part in the fit
        fit = ~(near[:-step] | near[step:])
        mean, axes = _principal_axes(rows_PD[~near])
        points = [(part - mean) @ axes for part in (source, target)]
        scale = ((rows_PD - mean) @ axes).square().sum(1).mean().clamp_min(1e-300)
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
    held = int((s.square().cumsum(0) < 0.99 * s.square().sum()).sum()) + 1
    return mean, vt[: max(1, min(held, MOST_COMPONENTS, len(rows) // 4))].T


def principal(rows: Tensor, most: int = 10) -> Float[Tensor, "P k"]:
    """Coordinates in the leading principal components, as many as hold 99 % of the variance, at most ``most``."""
    u, s, _ = torch.linalg.svd(rows, full_matrices=False)
    held = int((s.square().cumsum(0) < 0.99 * s.square().sum()).sum()) + 1
    count = min(most, held)
    return u[:, :count] * s[:count]


def shift_errors(points_Pk: Float[Tensor, "P k"], step: int, splits: int = 5) -> tuple[float, float]:
    """Errors of the best linear map and of the best rotation from p_t to p_t+step, relative to the squared length.

    Judged on rows held out at random, without a reference: what the studies compare between schemes. ``step_errors``
    judges one table by itself.
    """
    source, target = points_Pk[:-step], points_Pk[step:]
    generator = torch.Generator().manual_seed(0)
    linear = rotated = 0.0
    square = float(points_Pk.square().sum(1).mean())
    for _ in range(splits):
        order = torch.randperm(len(source), generator=generator)
        fit, held = order[len(order) // 4 :], order[: len(order) // 4]
        scale = max(float(target[held].square().sum()), 1e-9 * square)
        free = torch.linalg.lstsq(source[fit], target[fit]).solution
        u, _, vt = torch.linalg.svd(source[fit].T @ target[fit])
        linear += float((source[held] @ free - target[held]).square().sum() / scale)
        rotated += float((source[held] @ (u @ vt) - target[held]).square().sum() / scale)
    return linear / splits, rotated / splits
