"""Cross-entropy of the output layer in chunks of rows, so that the logits of a whole batch never exist at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from clockhands.errors import CheckpointError
from clockhands.shapes import Float, Int, Tensor

IGNORED_LABEL = -100
"""The label of a token that is not to be learnt, as in PyTorch."""
CHUNK_ROWS, CHUNK_LOGITS = 512, 1 << 19
"""Rows whose logits exist at a time: 512 rows of 32,000 float32 logits take 66 MB. Of a small vocabulary more, with up
to so many logits together."""
SmoothingMode = Literal["all", "others", "others-but-pad"]
"""Which tokens share the rate of ``LabelSmoothing``."""


def shift_right(labels_BS: Int[Tensor, "B S"], config: Any) -> Int[Tensor, "B S"]:
    """Return what the decoder reads while it learns labels, [B, S]: the start token, then every label but the last.

    Raises CheckpointError where the configuration names no start token.
    """
    start = config.find_start_token()
    if start is None:
        raise CheckpointError("the decoder needs a start token: set decoder_start_token_id or bos_token_id")
    shifted_BS = torch.cat([torch.full_like(labels_BS[:, :1], start), labels_BS[:, :-1]], dim=1)
    # Ignored labels are padding at the end, where nothing is learnt: without a padding token any id will do.
    return shifted_BS.masked_fill(shifted_BS == IGNORED_LABEL, config.pad_token_id or 0)


@dataclass(frozen=True)
class LabelSmoothing:
    """The distribution to learn: ``1 - rate`` on the right token, ``rate`` spread over others (Szegedy et al. 2016).

    Implementations of label smoothing differ in which tokens share the rate: ``all`` V tokens, the right one included
    (PyTorch, transformers, recent OpenNMT-py); the V - 1 ``others`` (Tensor2Tensor, fairseq); ``others-but-pad``, the
    V - 2 that are not the padding token ``pad_token_id`` either (the Annotated Transformer, JoeyNMT, earlier
    OpenNMT-py).
    """

    rate: float = 0.0
    mode: SmoothingMode = "all"
    pad_token_id: int | None = None


def cross_entropy(
    states_ND: Float[Tensor, "*N D"],
    weight_VD: Float[Tensor, "V D"],
    bias_V: Float[Tensor, " V"] | None,
    labels_N: Int[Tensor, "*N"],
    smoothing: LabelSmoothing,
    num_items: int | Tensor | None = None,
) -> Float[Tensor, ""]:
    """Compute -Σ q·log p, in nats, over the rows whose label is not -100, divided by ``num_items``.

    ``states_ND`` are [..., D] and ``labels_N`` [...]; q is the distribution that ``smoothing`` describes, p the softmax
    of the logits. ``num_items`` is what the Trainer passes as ``num_items_in_batch``, so that gradient accumulation
    weighs every token alike; None: the number of those rows.
    """
    states_ND, labels_N = states_ND.reshape(-1, states_ND.shape[-1]), labels_N.reshape(-1)
    device = states_ND.device.type
    # Autocast does not reach into an autograd.Function, which is given the type of its products.
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    if not torch.is_grad_enabled():
        # The forward pass computes gradients if an input requires one, and parameters do so even under no_grad.
        states_ND, weight_VD = states_ND.detach(), weight_VD.detach()
        bias_V = None if bias_V is None else bias_V.detach()
    places_N = (labels_N != IGNORED_LABEL).nonzero()[:, 0]
    total = _ChunkedCrossEntropy.apply(states_ND, weight_VD, bias_V, labels_N, places_N, smoothing, dtype)
    return total / (max(len(places_N), 1) if num_items is None else num_items)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """The summed loss; the forward pass computes the gradients of all inputs too, while the logits of a chunk exist."""

    @staticmethod
    def forward(
        ctx: Any,
        states_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        labels_N: Tensor,
        places_N: Tensor,
        smoothing: LabelSmoothing,
        product_dtype: torch.dtype | None,
    ) -> Tensor:
        needs_grad = any(ctx.needs_input_grad[:3])
        weight = weight_VD if product_dtype is None else weight_VD.to(product_dtype)
        total = torch.zeros((), dtype=torch.promote_types(states_ND.dtype, torch.float32), device=states_ND.device)
        grad_states_ND = torch.zeros_like(states_ND) if needs_grad else None
        grad_weight_VD = torch.zeros_like(weight_VD, dtype=total.dtype) if needs_grad else None
        grad_bias_V = torch.zeros_like(bias_V, dtype=total.dtype) if needs_grad and bias_V is not None else None
        for part in places_N.split(max(CHUNK_ROWS, CHUNK_LOGITS // len(weight))):
            rows = states_ND.index_select(0, part).to(weight.dtype)
            logits_NV = (rows @ weight.T).to(total.dtype)
            if bias_V is not None:
                logits_NV += bias_V
            loss, error_NV = _compute_chunk_loss(logits_NV, labels_N[part], smoothing)
            total += loss
            if grad_states_ND is None or grad_weight_VD is None:
                continue
            if grad_bias_V is not None:
                grad_bias_V += error_NV.sum(0)
            error_NV = error_NV.to(weight.dtype)
            grad_states_ND.index_copy_(0, part, (error_NV @ weight).to(states_ND.dtype))
            grad_weight_VD += error_NV.T @ rows
        if grad_weight_VD is not None:
            ctx.save_for_backward(grad_states_ND, grad_weight_VD.to(weight_VD.dtype), grad_bias_V)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad_total,) = grads
        grad_states_ND, grad_weight_VD, grad_bias_V = ctx.saved_tensors
        scaled_bias = None if grad_bias_V is None else grad_bias_V * grad_total
        return grad_states_ND * grad_total, grad_weight_VD * grad_total, scaled_bias, None, None, None, None


def _compute_chunk_loss(
    logits_NV: Float[Tensor, "N V"], labels_N: Int[Tensor, " N"], smoothing: LabelSmoothing
) -> tuple[Float[Tensor, ""], Float[Tensor, "N V"]]:
    """Compute the summed loss of some rows, and its gradient by their logits, p - q: [N, V]."""
    # Every token that smoothing reaches gets ``share``, and the right one ``extra`` besides, so that the loss over all
    # tokens is one sum. Where only other tokens share the rate, both together are 1 - rate.
    excluded_id = smoothing.pad_token_id if smoothing.rate and smoothing.mode == "others-but-pad" else None
    others = logits_NV.shape[1] - (smoothing.mode != "all") - (excluded_id is not None)
    share = smoothing.rate / max(others, 1)
    extra = 1 - smoothing.rate - (share if smoothing.mode != "all" else 0.0)
    log_p_NV = torch.log_softmax(logits_NV, dim=-1)
    loss = -extra * log_p_NV.gather(1, labels_N[:, None]).sum()
    if share:
        loss -= share * log_p_NV.sum()
    if excluded_id is not None:
        loss += share * log_p_NV[:, excluded_id].sum()
    error_NV = log_p_NV.exp_()
    if share:
        error_NV.sub_(share)
    if excluded_id is not None:
        error_NV[:, excluded_id] += share
    error_NV.scatter_add_(1, labels_N[:, None], error_NV.new_full((len(labels_N), 1), -extra))
    return loss, error_NV
