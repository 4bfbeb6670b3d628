"""The norms of a model: of its states, and of the heads of queries and keys."""

from __future__ import annotations

from torch import nn

from clockhands.model.config import TransformerConfig
from clockhands.shapes import Float, Tensor

__all__ = ["make_head_norm", "make_norm", "normalise_heads"]


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
