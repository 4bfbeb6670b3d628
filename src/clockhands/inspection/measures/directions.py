"""Do tokens and positions share directions, at the input and in what QᵀK connects?

In names and annotations of tensors ``k`` and ``n`` are the vectors of two bases, ``a`` the angles between them.
"""

from __future__ import annotations

import math

import torch

from clockhands.findings import Figure, Finding, Light, Panel, Reference, Table, choose_digits, make_mark
from clockhands.inspection.estimators.intervals import compute_central_range, jackknife
from clockhands.inspection.estimators.matrix_statistics import compute_covariance, count_leading
from clockhands.inspection.measures.measure import INPUT_HEADING, WINDOWS, Measure
from clockhands.inspection.number_format import format_decimal
from clockhands.inspection.reading.capture import FIRST_POSITION_NOTE
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.reading import Reading
from clockhands.models.input_table import Tables
from clockhands.shapes import Bool, Float, Int, Tensor

TOKEN_SHARE, POSITION_SHARE = 0.9, 0.95
"""Shares of the variance of tokens and of positions that the subspaces hold whose principal angles are computed."""
SUBSPACES = 20
"""Random subspaces that the angles are compared with."""


def _compute_overlap(tokens_DD: Float[Tensor, "D D"], positions_DD: Float[Tensor, "D D"]) -> tuple[float, float, float]:
    """Return the overlap of two covariances, and its mean and standard deviation under random rotations.

    The overlap is tr(A B) / (‖A‖ ‖B‖), the RV coefficient (Escoufier 1973). Under Haar measure on O(D), tr(A B) has
    mean tr A tr B / D and variance 2‖A°‖²‖B°‖² / ((D−1)(D+2)), with A° = A − (tr A / D) I. NaN where one is zero.
    """
    width = len(tokens_DD)
    norms = float(tokens_DD.norm() * positions_DD.norm())
    if not norms:
        return math.nan, math.nan, math.nan
    overlap = float((tokens_DD * positions_DD).sum()) / norms
    traces = [float(matrix.trace()) for matrix in (tokens_DD, positions_DD)]
    traceless_squares = [
        float(matrix.square().sum()) - trace**2 / width
        for matrix, trace in zip((tokens_DD, positions_DD), traces, strict=True)
    ]
    products = max(traceless_squares[0], 0.0) * max(traceless_squares[1], 0.0)
    spread = math.sqrt(2 * products / ((width - 1) * (width + 2)))
    return overlap, traces[0] * traces[1] / width / norms, max(spread / norms, 1e-12)


def find_subspace(covariance_DD: Float[Tensor, "D D"], share: float) -> Float[Tensor, "D k"]:
    """Return the leading eigenvectors of a covariance that together hold this share of its trace."""
    values, vectors = torch.linalg.eigh(covariance_DD)
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    return vectors[:, : count_leading(values, share)]


class Directions(Measure):
    """The overlap of the covariances of tokens and positions against random rotations, and principal angles."""

    name = "directions"
    question = "Do tokens and positions share directions?"
    references = ("random rotations",)
    method = (
        "Overlap = tr(C_w C_p) / (‖C_w‖ ‖C_p‖), the cosine between the covariance C_w of the token rows (weighted by "
        "the text) and that of the position rows, C_p: 0 if they live in orthogonal subspaces, 1 if they vary alike. "
        "Random rotations: C_p rotated by a uniformly random rotation of the d dimensions; tr(C_w C_p) then has mean "
        "tr C_w tr C_p / d and variance 2‖C_w°‖²‖C_p°‖² / ((d−1)(d+2)), C° being C − (tr C / d) I. "
        "No threshold enters the overlap. The principal angles in the table need two: the subspaces hold 90 % of the "
        "variance of the token rows and 95 % of that of the position rows, because without truncation the smallest "
        "angle is always 0°; beside them stand those of random subspaces of the same sizes. Interval of the overlap: "
        "jackknife over ten groups of texts." + FIRST_POSITION_NOTE
    )
    source = "the RV coefficient of Escoufier 1973; its moments under random rotations follow from Haar measure on O(d)"
    heading = INPUT_HEADING
    by_hand = ("overlap",)
    rests_on = (*WINDOWS, "width")

    def run(self, reading: Reading) -> Finding:
        """Measure the tables at the input; the value is the overlap."""
        subject, capture = reading.subject, reading.capture
        tables = subject.read_tables(capture.length)
        if tables is None:
            return self.skip(subject.explain_missing_table("There is no position table at the input."))
        if subject.concatenated:
            return self.skip("Tokens and positions are concatenated: they cannot share directions.")
        ids_NT = capture.ids_NT[:, capture.measured_T]
        rows_TD = tables.positions_ND[: capture.length][capture.measured_T]
        tokens_DD, positions_DD = _compute_token_covariance(tables, ids_NT), compute_covariance(rows_TD)
        for name, covariance_DD, rows in (
            ("position rows", positions_DD, rows_TD),
            ("token rows of the text", tokens_DD, tables.tokens_VD),
        ):
            if float(covariance_DD.trace()) <= 1e-12 * float(rows.double().square().sum(-1).max()):
                return self.skip(f"All {name} are equal, so that they have no directions to share.")
        overlap, mean, spread = _compute_overlap(tokens_DD, positions_DD)
        low, high = jackknife(
            ids_NT, lambda some_NT: _compute_overlap(_compute_token_covariance(tables, some_NT), positions_DD)[0]
        )
        if math.isnan(low):
            return self.skip("Nearly all of the text is one token, so that an interval of its directions is not known.")
        low, high = max(low, 0.0), min(high, 1.0)
        z = (overlap - mean) / spread
        table, angle, chance = _compare_angles(tokens_DD, positions_DD)
        light, comment = _judge(z, low <= mean <= high)
        digits = choose_digits(low, high, 3)
        return self.make_finding(
            f"The overlap is {overlap:.{digits}f} (95 % interval {low:.{digits}f} to {high:.{digits}f}); for random "
            f"rotations it is {mean:.3f} with a standard deviation of {spread:.3f} "
            f"(z = {format_decimal(z, plus=True)}): {comment}. The smallest angle between the subspaces of most of the "
            f"variance of tokens and of positions is {angle:.0f}°, between random ones of these sizes {chance:.0f}°.",
            overlap,
            interval=(low, high),
            references=(Reference("random rotations", mean, (mean - 1.96 * spread, mean + 1.96 * spread)),),
            light=light,
            table=table,
            figure=_draw_figure(overlap, mean, spread),
            details={"z": z},
        )


def _draw_figure(overlap: float, mean: float, spread: float) -> Figure:
    """Draw the overlap beside random rotations, by their normal density divided by its maximum."""
    x = torch.linspace(min(overlap, mean - 4 * spread), max(overlap, mean + 4 * spread), 200)
    panel = Panel(
        (
            make_mark(
                "line", x, torch.exp(-0.5 * ((x - mean) / spread) ** 2), label="random rotations", emphasis="reference"
            ),
            make_mark("vline", (overlap,), label="this model", emphasis="main"),
        ),
        xlabel="overlap of the two covariances",
        ylabel="random rotations: normal density / its maximum",
    )
    return Figure((panel,), height=0.4, title="Overlap of the directions of tokens and positions")


def _judge(z: float, reaches_chance: bool) -> tuple[Light, str]:
    """Return the light and the comment for an overlap that lies z standard deviations from that of chance.

    ``reaches_chance``: whether the interval of the overlap over texts holds the mean of chance.
    """
    if abs(z) <= 2 or reaches_chance:
        return "info", "whether they share more directions than by chance, or fewer, is undecided"
    if z < 0:
        return "good", "tokens and positions are more nearly orthogonal than by chance"
    return "warn", "tokens and positions share more directions than by chance"


def _compute_token_covariance(tables: Tables, ids_NT: Int[Tensor, "N T"]) -> Float[Tensor, "D D"]:
    """Return the covariance of the token rows of a text, each as often as its token occurs."""
    ids, counts = torch.unique(ids_NT, return_counts=True)
    return compute_covariance(tables.tokens_VD[ids], counts)


def _compare_angles(tokens_DD: Tensor, positions_DD: Tensor) -> tuple[Table, float, float]:
    """Return a table of the smallest and the median angle beside random ones; the smallest, and its mean by chance."""
    first, second = find_subspace(tokens_DD, TOKEN_SHARE), find_subspace(positions_DD, POSITION_SHARE)

    def compute_angles(basis_Dn: Float[Tensor, "D n"]) -> Float[Tensor, " a"]:
        """Return the angles in degrees between the tokens' subspace and another, the smallest first."""
        return torch.linalg.svdvals(first.T @ basis_Dn).clamp(max=1).acos().rad2deg()

    angles = compute_angles(second)
    middle = len(angles) // 2
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(second.shape, generator=generator, dtype=second.dtype) for _ in range(SUBSPACES))
    chance = torch.stack([compute_angles(torch.linalg.qr(rows).Q)[[0, middle]] for rows in drawn])
    rows: list[tuple[str | float | Tensor | None, ...]] = []
    for name, angle, random in (("smallest", angles[0], chance[:, 0]), ("median", angles[middle], chance[:, 1])):
        rows.append((f"{name} angle (degrees)", angle, random.mean(), *compute_central_range(random)))
    # Saved tables keep this name, in which a token is a word.
    rows.append(("dimensions of the words' subspace", first.shape[1], None, None, None))
    rows.append(("dimensions of the positions' subspace", second.shape[1], None, None, None))
    table = Table.of(("quantity", "value", "by chance", "chance low", "chance high"), rows)
    return table, float(angles[0]), float(chance[:, 0].mean())


POSITION_PART = 0.9
"""Of the variance of positions: as many directions as hold it are called the positions'."""
LEAST_POSITION = 0.01
"""Where positions have a smaller share of the variance of the states, their directions are those of noise."""


def _compute_mixed_share(
    query_HD: Float[Tensor, "H D"], key_HD: Float[Tensor, "H D"], basis_DK: Float[Tensor, "D K"]
) -> tuple[float, float]:
    """Return the share of ‖M‖² of a head's M = QᵀK that connects a subspace with what is outside it, and its reference.

    The reference is what that share would be if which directions M reads from on its left had nothing to do with those
    on its right: r (1 − c) + c (1 − r), where r and c are the shares of ‖M‖² inside the subspace on either side.
    """
    matrix = query_HD.T @ key_HD
    whole = matrix.square().sum()
    left, right = (basis_DK.T @ matrix).square().sum() / whole, (matrix @ basis_DK).square().sum() / whole
    both = (basis_DK.T @ matrix @ basis_DK).square().sum() / whole
    return float(left + right - 2 * both), float(left * (1 - right) + right * (1 - left))


def measure_mixed_share(layer: Layer, measured_T: Bool[Tensor, " T"]) -> tuple[float, float, int] | None:
    """Return the share of ‖M‖² that joins the positions' directions with others, the same by chance, and their number.

    Shares are means over heads; None where positions have no directions there, or queries a norm.

    What positions contribute to a state is its mean over texts, whose covariance is lessened by what chance leaves of
    the tokens in a mean over so many texts. Of a layer that rotates, M is that of two states at the first position.
    """
    if layer.needs_freezing:
        return None
    states_NTD = layer.inputs_NTD[:, measured_T].double()
    mean_TD = states_NTD.mean(0)
    tokens_DD = compute_covariance((states_NTD - mean_TD).flatten(0, 1))
    positions_DD = compute_covariance(mean_TD) - tokens_DD / len(states_NTD)
    if float(positions_DD.trace()) < LEAST_POSITION * float(tokens_DD.trace()):
        return None
    basis_DK = find_subspace(positions_DD, POSITION_PART)
    query_HKD, key_HKD = _read_projections(layer)
    pairs = [_compute_mixed_share(q, k, basis_DK) for q, k in zip(query_HKD, key_HKD, strict=True)]
    share, by_chance = torch.tensor(pairs, dtype=torch.float64).mean(0).tolist()
    return share, by_chance, basis_DK.shape[1]


def _read_projections(layer: Layer) -> tuple[Float[Tensor, "H K D"], Float[Tensor, "H K D"]]:
    """Return what each head multiplies a state with for its query and key at the first position, without biases.

    It is read from the layer itself, which is run on unit vectors and on zero, so that it is the same for every model
    whose queries and keys are affine in the state.
    """
    width, length = layer.inputs_NTD.shape[-1], layer.inputs_NTD.shape[1]
    zero = _read_first(layer, layer.inputs_NTD.new_zeros(1, length, width))
    units = torch.eye(width, dtype=layer.inputs_NTD.dtype)
    runs = [_read_first(layer, some[:, None].expand(-1, length, -1)) for some in units.split(layer.batch)]
    query_DHK, key_DHK = (torch.cat(rows) - of_zero for *rows, of_zero in zip(*runs, zero, strict=True))
    return query_DHK.permute(1, 2, 0), key_DHK.permute(1, 2, 0)


def _read_first(layer: Layer, x_NTD: Float[Tensor, "N T D"]) -> tuple[Float[Tensor, "N H K"], Float[Tensor, "N H K"]]:
    """Return queries and keys at the first position, as copies: the logits of a run, which are large, are let go."""
    computed = layer.replay(x_NTD)
    return computed.q_BHSK[:, :, 0].double().cpu().clone(), computed.k_BHTK[:, :, 0].double().cpu().clone()
