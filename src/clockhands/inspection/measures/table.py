"""The position table as such: similarity by distance, and what a step along it does."""

from __future__ import annotations

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import heatmap, level, mark, percent, skip
from clockhands.inspection.numbers import interval, off_diagonal_means, toeplitz_share
from clockhands.inspection.subject import Subject
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
    "In the leading principal components of the table (at most ten) the best linear map and the best rotation "
    "(orthogonal Procrustes) from p_t to p_t+k are fitted on three quarters of the rows and judged on the rest: "
    "mean squared error over mean squared length, over five splits. 0 is a perfect clock; 1 is no better than "
    "guessing the mean. In all d dimensions a map fits any table of fewer than d rows, so nothing would be "
    "learnt. Null: rows in random order."
)


def rows_in_use(subject: Subject) -> Float[Tensor, "P D"] | None:
    """Position rows from the second on, centred; None where there is no table, or too short a one."""
    tables = subject.tables()
    if tables is None or len(tables.positions_PD) < 17:
        return None
    rows = tables.positions_PD[1 : MOST_ROWS + 1].double()
    rows = rows - rows.mean(0)
    return rows if float(rows.norm()) > 0 else None


def _shuffled(rows: Tensor, generator: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator)]


def _cosines(rows: Tensor) -> Tensor:
    unit = rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return unit @ unit.T


def similarity(subject: Subject) -> Finding:
    """How the cosine of two positions depends on their distance."""
    rows = rows_in_use(subject)
    if rows is None:
        return skip("table.similarity", SIMILARITY, subject.absent("There is no position table to look at."))
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

    half = by_distance_R[: max(2, len(by_distance_R) // 2)].tolist()
    return float(spearmanr(range(len(half)), half).statistic)


def symmetry(gram_TT: Float[Tensor, "T T"], reach: int = 16) -> float:
    """Correlation over t and m of the cosines m ahead and m behind: 1 if looking either way is the same."""
    size = len(gram_TT)
    reach = min(reach, (size - 2) // 2)
    inner = torch.arange(reach, size - reach)
    ahead = torch.stack([gram_TT[inner, inner + m] for m in range(1, reach + 1)])
    behind = torch.stack([gram_TT[inner, inner - m] for m in range(1, reach + 1)])
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


def shift(subject: Subject) -> Finding:
    """Whether one linear map, and a rotation, carries every position to the one k later."""
    rows = rows_in_use(subject)
    if rows is None:
        return skip("table.shift", SHIFT, subject.absent("There is no position table to look at."))
    leading = principal(rows)
    steps = [k for k in STEPS if len(leading) - k >= 4 * leading.shape[1]] or [1]
    errors = torch.tensor([shift_errors(leading, k) for k in steps])
    shuffled = _shuffled(leading, torch.Generator().manual_seed(0))
    chance = torch.tensor([shift_errors(shuffled, k)[1] for k in steps])
    turn = float(errors[0, 1])
    return Finding(
        name="table.shift",
        question=SHIFT,
        verdict=_shift_verdict(leading.shape[1], steps, errors, float(chance[0])),
        value=turn,
        references=(Reference("rows shuffled", float(chance[0])),),
        light="good" if turn < 0.1 else "info",
        table=Table.of(
            ("step", "error of linear map", "error of rotation", "shuffled"),
            [(k, *errors[i], chance[i]) for i, k in enumerate(steps)],
        ),
        figure=_shift_figure(steps, errors, chance),
        method=SHIFT_METHOD,
        source="Vaswani et al. 2017, section 3.5: PE(t+k) is a linear function of PE(t)",
    )


def _shift_verdict(components: int, steps: list[int], errors_s2: Tensor, chance: float) -> str:
    linear, turn = errors_s2[0].tolist()
    what, error = ("a rotation", turn) if turn < 2 * linear + 0.02 else ("a linear map", linear)
    further = f"; a step by {steps[-1]} up to {percent(float(errors_s2[-1, 1]))}" if len(steps) > 1 else ""
    return (
        f"In the {components} leading components a step by one is {what} up to an error of {percent(error)} "
        f"(shuffled {percent(chance)}){further}."
    )


def _shift_figure(steps: list[int], errors_s2: Tensor, chance_s: Tensor) -> Figure:
    lines = (
        mark("line", steps, errors_s2[:, 0], label="linear map"),
        mark("line", steps, errors_s2[:, 1], label="rotation", emphasis="main"),
        mark("line", steps, chance_s, label="rows shuffled", emphasis="null"),
    )
    return Figure((Panel(lines, xlabel="step k", ylabel="held-out error", xscale="log"),))


def principal(rows: Tensor, most: int = 10) -> Float[Tensor, "P k"]:
    """Coordinates in the leading principal components, as many as hold 99 % of the variance, at most ``most``."""
    u, s, _ = torch.linalg.svd(rows, full_matrices=False)
    held = int((s.square().cumsum(0) < 0.99 * s.square().sum()).sum()) + 1
    count = min(most, held)
    return u[:, :count] * s[:count]


def shift_errors(points_Pk: Float[Tensor, "P k"], step: int, splits: int = 5) -> tuple[float, float]:
    """Held-out relative errors of the best linear map and of the best rotation from p_t to p_t+step."""
    source, target = points_Pk[:-step], points_Pk[step:]
    generator = torch.Generator().manual_seed(0)
    linear = rotated = 0.0
    for _ in range(splits):
        order = torch.randperm(len(source), generator=generator)
        fit, held = order[len(order) // 4 :], order[: len(order) // 4]
        scale = target[held].square().sum()
        free = torch.linalg.lstsq(source[fit], target[fit]).solution
        u, _, vt = torch.linalg.svd(source[fit].T @ target[fit])
        linear += float((source[held] @ free - target[held]).square().sum() / scale)
        rotated += float((source[held] @ (u @ vt) - target[held]).square().sum() / scale)
    return linear / splits, rotated / splits
