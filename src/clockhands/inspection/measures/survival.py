"""Do positions, and tokens, survive through the layers? What probes read back at every layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import chance_line, mark, percent, percent_range, reference_untrained
from clockhands.inspection.estimators.intervals import bound_exactly
from clockhands.inspection.estimators.probes import (
    CrossValidation,
    Ridge,
    correct_interval,
    find_nearest_row,
    fit_network_r2,
)
from clockhands.inspection.measures.measure import LAYERS, TASK, Measure
from clockhands.inspection.reading.capture import WITHOUT_FIRST, Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.subject.subject import Subject
from clockhands.shapes import Float, Int, Tensor

MOST_TEXTS = 48
"""Texts that probes are fitted and judged on: a probe that is fitted on more texts scores higher."""
MOST_JUDGED = 500
"""Tokens whose identity is read back, in each split."""
NETWORKS = 3
"""Splits on which a network is fitted."""
NOT_LINEAR = 0.03
"""Below this share of positions read back in every layer, and three times chance, a network is tried."""


@dataclass(frozen=True)
class ProbeScores:
    """What probes read back from the states behind each layer, the embedding first.

    Attributes:
        hits: for each layer the share of positions read back exactly, split by split.
        token: for each layer the share of tokens read back, the mean over the splits.
        permuted: the share of positions of the last layer where the texts fitted on have them in another order.
        splits: the texts fitted on and those held out.
    """

    hits: tuple[Float[Tensor, " n"], ...]
    token: list[float]
    permuted: float
    splits: CrossValidation

    @cached_property
    def position(self) -> list[float]:
        """For each layer the share of positions read back exactly, the mean over the splits."""
        return [float(hits_n.mean()) for hits_n in self.hits]

    @cached_property
    def position_intervals(self) -> list[tuple[float, float]]:
        """The 95 % interval of each share in ``position``.

        It is cut at 0 and 1, and exact where every position of every text is read back, or none.
        """
        intervals = [correct_interval(hits_n, self.splits.held_ratio) for hits_n in self.hits]
        cut = [(max(0.0, low), min(1.0, high)) for low, high in intervals]
        return [
            bound_exactly(interval, share, self.splits.texts)
            for interval, share in zip(cut, self.position, strict=True)
        ]


def probe_layers(subject: Subject, capture: Capture) -> ProbeScores:
    """Read position and token back from the states behind every layer, at ordinary tokens without position 0."""
    splits = draw_splits(capture)
    ids = capture.ids_NT[: splits.texts, capture.counted_T]
    types, labels = ids.unique(return_inverse=True)
    rows = subject.read_token_table()[types].float()
    rows = rows - rows.mean(0)
    hits, token = [], []
    for hidden in capture.hidden:
        states = hidden[: splits.texts, capture.counted_T].float()
        hits.append(probe_positions(states, splits))
        token.append(_probe_tokens(states, labels, rows, splits))
    permuted = float(probe_positions(states, splits, permuted=True).mean())
    return ProbeScores(tuple(hits), token, permuted, splits)


def draw_splits(capture: Capture) -> CrossValidation:
    """Draw the splits of at most ``MOST_TEXTS`` texts, those that repeat each other on one side."""
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
    texts, length, _ = states_NTD.shape
    indicators_NTT = torch.eye(length).expand(texts, -1, -1)
    fit_NTD = None
    if permuted:
        generator = torch.Generator().manual_seed(0)
        fit_NTD = torch.stack([states_TD[torch.randperm(length, generator=generator)] for states_TD in states_NTD])
    predictions = Ridge(states_NTD, indicators_NTT, splits, fit_NTD).predict()
    return torch.tensor([float((guess.argmax(-1) == torch.arange(length)).float().mean()) for _, guess in predictions])


def _probe_tokens(states_NTD: Tensor, labels_NT: Int[Tensor, "N T"], rows_VD: Tensor, splits: CrossValidation) -> float:
    """Return the share of tokens whose own embedding is nearest to the one predicted, the mean over the splits."""
    generator, scores = torch.Generator().manual_seed(0), []
    for held, guess in Ridge(states_NTD, rows_VD[labels_NT], splits).predict():
        predictions, labels = guess.flatten(0, 1), labels_NT[held].flatten()
        judged = torch.randperm(len(predictions), generator=generator)[:MOST_JUDGED]
        scores.append(float((find_nearest_row(predictions[judged], rows_VD) == labels[judged]).float().mean()))
    return sum(scores) / len(scores)


def _fit_network(capture: Capture, layer: int) -> float:
    """Return R² of the position from the states behind a layer, by a network; the mean over ``NETWORKS`` splits."""
    splits = draw_splits(capture)
    states = capture.hidden[layer][: splits.texts, capture.counted_T].float()
    positions = torch.arange(states.shape[1]).float()
    scores = [
        fit_network_r2(
            states[fitted].flatten(0, 1),
            positions.repeat(len(fitted)),
            states[held].flatten(0, 1),
            positions.repeat(len(held)),
        )
        for fitted, held in list(splits)[:NETWORKS]
    ]
    return sum(scores) / len(scores)


class Survival(Measure):
    """Position and token read back at every layer, with their controls."""

    name = "survival"
    question = "Do positions survive through the layers?"
    references = ("chance", "positions permuted", "untrained")
    method = (
        "Ridge regression from the hidden state to one indicator per position, fitted on about three quarters of the "
        "texts and judged on the rest, in ten random splits; exact hits count. Texts that repeat each other stay on "
        "one side. At most 48 texts are used, whatever number is read, and as many of the untrained model: a probe "
        "that is fitted on more texts scores higher. Tokens: ridge regression to the token's input embedding, nearest "
        "by cosine among the tokens of the text. A random model usually keeps everything: a probe alone proves little. "
        "Permuted: the last layer, the positions of the texts that a probe is fitted on in another order. Where the "
        "linear probe finds nothing, a two-layer network gets the state of the last layer but one, less the mean "
        "state, and the log of that difference's length, for a model without positional encoding can hold the position "
        "in the length of its vectors. In models of this project the probe is repeated with all residual connections "
        "removed. Interval: Student's t over the splits, the variance corrected for their overlap (Nadeau & Bengio "
        "2003)." + WITHOUT_FIRST
    )
    source = "probes after Alain & Bengio 2016; the network after Haviv et al. 2022 and Chi et al. 2023"
    group = LAYERS
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        """Probe every layer; the value is the share of positions read back behind the last."""
        subject, capture, control = reading.subject, reading.capture, reading.control
        trained = probe_layers(subject, capture)
        untrained = probe_layers(control.subject, control.capture) if control else None
        chance = 1 / int(capture.counted_T.sum())
        hits_without_residuals = probe_without_residuals(subject, capture)
        without_residuals = [float(hits_n.mean()) for hits_n in hits_without_residuals]
        return self.make_finding(
            _describe(trained, untrained, chance)
            + _describe_network(trained, capture, chance)
            + _describe_without_residuals(hits_without_residuals, trained.splits.held_ratio, chance),
            trained.position[-1],
            interval=trained.position_intervals[-1],
            references=(
                Reference("chance", chance),
                Reference("positions permuted", trained.permuted),
                *reference_untrained(untrained.position[-1] if untrained else None),
            ),
            light="info",
            table=_make_table(trained, untrained, without_residuals),
            figure=_draw(trained, untrained, chance, without_residuals),
            details={"permuted": trained.permuted, "texts fitted on": trained.splits.fitted_texts},
        )


def _describe(trained: ProbeScores, untrained: ProbeScores | None, chance: float) -> str:
    """Say what is read back behind the embedding and the last layer, and whether the latter is more than chance."""
    beside = ""
    if untrained:
        beside = f"; untrained {percent(untrained.position[0])} and {percent(untrained.position[-1])}"
    low, high = trained.position_intervals[-1]
    last = (
        "Behind the last layer positions can still be read back."
        if low > max(chance, trained.permuted)
        else "Whether any position can be read back behind the last layer is undecided."
    )
    return (
        f"The exact position is read back in {percent(trained.position[0])} of cases behind the embedding and in "
        f"{percent(trained.position[-1])} behind the last layer (95 % interval {percent_range(low, high)}; chance "
        f"{percent(chance)}; positions permuted {percent(trained.permuted)}{beside}); the token in "
        f"{percent(trained.token[0])} and {percent(trained.token[-1])}. {last} Probes were fitted on "
        f"{trained.splits.fitted_texts:.0f} texts."
    )


def _describe_network(trained: ProbeScores, capture: Capture, chance: float) -> str:
    """Say what a network reads back where the linear probe finds nothing; empty where it finds something."""
    if max(trained.position) >= max(3 * chance, NOT_LINEAR):
        return ""
    layer = max(1, len(capture.hidden) - 2)
    r2 = max(0.0, _fit_network(capture, layer))
    return (
        f" Behind layer {layer} a two-layer network, which is also given the length of each state, predicts the "
        f"position with R² {r2:.2f}."
    )


def _describe_without_residuals(hits: Sequence[Float[Tensor, " n"]], held_ratio: float, chance: float) -> str:
    """Say what is left of the positions without residual connections; empty where these cannot be removed."""
    if not hits:
        return ""
    share = percent(float(hits[-1].mean()))
    if correct_interval(hits[-1], held_ratio)[0] > chance:
        return f" With the residual connections removed, {share} of positions are read back behind the last layer."
    return (
        " With the residual connections removed, it is undecided whether any position can be read back behind the last "
        f"layer ({share}; chance {percent(chance)})."
    )


def _make_table(trained: ProbeScores, untrained: ProbeScores | None, without_residuals: list[float]) -> Table:
    """List all shares by layer; columns of what was not measured are empty."""
    empty = [None] * len(trained.position)
    columns: dict[str, Sequence[float | None]] = {  # saved tables keep these names, in which a token is a word
        "layer": range(len(trained.position)),
        "position": trained.position,
        "from": [low for low, _ in trained.position_intervals],
        "to": [high for _, high in trained.position_intervals],
        "word": trained.token,
        "position, untrained": untrained.position if untrained else empty,
        "word, untrained": untrained.token if untrained else empty,
        "position, no residuals": without_residuals or empty,
    }
    return Table.of(tuple(columns), list(zip(*columns.values(), strict=True)))


def probe_without_residuals(subject: Subject, capture: Capture) -> tuple[Float[Tensor, " n"], ...]:
    """Probe the positions of every layer, split by split, when no layer adds its input to its output.

    Empty for a model whose residual connections cannot be removed (any that is not of this project).
    """
    removal = subject.without_residuals()
    if removal is None:
        return ()
    splits = draw_splits(capture)
    with removal:
        batches = [
            subject.forward(capture.ids_NT[rows], **capture.forward_options(rows))
            for rows in torch.arange(splits.texts).split(8)
        ]
    layers = (torch.cat(states)[:, capture.counted_T.to(states[0].device)] for states in zip(*batches, strict=True))
    return tuple(probe_positions(states.float().cpu(), splits) for states in layers)


def _draw(trained: ProbeScores, untrained: ProbeScores | None, chance: float, without_residuals: list[float]) -> Figure:
    """Draw the shares by layer."""
    layers = range(len(trained.position))
    lows, highs = ([interval[end] for interval in trained.position_intervals] for end in (0, 1))
    marks = [
        mark("line", layers, trained.position, low=lows, high=highs, label="position", emphasis="main"),
        mark("line", layers, torch.tensor(trained.token), label="token"),
    ]
    if untrained is not None:
        positions = torch.tensor(untrained.position)
        marks.append(mark("line", layers, positions, label="position, untrained", emphasis="reference"))
    if without_residuals:
        marks.append(mark("line", layers, torch.tensor(without_residuals), label="position, residuals removed"))
    marks.append(chance_line(chance, "chance"))
    return Figure((Panel(tuple(marks), xlabel="layer (0: embedding)", ylabel="read back exactly", ylim=(0.0, 1.02)),))
