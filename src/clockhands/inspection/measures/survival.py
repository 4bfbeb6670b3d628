"""Do positions, and words, survive through the layers?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.capture import Capture
from clockhands.inspection.drawing import level, mark, percent, untrained_as
from clockhands.inspection.numbers import bootstrap
from clockhands.inspection.probes import classify, nearest_row, network_error, ridge
from clockhands.inspection.subject import Subject
from clockhands.shapes import Float, Int, Tensor

QUESTION = "Do positions survive through the layers?"
METHOD = (
    "Ridge regression from the hidden state to one indicator per position, fitted on three quarters of the texts "
    "and judged on the rest; exact hits count. Words: ridge regression to the token's input embedding, nearest by"
    " cosine among the words of the text. Controls: the same with fresh weights (which usually keep everything: a"
    " probe alone proves little), and the positions of the training texts permuted. Where the linear probe sees "
    "nothing, a two-layer network gets the state and the log of its length, for a model without positional "
    "encoding can hold the place in the size of its vectors. Only ordinary tokens. In models of this project the "
    "probe is repeated with all residual connections cut. Interval: test texts resampled."
)
MOST_TEXTS = 96


@dataclass(frozen=True)
class Probe:
    """What can be read back behind each layer."""

    position: list[float]
    position_interval: tuple[float, float]
    token: list[float]
    permuted: float


def probe(subject: Subject, capture: Capture, tick: Callable[[], None] = lambda: None) -> Probe:
    """Probe every layer of one model."""
    texts = min(capture.texts, MOST_TEXTS)
    train = max(2, 3 * texts // 4)
    ids = capture.ids_NT[:texts, capture.ordinary_T]
    types, labels = ids.unique(return_inverse=True)
    rows = subject.embeddings()[types].float()
    rows = rows - rows.mean(0)
    position, token, hits = [], [], torch.empty(0)
    for states in capture.hidden:
        chosen = states[:texts, capture.ordinary_T].float()
        hits = position_hits(chosen[:train], chosen[train:])
        position.append(float(hits.mean()))
        token.append(_token_hits(chosen, labels, rows, train))
        tick()
    permuted = _permuted(capture.hidden[0][:texts, capture.ordinary_T].float(), train)
    per_text = hits.sum(1)
    return Probe(position, bootstrap(per_text, torch.full_like(per_text, hits.shape[1])), token, permuted)


def position_hits(train_NTD: Float[Tensor, "N T D"], test_MTD: Float[Tensor, "M T D"]) -> Float[Tensor, "M T"]:
    """1 where the position of a test token is read back exactly."""
    length = train_NTD.shape[1]
    places = torch.arange(length).expand(len(train_NTD), -1).flatten()
    found = classify(train_NTD.flatten(0, 1), places, test_MTD.flatten(0, 1), length)
    return (found.reshape(len(test_MTD), length) == torch.arange(length)).float()


def _permuted(states_NTD: Tensor, train: int) -> float:
    """The control: every training text with its positions in another order."""
    generator = torch.Generator().manual_seed(0)
    shuffled = torch.stack([text[torch.randperm(len(text), generator=generator)] for text in states_NTD[:train]])
    return float(position_hits(shuffled, states_NTD[train:]).mean())


def _token_hits(states_NTD: Tensor, labels_NT: Int[Tensor, "N T"], rows_VD: Tensor, train: int) -> float:
    targets = rows_VD[labels_NT[:train].flatten()]
    guess = ridge(states_NTD[:train].flatten(0, 1), targets, states_NTD[train:].flatten(0, 1))
    return float((nearest_row(guess, rows_VD) == labels_NT[train:].flatten()).float().mean())


def _network(capture: Capture) -> float:
    """R² of the place from the last layer but one, by a network."""
    states = capture.hidden[max(1, len(capture.hidden) - 2)][:MOST_TEXTS, capture.ordinary_T].float()
    train = max(2, 3 * len(states) // 4)
    places = torch.arange(states.shape[1]).float()
    return network_error(
        states[:train].flatten(0, 1),
        places.repeat(train),
        states[train:].flatten(0, 1),
        places.repeat(len(states) - train),
    )


def survival(subject: Subject, capture: Capture, control: tuple[Subject, Capture] | None = None) -> Finding:
    """Position and token read back at every layer, with their controls."""
    found = probe(subject, capture)
    fresh = probe(*control) if control else None
    chance = 1 / int(capture.ordinary_T.sum())
    cut = without_residuals(subject, capture)
    return Finding(
        name="survival",
        question=QUESTION,
        verdict=_verdict(found, fresh, chance) + _more(found, capture, chance, cut),
        value=found.position[-1],
        interval=found.position_interval,
        references=(Reference("chance", chance), *untrained_as(fresh.position[-1] if fresh else None)),
        light="info",
        table=_table(found, fresh, cut),
        figure=_figure(found, fresh, chance, cut),
        method=METHOD,
        source="probes after Alain & Bengio 2016; the network after Haviv et al. 2022 and Chi et al. 2023",
        details={"permuted": found.permuted},
    )


def _verdict(found: Probe, fresh: Probe | None, chance: float) -> str:
    untrained = f", untrained {percent(fresh.position[0])} and {percent(fresh.position[-1])}" if fresh else ""
    return (
        f"The exact position is read back in {percent(found.position[0])} of cases behind the embedding and in "
        f"{percent(found.position[-1])} behind the last layer (chance {percent(chance)}, positions permuted "
        f"{percent(found.permuted)}{untrained}); the word in {percent(found.token[0])} and {percent(found.token[-1])}."
    )


def _more(found: Probe, capture: Capture, chance: float, cut: list[float]) -> str:
    """What a network sees where a linear probe is blind, and what is left without residual connections."""
    text = ""
    if max(found.position) < max(3 * chance, 0.03):
        text = f" A network, which sees lengths too, explains {percent(max(0.0, _network(capture)))} of the place."
    if cut:
        text += f" With the residual connections cut, {percent(cut[-1])} of positions reach the last layer."
    return text


def _table(found: Probe, fresh: Probe | None, cut: list[float]) -> Table:
    nothing = [None] * len(found.position)
    columns: dict[str, Sequence[float | None]] = {
        "layer": range(len(found.position)),
        "position": found.position,
        "word": found.token,
        "position, untrained": fresh.position if fresh else nothing,
        "word, untrained": fresh.token if fresh else nothing,
        "position, no residuals": cut or nothing,
    }
    return Table.of(tuple(columns), list(zip(*columns.values(), strict=True)))


def without_residuals(subject: Subject, capture: Capture) -> list[float]:
    """Position hits by layer when no layer adds its input to its output; empty where a model has no such switch."""
    switch = subject.without_residuals()
    if switch is None:
        return []
    texts = min(capture.texts, MOST_TEXTS)
    train = max(2, 3 * texts // 4)
    with switch:
        batches = [
            subject.forward(capture.ids_NT[rows], **capture.given(rows)) for rows in torch.arange(texts).split(8)
        ]
    found = []
    for states in zip(*batches, strict=True):
        chosen = torch.cat(states)[:, capture.ordinary_T.to(states[0].device)].float().cpu()
        found.append(float(position_hits(chosen[:train], chosen[train:]).mean()))
    return found


def _figure(found: Probe, fresh: Probe | None, chance: float, cut: list[float]) -> Figure:
    x = range(len(found.position))
    marks = [
        mark("line", x, torch.tensor(found.position), label="position", emphasis="main"),
        mark("line", x, torch.tensor(found.token), label="word"),
    ]
    if fresh is not None:
        marks.append(mark("line", x, torch.tensor(fresh.position), label="position, untrained", emphasis="null"))
    if cut:
        marks.append(mark("line", x, torch.tensor(cut), label="position, residuals cut"))
    marks.append(level(chance, "chance"))
    return Figure((Panel(tuple(marks), xlabel="layer (0: embedding)", ylabel="read back exactly", ylim=(0.0, 1.02)),))
