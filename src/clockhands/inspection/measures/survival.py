"""Do positions, and tokens, survive through the layers? What probes read back at every layer.

In names of tensors ``N`` are texts, ``n`` the random splits of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from clockhands.findings import (
    SHARE,
    Figure,
    Finding,
    Reference,
    Table,
    draw_columns,
)
from clockhands.inspection.estimators.intervals import bound_exactly
from clockhands.inspection.estimators.probes import (
    CrossValidation,
    Ridge,
    compute_corrected_interval,
    find_nearest_row,
    fit_network_r2,
)
from clockhands.inspection.measures.measure import LAYERS_HEADING, TASK, Measure, make_untrained_reference
from clockhands.inspection.number_format import format_percent, format_percent_range
from clockhands.inspection.reading.capture import BATCH, FIRST_POSITION_NOTE, Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.models.subject import Subject
from clockhands.shapes import Float, Int, Tensor

MOST_TEXTS = 48
"""Texts that probes are fitted and judged on: a probe that is fitted on more texts scores higher."""
MOST_JUDGED = 500
"""Tokens whose identity is read back, in each split."""
NETWORKS = 3
"""Splits on which a network is fitted."""


@dataclass(frozen=True)
class ProbeScores:
    """What probes read back from the states after each layer, the embedding first.

    Attributes:
        shares_by_split: for each layer the share of positions read back exactly, split by split.
        token_shares: for each layer the share of tokens read back, the mean over the splits.
        permuted_share: the share of positions read back after the last layer by a probe that was fitted on texts whose
            states are in random order.
        cross_validation: the splits: the texts fitted on and those held out.
    """

    shares_by_split: tuple[Float[Tensor, " n"], ...]
    token_shares: list[float]
    permuted_share: float
    cross_validation: CrossValidation

    @cached_property
    def position_shares(self) -> list[float]:
        """For each layer the share of positions read back exactly, the mean over the splits."""
        return [float(shares_n.mean()) for shares_n in self.shares_by_split]

    @cached_property
    def position_intervals(self) -> list[tuple[float, float]]:
        """The 95 % interval of each share in ``position_shares``.

        It is cut at 0 and 1, and exact where every position of every text is read back, or none.
        """
        intervals = [
            compute_corrected_interval(shares_n, self.cross_validation.held_out_ratio)
            for shares_n in self.shares_by_split
        ]
        cut = [(max(0.0, low), min(1.0, high)) for low, high in intervals]
        return [
            bound_exactly(interval, share, self.cross_validation.num_texts)
            for interval, share in zip(cut, self.position_shares, strict=True)
        ]


def probe_layers(subject: Subject, capture: Capture) -> ProbeScores:
    """Read position and token back from the states after every layer, at ordinary tokens without position 0.

    Raises CheckpointError for a model without a token table.
    """
    splits = draw_splits(capture)
    ids = capture.ids_NT[: splits.num_texts, capture.measured_T]
    types, labels = ids.unique(return_inverse=True)
    rows = subject.read_token_table()[types].float()
    rows = rows - rows.mean(0)
    shares_by_split, token_shares = [], []
    for hidden in capture.hidden:
        states = hidden[: splits.num_texts, capture.measured_T].float()
        shares_by_split.append(probe_positions(states, splits))
        token_shares.append(_probe_tokens(states, labels, rows, splits))
    permuted_share = float(probe_positions(states, splits, permuted=True).mean())
    return ProbeScores(tuple(shares_by_split), token_shares, permuted_share, splits)


def draw_splits(capture: Capture) -> CrossValidation:
    """Draw the splits of at most ``MOST_TEXTS`` texts; those that repeat each other stay on one side, unless all do."""
    return CrossValidation.draw(capture.repeats.groups_N[: min(capture.num_texts, MOST_TEXTS)])


def probe_positions(
    states_NTD: Float[Tensor, "N T D"], splits: CrossValidation, *, permuted: bool = False
) -> Float[Tensor, " n"]:
    """Return the share of tokens whose position is read back exactly, for each of n splits.

    A ridge regression predicts one indicator for each of T positions, and the largest is the position read back (Alain
    & Bengio 2016).

    Args:
        states_NTD: states of N texts at T positions, in float32.
        splits: the texts to fit on and those held out.
        permuted: whether the states of the texts to fit on are in random order, which gives chance.
    """
    num_texts, length, _ = states_NTD.shape
    indicators_NTT = torch.eye(length).expand(num_texts, -1, -1)
    fit_NTD = None
    if permuted:
        generator = torch.Generator().manual_seed(0)
        fit_NTD = torch.stack([states_TD[torch.randperm(length, generator=generator)] for states_TD in states_NTD])
    predictions = Ridge(states_NTD, indicators_NTT, splits, fit_NTD).predict()
    return torch.tensor([float((guess.argmax(-1) == torch.arange(length)).float().mean()) for _, guess in predictions])


def _probe_tokens(states_NTD: Tensor, labels_NT: Int[Tensor, "N T"], rows_VD: Tensor, splits: CrossValidation) -> float:
    """Return the share of tokens whose own embedding is nearest to the one predicted, the mean over the splits."""
    generator, scores = torch.Generator().manual_seed(0), []
    for held_out, guess in Ridge(states_NTD, rows_VD[labels_NT], splits).predict():
        predictions, labels = guess.flatten(0, 1), labels_NT[held_out].flatten()
        judged = torch.randperm(len(predictions), generator=generator)[:MOST_JUDGED]
        scores.append(float((find_nearest_row(predictions[judged], rows_VD) == labels[judged]).float().mean()))
    return sum(scores) / len(scores)


def fit_position_network(capture: Capture, layer: int) -> float:
    """Return R² of the position from the states after a layer, by a network; the mean over ``NETWORKS`` splits.

    ``layer`` is an index of ``Capture.hidden``: 0 is the embedding.
    """
    splits = draw_splits(capture)
    states = capture.hidden[layer][: splits.num_texts, capture.measured_T].float()
    positions = torch.arange(states.shape[1]).float()
    scores = [
        fit_network_r2(
            states[fitted].flatten(0, 1),
            positions.repeat(len(fitted)),
            states[held_out].flatten(0, 1),
            positions.repeat(len(held_out)),
        )
        for fitted, held_out in list(splits)[:NETWORKS]
    ]
    return sum(scores) / len(scores)


def probe_without_residuals(subject: Subject, capture: Capture) -> tuple[Float[Tensor, " n"], ...]:
    """Probe the positions of every layer, split by split, when no layer adds its input to its output.

    Empty for a model whose residual connections cannot be removed (any that is not of this project).
    """
    removal = subject.remove_residuals()
    if removal is None:
        return ()
    splits = draw_splits(capture)
    with removal:
        batches = [
            subject.forward(capture.ids_NT[rows], **capture.make_forward_options(rows))
            for rows in torch.arange(splits.num_texts).split(BATCH)
        ]
    layers = (torch.cat(states)[:, capture.measured_T.to(states[0].device)] for states in zip(*batches, strict=True))
    return tuple(probe_positions(states.float().cpu(), splits) for states in layers)


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
        subject, capture, control = reading.subject, reading.capture, reading.control
        trained = probe_layers(subject, capture)
        untrained = probe_layers(control.subject, control.capture) if control else None
        chance = 1 / int(capture.measured_T.sum())
        shares_by_split_without_residuals = probe_without_residuals(subject, capture)
        without_residuals = [float(shares_n.mean()) for shares_n in shares_by_split_without_residuals]
        return self.make_finding(
            _describe(trained, untrained, chance)
            + _describe_network(trained, capture, chance)
            + _describe_without_residuals(
                shares_by_split_without_residuals, trained.cross_validation.held_out_ratio, chance
            ),
            trained.position_shares[-1],
            unit=SHARE,
            interval=trained.position_intervals[-1],
            references=(
                Reference("chance", chance),
                Reference("positions permuted", trained.permuted_share),
                *make_untrained_reference(untrained.position_shares[-1] if untrained else None),
            ),
            light="info",
            table=_make_table(trained, untrained, without_residuals),
            figure=_draw_figure(trained, untrained, chance, without_residuals),
            details={"permuted": trained.permuted_share, "texts fitted on": trained.cross_validation.fitted_texts},
        )


def _describe(trained: ProbeScores, untrained: ProbeScores | None, chance: float) -> str:
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
    return (
        f"The exact position is read back in {format_percent(trained.position_shares[0])} of cases after the "
        f"embedding and in {format_percent(trained.position_shares[-1])} after the last layer (95 % interval "
        f"{format_percent_range(low, high)}; chance {format_percent(chance)}; positions permuted "
        f"{format_percent(trained.permuted_share)}{untrained_note}); the token in "
        f"{format_percent(trained.token_shares[0])} and {format_percent(trained.token_shares[-1])}. {conclusion} "
        f"Probes were fitted on {trained.cross_validation.fitted_texts:.0f} texts."
    )


def _describe_network(trained: ProbeScores, capture: Capture, chance: float) -> str:
    """Say what a network reads back where the linear probe finds nothing; empty where it finds something."""
    if max(trained.position_shares) >= max(3 * chance, LEAST_LINEAR):
        return ""
    layer = max(1, len(capture.hidden) - 2)
    r2 = max(0.0, fit_position_network(capture, layer))
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
    share = format_percent(float(shares_by_split[-1].mean()))
    if compute_corrected_interval(shares_by_split[-1], held_out_ratio)[0] > chance:
        return f" With the residual connections removed, {share} of positions are read back after the last layer."
    return (
        " With the residual connections removed, it is undecided whether any position can be read back after the last "
        f"layer ({share}; chance {format_percent(chance)})."
    )


def _make_table(trained: ProbeScores, untrained: ProbeScores | None, without_residuals: list[float]) -> Table:
    """List all shares by layer; columns of what was not measured are empty."""
    empty = [None] * len(trained.position_shares)
    columns: dict[str, Sequence[float | None]] = {  # saved tables keep these names, in which a token is a word
        "layer": range(len(trained.position_shares)),
        "position": trained.position_shares,
        "from": [low for low, _ in trained.position_intervals],
        "to": [high for _, high in trained.position_intervals],
        "word": trained.token_shares,
        "position, untrained": untrained.position_shares if untrained else empty,
        "word, untrained": untrained.token_shares if untrained else empty,
        "position, no residuals": without_residuals or empty,
    }
    return Table.of(tuple(columns), list(zip(*columns.values(), strict=True)))


def _draw_figure(
    trained: ProbeScores, untrained: ProbeScores | None, chance: float, without_residuals: list[float]
) -> Figure:
    """Draw the shares by layer."""
    lows, highs = zip(*trained.position_intervals, strict=True)
    return draw_columns(
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
    )
