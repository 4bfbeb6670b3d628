"""A block of a stack, and the layer before the first one, which turns tokens into vectors."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from clockhands.model.attention import AttentionContext, CrossAttention, LatentAttention, SelfAttention
from clockhands.model.config import TransformerConfig
from clockhands.model.layers import ExpertMixture, FeedForward, make_norm
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


class ResidualConnection(nn.Module):
    """The residual connection around a sublayer f, with its norm (Vaswani et al. 2017, section 3.1).

    It computes norm(x + dropout(f(x))), or x + dropout(f(norm(x))) with ``norm = "pre"`` (Xiong et al. 2020); with
    ``output`` and ``sandwich`` a norm of f's output comes before the dropout. With ``residual`` off, x is not added.
    ``input_norm``: whether f's input has a norm where ``norm`` says so.
    """

    def __init__(self, config: TransformerConfig, dropout: float, *, input_norm: bool = True) -> None:
        super().__init__()
        self.pre_norm, self.adds_input = config.norm in ("pre", "sandwich"), config.residual
        # With "output", the only norm is that of f's output.
        self.norm = make_norm(config) if config.norm != "output" and input_norm else nn.Identity()
        self.output_norm = make_norm(config) if config.norm in ("output", "sandwich") else None
        self.dropout = nn.Dropout(dropout)

    def apply_sublayer(self, x_BSD: Float[Tensor, "B S D"], f: Callable[[Tensor], Tensor]) -> Float[Tensor, "B S D"]:
        """Return what is added to x, [B, S, D]: dropout(f(x)), with the norms before and after f that ``norm`` says."""
        y_BSD = f(self.norm(x_BSD) if self.pre_norm else x_BSD)
        if self.output_norm is not None:
            y_BSD = self.output_norm(y_BSD)
        return self.dropout(y_BSD) if self.training else y_BSD

    def forward(self, x_BSD: Float[Tensor, "B S D"], f: Callable[[Tensor], Tensor]) -> Float[Tensor, "B S D"]:
        """Compute the sublayer ``f`` inside its residual connection and norm: [B, S, D] to [B, S, D]."""
        y = self.apply_sublayer(x_BSD, f)
        y = x_BSD + y if self.adds_input else y
        return y if self.pre_norm else self.norm(y)


class Block(nn.Module):
    """One layer of the encoder or the decoder; only a decoder that reads a source has cross-attention.

    ``layer``: its index, counted from 0.
    """

    def __init__(self, config: TransformerConfig, side: StackSide, layer: int) -> None:
        super().__init__()
        self.parallel = config.parallel
        self.attention = SelfAttention(config) if config.latent_width is None else LatentAttention(config)
        self.attention_residual = ResidualConnection(
            config, config.get_dropout("residual"), input_norm=layer > 0 or config.first_norm
        )
        self.cross: CrossAttention | None = None
        if side == "decoder" and "cross" in config.sides:
            self.cross = CrossAttention(config)
            self.cross_residual = ResidualConnection(config, config.get_dropout("residual"))
        self.feed_forward = ExpertMixture(config) if config.has_experts(layer) else FeedForward(config)
        self.feed_forward_residual = ResidualConnection(config, config.get_dropout("ffn-residual"))

    def forward(
        self,
        x_BSD: Float[Tensor, "B S D"],
        context: AttentionContext,
        source_BTD: Float[Tensor, "B T D"] | None = None,
        cross_context: AttentionContext | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Compute one layer: [B, S, D] to [B, S, D]. ``source_BTD`` and ``cross_context`` are for cross-attention.

        Raises PositionError as ``SelfAttention`` and ``CrossAttention`` do.
        """
        if self.parallel:
            sum_BSD = self.attention_residual.apply_sublayer(x_BSD, lambda y: self.attention(y, context))
            sum_BSD = sum_BSD + self.feed_forward_residual.apply_sublayer(x_BSD, self.feed_forward)
            return x_BSD + sum_BSD if self.attention_residual.adds_input else sum_BSD
        x = self.attention_residual(x_BSD, lambda y: self.attention(y, context))
        if self.cross is not None:
            x = self.cross_residual(x, lambda y: self.cross(y, source_BTD, cross_context))
        return self.feed_forward_residual(x, self.feed_forward)
