"""The norms of a model: of its states, and of the heads of queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.model.config import TransformerConfig
from clockhands.shapes import Float, Int, Tensor


def make_norm(config: TransformerConfig) -> nn.Module:
    """Make the norm of the configuration: a layer norm, or a root mean square norm (Zhang & Sennrich 2019)."""
    if config.norm_kind == "rms":
        return nn.RMSNorm(config.d_model, eps=config.norm_eps)
    return nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=config.norm_bias)


def make_head_norm(config: TransformerConfig, width: int) -> nn.RMSNorm | None:
    """Make the norm of queries or keys, whose heads have ``width`` channels together; None if there is no norm."""
    if config.query_key_norm == "none":
        return None
    return nn.RMSNorm(config.resolved_head_dim if config.query_key_norm == "head" else width, eps=config.norm_eps)


def normalise_heads(x_BHSK: Float[Tensor, "B H S K"], norm: nn.RMSNorm) -> Float[Tensor, "B H S K"]:
    """Normalise the heads of queries or keys [B, H, S, K]: each alone, or all together if ``norm`` is H·K wide."""
    if norm.normalized_shape[0] == x_BHSK.shape[-1]:
        return norm(x_BHSK)
    joined_BSI = norm(x_BHSK.transpose(1, 2).flatten(2))
    return joined_BSI.unflatten(2, (x_BHSK.shape[1], x_BHSK.shape[3])).transpose(1, 2)


class FusedLinear(nn.Linear):
    """Several projections of one input in one matrix product; each is initialised as if it were a layer of its own.

    Args:
        in_features: width of the input.
        widths: width of each projection: its rows of the weight.
        bias: whether the projections have biases.
    """

    def __init__(self, in_features: int, widths: tuple[int, ...], bias: bool) -> None:
        super().__init__(in_features, sum(widths), bias=bias)
        self.widths = widths

    def project_heads(self, x_BSD: Float[Tensor, "B S D"], head_dim: int) -> tuple[Float[Tensor, "B _H S K"], ...]:
        """Project [B, S, D], and return each projection as [B, its heads, S, head_dim]."""
        # Split before transposing: so the backward pass joins the gradients in the order in which they are multiplied.
        heads_BSHK = self(x_BSD).unflatten(2, (-1, head_dim))
        return tuple(x.transpose(1, 2) for x in heads_BSHK.split_with_sizes([w // head_dim for w in self.widths], 2))


CLAMP = 7.0
"""The bound of the inputs of ``clamped-silu``."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    # x·σ(1.702 x) for x up to the bound, and its value there beyond (gpt-oss's model code)
    "clamped-silu": lambda x: x.clamp(max=CLAMP) * torch.sigmoid(1.702 * x.clamp(max=CLAMP)),
    "identity": torch.positive,  # x itself: the layer is linear
}
"""The functions that ``TransformerConfig.activation`` names."""


class FeedForward(nn.Module):
    """W₂ act(W₁ x) (Vaswani et al. 2017, equation 2), or gated: W₂ (act(W_g x) * W₁ x) (Shazeer 2020).

    With the activation ``identity`` it is linear, or gated bilinear (Shazeer 2020, "Bilinear"). With ``clamped-silu``,
    W₁ x is clamped between -7 and 7 too, and 1 is added to it (gpt-oss).
    ``width``: the width inside; None: ``d_ff``.
    """

    def __init__(self, config: TransformerConfig, width: int | None = None) -> None:
        super().__init__()
        width = config.d_ff if width is None else width
        self.activation = ACTIVATIONS[config.activation]
        self.gated = config.gated
        self.clamps_values = config.gated and config.activation == "clamped-silu"
        widths = (width, width) if config.gated else (width,)
        self.up = FusedLinear(config.d_model, widths, bias=config.ffn_bias)
        self.down = nn.Linear(width, config.d_model, bias=config.ffn_bias)
        self.dropout = nn.Dropout(config.get_dropout("activation"))

    def forward(self, x_ND: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Compute the position-wise feed-forward layer: [..., D] to [..., D]."""
        x = self.up(x_ND)
        if self.gated:
            gate, x = x.chunk(2, dim=-1)
            x = x.clamp(-CLAMP, CLAMP) + 1 if self.clamps_values else x
            x = self.activation(gate) * x
        else:
            x = self.activation(x)
        # Outside training dropout does nothing, and a step of decoding is shorter without the call.
        return self.down(self.dropout(x) if self.training else x)


class ExpertMixture(nn.Module):
    """Σ_e g_e(x)·E_e(x) over the experts that the router chooses (Shazeer et al. 2017, equation 1).

    They are those with the highest logits. With the router ``sigmoid`` they are those with the highest sums of sigmoid
    and correction, inside the chosen groups. ``TransformerConfig.router`` says how the factors g come from the logits.
    Only the chosen experts compute. No loss divides the tokens evenly among them.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.kind, self.chosen, self.scale = config.router, config.experts_per_token, config.router_scale
        self.groups, self.chosen_groups = config.expert_groups, config.expert_groups_per_token
        self.router = nn.Linear(config.d_model, config.experts, bias=config.ffn_bias)
        # Added before choosing, and not to the factors (Wang et al. 2024); training here leaves it alone.
        self.correction_E = nn.Buffer(torch.zeros(config.experts)) if self.kind == "sigmoid" else None
        width = config.expert_width or config.d_ff
        self.experts = nn.ModuleList(FeedForward(config, width) for _ in range(config.experts))
        self.shared = FeedForward(config, config.shared_expert_width) if config.shared_expert_width else None

    def choose_experts(self, x_ND: Float[Tensor, "N D"]) -> tuple[Int[Tensor, "N C"], Float[Tensor, "N C"]]:
        """Return the experts of each token and their factors: [N, D] to two tensors [N, C]."""
        logits_NE = self.router(x_ND)
        if self.kind != "sigmoid":
            highest, index = logits_NE.topk(self.chosen, dim=-1)
            return index, highest.softmax(-1) if self.kind == "softmax" else highest.sigmoid()
        scores_NE = logits_NE.float().sigmoid()
        choosing_NE = scores_NE + self.correction_E
        if self.groups > 1:
            # Only the groups whose two best experts have the highest sums are chosen from.
            grouped_NGE = choosing_NE.unflatten(1, (self.groups, -1))
            best = grouped_NGE.topk(2, dim=-1).values.sum(-1).topk(self.chosen_groups, dim=-1).indices
            hidden_NG = torch.ones_like(grouped_NGE[..., 0], dtype=torch.bool).scatter(1, best, False)
            choosing_NE = grouped_NGE.masked_fill(hidden_NG[..., None], float("-inf")).flatten(1)
        index = choosing_NE.topk(self.chosen, dim=-1).indices
        factors = scores_NE.gather(1, index)
        # As in DeepSeek's code: sigmoids that are all 0 in float32 are not divided by 0.
        return index, (factors / (factors.sum(-1, keepdim=True) + 1e-20) * self.scale).to(x_ND.dtype)

    def forward(self, x_BSD: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """Compute the experts of every token and add their outputs: [B, S, D] to [B, S, D]."""
        x_ND = x_BSD.flatten(0, -2)
        index, factors = self.choose_experts(x_ND)
        sum_ND = torch.zeros_like(x_ND) if self.shared is None else self.shared(x_ND)
        for number, expert in enumerate(self.experts):
            token, place = torch.where(index == number)
            factor_N1 = factors[token, place, None]
            if self.kind == "sigmoid-input":
                out_ND = expert(x_ND[token] * factor_N1)
            else:
                out_ND = expert(x_ND[token]) * factor_N1
            sum_ND = sum_ND.index_add(0, token, out_ND.to(sum_ND.dtype))
        return sum_ND.view_as(x_BSD)
