"""A feed-forward layer of experts: a router chooses for each token the networks that read it.

Axes beside those of ``shapes``: E experts (beside G those of one group), G groups of experts, C experts chosen for a
token. N counts tokens.
"""

from __future__ import annotations

import torch
from torch import nn

from clockhands.model.config import TransformerConfig
from clockhands.model.feed_forward import FeedForward
from clockhands.shapes import Float, Int, Tensor

__all__ = ["ExpertMixture"]


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
        index = self._hide_other_groups(scores_NE + self.correction_E).topk(self.chosen, dim=-1).indices
        factors = scores_NE.gather(1, index)
        # As in DeepSeek's code: sigmoids that are all 0 in float32 are not divided by 0.
        return index, (factors / (factors.sum(-1, keepdim=True) + 1e-20) * self.scale).to(x_ND.dtype)

    def _hide_other_groups(self, scores_NE: Float[Tensor, "N E"]) -> Float[Tensor, "N E"]:
        """Return scores that are -∞ outside the groups whose two best experts have the highest sums."""
        if self.groups == 1:
            return scores_NE
        grouped_NGE = scores_NE.unflatten(1, (self.groups, -1))
        best = grouped_NGE.topk(2, dim=-1).values.sum(-1).topk(self.chosen_groups, dim=-1).indices
        hidden_NG = torch.ones_like(grouped_NGE[..., 0], dtype=torch.bool).scatter(1, best, False)
        return grouped_NGE.masked_fill(hidden_NG[..., None], float("-inf")).flatten(1)

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
