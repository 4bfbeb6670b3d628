"""The input layer: tokens times their scale, the encoding added or concatenated, then norm and dropout."""

from __future__ import annotations

import math

import torch
from torch import nn

from clockhands.model.config import TransformerConfig
from clockhands.model.layers import make_norm
from clockhands.model.position_config import StackSide
from clockhands.shapes import Float, Int, Tensor


class InputLayer(nn.Module):
    """From token ids to the first layer's input (Vaswani et al. 2017, sections 3.4 and 3.5).

    Token w at position p becomes, with ``combine = add``, x = s·E(w) + PE(p); with ``concatenate``, x = [s·E(w); PE(p)]
    of d_t + d_p = d_model channels; with ``project``, x = W [s·E(w); PE(p)]. The scale s is √d_model, 1, or a parameter
    that starts at √d_model. A norm (with ``embedding_norm``) and dropout follow.
    """

    def __init__(self, config: TransformerConfig, side: StackSide) -> None:
        super().__init__()
        position = config.get_position_config(side)
        self.combine = position.combine
        self.tokens = nn.Embedding(config.get_vocabulary_size(side), position.compute_token_width(config.d_model))
        self.initial_scale = 1.0 if config.token_scale == "one" else math.sqrt(config.d_model)
        self.scale: float | nn.Parameter = self.initial_scale
        if config.token_scale == "learned":
            self.scale = nn.Parameter(torch.tensor(self.initial_scale))
        joined_width = config.d_model + position.compute_encoding_width(config.d_model)
        self.project = nn.Linear(joined_width, config.d_model, bias=False) if self.combine == "project" else None
        self.norm = make_norm(config) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.get_dropout("embedding"))

    def forward(
        self, ids_BS: Int[Tensor, "B S"], encoding_BSP: Float[Tensor, "#B S P"] | None
    ) -> Float[Tensor, "B S D"]:
        """Embed tokens, scale them, add or concatenate the encoding; project, norm, dropout: [B, S] to [B, S, D]."""
        x = self.tokens(ids_BS) * self.scale
        if encoding_BSP is not None and self.combine == "add":
            x = x + encoding_BSP.to(x.dtype)
        elif encoding_BSP is not None:
            x = torch.cat([x, encoding_BSP.to(x.dtype).expand(*x.shape[:2], -1)], dim=-1)
        if self.project is not None:
            x = self.project(x)
        x = x if self.norm is None else self.norm(x)
        return self.dropout(x) if self.training else x
