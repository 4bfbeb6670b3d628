"""Probes that read position and token back from the states after every layer of a model.

In names of tensors ``N`` are texts, ``n`` the random splits of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from clockhands.inspection.estimators.intervals import bound_exactly
from clockhands.inspection.estimators.probes import (
    CrossValidation,
    Ridge,
    compute_corrected_interval,
    find_nearest_row,
    fit_network_r2,
)
from clockhands.inspection.reading.capture import BATCH, Capture
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
