"""A KV cache for layers with windows: of transformers' own, which keeps the keys that the window can still show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from clockhands.model.kv_cache import find_window
from clockhands.model.stack import Stack
from clockhands.shapes import Bool, Num, Tensor

__all__ = ["WindowLayer", "keep_windows", "may_drop_keys"]


class WindowLayer(DynamicSlidingWindowLayer):
    """The keys and values of the last tokens, as many as later queries can attend to (``kv_cache.find_window``).

    ``keep_windows`` puts it only where the tokens that it drops are outside the window of every later query. Caches
    with sliding windows that somebody else made are refused as soon as they have dropped a key.
    """

    is_window_layer = True


def keep_windows(cache: Cache, stack: Stack) -> None:
    """Let a cache that is still empty keep only the windows of those layers of a stack that have one."""
    windows = [find_window(stack.schemes.get_scheme(layer)) for layer in range(len(stack.blocks))]
    if stack.transform is None and stack.schemes.axes in (None, 1) and any(window is not None for window in windows):
        # A layer of transformers keeps one token less than its window, which counts the query's own, and at least one.
        cache.layers = [DynamicLayer() if window is None else WindowLayer(max(window, 1) + 1) for window in windows]


def may_drop_keys(inputs: Mapping[str, Any], prefix: str = "") -> bool:
    """Return whether tokens stand as far apart as their positions say, so that a window is the last tokens of a row.

    They do not where padding stands between tokens, or where positions are given that do not grow from token to token.
    ``inputs``: those of a model, with a mask and positions [B, T] or none, whose names begin with ``prefix``.
    """
    mask_BT, pos_BT = inputs.get(f"{prefix}attention_mask"), inputs.get(f"{prefix}position_ids")
    mask_BT = None if mask_BT is None else mask_BT.bool()
    if mask_BT is not None and mask_BT.dim() != 2:
        return False
    if mask_BT is not None and bool((mask_BT[:, :-1] & ~mask_BT[:, 1:]).any()):
        return False
    return pos_BT is None or (pos_BT.dim() == 2 and _grow(pos_BT, mask_BT))


def _grow(pos_BT: Num[Tensor, "B T"], mask_BT: Bool[Tensor, "B T2"] | None) -> bool:
    """Return whether each token's position is at least 1 above that of the token before it."""
    steps = pos_BT[:, 1:] - pos_BT[:, :-1] >= 1
    if mask_BT is not None and mask_BT.shape == pos_BT.shape:
        steps = steps | ~mask_BT[:, :-1]  # padding has no position
    return bool(torch.all(steps))
