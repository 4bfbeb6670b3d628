"""Do positions, and words, survive through the layers?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
MOST_JUDGED = 500
"""Tokens whose word is read back, in each split."""
NETWORKS = 3
"""Splits on which a network is fitted."""


@dataclass(frozen=True)
class Probe:
    """What can be read back behind each layer: exact hits by split, and their means.

    ``fitted`` is the number of texts that the probes were fitted on, ``texts`` that of all.
    """

    hits: tuple[Float[Tensor, " R"], ...]
    token: list[float]
    permuted: float
    ratio: float
    fitted: float
    texts: int

    @cached_property
    def position(self) -> list[float]:
        """The mean over the splits, layer by layer."""
        return [float(hits_R.mean()) for hits_R in self.hits]

    @cached_property
    def position_intervals(self) -> list[tuple[float, float]]:
        """The 95 % interval of each, cut at 0 and 1; exact where every position of every text is read back, or none."""
        ends = [correct_interval(hits_R, self.ratio) for hits_R in self.hits]
        cut = [(max(0.0, low), min(1.0, high)) for low, high in ends]
        return [bound_exactly(span, share, self.texts) for span, share in zip(cut, self.position, strict=True)]


def probe_layers(subject: Subject, capture: Capture, tick: Callable[[], None] = lambda: None) -> Probe:
    """Probe every layer of one model."""
    splits = _splits(capture)
    ids = capture.ids_NT[: splits.texts, capture.counted_T]
    types, labels = ids.unique(return_inverse=True)
    rows = subject.read_token_table()[types].float()
    rows = rows - rows.mean(0)
    hits, token = [], []
    for states in capture.hidden:
        chosen = states[: splits.texts, capture.counted_T].float()
        hits.append(position_hits(chosen, splits))
        token.append(_token_hits(chosen, labels, rows, splits))
        tick()
    permuted = float(position_hits(chosen, splits, permuted=True).mean())
    return Probe(tuple(hits), token, permuted, splits.held_ratio, splits.fitted_texts, splits.texts)


def _splits(capture: Capture) -> CrossValidation:
    return CrossValidation.draw(capture.repeats.groups_N[: min(capture.num_texts, MOST_TEXTS)])


def position_hits(
    states_NTD: Float[Tensor, "N T D"], splits: CrossValidation, *, permuted: bool = False
) -> Float[Tensor, " R"]:
    """The part of tokens whose position is read back exactly, split by split; ``permuted`` texts are fitted on."""
    texts, length, _ = states_NTD.shape
    places = torch.eye(length).expand(texts, -1, -1)
    fit_NTD = None
    if permuted:
        generator = torch.Generator().manual_seed(0)
        fit_NTD = torch.stack([text[torch.randperm(length, generator=generator)] for text in states_NTD])
    found = Ridge(states_NTD, places, splits, fit_NTD).predict()
    return torch.tensor([float((guess.argmax(-1) == torch.arange(length)).float().mean()) for _, guess in found])


def _token_hits(states_NTD: Tensor, labels_NT: Int[Tensor, "N T"], rows_VD: Tensor, splits: CrossValidation) -> float:
    """The part of tokens whose word is read back, the mean over the splits."""
    generator, scores = torch.Generator().manual_seed(0), []
    for held, guess in Ridge(states_NTD, rows_VD[labels_NT], splits).predict():
        rows, answers = guess.flatten(0, 1), labels_NT[held].flatten()
        picks = torch.randperm(len(rows), generator=generator)[:MOST_JUDGED]
        scores.append(float((find_nearest_row(rows[picks], rows_VD) == answers[picks]).float().mean()))
    return sum(scores) / len(scores)


def _network(capture: Capture, layer: int) -> float:
    """Return R² of the position from the output of a layer, by a network."""
    splits = _splits(capture)
    states = capture.hidden[layer][: splits.texts, capture.counted_T].float()
    places = torch.arange(states.shape[1]).float()
    scores = [
        fit_network_r2(
            states[fitted].flatten(0, 1),
            places.repeat(len(fitted)),
            states[held].flatten(0, 1),
            places.repeat(len(held)),
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
        "that is fitted on more texts scores higher. Words: ridge regression to the token's input embedding, nearest "
        "by cosine among the words of the text. A random model usually keeps everything: a probe alone proves little. "
        "Permuted: the last layer, the positions of the texts that a probe is fitted on in another order. Where the "
        "linear probe sees nothing, a two-layer network gets the state of the last layer but one, less the mean state, "
        "and the log of that difference's length, for a model without positional "
        "encoding can hold the place in the size of its vectors. In models of this project the probe is repeated with "
        "all residual connections cut. Interval: Student's t over the splits, the variance corrected for their "
        "overlap (Nadeau & Bengio 2003)." + WITHOUT_FIRST
    )
    source = "probes after Alain & Bengio 2016; the network after Haviv et al. 2022 and Chi et al. 2023"
    group = LAYERS
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        subject, capture = reading.subject, reading.capture
        found = probe_layers(subject, capture)
        fresh = probe_layers(reading.control.subject, reading.control.capture) if reading.control else None
        chance = 1 / int(capture.counted_T.sum())
        cut_hits = without_residuals(subject, capture)
        cut = [float(hits_R.mean()) for hits_R in cut_hits]
        return self.finding(
            _verdict(found, fresh, chance) + _more(found, capture, chance) + _cut_text(cut_hits, found.ratio, chance),
            found.position[-1],
            interval=found.position_intervals[-1],
            references=(
                Reference("chance", chance),
                Reference("positions permuted", found.permuted),
                *reference_untrained(fresh.position[-1] if fresh else None),
            ),
            light="info",
            table=_table(found, fresh, cut),
            figure=_figure(found, fresh, chance, cut),
            details={"permuted": found.permuted, "texts fitted on": found.fitted},
        )


def _verdict(found: Probe, fresh: Probe | None, chance: float) -> str:
    untrained = f"; untrained {percent(fresh.position[0])} and {percent(fresh.position[-1])}" if fresh else ""
    low, high = found.position_intervals[-1]
    above = low > max(chance, found.permuted)
    last = (
        "Behind the last layer the position can still be read."
        if above
        else "Whether any position can be read behind the last layer is undecided."
    )
    return (
        f"The exact position is read back in {percent(found.position[0])} of cases behind the embedding and in "
        f"{percent(found.position[-1])} behind the last layer (95 % interval {percent_range(low, high)}; chance "
        f"{percent(chance)}; positions permuted {percent(found.permuted)}{untrained}); the word in "
        f"{percent(found.token[0])} and {percent(found.token[-1])}. {last} Probes were fitted on "
        f"{found.fitted:.0f} texts."
    )


def _more(found: Probe, capture: Capture, chance: float) -> str:
    """Say what a network sees where a linear probe is blind."""
    if max(found.position) >= max(3 * chance, 0.03):
        return ""
    layer = max(1, len(capture.hidden) - 2)
    r2 = max(0.0, _network(capture, layer))
    return f" Behind layer {layer} a two-layer network, which sees lengths too, predicts the position with R² {r2:.2f}."


def _cut_text(cut: Sequence[Float[Tensor, " R"]], ratio: float, chance: float) -> str:
    """Say what is left of the positions without residual connections, where that is above chance."""
    if not cut:
        return ""
    value = float(cut[-1].mean())
    if correct_interval(cut[-1], ratio)[0] > chance:
        return f" With the residual connections cut, {percent(value)} of positions reach the last layer."
    return (
        f" With the residual connections cut, it is undecided whether any position reaches the last layer "
        f"({percent(value)}; chance {percent(chance)})."
    )


def _table(found: Probe, fresh: Probe | None, cut: list[float]) -> Table:
    nothing = [None] * len(found.position)
    columns: dict[str, Sequence[float | None]] = {
        "layer": range(len(found.position)),
        "position": found.position,
        "from": [low for low, _ in found.position_intervals],
        "to": [high for _, high in found.position_intervals],
        "word": found.token,
        "position, untrained": fresh.position if fresh else nothing,
        "word, untrained": fresh.token if fresh else nothing,
        "position, no residuals": cut or nothing,
    }
    return Table.of(tuple(columns), list(zip(*columns.values(), strict=True)))


def without_residuals(subject: Subject, capture: Capture) -> tuple[Float[Tensor, " R"], ...]:
    """Return position hits by layer and split when no layer adds its input to its output; empty without a switch."""
    switch = subject.without_residuals()
    if switch is None:
        return ()
    splits = _splits(capture)
    with switch:
        batches = [
            subject.forward(capture.ids_NT[rows], **capture.forward_options(rows))
            for rows in torch.arange(splits.texts).split(8)
        ]
    layers = (torch.cat(states)[:, capture.counted_T.to(states[0].device)] for states in zip(*batches, strict=True))
    return tuple(position_hits(states.float().cpu(), splits) for states in layers)


def _figure(found: Probe, fresh: Probe | None, chance: float, cut: list[float]) -> Figure:
    x = range(len(found.position))
    marks = [
        mark(
            "line",
            x,
            found.position,
            low=[low for low, _ in found.position_intervals],
            high=[high for _, high in found.position_intervals],
            label="position",
            emphasis="main",
        ),
        mark("line", x, torch.tensor(found.token), label="word"),
    ]
    if fresh is not None:
        marks.append(mark("line", x, torch.tensor(fresh.position), label="position, untrained", emphasis="reference"))
    if cut:
        marks.append(mark("line", x, torch.tensor(cut), label="position, residuals cut"))
    marks.append(chance_line(chance, "chance"))
    return Figure((Panel(tuple(marks), xlabel="layer (0: embedding)", ylabel="read back exactly", ylim=(0.0, 1.02)),))
