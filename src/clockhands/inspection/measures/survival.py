"""Do positions, and tokens, survive through the layers? What probes read back, and the share of position in the states.

In names of tensors ``N`` are texts, ``n`` the random splits of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from clockhands.findings import SHARE, Finding, Reference, Table, draw_columns
from clockhands.inspection.estimators.intervals import bound_exactly, compute_jackknife_interval
from clockhands.inspection.estimators.probes import (
    CrossValidation,
    Ridge,
    compute_corrected_interval,
    find_nearest_row,
    fit_network_r2,
)
from clockhands.inspection.measures.measure import LAYERS_HEADING, TASK, Measure
from clockhands.inspection.number_format import format_estimate, format_percent
from clockhands.inspection.reading.capture import BATCH, FIRST_POSITION_NOTE, Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.models.subject import Subject
from clockhands.shapes import Float, Tensor

MOST_TEXTS = 48
"""Texts that probes are fitted and judged on: a probe that is fitted on more texts scores higher."""
MOST_JUDGED = 500
"""Tokens whose identity is read back, in each split."""
NETWORKS = 3
"""Splits on which a network is fitted."""


@dataclass(frozen=True)
class _ProbeScores:
    """What probes read back from the states after each layer, the embedding first: shares, the means over the splits.

    ``position_intervals`` are 95 % intervals, cut at 0 and 1, and exact where every position of every text is read
    back, or none. ``permuted_share`` is that of positions after the last layer, by a probe that was fitted on texts
    whose states are in random order.
    """

    position_shares: list[float]
    position_intervals: list[tuple[float, float]]
    token_shares: list[float]
    permuted_share: float
    cross_validation: CrossValidation


def probe_layers(subject: Subject, capture: Capture) -> _ProbeScores:
    """Read position and token back from the states after every layer, at ordinary tokens without position 0.

    Raises CheckpointError for a model without a token table.
    """
    splits = _draw_splits(capture)
    ids = capture.ids_NT[: splits.num_texts, capture.measured_T]
    types, labels = ids.unique(return_inverse=True)
    rows = subject.read_token_table()[types].float()
    rows = rows - rows.mean(0)
    indicators_NTT = torch.eye(ids.shape[1]).expand(len(ids), -1, -1)
    position_shares, intervals, token_shares = [], [], []
    for hidden in capture.hidden:
        states = hidden[: splits.num_texts, capture.measured_T].float()
        # Both probes read the same states, and what is solved for one serves the other: they are fitted as one.
        wanted, generator = torch.cat([indicators_NTT, rows[labels]], dim=-1), torch.Generator().manual_seed(0)
        hits, named = [], []
        for held_out, guess in Ridge(states, wanted, splits).predict():
            positions, vectors = guess.split([ids.shape[1], rows.shape[1]], dim=-1)
            hits.append(_count_hits(positions))
            # A token is read back if its own embedding is nearest to the one predicted.
            judged = torch.randperm(vectors.shape[0] * vectors.shape[1], generator=generator)[:MOST_JUDGED]
            nearest = find_nearest_row(vectors.flatten(0, 1)[judged], rows)
            named.append(float((nearest == labels[held_out].flatten()[judged]).float().mean()))
        position_shares.append(float(torch.tensor(hits).mean()))
        low, high = compute_corrected_interval(torch.tensor(hits), splits.held_out_ratio)
        intervals.append(bound_exactly((max(0.0, low), min(1.0, high)), position_shares[-1], splits.num_texts))
        token_shares.append(sum(named) / len(named))
    permuted_share = float(_probe_positions(states, splits, permuted=True).mean())
    return _ProbeScores(position_shares, intervals, token_shares, permuted_share, splits)


def _count_hits(guess_NTT: Float[Tensor, "N T T"]) -> float:
    """Return the share of the positions that are read back: of which the indicator is the largest."""
    return float((guess_NTT.argmax(-1) == torch.arange(guess_NTT.shape[1])).float().mean())


def _draw_splits(capture: Capture) -> CrossValidation:
    """Draw the splits of at most ``MOST_TEXTS`` texts; those that repeat each other stay on one side, unless all do."""
    return CrossValidation.draw(capture.repeats.groups_N[: min(capture.num_texts, MOST_TEXTS)])


def _probe_positions(
    states_NTD: Float[Tensor, "N T D"], splits: CrossValidation, *, permuted: bool = False
) -> Float[Tensor, " n"]:
    """Return the share of tokens whose position is read back exactly, for each of n splits.

    A ridge regression predicts one indicator for each of T positions from states in float32, and the largest is the
    position read back (Alain & Bengio 2016). ``permuted``: whether the states of the texts to fit on are in random
    order, which gives chance.
    """
    num_texts, length, _ = states_NTD.shape
    indicators_NTT = torch.eye(length).expand(num_texts, -1, -1)
    fit_NTD = None
    if permuted:
        generator = torch.Generator().manual_seed(0)
        fit_NTD = torch.stack([states_TD[torch.randperm(length, generator=generator)] for states_TD in states_NTD])
    predictions = Ridge(states_NTD, indicators_NTT, splits, fit_NTD).predict()
    return torch.tensor([_count_hits(guess_NTT) for _, guess_NTT in predictions])


def _probe_without_residuals(subject: Subject, capture: Capture) -> tuple[Float[Tensor, " n"], ...]:
    """Probe the positions of every layer, split by split, when no layer adds its input to its output.

    Empty for a model whose residual connections cannot be removed (any that is not of this project).
    """
    removal = subject.remove_residuals()
    if removal is None:
        return ()
    splits = _draw_splits(capture)
    with removal:
        batches = [
            subject.forward(capture.ids_NT[rows], **capture.make_forward_options(rows))
            for rows in torch.arange(splits.num_texts).split(BATCH)
        ]
    layers = (torch.cat(states)[:, capture.measured_T.to(states[0].device)] for states in zip(*batches, strict=True))
    return tuple(_probe_positions(states.float().cpu(), splits) for states in layers)


LEAST_LINEAR = 0.03
"""A network is tried where no layer's probe reads back this share of positions, or three times chance if that is
more."""


class Survival(Measure):
    """Position and token read back at every layer, with their controls."""

    name = "survival"
    question = "Do positions survive through the layers?"
    references = ("chance", "positions permuted", "untrained")
    method = (
        "Ridge regression from the hidden state to one indicator per position, fitted on about three quarters of the "
        "texts and judged on the rest, in ten random splits; exact hits count. Texts that repeat each other stay on "
        "one side, unless all texts do. At most 48 texts are used, whatever number is read, and as many of the "
        "untrained model: a probe that is fitted on more texts scores higher. Tokens: ridge regression to the token's "
        "input embedding, nearest by cosine among the tokens of the text. A random model usually keeps everything: a "
        "probe alone proves little. Permuted: the last layer, the positions of the texts that a probe is fitted on in "
        "another order. Where the linear probe finds nothing, a two-layer network gets the state of the last layer but "
        "one (of one layer, the last), less the mean state, and the log of that difference's length, for a model "
        "without positional encoding can hold the position in the length of its vectors. In models of this project the "
        "probe is repeated with all residual connections removed. Interval: Student's t over the splits, the variance "
        "corrected for their overlap (Nadeau & Bengio 2003), cut at 0 and 1; where every position of every text is "
        "read back, or none, the exact bound of Clopper & Pearson over the texts." + FIRST_POSITION_NOTE
    )
    source = "probes after Alain & Bengio 2016; the network after Haviv et al. 2022 and Chi et al. 2023"
    heading = LAYERS_HEADING
    by_hand = ("probe", "residual_removed")
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        """Probe every layer; the value is the share of positions read back after the last."""
        subject, capture = reading.subject, reading.capture
        trained, untrained = reading.with_control(lambda either: probe_layers(either.subject, either.capture))
        chance = 1 / int(capture.measured_T.sum())
        split_shares = _probe_without_residuals(subject, capture)
        without_residuals = [float(shares_n.mean()) for shares_n in split_shares]
        lows, highs = zip(*trained.position_intervals, strict=True)
        empty = [None] * len(trained.position_shares)
        columns: dict[str, Sequence[float | None]] = {  # saved tables keep these names, in which a token is a word
            "layer": range(len(trained.position_shares)),
            "position": trained.position_shares,
            "from": lows,
            "to": highs,
            "word": trained.token_shares,
            "position, untrained": untrained.position_shares if untrained else empty,
            "word, untrained": untrained.token_shares if untrained else empty,
            "position, no residuals": without_residuals or empty,
        }
        return self.make_finding(
            _describe(trained, untrained, chance)
            + _describe_network(trained, capture, chance)
            + _describe_without_residuals(split_shares, trained.cross_validation.held_out_ratio, chance),
            trained.position_shares[-1],
            untrained=untrained.position_shares[-1] if untrained else None,
            unit=SHARE,
            interval=trained.position_intervals[-1],
            references=(Reference("chance", chance), Reference("positions permuted", trained.permuted_share)),
            table=Table.of(tuple(columns), list(zip(*columns.values(), strict=True))),
            figure=draw_columns(
                "line",
                range(len(trained.position_shares)),
                {
                    "position": trained.position_shares,
                    "token": trained.token_shares,
                    "position, untrained": untrained.position_shares if untrained else None,
                    "position, residuals removed": without_residuals or None,
                },
                title="Position and token, read back from the states of every layer",
                main="position",
                reference=("position, untrained",),
                intervals={"position": (lows, highs)},
                levels={"chance": chance},
                xlabel="layer (0: embedding)",
                ylabel="share read back exactly",
                ylim=(0.0, 1.02),
            ),
            details={"permuted": trained.permuted_share, "texts fitted on": trained.cross_validation.fitted_texts},
        )


def _describe(trained: _ProbeScores, untrained: _ProbeScores | None, chance: float) -> str:
    """Say what is read back after the embedding and the last layer, and whether the latter is more than chance."""
    untrained_note = ""
    if untrained:
        embedding, last = (format_percent(untrained.position_shares[layer]) for layer in (0, -1))
        untrained_note = f"; untrained {embedding} and {last}"
    low, high = trained.position_intervals[-1]
    conclusion = (
        "After the last layer positions are still read back more often than by chance."
        if low > max(chance, trained.permuted_share)
        else "Whether any position can be read back after the last layer is undecided."
    )
    share, interval = format_estimate(trained.position_shares[-1], low, high)
    return (
        f"The exact position is read back in {format_percent(trained.position_shares[0])} of cases after the "
        f"embedding and in {share} after the last layer ({interval}; chance {format_percent(chance)}; positions "
        f"permuted {format_percent(trained.permuted_share)}{untrained_note}); the token in "
        f"{format_percent(trained.token_shares[0])} and {format_percent(trained.token_shares[-1])}. {conclusion} "
        f"Probes were fitted on {trained.cross_validation.fitted_texts:.0f} texts."
    )


def _describe_network(trained: _ProbeScores, capture: Capture, chance: float) -> str:
    """Say what a network reads back where the linear probe finds nothing; empty where it finds something."""
    if max(trained.position_shares) >= max(3 * chance, LEAST_LINEAR):
        return ""
    layer, splits = max(1, len(capture.hidden) - 2), _draw_splits(capture)
    states = capture.hidden[layer][: splits.num_texts, capture.measured_T].float()
    positions, scores = torch.arange(states.shape[1]).float(), []
    for fitted, held_out in list(splits)[:NETWORKS]:
        known = states[fitted].flatten(0, 1), positions.repeat(len(fitted))
        unknown = states[held_out].flatten(0, 1), positions.repeat(len(held_out))
        scores.append(fit_network_r2(*known, *unknown))
    r2 = max(0.0, sum(scores) / len(scores))
    return (
        f" After layer {layer} a two-layer network, which is also given the length of each state less the mean, "
        f"predicts the position with R² {r2:.2f} (0: no better than the mean position)."
    )


def _describe_without_residuals(
    shares_by_split: Sequence[Float[Tensor, " n"]], held_out_ratio: float, chance: float
) -> str:
    """Say what is left of the positions without residual connections; empty where these cannot be removed."""
    if not shares_by_split:
        return ""
    share, start = format_percent(float(shares_by_split[-1].mean())), " With the residual connections removed,"
    if compute_corrected_interval(shares_by_split[-1], held_out_ratio)[0] > chance:
        return f"{start} {share} of positions are read back after the last layer."
    unsure = f"it is undecided whether any position can be read back after the last layer ({share}; chance"
    return f"{start} {unsure} {format_percent(chance)})."


def estimate_position_share(states_NTD: Float[Tensor, "N T D"]) -> tuple[float, tuple[float, float] | None]:
    """Estimate the share of the variance of states that is due to position, without the bias of chance.

    The model is state = mean + text + position + interaction, and the share (SS_position − (T−1)·MS_interaction) /
    SS_total. Its numerator is 0 on average where position adds nothing, whatever the means of the texts are, which are
    an effect of their own. Needs N ≥ 2 texts of T positions; the share is 0 for states that are all equal.

    Returns the share and its 95 % interval, Student's t over the shares without each text (Tukey 1958); None for two
    texts. Source: the analysis of variance of Song & Zhong 2023 with its bias removed.
    """
    # Less the mean of all states, so that sums of squares do not cancel.
    states = states_NTD.double() - states_NTD.double().mean((0, 1))
    sum_TD, text_squares_N, squares_N = states.sum(0), states.sum(1).square().sum(-1), states.square().sum((1, 2))

    def compute(texts: int, sum_TD: Tensor, text_squares: Tensor, squares: Tensor) -> float:
        length = len(sum_TD)
        mean_squares = float(sum_TD.sum(0).square().sum()) / (texts * length)
        total = float(squares) - mean_squares
        position = float(sum_TD.square().sum()) / texts - mean_squares
        text = float(text_squares) / length - mean_squares
        # (T−1) times the mean square of the interaction, which has (T−1)(N−1) degrees of freedom
        chance = (total - position - text) / (texts - 1)
        return (position - chance) / max(total, 1e-30)

    count = len(states)
    share = compute(count, sum_TD, text_squares_N.sum(), squares_N.sum())
    if count < 3:
        return share, None
    without = [
        compute(count - 1, sum_TD - text_TD, text_squares_N.sum() - text_square, squares_N.sum() - square)
        for text_TD, text_square, square in zip(states, text_squares_N, squares_N, strict=True)
    ]
    return share, compute_jackknife_interval(share, torch.tensor(without, dtype=torch.float64))


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

        def measure(either: Reading) -> list[tuple[float, tuple[float, float] | None]]:
            # A layer at a time, since the states may lie on the disk.
            return [estimate_position_share(hidden[:, either.capture.measured_T]) for hidden in either.capture.hidden]

        estimates, of_control = reading.with_control(measure)
        shares, interval = [share for share, _ in estimates], estimates[-1][1]
        untrained = [share for share, _ in of_control] if of_control else None
        # Σσ² / σ₁² of the mean state of each position: how many directions they use (Rudelson & Vershynin 2007).
        ranks = []
        for hidden in capture.hidden:
            mean_TD = hidden[:, capture.measured_T].double().mean(0)
            squares = torch.linalg.svdvals(mean_TD - mean_TD.mean(0)).square()
            ranks.append(float(squares.sum() / squares[0].clamp_min(1e-30)))
        return self.make_finding(
            _describe_share(shares, interval, untrained),
            shares[-1],
            unit=SHARE,
            interval=interval,
            untrained=untrained[-1] if untrained else None,
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
                ylim=(min(0.0, *shares), 1.08 * max(*shares, *(untrained or ()))),
            ),
        )


def _describe_share(shares: list[float], interval: tuple[float, float] | None, untrained: list[float] | None) -> str:
    """Say what position accounts for; after the last layer it is undecided where the interval holds 0."""
    last, notes = format_percent(shares[-1]), []
    if interval:
        last, numbers = format_estimate(shares[-1], *interval)
        notes.append(numbers)
    notes += [f"untrained {format_percent(untrained[0])} and {format_percent(untrained[-1])}"] if untrained else []
    note = f" ({'; '.join(notes)})" if notes else ""
    peak = max(range(len(shares)), key=shares.__getitem__)
    undecided = (
        " Whether it accounts for any after the last layer is undecided." if interval and interval[0] <= 0 else ""
    )
    return (
        f"Position accounts for {format_percent(shares[0])} of the variance of the states after the embedding and for "
        f"{last} after the last layer{note}; the largest share is "
        f"{format_percent(shares[peak])}, after {f'layer {peak}' if peak else 'the embedding'}.{undecided}"
    )
