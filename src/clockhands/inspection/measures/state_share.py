"""How much of the hidden state is position? Two-way analysis of variance over texts."""

from __future__ import annotations

import torch

from clockhands.findings import SHARE, Finding, Table, draw_columns
from clockhands.inspection.estimators.intervals import compute_jackknife_interval
from clockhands.inspection.measures.measure import LAYERS_HEADING, TASK, Measure, make_untrained_reference
from clockhands.inspection.number_format import format_percent, format_percent_range
from clockhands.inspection.reading.capture import FIRST_POSITION_NOTE, Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor


def estimate_position_share(states_NTD: Float[Tensor, "N T D"]) -> float:
    """Estimate the share of the variance of states that is due to position, without the bias of chance.

    The model is state = mean + text + position + interaction, and the share (SS_position − (T−1)·MS_interaction) /
    SS_total. Its numerator is 0 on average where position adds nothing, whatever the means of the texts are, which are
    an effect of their own. Needs N ≥ 2 texts of T positions; returns 0 for states that are all equal.

    Source: the analysis of variance of Song & Zhong 2023 with its bias removed.
    """
    states = _centre(states_NTD)
    sums = (states.sum(0), states.sum(1).square().sum(), states.square().sum())
    return _compute_share(len(states), *sums)


def _centre(states_NTD: Tensor) -> Tensor:
    """Subtract the mean of all states, so that sums of squares do not cancel; in float64."""
    return states_NTD.double() - states_NTD.double().mean((0, 1))


def _compute_share(num_texts: int, sum_TD: Tensor, text_squares: Tensor, squares: Tensor) -> float:
    """Compute the share from sums over the texts: of states, of the squared sum of each text, and of squares."""
    length = len(sum_TD)
    mean_squares = float(sum_TD.sum(0).square().sum()) / (num_texts * length)
    total = float(squares) - mean_squares
    position = float(sum_TD.square().sum()) / num_texts - mean_squares
    text = float(text_squares) / length - mean_squares
    # (T−1) times the mean square of the interaction, which has (T−1)(N−1) degrees of freedom
    chance = (total - position - text) / (num_texts - 1)
    return (position - chance) / max(total, 1e-30)


def jackknife_position_share(states_NTD: Float[Tensor, "N T D"]) -> tuple[float, float] | None:
    """Return the 95 % interval of ``estimate_position_share``: Student's t over the shares without each text.

    None for fewer than three texts, since a share needs two. Source: Tukey 1958.
    """
    if len(states_NTD) < 3:
        return None
    states = _centre(states_NTD)
    sum_TD, text_squares_N, squares_N = states.sum(0), states.sum(1).square().sum(-1), states.square().sum((1, 2))
    shares = [
        _compute_share(len(states) - 1, sum_TD - text_TD, text_squares_N.sum() - text_square, squares_N.sum() - square)
        for text_TD, text_square, square in zip(states, text_squares_N, squares_N, strict=True)
    ]
    return compute_jackknife_interval(estimate_position_share(states), torch.tensor(shares, dtype=torch.float64))


def compute_stable_rank(states_NTD: Float[Tensor, "N T D"]) -> float:
    """Return Σσ² / σ₁² of the mean state of each position, centred: how many directions these means use.

    σ are the singular values. Source: the stable rank of Rudelson & Vershynin 2007.
    """
    position_TD = states_NTD.double().mean(0)
    values = torch.linalg.svdvals(position_TD - position_TD.mean(0)).square()
    return float(values.sum() / values[0].clamp_min(1e-30))


class StateShare(Measure):
    """The share of position in the variance of the hidden states of every layer."""

    name = "survival.share"
    question = "How much of the hidden state is position?"
    references = ("untrained",)
    method = (
        "Two-way analysis of variance: h(text, t) = μ + text + pos_t + interaction. The share is (SS_pos − "
        "(T−1)·MS_interaction) / SS_total, from which the part that chance puts into SS_pos is already taken; without "
        "that a model with no position at all would score one over the number of texts. Interval: jackknife over the "
        "texts, Student's t (Tukey 1958). Untrained: fresh weights." + FIRST_POSITION_NOTE
    )
    source = "Song & Zhong 2023, with the bias removed"
    heading = LAYERS_HEADING
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        """Measure the states after every layer; the value is the share after the last."""
        capture = reading.capture
        shares = _estimate_shares(capture)
        ranks = [compute_stable_rank(hidden[:, capture.measured_T]) for hidden in capture.hidden]
        untrained = _estimate_shares(reading.control.capture) if reading.control else None
        interval = jackknife_position_share(capture.hidden[-1][:, capture.measured_T])
        return self.make_finding(
            _describe(shares, interval, untrained),
            shares[-1],
            unit=SHARE,
            interval=interval,
            references=make_untrained_reference(untrained[-1] if untrained is not None else None),
            light="info",
            table=Table.of(
                ("layer", "share", "stable rank of the mean positions", "untrained"),
                [
                    (layer, share, rank, untrained[layer] if untrained else None)
                    for layer, (share, rank) in enumerate(zip(shares, ranks, strict=True))
                ],
            ),
            figure=draw_columns(
                "line",
                range(len(shares)),
                {"this model": shares, "untrained": untrained},
                title="How much of the states position makes up, by layer",
                main="this model",
                reference=("untrained",),
                xlabel="layer (0: embedding)",
                ylabel="share of variance",
            ),
        )


def _estimate_shares(capture: Capture) -> list[float]:
    """Estimate the share of position after every layer, at ordinary tokens without position 0.

    The states of one layer are read at a time, since they may lie on the disk.
    """
    return [estimate_position_share(hidden[:, capture.measured_T]) for hidden in capture.hidden]


def _describe(shares: list[float], interval: tuple[float, float] | None, untrained: list[float] | None) -> str:
    """Say what position accounts for; after the last layer it is undecided where the interval holds 0."""
    notes = [f"95 % interval {format_percent_range(*interval)}"] if interval else []
    notes += [f"untrained {format_percent(untrained[0])} and {format_percent(untrained[-1])}"] if untrained else []
    note = f" ({'; '.join(notes)})" if notes else ""
    peak = max(range(len(shares)), key=shares.__getitem__)
    undecided = (
        " Whether it accounts for any after the last layer is undecided." if interval and interval[0] <= 0 else ""
    )
    return (
        f"Position accounts for {format_percent(shares[0])} of the variance of the states after the embedding and for "
        f"{format_percent(shares[-1])} after the last layer{note}; the largest share is "
        f"{format_percent(shares[peak])}, after {f'layer {peak}' if peak else 'the embedding'}.{undecided}"
    )
