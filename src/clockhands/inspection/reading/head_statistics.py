"""What the heads of an attention layer attend to: by position, by offset, by distance, or by a token.

How much of the variance of attention the pair of positions explains is an unbiased share, from sums over texts. Where a
head looks at one position whose token is the same in every text, attention alone cannot tell which of the two it
follows: the token changes places with another one, and attention is read again, at the position and at the token.

In names of tensors ``g`` are groups of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from clockhands.inspection.estimators.intervals import bootstrap_ratio, compute_jackknife_error, compute_t_factor
from clockhands.inspection.reading.attention_hooks import ComputedAttention, listen
from clockhands.inspection.reading.capture import BATCH, Capture
from clockhands.inspection.reading.windows import decode_tokens
from clockhands.models.subject import Subject
from clockhands.shapes import Bool, Float, Int, Num, Tensor

TEXT_GROUPS = 8
"""Groups of texts, without each of which the share is computed again for its interval."""
ROUNDING = 1e-9
"""Sum of squares of attention less uniform attention, for each text, below which attention counts as uniform."""


class PositionSums:
    """Sums of attention less uniform attention over texts, in groups of texts.

    The share that the pair (i, j) of positions explains, and its jackknife interval, need the sums without each group.

    Attributes:
        texts_g: how many texts each group has.
        total_gHST: the sum over the texts of each group.
        squares_gH: the sum of squares over texts, queries and keys.
    """

    def __init__(self) -> None:
        self.texts_g = torch.zeros(TEXT_GROUPS, dtype=torch.float64)
        self.total_gHST = self.squares_gH = torch.zeros(())

    def add(self, centred_BHST: Float[Tensor, "B H S T"]) -> None:
        """Add a batch of attention less uniform attention; it is zero where a query may not attend."""
        batch = len(centred_BHST)
        if not self.total_gHST.ndim:
            self.total_gHST = torch.zeros(TEXT_GROUPS, *centred_BHST.shape[1:], dtype=torch.float64)
            self.squares_gH = torch.zeros(TEXT_GROUPS, centred_BHST.shape[1], dtype=torch.float64)
        group_B = (torch.arange(batch) + self.num_texts) % TEXT_GROUPS
        centred = centred_BHST.double()
        self.total_gHST.index_add_(0, group_B, centred)
        self.squares_gH.index_add_(0, group_B, centred.square().sum((-1, -2)))
        self.texts_g.index_add_(0, group_B, torch.ones(batch, dtype=torch.float64))

    @property
    def num_texts(self) -> int:
        """How many texts were added."""
        return int(self.texts_g.sum())

    def estimate_shares(self) -> tuple[Float[Tensor, " H"], Float[Tensor, "H two"], Float[Tensor, "g H"]]:
        """Estimate for every head the share of variance that the pair of positions explains.

        Returns:
            The share of each head; its 95 % interval (jackknife over groups of texts, Student's t); the shares without
            each group. A group counts if it leaves at least two texts; with fewer than two such groups, the interval
            and the shares without a group are the share itself.
        """
        num_texts = self.num_texts

        def estimate(total_HST: Tensor, squares_H: Tensor, count: int) -> Tensor:
            between = total_HST.square().sum((-1, -2)) / count
            # Uniform attention in float32 differs from uniform by rounding, and by the same in every text.
            varies = squares_H > ROUNDING * count
            return torch.where(varies, _estimate_explained_share(between, squares_H - between, count), 0.0)

        total, squares = self.total_gHST.sum(0), self.squares_gH.sum(0)
        share = estimate(total, squares, num_texts)
        without = [
            estimate(total - self.total_gHST[g], squares - self.squares_gH[g], num_texts - int(self.texts_g[g]))
            for g in range(TEXT_GROUPS)
            if 0 < self.texts_g[g] < num_texts - 1
        ]
        if len(without) < 2:
            return share, torch.stack([share, share], dim=-1), share[None]
        without_gH = torch.stack(without)
        half = compute_t_factor(len(without) - 1) * compute_jackknife_error(without_gH)
        return share, torch.stack([share - half, share + half], dim=-1), without_gH


def _estimate_explained_share(
    between_H: Num[Tensor, " H"], within_H: Num[Tensor, " H"], num_texts: int
) -> Num[Tensor, " H"]:
    """Estimate the share of variance that a mean over texts explains, without the bias of chance.

    One-way analysis of variance: (SS_between − SS_within / (N − 1)) / SS_total for N texts. What is subtracted is what
    chance adds to SS_between: one mean square within for each pair of positions (as in ω², Hays 1963).

    Args:
        between_H: sum of squares of the mean over texts, times the number of texts.
        within_H: sum of squares around that mean.
        num_texts: how many texts there are.
    """
    return (between_H - within_H / max(num_texts - 1, 1)) / (between_H + within_H).clamp_min(1e-30)


MAX_OFFSET = 32
"""The largest offset, in tokens before and after the query, at which attention is counted."""
MOSTLY = 0.5
"""The part of its attention from which on a head is said to look at one offset or one position."""


@dataclass(frozen=True)
class HeadStatistics:
    """Statistics of the heads of one layer over all texts.

    ``by_position_H``: share of the variance of attention, around uniform attention, that the pair of positions
    explains alone; ``by_position_interval_H2``: its 95 % interval. ``attention_by_offset_HJ``: mean attention at each
    offset from -MAX_OFFSET to MAX_OFFSET (key less query), over all pairs of tokens at that offset, with zero for those
    that the mask forbids; ``frequent_J``: whether at least half of the queries may attend to a key there.
    ``place_shares_HT``: mean attention to each position of the window, special or not. ``distance_NH``: mean distance
    of what a head attends to, text by text, in tokens, over the middle half of the queries, or over all but the first
    four where the mask is causal. ``uniform_distance`` and ``uniform_by_offset_J``: mean distance and attention by
    offset of uniform attention under the layer's mask. All but ``place_shares_HT`` are of attention renormalised over
    ordinary tokens.
    """

    by_position_H: Float[Tensor, " H"]
    by_position_interval_H2: Float[Tensor, "H two"]
    attention_by_offset_HJ: Float[Tensor, "H J"]
    place_shares_HT: Float[Tensor, "H T"]
    distance_NH: Float[Tensor, "N H"]
    uniform_distance: float
    uniform_by_offset_J: Float[Tensor, " J"]
    frequent_J: Bool[Tensor, " J"]

    @property
    def distance_H(self) -> Tensor:
        """The mean distance, in tokens, at which each head attends."""
        return self.distance_NH.mean(0)

    @property
    def place_H(self) -> Tensor:
        """The position of the window that gets most of the attention of each head."""
        return self.place_shares_HT.argmax(-1)

    @property
    def place_share_H(self) -> Tensor:
        """The mean attention of each head to the position that gets most."""
        return self.place_shares_HT.amax(-1)

    @property
    def favourite_offset_H(self) -> Tensor:
        """The offset that each head attends to most, of those that at least half of the queries have."""
        return self._frequent_attention_HJ.argmax(-1) - MAX_OFFSET

    @property
    def favourite_share_H(self) -> Tensor:
        """The mean attention of each head at its favourite offset."""
        return self._frequent_attention_HJ.amax(-1)

    @property
    def _frequent_attention_HJ(self) -> Tensor:
        """Mean attention by offset, zero at offsets that few queries have: one pair of tokens would decide there."""
        return self.attention_by_offset_HJ.masked_fill(~self.frequent_J, 0.0)

    def get_attention_at(self, offset: int) -> Tensor:
        """Return each head's mean attention to the token ``offset`` positions after the query (negative: before)."""
        return self.attention_by_offset_HJ[:, MAX_OFFSET + offset]

    def name_head(self, head: int) -> str:
        """Return what gets at least half of the attention, an offset or one position; empty if neither does."""
        best = int(self.favourite_offset_H[head])
        if float(self.favourite_share_H[head]) >= MOSTLY:
            return {-1: "previous token", 0: "itself", 1: "next token"}.get(best, f"offset {best:+d}")
        place = int(self.place_H[head])
        name = f"position {place}" if place else "first position"
        return name if float(self.place_share_H[head]) >= MOSTLY else ""


class HeadSums:
    """Sums over the attention of one layer, taken batch by batch.

    They are length² numbers for each head and group of texts, and one number for each text and head.
    """

    def __init__(self, ordinary_T: Bool[Tensor, " T"]) -> None:
        self.ordinary_T, self.sums = ordinary_T, PositionSums()
        self.place_sums_HT = torch.zeros(())
        self.mask_ST = torch.ones(1, 1, dtype=torch.bool)
        self.distances: list[Tensor] = []

    def add(self, computed: ComputedAttention) -> None:
        """Add the attention of one batch."""
        ordinary = self.ordinary_T
        weights = computed.weights_BHST.cpu()
        ordinary_weights = weights if bool(ordinary.all()) else weights[:, :, ordinary][..., ordinary]
        places_HT = weights[:, :, ordinary].sum((0, 2), dtype=torch.float64) / int(ordinary.sum())
        self.place_sums_HT = self.place_sums_HT + places_HT
        # Assumed to be the mask of every text and head: windows have one length and no padding.
        self.mask_ST = computed.mask_BHST[0, 0].cpu()[ordinary][:, ordinary]
        # What goes to special tokens is left out, so that attention between ordinary tokens sums to 1 again.
        ordinary_weights = ordinary_weights / ordinary_weights.sum(-1, keepdim=True).clamp_min(1e-12)
        self.sums.add((ordinary_weights.double() - self._make_uniform()) * self.mask_ST)
        chosen = _choose_queries(self.mask_ST)
        by_query_BHS = ordinary_weights[:, :, chosen] * _list_offsets(len(self.mask_ST)).abs()[chosen]
        self.distances.append(by_query_BHS.sum(-1, dtype=torch.float64).mean(-1))

    def _make_uniform(self) -> Float[Tensor, "S T"]:
        """Return uniform attention over the keys that each query may attend to."""
        return self.mask_ST / self.mask_ST.sum(-1, keepdim=True).clamp_min(1)

    def summarise(self) -> HeadStatistics:
        """Return the statistics of every head."""
        num_texts, uniform_ST = self.sums.num_texts, self._make_uniform()
        mean_HST = self.sums.total_gHST.sum(0) / num_texts + uniform_ST
        by_position, by_position_interval_H2, _ = self.sums.estimate_shares()
        size = len(self.mask_ST)
        queries, offset_ST = _choose_queries(self.mask_ST), _list_offsets(size).double()
        counts = [int(self.mask_ST[offset_ST == offset].sum()) for offset in range(-MAX_OFFSET, MAX_OFFSET + 1)]
        return HeadStatistics(
            by_position_H=by_position,
            by_position_interval_H2=by_position_interval_H2,
            attention_by_offset_HJ=_average_offsets(mean_HST, offset_ST),
            place_shares_HT=self.place_sums_HT / num_texts,
            distance_NH=torch.cat(self.distances),
            uniform_distance=float((uniform_ST * offset_ST.abs()).sum(-1)[queries].mean()),
            uniform_by_offset_J=_average_offsets(uniform_ST[None], offset_ST)[0],
            frequent_J=torch.tensor(counts) >= size / 2,
        )


def _choose_queries(mask_ST: Bool[Tensor, "S T"]) -> slice:
    """Return the queries to count: the middle half where keys lie on both sides, all but the first four where not.

    Queries near the ends have keys on one side only, and the first ones under a causal mask have hardly any choice.
    """
    size = len(mask_ST)
    causal = not bool(mask_ST.triu(1).any())
    return slice(min(4, size - 1), size) if causal else slice(size // 4, max(size // 4 + 1, 3 * size // 4))


def _list_offsets(size: int) -> Int[Tensor, "S T"]:
    """Return key less query for every pair of so many positions."""
    return torch.arange(size) - torch.arange(size)[:, None]


def _average_offsets(mean_HST: Tensor, offset_ST: Tensor) -> Tensor:
    """Return mean attention at each offset from -MAX_OFFSET to MAX_OFFSET, over all pairs of tokens at that offset.

    A pair that the mask forbids counts as well, with an attention of zero.
    """
    offsets = range(-MAX_OFFSET, MAX_OFFSET + 1)
    # The mean of no pair at all, at offsets beyond the window, is NaN.
    return torch.stack([mean_HST[:, offset_ST == offset].mean(-1) for offset in offsets], dim=-1).nan_to_num()


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
) -> Iterator[tuple[tuple[int, int], Sink]]:
    """Say of heads that look at one position what each follows."""
    ids, counts = capture.ids_NT[:, position].unique(return_counts=True)
    token, nan = int(ids[counts.argmax()]), float("nan")
    if int(counts.max()) < SAME_TOKEN * capture.num_texts:
        yield from ((at, Sink(position, "", "position", nan, nan, nan)) for at in heads)
        return
    text = str(token) if subject.tokenizer is None else decode_tokens(subject.tokenizer, [token])[0]
    places = capture.ordinary_T.nonzero().flatten()
    places = places[places != position]
    other = int(places[len(places) // 4])
    rows = ((capture.ids_NT[:, position] == token) & (capture.ids_NT[:, other] != token)).nonzero().flatten()
    rows = rows[:MOST_TEXTS]
    if len(rows) < 2:
        yield from ((at, Sink(position, text, "undecided", nan, nan, nan)) for at in heads)
        return

    def average_queries(computed: ComputedAttention) -> Float[Tensor, "B H two"]:
        """Return the mean attention to the two places from ordinary tokens elsewhere that may attend to both."""
        queries = capture.ordinary_T & computed.mask_BHST[0, 0].cpu()[:, [position, other]].all(-1)
        queries[[position, other]] = False
        return computed.weights_BHST.cpu()[:, :, queries][..., [position, other]].double().mean(2)

    swapped_NT = capture.ids_NT.clone()
    swapped_NT[:, [position, other]] = capture.ids_NT[:, [other, position]]
    before, after = (
        [
            run_attention(subject, capture, ids_NT[some], average_queries, **capture.make_forward_options(some))
            for some in rows.split(BATCH)
        ]
        for ids_NT in (capture.ids_NT, swapped_NT)
    )
    for layer, head in heads:
        before_N2, after_N2 = (torch.cat([batch[layer] for batch in run])[:, head] for run in (before, after))
        yield (layer, head), _decide(position, text, before_N2, after_N2)


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
