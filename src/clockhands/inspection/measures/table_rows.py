"""The rows of the position table at the input: how similar they are, and whether a step along them is one map.

In names of tensors ``N`` are rows of the table, ``s`` the stretches of rows that are left out, ``k`` components.
"""

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
from clockhands.inspection.measures.measure import INPUT_HEADING, Measure
from clockhands.inspection.number_format import format_decimal, format_percent, format_percent_range
from clockhands.inspection.reading.reading import Reading
from clockhands.models.subject import Subject
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
    """Held-out errors of four predictions of the row ``step`` positions later, for each stretch that was left out.

    ``by_stretch_s4`` are mean squared errors over the mean squared length, in the columns ``LINEAR``, ``ROTATION``,
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

        Of the intervals of the two references it is the one whose lower end is lower: where that is above zero, the map
        beats both. ``column`` is ``LINEAR`` or ``ROTATION``.
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

    ``rows_ND`` is a table in float64 with at least four times as many rows as the ``step``.
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


def measure_random_split(rows_ND: Float[Tensor, "N D"]) -> tuple[float, float]:
    """Return the errors of the best linear map and of the best rotation from each row to the next.

    They are relative to the squared length of the rows held out, a quarter at random, in the leading principal
    components (99 % of the variance, at most ten), and means over ``RANDOM_SPLITS`` splits. A rotation may include a
    reflection. The studies compare these errors between schemes, so that no reference is needed; ``measure_step``
    judges one table by itself.
    """
    u, s, _ = torch.linalg.svd(rows_ND - rows_ND.mean(0), full_matrices=False)
    count = min(10, count_leading(s.square(), 0.99))
    points_Nk = u[:, :count] * s[:count]
    source, target = points_Nk[:-1], points_Nk[1:]
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


DEFAULT_ROWS = 256
"""Rows that are read unless a measure asks for more: those of the positions that most texts reach."""
FEWEST_ROWS = 16
"""Rows, besides row 0, that a table needs to be measured."""


def compute_cosines(rows_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N N"]:
    """Return the cosine of every pair of rows, as they are."""
    unit_ND = rows_ND / rows_ND.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return unit_ND @ unit_ND.T


def read_rows(subject: Subject, most: int = DEFAULT_ROWS) -> Float[Tensor, "N D"] | str:
    """Return at most ``most`` rows of the table at the input, from position 1 on; or why there is nothing to measure.

    They are in float64, scaled as the model scales them before it adds them.
    """
    tables = subject.read_tables()
    if tables is None:
        return subject.explain_missing_table("There is no position table at the input.")
    count = len(tables.positions_ND)
    if count <= FEWEST_ROWS:
        size = "1 row" if count == 1 else f"{count} rows"
        return f"The position table has {size}; {FEWEST_ROWS + 1} are needed to measure this."
    rows_ND = tables.positions_ND[1 : most + 1].double()
    if float((rows_ND - rows_ND.mean(0)).norm()) <= 1e-9 * float(rows_ND.norm()):
        return "All position rows are equal: this table does not tell one position from another."
    return rows_ND


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
        added_ND = read_rows(reading.subject)
        if isinstance(added_ND, str):
            return self.skip(added_ND)
        rows_ND = added_ND - added_ND.mean(0)
        cosines_NN, generator = compute_cosines(rows_ND), torch.Generator().manual_seed(0)
        shuffles = (rows_ND[torch.randperm(len(rows_ND), generator=generator)] for _ in range(SHUFFLES))
        chance = torch.tensor([compute_toeplitz_r2(compute_cosines(shuffled)) for shuffled in shuffles])
        low, high = compute_central_range(chance)
        value, mean_cosines_R = compute_toeplitz_r2(cosines_NN), average_diagonals(cosines_NN)
        half = mean_cosines_R[: max(2, len(mean_cosines_R) // 2)]
        varies = float(half.max() - half.min()) >= 1e-9
        monotonicity = _correlate_with_order(half) if varies else 0.0
        neighbours, share = format_decimal(float(mean_cosines_R[0])), format_percent(value)
        explained = f"Distance alone explains {share} of the variance of the similarities"
        if value <= high:
            explained = f"Distance explains the similarities no better than by chance: {share} of their variance"
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
            f"{_describe_rows(added_ND)}",
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


def _describe_rows(rows_ND: Float[Tensor, "N D"]) -> str:
    """Say in how few directions most of a table lies, and how many of its rows are equal; empty where neither is so."""
    room, said = min(len(rows_ND) - 1, rows_ND.shape[1]), ""
    count = count_leading(torch.linalg.svdvals(rows_ND - rows_ND.mean(0)).square(), RANK_SHARE)
    if count <= LOW_RANK * room:
        directions = "1 direction" if count == 1 else f"{count} directions"
        share = format_percent(RANK_SHARE)
        said = f" The table has a low rank: {share} of its variance lies in {directions} of {room}."
    counts = rows_ND.unique(dim=0, return_counts=True)[1]
    equal = int(counts[counts > 1].sum())
    if equal:
        said += f" {equal} of the {len(rows_ND)} rows are equal to another one: they do not tell these positions apart."
    return said


def _describe_trend(correlation: float) -> str:
    """Say how similarity goes with distance, from their rank correlation."""
    if correlation < -0.9:
        return "falls steadily"
    trend = "falls on the whole" if correlation < -0.3 else "does not fall on the whole"
    return f"{trend} (ρ = {format_decimal(correlation)})"


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
        added_ND = read_rows(reading.subject)
        if isinstance(added_ND, str):
            return self.skip(added_ND)
        rows_ND = added_ND - added_ND.mean(0)
        errors = [measure_step(rows_ND, k) for k in STEPS if 4 * k <= len(rows_ND)]
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


def _correlate_with_order(values_R: Float[Tensor, " R"]) -> float:
    """Return Spearman's correlation of values with their place; equal ones share the mean of their ranks."""
    # SciPy has it, and importing its statistics takes longer than the rest of this measure.
    difference_RR = values_R[:, None] - values_R
    ranks_R = (difference_RR > 0).sum(1) + (difference_RR == 0).sum(1) / 2
    return float(torch.corrcoef(torch.stack([torch.arange(len(values_R)), ranks_R]).double())[0, 1])
