"""How the variance of a layer's attention logits divides over their terms, text by text.

``logit_parts`` says what the terms are. In names of tensors ``N`` are texts, ``t`` the terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from clockhands.inspection.reading.computed_attention import ComputedAttention
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_parts import PARTS, TERMS, LogitParts, split_by_batch
from clockhands.shapes import Bool, Float, Tensor


@dataclass(frozen=True)
class LogitSplit:
    """How the variance of one layer's logits divides over ``TERMS``, text by text.

    ``cov_NHt`` sums term × logit, for each of ``TERMS``, and ``var_NH`` logit², logits centred over the keys of each
    query; ``error`` is the reconstruction error of ``LogitParts.measure_error``, the worst over all texts.
    ``logit_sums_by_offset_HJ`` sums the centred logits of all texts over the pairs of each offset, from key 1-T to T-1
    positions after the query. All are in float64, on the CPU.
    """

    cov_NHt: Float[Tensor, "N H t"]
    var_NH: Float[Tensor, "N H"]
    error: float
    logit_sums_by_offset_HJ: Float[Tensor, "H J"]

    def compute_head_shares(self) -> Float[Tensor, "H t"]:
        """Return the shares of each head. A share can be slightly negative: a covariance can.

        Each row sums to 1; that of a head whose logits are all equal is 0.
        """
        return self.cov_NHt.sum(0) / self.var_NH.sum(0)[:, None].clamp_min(1e-30)

    def compute_layer_shares(self) -> Float[Tensor, " t"]:
        """Return the shares of the layer, all heads pooled: heads with large logits count for more."""
        return self.cov_NHt.sum((0, 1)) / self.var_NH.sum().clamp_min(1e-30)


def centre_logits(logits_BHST: Tensor, included_BHST: Bool[Tensor, "B H S T"]) -> Tensor:
    """Return logits less their mean over the included keys, zero elsewhere: softmax ignores a constant of a row."""
    included = torch.where(included_BHST, logits_BHST, 0.0)
    num_keys = included_BHST.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(included_BHST, included - included.sum(-1, keepdim=True) / num_keys, 0.0)


def split_logits(
    layer: Layer, ordinary_T: Bool[Tensor, " T"], observe: Callable[[ComputedAttention], None] = lambda computed: None
) -> LogitSplit:
    """Split the logits of one layer over all texts; only ordinary tokens count as queries and keys.

    ``observe`` is called with the attention of every batch, for whatever else is counted of it.
    """
    count, error = len(layer.inputs_NTD), 0.0
    cov = var = logit_sums_by_offset_HJ = torch.empty(0)
    for rows, parts in split_by_batch(layer):
        observe(parts.real)
        included = parts.real.mark_ordinary_pairs(ordinary_T)
        logits = centre_logits(parts.real.logits_BHST, included)
        if not cov.numel():
            cov = torch.zeros(count, logits.shape[1], len(TERMS), dtype=torch.float64)
            var = torch.zeros(count, logits.shape[1], dtype=torch.float64)
            logit_sums_by_offset_HJ = torch.zeros(logits.shape[1], 2 * logits.shape[-1] - 1, dtype=torch.float64)
        cov[rows] = _compute_covariances(parts, logits).cpu()
        var[rows] = logits.double().square().sum((-1, -2)).cpu()
        logit_sums_by_offset_HJ += sum_by_offset(logits.sum(0, dtype=torch.float64)).cpu()
        error = max(error, parts.measure_error())
    return LogitSplit(cov, var, error, logit_sums_by_offset_HJ)


def sum_by_offset(matrix_HTT: Float[Tensor, "H T T"]) -> Float[Tensor, "H J"]:
    """Sum each diagonal, from the one T-1 below the main diagonal to the one T-1 above it."""
    heads, length, _ = matrix_HTT.shape
    positions = torch.arange(length, device=matrix_HTT.device)
    offset_TT = positions - positions[:, None] + length - 1
    sums_HJ = matrix_HTT.new_zeros(heads, 2 * length - 1)
    return sums_HJ.index_add_(1, offset_TT.flatten(), matrix_HTT.flatten(1))


def _multiply_logits(term: Tensor | None, logits: Tensor) -> Tensor:
    """Return Σ_ij term · logit per text and head, B × H; no sum is formed for a term that is zero, as most are."""
    if term is None or not bool(term.any()):
        return torch.zeros(logits.shape[:2], dtype=torch.float64, device=logits.device)
    return (term * logits).sum((-1, -2), dtype=torch.float64)


def _compute_covariances(parts: LogitParts, logits: Tensor) -> Tensor:
    """Return Σ_ij term · logit for all terms, B × H × t.

    q·k is formed only where tokens choose positions; else Σ_ij q_i·k_j L_ij = Σ_i q_i · (L k)_i.
    """
    if parts.constant_product is not None:
        return torch.stack([_multiply_logits(parts.compute_term(name), logits) for name in TERMS], dim=-1)
    weighted_keys = {key: logits @ parts.k[key] for key in PARTS}
    columns = [
        parts.scale * (parts.q[query] * weighted_keys[key]).sum((-1, -2), dtype=torch.float64)
        for query in PARTS
        for key in PARTS
    ]
    columns += [_multiply_logits(parts.added[part], logits) for part in PARTS] + [
        _multiply_logits(parts.data_dependent, logits)
    ]
    return torch.stack(columns, dim=-1)
