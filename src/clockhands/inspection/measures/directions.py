"""Do words and positions share directions?"""

from __future__ import annotations

import math
from typing import Any

import torch

from clockhands.findings import Figure, Finding, Light, Panel, Reference, Table
from clockhands.inspection.drawing import mark
from clockhands.inspection.estimators.intervals import compute_central_range, jackknife
from clockhands.inspection.estimators.matrix_statistics import compute_covariance, count_leading
from clockhands.inspection.measures.measure import INPUT, TEXT, Measure
from clockhands.inspection.reading.capture import WITHOUT_FIRST
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.subject.tables import Tables
from clockhands.shapes import Float, Int, Tensor


def compute_overlap(words_DD: Float[Tensor, "D D"], places_DD: Float[Tensor, "D D"]) -> tuple[float, float, float]:
    """The overlap of two covariances, and mean and standard deviation of it under random rotations."""
    width = len(words_DD)
    norms = float(words_DD.norm() * places_DD.norm())
    value = float((words_DD * places_DD).sum()) / norms
    traces = [float(matrix.trace()) for matrix in (words_DD, places_DD)]
    free = [
        float(matrix.square().sum()) - trace**2 / width
        for matrix, trace in zip((words_DD, places_DD), traces, strict=True)
    ]
    spread = math.sqrt(2 * max(free[0], 0.0) * max(free[1], 0.0) / ((width - 1) * (width + 2)))
    return value, traces[0] * traces[1] / width / norms, max(spread / norms, 1e-12)


def principal_angles(first_Dk: Tensor, second_Dk: Tensor) -> Tensor:
    """Angles in degrees between two subspaces given by orthonormal columns, smallest first."""
    return torch.linalg.svdvals(first_Dk.T @ second_Dk).clamp(max=1).acos().rad2deg()


def subspace(matrix_DD: Float[Tensor, "D D"], share: float) -> Tensor:
    """The leading eigenvectors that hold this share of a covariance."""
    values, vectors = torch.linalg.eigh(matrix_DD)
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    return vectors[:, : count_leading(values, share)]


class Directions(Measure):
    """The overlap of the two covariances against random rotations, and truncated principal angles."""

    name = "directions"
    question = "Do words and positions share directions?"
    references = ("random rotations",)
    method = (
        "Overlap = tr(C_w C_p) / (‖C_w‖ ‖C_p‖), the cosine between the covariance of the token rows (weighted by the "
        "text) and that of the position rows: 0 if they live in orthogonal subspaces, 1 if they vary alike. Random "
        "rotations: C_p turned by a uniformly random rotation of the d dimensions; its mean is tr C_w tr C_p / d and "
        "its variance 2‖C_w°‖²‖C_p°‖² / ((d−1)(d+2)), C° being C without its trace, both divided by the norms. No "
        "threshold enters. The principal angles in the table need two: the subspaces hold 90 % of the words' and 95 % "
        "of the positions' variance; without truncation the smallest angle is always 0°; beside them those of random "
        "subspaces of the same sizes. Interval of the overlap: jackknife over ten groups of texts." + WITHOUT_FIRST
    )
    source = "the RV coefficient of Escoufier 1973; its moments under random rotations follow from Haar measure on O(d)"
    group = INPUT
    rests_on = (*TEXT, "width")

    def run(self, reading: Reading) -> Finding:
        subject, capture = reading.subject, reading.capture
        tables = subject.read_tables()
        if tables is None:
            return self.skip(subject.explain_absence("There is no position table at the input."))
        if subject.concatenates:
            return self.skip("Words and positions are concatenated: they cannot share directions.")
        ids_NT = capture.ids_NT[:, capture.counted_T]
        rows_TD = tables.positions_ND[: capture.length][capture.counted_T]
        words, places = _word_covariance(tables, ids_NT), compute_covariance(rows_TD)
        for what, matrix, rows in (
            ("position rows", places, rows_TD),
            ("token rows of the text", words, tables.tokens_VD),
        ):
            if float(matrix.trace()) <= 1e-12 * float(rows.double().square().sum(-1).max()):
                return self.skip(f"All {what} are equal, so that they have no directions to share.")
        value, mean, spread = compute_overlap(words, places)
        low, high = jackknife(ids_NT, lambda kept: compute_overlap(_word_covariance(tables, kept), places)[0])
        z = (value - mean) / spread
        table, angle, chance = _angles(words, places)
        light, comment = _judge(z)
        return self.finding(
            f"Overlap {value:.3f} (95 % interval {low:.3f} to {high:.3f}) against {mean:.3f} ± {spread:.3f} for random "
            f"rotations (z = {z:+.1f}): {comment}. Smallest angle of the truncated subspaces {angle:.0f}° against "
            f"{chance:.0f}° for random ones.",
            value,
            interval=(low, high),
            references=(Reference("random rotations", mean, (mean - 1.96 * spread, mean + 1.96 * spread)),),
            light=light,
            table=table,
            figure=_figure(value, mean, spread),
            details={"z": z},
        )


def _judge(z: float) -> tuple[Light, str]:
    if z < -2:
        return "good", "words and positions are more nearly orthogonal than chance"
    return ("warn", "words and positions share directions") if z > 2 else ("info", "no more and no less than chance")


def _word_covariance(tables: Tables, ids_NT: Int[Tensor, "N T"]) -> Float[Tensor, "D D"]:
    ids, counts = torch.unique(ids_NT, return_counts=True)
    return compute_covariance(tables.tokens_VD[ids], counts)


def _angles(words: Tensor, places: Tensor, draws: int = 20) -> tuple[Table, float, float]:
    """Smallest and median truncated angle beside those of random subspaces."""
    first, second = subspace(words, 0.9), subspace(places, 0.95)
    angles = principal_angles(first, second)
    generator = torch.Generator().manual_seed(0)
    chance = torch.stack(
        [principal_angles(first, _random_like(second, generator))[[0, len(angles) // 2]] for _ in range(draws)]
    )
    rows: list[tuple[Any, ...]] = []
    for name, found, drawn in (
        ("smallest", angles[0], chance[:, 0]),
        ("median", angles[len(angles) // 2], chance[:, 1]),
    ):
        rows.append((f"{name} angle (degrees)", found, drawn.mean(), *compute_central_range(drawn)))
    rows.append(("dimensions of the words' subspace", first.shape[1], None, None, None))
    rows.append(("dimensions of the positions' subspace", second.shape[1], None, None, None))
    table = Table.of(("quantity", "value", "by chance", "chance low", "chance high"), rows)
    return table, float(angles[0]), float(chance[:, 0].mean())


def _random_like(basis_Dk: Tensor, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(basis_Dk.shape, generator=generator, dtype=basis_Dk.dtype)).Q


def _figure(value: float, mean: float, spread: float) -> Figure:
    x = torch.linspace(min(value, mean - 4 * spread), max(value, mean + 4 * spread), 200)
    density = torch.exp(-0.5 * ((x - mean) / spread) ** 2)
    return Figure(
        (
            Panel(
                (
                    mark("line", x, density, label="random rotations", emphasis="reference"),
                    mark("vline", (value,), label="this model", emphasis="main"),
                ),
                xlabel="overlap of the two covariances",
                ylabel="normal density of random rotations",
            ),
        ),
        height=0.4,
    )
