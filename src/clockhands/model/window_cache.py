"""A KV cache of transformers whose layers with windows keep only the keys that later queries can attend to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from clockhands.model.kv_cache import find_window
from clockhands.model.masks import has_padding_after_tokens
from clockhands.model.stack import Stack
from clockhands.shapes import Bool, Num, Tensor

__all__ = ["WindowLayer", "keep_windows", "may_drop_keys"]


class WindowLayer(DynamicSlidingWindowLayer):
    """The keys and values of the last tokens, as many as later queries can attend to (``kv_cache.find_window``).

    The tokens that it drops have to be outside the window of every later query. For that, ``keep_windows`` looks at the
    schemes, the transform and the axes of positions, ``may_drop_keys`` looks at the first mask and positions, and
    ``kv_cache.refuse_padding_after_tokens`` looks at every later mask. Caches with sliding windows that somebody else
    made are refused as soon as they have dropped a key.
    """

    is_window_layer = True


def keep_windows(cache: Cache, stack: Stack) -> None:
    """Let a cache that is still empty keep only the windows of those layers of a stack that have one.

    The caller has asked ``may_drop_keys`` before. The cache stays as it is if a transform moves positions or a position
    has several coordinates: then a window of positions may reach tokens that are further back in the row.
    """
    windows = [find_window(stack.schemes.get_scheme(layer)) for layer in range(len(stack.blocks))]
    if stack.transform is None and stack.schemes.axes in (None, 1) and any(window is not None for window in windows):
        # A layer of transformers keeps one token less than the window that it is given, because that window counts the
        # query itself. So with ``window`` + 1 it keeps ``window`` tokens. Here it keeps at least one.
        cache.layers = [DynamicLayer() if window is None else WindowLayer(max(window, 1) + 1) for window in windows]


def may_drop_keys(inputs: Mapping[str, Any], prefix: str = "") -> bool:
    """Return whether a window of n positions never reaches further back than the last n places of a row.

    So it is if no padding follows a token, and if positions, where they are given, grow by at least 1 from token to
    token. ``inputs``: the inputs of a model by name; those that are read are ``attention_mask`` and ``position_ids``,
    [B, T] each, if present, with ``prefix`` before their names.
    """
    mask_BT, pos_BT = inputs.get(f"{prefix}attention_mask"), inputs.get(f"{prefix}position_ids")
    mask_BT = None if mask_BT is None else mask_BT.bool()
    if mask_BT is not None and mask_BT.dim() != 2:
        return False
    if mask_BT is not None and has_padding_after_tokens(mask_BT):
        return False
    return pos_BT is None or (pos_BT.dim() == 2 and _are_growing(pos_BT, mask_BT))


def _are_growing(pos_BT: Num[Tensor, "B T"], mask_BT: Bool[Tensor, "B T2"] | None) -> bool:
    """Return whether each token's position is at least 1 above that of the token before it."""
    steps = pos_BT[:, 1:] - pos_BT[:, :-1] >= 1
    if mask_BT is not None and mask_BT.shape == pos_BT.shape:
        steps = steps | ~mask_BT[:, :-1]  # padding has no position
    return bool(torch.all(steps))
