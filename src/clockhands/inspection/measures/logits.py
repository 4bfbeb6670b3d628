"""Does a layer, or a head, attend by content or by position? The split of its logits.

And what tokens and distances add to them together: the own terms of DeBERTa and Transformer-XL.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import SHARE, Figure, Finding, Table, draw_columns, join_words
from clockhands.inspection.estimators.intervals import bootstrap_ratio, compute_t_factor
from clockhands.inspection.measures.measure import ATTENTION_HEADING, WINDOWS, Measure
from clockhands.inspection.number_format import describe_untrained, format_estimate, format_percent
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_split import (
    CONTENT,
    DATA_DEPENDENT,
    DISTANCE,
    POSITIONAL,
    PREFERRED_TOKENS,
    ROUNDING,
    TERM_GROUPS,
    TERMS,
    LogitSplit,
    centre_logits,
    compute_group_interval,
    compute_means,
    compute_positional_share,
    sum_groups,
)
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

SPLIT_METHOD = (
    "The input of each attention layer is split into constant, position and content (x = μ + pos_t + rest), the "
    "layer is run on μ, on μ + pos and on x, and the logits become Σ_ab s q_a·k_b plus what the layer adds itself"
    " (biases over distances). Layer norms need no approximation, for the split is made after them; norms of "
    "queries and keys are frozen at the real input's. Positions that tokens choose themselves are frozen too; what "
    "that does to the constant's logits is the data-dependent term (where a scheme rewrites the logits by the tokens, "
    "as CoPE and DAPE do, what the content changes of all that is added). μ and pos come from the other half of the "
    "texts, so that a model without position scores 0 and not about 1/N with N texts. The share of a term is cov(term, "
    "logit) / var(logit) after centring each query's logits over its keys, which softmax cannot see; shares sum "
    "to 1 and can be slightly negative. Only ordinary tokens count. Interval: texts resampled; what "
    "content and position add is taken twice, since a text counts in the means of the other half too. Untrained: fresh "
    "weights."
)
"""How both measures split the logits, for their ``method``."""
SPLIT_SOURCE = (
    "Ke et al. 2021 (TUPE), eq. 6; Dai et al. 2019, section 3.3, for the constant's terms; made exact by replay"
)
"""Where the split comes from, for their ``source``."""
EXPLAIN_POSITION_ALONE = f"Position alone is the sum of the terms that no token changes: {join_words(POSITIONAL)}"
"""What position alone adds up, for verdicts that give its share."""
LEAST_DRAWN = 0.002
"""Groups whose share is below this in every column are not drawn."""


def _draw_shares(
    names: Sequence[str], shares: Sequence[Tensor] | Tensor, label: str, untrained: list[float] | None
) -> Figure:
    """Stack the shares of the groups of terms.

    Args:
        names: one for each column.
        shares: for each column the shares of ``TERMS``.
        label: of the horizontal axis.
        untrained: for each column the share of position alone in an untrained model; None where there is none.
    """
    columns = [sum_groups(share) for share in shares]
    heights = {group: [column[group] for column in columns] for group in TERM_GROUPS}
    return draw_columns(
        "stack",
        names,
        {group: values for group, values in heights.items() if max(map(abs, values)) > LEAST_DRAWN},
        title="What the logits of attention are made of",
        points={"position alone, untrained": untrained},
        xlabel=label,
        ylabel="share of logit variance",
    )


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
    by_hand = ("position_share", "four_terms")
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every layer; the value is the share of position alone in the first."""
        splits = reading.logit_splits
        shares = [split.compute_layer_shares() for split in splits]
        positional, untrained = [compute_positional_share(share) for share in shares], None
        if reading.control is not None:
            fresh = [split.compute_layer_shares() for split in reading.control.logit_splits]
            untrained = [compute_positional_share(share) for share in fresh]
        error = max(split.error for split in splits)
        data_dependent = sum(float(share[TERMS.index(DATA_DEPENDENT)]) for share in shares) / len(shares)
        return self.make_finding(
            f"{_describe_ends(splits, untrained)} {_describe_exactness(error, data_dependent)} "
            f"{EXPLAIN_POSITION_ALONE}; measured on {reading.text_sentence}."
            f"{_describe_fixed_tokens(reading)}{_describe_equal_layers(reading.capture.layers)}",
            positional[0],
            unit=SHARE,
            interval=compute_group_interval(splits[0], *POSITIONAL),
            untrained=untrained[0] if untrained else None,
            light="warn" if error > EXACT else "info",
            table=Table.of(
                ("layer", "position alone", *TERMS, "reconstruction error"),
                [
                    (index + 1, positional[index], *share, split.error)
                    for index, (share, split) in enumerate(zip(shares, splits, strict=True))
                ],
            ),
            figure=_draw_shares([f"{index + 1}" for index in range(len(shares))], shares, "layer", untrained),
            details={"error": error, "positional": positional, "positional_untrained": untrained},
        )


def _describe_fixed_tokens(reading: Reading) -> str:
    """Name the heads that follow a token which always stands at one position, where the split sees no difference."""
    heads = [at for at, sink in reading.sinks.items() if sink.follows != "position"]
    if not heads:
        return ""
    names = join_words(f"layer {layer + 1} head {head + 1}" for layer, head in heads)
    look, follow = ("looks", "follows") if len(heads) == 1 else ("look", "follow")
    return (
        f" One token of this text always stands where {names} {look} and {follow} it, or that is undecided: what it "
        "does counts as position here."
    )


def _describe_equal_layers(layers: Sequence[Layer]) -> str:
    """Say which layers have the same weights in their attention, shared or copied; empty where all differ."""
    groups: list[list[Layer]] = []
    for layer in layers:
        ours = dict(layer.module.named_parameters())
        for group in groups:
            first = dict(group[0].module.named_parameters())
            equal = ours.keys() == first.keys() and all(torch.equal(ours[name], first[name]) for name in ours)
            if layer.module is group[0].module or (ours and equal):
                group.append(layer)
                break
        else:
            groups.append([layer])
    return "".join(
        f" Layers {join_words(str(layer.index + 1) for layer in group)} have the same weights in their attention."
        for group in groups
        if len(group) > 1
    )


def _describe_ends(splits: Sequence[LogitSplit], untrained: Sequence[float] | None) -> str:
    """Say what position alone accounts for in the first layer and, of several, in the last; and untrained.

    That it accounts for anything is said where the interval lies above zero.
    """
    sentences, ends = [], [(splits[0], "first")]
    if len(splits) > 1:
        ends.append((splits[-1], "last"))
    for split, name in ends:
        share, (low, high) = split.compute_layer_shares(), compute_group_interval(split, *POSITIONAL)
        value, interval = format_estimate(compute_positional_share(share), low, high)
        content = format_percent(sum_groups(share)[CONTENT])
        if not float(split.var_NH.sum()) > 0:
            sentence = f"The {name} layer attends to all tokens alike: the logits of a query are equal."
        elif low <= 0:
            sentence = (
                f"Whether position alone has an effect on the {name} layer's logits is undecided ({value}, {interval}; "
                f"content alone {content})."
            )
        else:
            sentence = (
                f"Position alone accounts for {value} of the variance of the {name} layer's logits ({interval}), "
                f"content alone for {content}."
            )
        sentences.append(sentence)
    if untrained:
        last = f" and {format_percent(untrained[-1])} in the last" if len(splits) > 1 else ""
        sentences.append(
            f"Untrained, position alone accounts for {format_percent(untrained[0])} in the first layer{last}."
        )
    return " ".join(sentences)


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
    size = format_percent(error)
    return f"{choice}But the terms miss the logits by up to {size} of the largest logit: take them as a rough guide."


_POSITION_ALONE = [TERMS.index(term) for name in POSITIONAL for term in TERM_GROUPS[name]]


class LogitHeads(Measure):
    """The split of every head; drawn for the layer with the head in which the share of position alone is largest."""

    name = "logits.heads"
    question = "Which heads have logits that depend on position?"
    references = ("untrained",)
    method = SPLIT_METHOD + (
        " The interval is that of the one head that is named, as if it had been chosen before. An effect is told where "
        "it would lie above zero even if it were as wide as it must be for one of so many heads (Bonferroni). How many "
        "heads attend by position is counted on their attention, and there alone; a head that follows the token at one "
        "position, or of which that is undecided, is neither named nor counted in the median."
    )
    source = SPLIT_SOURCE
    heading = ATTENTION_HEADING
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every head; the value is the largest share that position alone has in the logits of one."""
        splits = reading.logit_splits
        shares_LH, untrained_LH = reading.with_control(compute_head_shares)
        ranked_LH = shares_LH.clone()
        for at, sink in reading.sinks.items():
            if sink.follows != "position":  # it looks there for the token, or that is undecided
                ranked_LH[at] = -torch.inf
        if not bool(ranked_LH.isfinite().any()):
            return self.skip("Every head follows a token that always stands at one position, or that is undecided.")
        layer, head = divmod(int(ranked_LH.argmax()), shares_LH.shape[1])
        value, split = float(shares_LH[layer, head]), splits[layer]
        low, high = compute_group_interval(split, *POSITIONAL, head=head)
        untrained = None if untrained_LH is None else float(untrained_LH.max())
        term_shares = split.compute_head_shares()
        share, interval = format_estimate(value, low, high)
        control = "" if untrained is None else f"; the largest untrained {format_percent(untrained)}"
        named, median = (
            f"layer {layer + 1} head {head + 1}",
            format_percent(float(ranked_LH[ranked_LH.isfinite()].quantile(0.5))),
        )
        verdict = (
            "The share of position alone in the variance of its logits is largest in "
            f"{named}, {share} ({interval}{control}); the median head has {median}."
        )
        # The largest of so many heads lies above zero by chance: its interval counts as one of them (Bonferroni).
        wider = compute_t_factor(len(split.var_NH) - 1, shares_LH.numel()) / 1.96
        if value - wider * (value - low) <= 0:
            verdict = (
                "Whether position alone has an effect on the logits of any head is undecided: its largest share in "
                f"their variance, {share} in {named}, may be chance ({interval} for this head alone, before it is "
                f"judged as the largest of all{control}); the median head has {median}."
            )
        if not any(float(of_layer.var_NH.sum()) > 0 for of_layer in splits):
            verdict = "Every head attends to all tokens alike: the logits of a query are equal."
        return self.make_finding(
            verdict,
            value,
            unit=SHARE,
            interval=(low, high),
            untrained=untrained,
            table=Table.of(
                ("layer", "head", "position alone", *TERMS),
                [
                    (index + 1, number, shares_LH[index, number - 1], *row)
                    for index, of_layer in enumerate(splits)
                    for number, row in enumerate(of_layer.compute_head_shares(), 1)
                ],
            ),
            figure=_draw_shares(
                [str(number + 1) for number in range(len(term_shares))], term_shares, f"head of layer {layer + 1}", None
            ),
            details={"layer": layer + 1, "part_of_layer_variance": (split.var_NH.sum(0) / split.var_NH.sum()).tolist()},
        )


def compute_head_shares(reading: Reading) -> Float[Tensor, "L H"]:
    """Return the share of position alone in the logits of every head."""
    return torch.stack([split.compute_head_shares()[:, _POSITION_ALONE].sum(-1) for split in reading.logit_splits])


COLUMNS = ("query's words × distance", "key's words × distance", "distance alone", "preferred words", "words alone")
"""The shares that are compared, as columns of the table. Saved tables keep these names, in which a token is a word."""
SPLIT_GROUPS = (DISTANCE, PREFERRED_TOKENS, CONTENT)
"""The last three of ``COLUMNS``, as groups of terms of the split logits."""
LABELS = ("query's token × distance", "key's token × distance", "distance alone", "preferred tokens", "tokens alone")
"""The same shares as the figure names them."""


def _separate_terms(layer: Layer) -> tuple[Float[Tensor, "B H S T"], Float[Tensor, "B H S T"]]:
    """Separate what a layer adds to the logits of its first texts into f_ij(token i) and g_ij(token j).

    The layer adds E_ij = c_ij + f_ij(token i) + g_ij(token j). Run on an input in which only token i is real and j is
    the mean of its position, it adds c_ij + f_ij; on means alone it adds c_ij. All pairs of two tokens are reached by
    two runs for each binary digit of a position: one keeps the tokens whose digit is 1 and one those whose digit is 0.
    Each pair is read in the runs of the lowest digit in which its positions differ.

    Returns:
        f and g of the first ``layer.batch`` texts, zero on the diagonal. The means are those of the other texts where
        there are any.
    """
    x_BTD = layer.inputs_NTD[: layer.batch]
    others = torch.arange(len(x_BTD), len(layer.inputs_NTD))
    mean, position = compute_means(layer, others if len(others) else torch.arange(len(x_BTD)))
    means_BTD = (mean + position).expand_as(x_BTD)
    constant_BHST = layer.compute_bias(layer.replay(means_BTD))
    f_BHST, g_BHST = torch.zeros_like(constant_BHST), torch.zeros_like(constant_BHST)
    positions = torch.arange(x_BTD.shape[1])
    for bit in range(max(1, (len(positions) - 1).bit_length())):
        lower_digits, digit_T = positions % 2**bit, (positions >> bit) % 2 == 1
        # Pairs of positions that differ in this digit and in no lower one are read in these two runs.
        read_ST = (lower_digits[:, None] == lower_digits) & (digit_T[:, None] != digit_T)
        for real_T in (digit_T, ~digit_T):
            mixed_BTD = torch.where(real_T.to(x_BTD.device)[:, None], x_BTD, means_BTD)
            change_BHST = layer.compute_bias(layer.replay(mixed_BTD)) - constant_BHST
            f_BHST += change_BHST * (read_ST & real_T[:, None]).to(change_BHST.device)
            g_BHST += change_BHST * (read_ST & real_T).to(change_BHST.device)
    return f_BHST, g_BHST


def _measure_layers(reading: Reading) -> tuple[list[tuple[float, ...]], Float[Tensor, "L N"], Float[Tensor, "L N"]]:
    """Return the shares of ``COLUMNS`` of every layer; and Σ (f + g) · logit and Σ logit², by layer and text.

    The sums are over the ordinary tokens of the first ``layer.batch`` texts, in float64.
    """
    rows, products, squares = [], [], []
    for layer, split in zip(reading.capture.layers, reading.logit_splits, strict=True):
        real = layer.replay(layer.inputs_NTD[: layer.batch])
        logits = centre_logits(real.logits_BHST, real.mark_ordinary_pairs(reading.capture.ordinary_T)).double()
        query_N, key_N = ((term * logits).sum((1, 2, 3)).cpu() for term in _separate_terms(layer))
        squares_N = logits.square().sum((1, 2, 3)).cpu()
        variance = float(squares_N.sum().clamp_min(1e-30))
        groups = sum_groups(split.compute_layer_shares())
        both = (float(query_N.sum()) / variance, float(key_N.sum()) / variance)
        rows.append((*both, *(groups[name] for name in SPLIT_GROUPS)))
        products.append(query_N + key_N)
        squares.append(squares_N)
    return rows, torch.stack(products), torch.stack(squares)


class ContentDistance(Measure):
    """What a query's token, and a key's token, together with the distance add to the logits of every layer."""

    name = "kernel.terms"  # saved findings keep this name; no kernel of attention is meant
    question = "What do tokens and distances add to attention together?"
    references = ("untrained",)
    method = (
        "What the layer adds to the logits is affine in its input: E_ij = c_ij + f_ij(token i) + g_ij(token j). f is "
        "the part of the query's token (DeBERTa's content to position, Transformer-XL's q·r), g that of the key's "
        "token (DeBERTa's position to content). The layer is run on texts in which some tokens are replaced by the "
        "mean of their position: where i is real and j is not, E − c is f alone. Two texts for each binary digit of a "
        "position reach all pairs of two tokens; of a token with itself f and g cannot be told apart, and it is left "
        "out. Beside them stand distance alone (c_ij with what the constant's queries and keys give; v·r), "
        "preferred tokens, which attract every query alike (u·k), and tokens alone. A share is cov(part, logit) / "
        "var(logit), each query's logits centred over its keys; f and g in the first batch of texts. Interval: texts "
        "resampled. Untrained: fresh weights."
    )
    source = "He et al. 2021 (DeBERTa), eq. 2; Dai et al. 2019 (Transformer-XL), section 3.3"
    heading = ATTENTION_HEADING
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every layer; the value is the share of f and g together, the mean over layers."""
        reason = _find_fault(reading)
        if reason:
            return self.skip(reason)
        (shares, products_LN, squares_LN), control = reading.with_control(_measure_layers)
        low, high = bootstrap_ratio(products_LN, squares_LN)
        query, key = (sum(row[column] for row in shares) / len(shares) for column in (0, 1))
        untrained = sum(row[0] + row[1] for row in control[0]) / len(control[0]) if control else None
        together, interval = format_estimate(query + key, low, high)
        numbers = f"{interval}{describe_untrained(untrained)}"
        verdict = (
            f"The query's token together with the distance accounts for {format_percent(query)} of the variance of the "
            f"logits, the key's token together with the distance for {format_percent(key)}, on average over layers "
            f"(the two together {together}, {numbers})."
        )
        if low <= 0:
            verdict = (
                f"Whether tokens together with distances have an effect is undecided: they account for {together} of "
                f"the variance of the logits ({numbers})."
            )
        return self.make_finding(
            verdict,
            query + key,
            untrained=untrained,
            interval=(low, high),
            table=Table.of(("layer", *COLUMNS), [(index + 1, *row) for index, row in enumerate(shares)]),
            figure=draw_columns(
                "stack",
                [str(index + 1) for index in range(len(shares))],
                dict(zip(LABELS, zip(*shares, strict=True), strict=True)),
                title="Content, distance and both together, by layer",
                xlabel="layer",
                ylabel="share of logit variance",
            ),
            details={"query_words": query, "key_words": key},
        )


def _find_fault(reading: Reading) -> str:
    """Say why what is added to the logits cannot be separated; empty where it can."""
    layers = reading.capture.layers
    # There the split has what tokens add in its term ``data-dependent``, and none in ``added, content``.
    if any(layer.locates_tokens for layer in layers):
        return (
            "Tokens choose their positions here, so that what positions add to the logits is not affine in the input."
        )
    if any(layer.rewrites_logits for layer in layers):
        return "Logits are rewritten by the tokens here, so that what is added is not affine in the input."
    content = TERMS.index("added, content")
    if max(abs(float(split.compute_layer_shares()[content])) for split in reading.logit_splits) < ROUNDING:
        return f"Nothing that is added to its logits depends on a token. {reading.subject.mechanism_sentence}"
    if any(layer.needs_freezing for layer in layers):
        return "Queries and keys are normalised here, so that what is added is not affine in the input."
    return ""
