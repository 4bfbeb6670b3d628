"""DeBERTa's and Transformer-XL's own terms: what words and distances add to the logits together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

from clockhands.findings import Figure, Finding, Panel, Table
from clockhands.inspection.drawing import mark, percent, percent_range, reference_untrained
from clockhands.inspection.estimators.intervals import bootstrap_layer_mean
from clockhands.inspection.measures.measure import ATTENTION, WINDOWS, Measure
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_split import TERMS, Split, centre_logits, compute_means
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.term_groups import sum_groups
from clockhands.shapes import Bool, Float, Tensor

COLUMNS = ("query's words × distance", "key's words × distance", "distance alone", "preferred words", "words alone")
_GROUPS = ("distance (kernel and bias)", "preferred words (constant–content)", "content–content")
LEAST = 1e-6
Sums: TypeAlias = tuple[Float[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, " B"]]
"""Σ f · logit, Σ g · logit and Σ logit² of one layer, text by text."""


def separate_terms(layer: Layer) -> tuple[Float[Tensor, "B H S T"], Float[Tensor, "B H S T"]]:
    """f and g of the first texts, off the diagonal; the means are those of the other texts, if there are others."""
    x_BTD = layer.inputs_NTD[: layer.batch]
    rest = torch.arange(len(x_BTD), len(layer.inputs_NTD))
    mean, place = compute_means(layer, rest if len(rest) else torch.arange(len(x_BTD)))
    blank_BTD = (mean + place).expand_as(x_BTD)
    flat_BHST = layer.bias(layer.replay(blank_BTD))
    asked, answered = torch.zeros_like(flat_BHST), torch.zeros_like(flat_BHST)
    places = torch.arange(x_BTD.shape[1])
    for bit in range(max(1, (len(places) - 1).bit_length())):
        lower, digit = places % 2**bit, (places >> bit) % 2 == 1
        first_ST = (lower[:, None] == lower) & (digit[:, None] != digit)  # the lowest digit in which i and j differ
        for real_T in (digit, ~digit):
            mixed_BTD = torch.where(real_T.to(x_BTD.device)[:, None], x_BTD, blank_BTD)
            change = layer.bias(layer.replay(mixed_BTD)) - flat_BHST
            asked += change * (first_ST & real_T[:, None]).to(change.device)
            answered += change * (first_ST & real_T).to(change.device)
    return asked, answered


def _shares(sums: Sums) -> tuple[float, float]:
    """Return the shares of f and g in the variance of the logits."""
    asked_B, answered_B, variance_B = sums
    variance = float(variance_B.sum().clamp_min(1e-30))
    return float(asked_B.sum()) / variance, float(answered_B.sum()) / variance


def word_sums(layer: Layer, ordinary_T: Bool[Tensor, " T"]) -> Sums:
    """Compute Σ f · logit, Σ g · logit and Σ logit² of the first texts, one number for each."""
    real = layer.replay(layer.inputs_NTD[: layer.batch])
    logits = centre_logits(real.logits_BHST, real.mark_counted(ordinary_T)).double()
    asked_B, answered_B = ((term * logits).sum((1, 2, 3)).cpu() for term in separate_terms(layer))
    return asked_B, answered_B, logits.square().sum((1, 2, 3)).cpu()


class WordTerms(Measure):
    """What the words of queries, and those of keys, have to do with distances; beside the other terms, by layer."""

    name = "kernel.terms"
    question = "Which words listen to distances?"
    references = ("untrained",)
    method = (
        "What the layer adds itself is affine in its input: E_ij = c_ij + f_ij(word i) + g_ij(word j). f is what the "
        "query's word asks of a distance (DeBERTa's content to position, Transformer-XL's q·r), g what the key's word "
        "answers (DeBERTa's position to content). The layer is run on texts in which some tokens are replaced by the "
        "mean of their place: where i is real and j is not, E tells f alone. Two texts for each binary digit of a "
        "place reach all pairs of two tokens; of a token with itself f and g cannot be told apart, and it is left "
        "out. Beside them the distance alone (c_ij with what the constant's queries and keys give; v·r) and preferred "
        "words (u·k). Shares of the variance of the logits as in the split; f and g in the first texts. Interval: "
        "texts resampled. Untrained: fresh weights."
    )
    source = "He et al. 2021 (DeBERTa), eq. 2; Dai et al. 2019 (Transformer-XL), section 3.3"
    group = ATTENTION
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        capture, splits, control = reading.capture, reading.splits, reading.control
        added = [abs(float(split.layer_shares()[TERMS.index("added, content")])) for split in splits]
        if max(added) < LEAST:
            return self.skip(f"Nothing that is added here depends on a word. {reading.subject.mechanism_sentence}")
        if any(layer.needs_holding for layer in capture.layers):
            return self.skip("Norms of queries and keys stand between the words and what they add.")
        sums = _sums(capture)
        rows = _rows(sums, splits)
        low, high = _interval(sums)
        asked, answered = (sum(row[column] for row in rows) / len(rows) for column in (0, 1))
        fresh = _rows(_sums(control.capture), control.splits) if control else None
        start = sum(row[0] + row[1] for row in fresh) / len(fresh) if fresh else None
        untrained = f"; untrained {percent(start)}" if start is not None else ""
        return self.finding(
            _describe(asked, answered, low, f"95 % interval {percent_range(low, high)}{untrained}"),
            asked + answered,
            interval=(low, high),
            references=reference_untrained(start),
            light="info",
            table=Table.of(("layer", *COLUMNS), [(index + 1, *row) for index, row in enumerate(rows)]),
            figure=_figure(rows),
            details={"query_words": asked, "key_words": answered},
        )


def _describe(asked: float, answered: float, low: float, numbers: str) -> str:
    """Say how much the words decide at distances, where the interval of both together lies above zero."""
    together = percent(asked + answered)
    if low <= 0:
        return f"No effect of words together with distances on the logits was found ({together}, {numbers})."
    return (
        f"What the query's word asks of distances decides {percent(asked)} of the logits, what the key's word answers "
        f"{percent(answered)}, on average over layers (together {together}, {numbers})."
    )


def _sums(capture: Capture) -> list[Sums]:
    """Compute ``word_sums`` of every layer."""
    return [word_sums(layer, capture.ordinary_T) for layer in capture.layers]


def _interval(sums: Sequence[Sums]) -> tuple[float, float]:
    """Return the 95 % interval of both shares together, texts resampled."""
    return bootstrap_layer_mean(
        torch.stack([asked + answered for asked, answered, _ in sums]), torch.stack([variance for *_, variance in sums])
    )


def _figure(rows: Sequence[Sequence[float]]) -> Figure:
    names = [str(index + 1) for index in range(len(rows))]
    stacks = [mark("stack", names, [row[column] for row in rows], label=name) for column, name in enumerate(COLUMNS)]
    return Figure((Panel(tuple(stacks), xlabel="layer", ylabel="share of logit variance"),))


def _rows(sums: Sequence[Sums], splits: Sequence[Split]) -> list[tuple[float, ...]]:
    """Return ``COLUMNS`` for every layer."""
    found = []
    for layer_sums, split in zip(sums, splits, strict=True):
        groups = sum_groups(split.layer_shares())
        found.append((*_shares(layer_sums), *(groups[name] for name in _GROUPS)))
    return found
