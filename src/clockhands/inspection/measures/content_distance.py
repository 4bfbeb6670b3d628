"""What do tokens and distances add to attention together? The own terms of DeBERTa and Transformer-XL."""

from __future__ import annotations

import torch

from clockhands.findings import Finding, Table, draw_columns
from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.inspection.measures.measure import ATTENTION_HEADING, WINDOWS, Measure
from clockhands.inspection.number_format import describe_untrained, format_estimate, format_percent
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_split import (
    CONTENT,
    DISTANCE,
    PREFERRED_TOKENS,
    ROUNDING,
    TERMS,
    centre_logits,
    compute_means,
    sum_groups,
)
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

COLUMNS = ("query's words × distance", "key's words × distance", "distance alone", "preferred words", "words alone")
"""The shares that are compared, as columns of the table. Saved tables keep these names, in which a token is a word."""
SPLIT_GROUPS = (DISTANCE, PREFERRED_TOKENS, CONTENT)
"""The last three of ``COLUMNS``, as groups of terms of the split logits."""
LABELS = ("query's token × distance", "key's token × distance", "distance alone", "preferred tokens", "tokens alone")
"""The same shares as the figure names them."""


def separate_terms(layer: Layer) -> tuple[Float[Tensor, "B H S T"], Float[Tensor, "B H S T"]]:
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
        query_N, key_N = ((term * logits).sum((1, 2, 3)).cpu() for term in separate_terms(layer))
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
                "No effect of tokens together with distances was found: they account for "
                f"{together} of the variance of the logits ({numbers})."
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
