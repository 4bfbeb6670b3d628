"""Heads that look at one position: do they follow the position, or the token that always stands there? An intervention.

Where the token is the same in every text, attention alone cannot tell. So the token changes places with another one,
and attention is read again, at the position and at the token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.inspection.reading.attention_hooks import ComputedAttention, listen
from clockhands.inspection.reading.capture import BATCH, Capture
from clockhands.inspection.reading.head_statistics import MOSTLY, HeadStatistics
from clockhands.inspection.reading.sentences import decode_tokens
from clockhands.models.subject import Subject
from clockhands.shapes import Bool, Float, Int, Tensor

MOST_TEXTS = 24
"""Texts in which tokens change places."""
SAME_TOKEN = 0.9
"""From this share of the texts on, the token at a position counts as always the same."""

Followed = Literal["position", "token", "token at the position", "undecided"]
"""What a head follows; the third needs both: that token at that position."""


@dataclass(frozen=True)
class Sink:
    """A head that gives most of its attention to one position, and what it follows.

    ``token`` is the one that always stands there, as text; empty where it differs from text to text, so that the head
    follows the position. The three shares are attention of queries that see both places: to the position as it was
    (``before``), and, after the token changed places with another one, to the position and to the token.
    """

    position: int
    token: str
    follows: Followed
    before: float
    at_position: float
    at_token: float

    def describe(self) -> str:
        """Say what the head looks at, in a few words."""
        place = "first position" if self.position == 0 else f"position {self.position}"
        return {
            "position": f"{place}, whatever token stands there",
            "token": f"token “{self.token}”, wherever it stands",
            "token at the position": f"token “{self.token}” at the {place}, and neither alone",
            "undecided": f"{place} or its token “{self.token}”, undecided",
        }[self.follows]


def find_sinks(subject: Subject, capture: Capture, layers: Sequence[HeadStatistics]) -> dict[tuple[int, int], Sink]:
    """Return the heads that give at least half of their attention to one position, by the indices of layer and head."""
    places: dict[int, list[tuple[int, int]]] = {}
    for index, layer in enumerate(layers):
        for head in range(len(layer.by_position_H)):
            if float(layer.place_share_H[head]) >= MOSTLY and float(layer.favourite_share_H[head]) < MOSTLY:
                places.setdefault(int(layer.place_H[head]), []).append((index, head))
    return {at: sink for position, heads in places.items() for at, sink in _judge(subject, capture, position, heads)}


def _judge(
    subject: Subject, capture: Capture, position: int, heads: Sequence[tuple[int, int]]
) -> list[tuple[tuple[int, int], Sink]]:
    """Say of heads that look at one position what each follows."""
    ids, counts = capture.ids_NT[:, position].unique(return_counts=True)
    token, count = int(ids[counts.argmax()]), int(counts.max())
    if count < SAME_TOKEN * capture.num_texts:
        return [(at, Sink(position, "", "position", *[float("nan")] * 3)) for at in heads]
    text = str(token) if subject.tokenizer is None else decode_tokens(subject.tokenizer, [token])[0]
    places = capture.ordinary_T.nonzero().flatten()
    places = places[places != position]
    other = int(places[len(places) // 4])
    rows = ((capture.ids_NT[:, position] == token) & (capture.ids_NT[:, other] != token)).nonzero().flatten()
    rows = rows[:MOST_TEXTS]
    if len(rows) < 2:
        return [(at, Sink(position, text, "undecided", *[float("nan")] * 3)) for at in heads]
    swapped_NT = capture.ids_NT.clone()
    swapped_NT[:, [position, other]] = capture.ids_NT[:, [other, position]]
    before, after = (
        _read_attention(subject, capture, ids_NT, rows, (position, other)) for ids_NT in (capture.ids_NT, swapped_NT)
    )
    return [((layer, head), _decide(position, text, before[layer][:, head], after[layer][:, head]))
            for layer, head in heads]  # fmt: skip


def _decide(position: int, token: str, before_N2: Float[Tensor, "N two"], after_N2: Float[Tensor, "N two"]) -> Sink:
    """Judge by what became of the attention: half of it or more must be left where a head is said to look."""
    share, (at_position, at_token) = float(before_N2[:, 0].mean()), after_N2.mean(0).tolist()
    difference_N = after_N2[:, 0] - after_N2[:, 1]
    low, high = bootstrap_ratio(difference_N, torch.ones_like(difference_N))
    follows: Followed = "undecided"
    if at_position >= share / 2 and low > 0:
        follows = "position"
    elif at_token >= share / 2 and high < 0:
        follows = "token"
    elif max(at_position, at_token) < share / 2:
        follows = "token at the position"
    return Sink(position, token, follows, share, at_position, at_token)


def _read_attention(
    subject: Subject, capture: Capture, ids_NT: Int[Tensor, "N T"], rows: Int[Tensor, " n"], places: tuple[int, int]
) -> list[Float[Tensor, "n H two"]]:
    """Return the mean attention of every layer to two positions, text by text.

    Queries are the ordinary tokens at other positions that may attend to both; NaN where there is none.
    """
    batches = [
        run_attention(
            subject,
            capture,
            ids_NT[some],
            partial(_average_queries, ordinary_T=capture.ordinary_T, places=places),
            **capture.make_forward_options(some),
        )
        for some in rows.split(BATCH)
    ]
    return [torch.cat(layer) for layer in zip(*batches, strict=True)]


def run_attention(
    subject: Subject,
    capture: Capture,
    ids_NT: Int[Tensor, "N T"],
    read: Callable[[ComputedAttention], Tensor],
    **options: Tensor,
) -> list[Tensor]:
    """Run the model, and return what ``read`` gives of the attention of every layer of the capture, in their order.

    Each is read at once and let go: all layers together would not fit the memory.
    """
    modules, results = {layer.module for layer in capture.layers}, list[Tensor]()

    def receive(attention: ComputedAttention) -> None:
        if attention.module in modules:
            results.append(read(attention))

    with torch.no_grad(), listen(subject.model, receive):
        subject.forward(ids_NT, **options)
    return results


def _average_queries(
    computed: ComputedAttention, ordinary_T: Bool[Tensor, " T"], places: tuple[int, int]
) -> Float[Tensor, "B H two"]:
    """Return the mean attention to two positions, of the ordinary queries elsewhere that may attend to both."""
    mask_ST = computed.mask_BHST[0, 0].cpu()
    queries = ordinary_T & mask_ST[:, list(places)].all(-1)
    queries[list(places)] = False
    return computed.weights_BHST.cpu()[:, :, queries][..., list(places)].double().mean(2)
