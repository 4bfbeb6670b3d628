"""Does a layer attend by content or by position? The split of its logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from clockhands.findings import SHARE, Finding, Table, join_words
from clockhands.inspection.measures.logit_figure import EXPLAIN_POSITION_ALONE, SPLIT_METHOD, SPLIT_SOURCE, draw_shares
from clockhands.inspection.measures.measure import ATTENTION_HEADING, WINDOWS, Measure, make_untrained_reference
from clockhands.inspection.number_format import format_percent, format_percent_range
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_parts import DATA_DEPENDENT, TERMS
from clockhands.inspection.reading.logit_split import LogitSplit
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.term_groups import (
    CONTENT,
    POSITIONAL,
    ROUNDING,
    compute_group_interval,
    compute_positional_share,
    sum_groups,
)
from clockhands.shapes import Tensor

EXACT = 1e-4
"""The largest relative error of a split that counts as exact."""


class LogitLayers(Measure):
    """The split of every layer's logits, with the reconstruction error."""

    name = "logits.layers"
    question = "Does a layer attend by content or by position?"
    references = ("untrained",)
    method = SPLIT_METHOD
    source = SPLIT_SOURCE
    heading = ATTENTION_HEADING
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every layer; the value is the share of position alone in the first."""
        splits = reading.logit_splits
        shares = [split.compute_layer_shares() for split in splits]
        positional = _compute_positional_shares(splits)
        untrained = _compute_positional_shares(reading.control.logit_splits) if reading.control else None
        error = max(split.error for split in splits)
        data_dependent = sum(float(share[TERMS.index(DATA_DEPENDENT)]) for share in shares) / len(shares)
        return self.make_finding(
            f"{_describe_ends(splits, untrained)} {_describe_exactness(error, data_dependent)} "
            f"{EXPLAIN_POSITION_ALONE}; measured on {reading.text_sentence}."
            f"{describe_equal_layers(reading.capture.layers)}",
            positional[0],
            unit=SHARE,
            interval=compute_group_interval(splits[0], *POSITIONAL),
            references=make_untrained_reference(untrained[0] if untrained else None),
            light="warn" if error > EXACT else "info",
            table=_make_table(shares, splits),
            figure=draw_shares([f"{index + 1}" for index in range(len(shares))], shares, "layer", untrained),
            details={"error": error, "positional": positional, "positional_untrained": untrained},
        )


def describe_equal_layers(layers: Sequence[Layer]) -> str:
    """Say which layers have the same weights in their attention, shared or copied; empty where all differ."""
    groups: list[list[Layer]] = []
    for layer in layers:
        same = next((group for group in groups if _have_equal_weights(group[0].module, layer.module)), None)
        if same is None:
            groups.append([layer])
        else:
            same.append(layer)
    return "".join(
        f" Layers {join_words(str(layer.index + 1) for layer in group)} have the same weights in their attention."
        for group in groups
        if len(group) > 1
    )


def _have_equal_weights(first: nn.Module, second: nn.Module) -> bool:
    ours, theirs = dict(first.named_parameters()), dict(second.named_parameters())
    return first is second or (
        bool(ours)
        and ours.keys() == theirs.keys()
        and all(
            weight.shape == theirs[name].shape and torch.equal(weight, theirs[name]) for name, weight in ours.items()
        )
    )


def _compute_positional_shares(splits: Sequence[LogitSplit]) -> list[float]:
    """Return the share of position alone, layer by layer."""
    return [compute_positional_share(split.compute_layer_shares()) for split in splits]


def _describe_ends(splits: Sequence[LogitSplit], untrained: Sequence[float] | None) -> str:
    """Say what position alone accounts for in the first layer and, of several, in the last; and untrained."""
    sentences = [_describe_layer(splits[0], "first")]
    if len(splits) > 1:
        sentences.append(_describe_layer(splits[-1], "last"))
    if untrained:
        last = f" and {format_percent(untrained[-1])} in the last" if len(splits) > 1 else ""
        sentences.append(
            f"Untrained, position alone accounts for {format_percent(untrained[0])} in the first layer{last}."
        )
    return " ".join(sentences)


def _describe_layer(split: LogitSplit, name: str) -> str:
    """Say what share of a layer's logits is due to position alone, where its interval lies above zero."""
    share, (low, high) = split.compute_layer_shares(), compute_group_interval(split, *POSITIONAL)
    value, content = format_percent(compute_positional_share(share)), format_percent(sum_groups(share)[CONTENT])
    interval = f"95 % interval {format_percent_range(low, high)}"
    if not float(split.var_NH.sum()) > 0:
        return f"The {name} layer attends to all tokens alike: the logits of a query are equal."
    if low <= 0:
        return (
            f"No effect of position alone on the {name} layer's logits was found ({value}, {interval}; content alone "
            f"{content})."
        )
    return (
        f"Position alone accounts for {value} of the variance of the {name} layer's logits ({interval}), content alone "
        f"for {content}."
    )


def _describe_exactness(error: float, data_dependent: float) -> str:
    """Say how closely the terms add up to the logits, and how much is data-dependent."""
    choice = ""
    if abs(data_dependent) > ROUNDING:
        choice = (
            f"Here tokens choose positions or change what is added to the logits: {format_percent(data_dependent)} of "
            "the logits' variance is data-dependent. "
        )
    if error <= EXACT:
        return f"{choice}The terms add up to the logits, with an error of at most {error:.0e} of the largest logit."
    size = format_percent(error) if error >= 0.001 else f"{100 * error:.2f} %"  # not 0.0 %
    return f"{choice}But the terms miss the logits by up to {size} of the largest logit: take them as a rough guide."


def _make_table(shares: Sequence[Tensor], splits: Sequence[LogitSplit]) -> Table:
    """List the share of position alone and of every term by layer, with the reconstruction error."""
    rows = [
        (index + 1, compute_positional_share(share), *share, split.error)
        for index, (share, split) in enumerate(zip(shares, splits, strict=True))
    ]
    return Table.of(("layer", "position alone", *TERMS, "reconstruction error"), rows)
