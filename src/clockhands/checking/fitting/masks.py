"""Say how a mask differs from the reference's: how far back and ahead each token sees."""

from __future__ import annotations

import torch
from torch import Tensor


def describe_mask(ours_ST: Tensor, theirs_ST: Tensor) -> list[str] | None:
    """Return what differs as sentences about the model; None if either is no band along the diagonal."""
    mine, wanted = fit_band(ours_ST), fit_band(theirs_ST)
    if mine is None or wanted is None:
        return None
    return [*_describe_ahead(mine[1], wanted[1]), *_describe_back(mine[0], wanted[0])]


def _describe_ahead(mine: int | None, wanted: int | None) -> list[str]:
    if mine == wanted:
        return []
    if mine is None:
        return ["lets every token see all later ones"]
    if mine < 0:
        return ["does not let a token see itself" if mine == -1 else f"hides the last {-mine} tokens from each"]
    if wanted is None:
        return ["hides later tokens, which the reference shows"]
    return [f"lets every token see {mine} later one{'s' * (mine != 1)}"]


def _describe_back(mine: int | None, wanted: int | None) -> list[str]:
    if mine == wanted:
        return []
    if mine is None:
        return [f"has no window; the reference has one of {(wanted or 0) + 1}"]
    return [f"has a window of {mine + 1}" + (f", not {wanted + 1}" if wanted is not None else ", the reference none")]


def fit_band(allowed_ST: Tensor) -> tuple[int | None, int | None] | None:
    """Return how far back and ahead each token sees (None: as far as there are tokens); None if it is no band."""
    length, keys = allowed_ST.shape
    at = torch.arange(keys, device=allowed_ST.device)[None] - torch.arange(length, device=allowed_ST.device)[:, None]
    if not allowed_ST.any():
        return None
    back, ahead = -int(at[allowed_ST].min()), int(at[allowed_ST].max())
    if not torch.equal(allowed_ST, (at >= -back) & (at <= ahead)):
        return None
    return (None if back >= length - 1 else back), (None if ahead >= keys - 1 else ahead)
