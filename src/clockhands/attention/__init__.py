"""Compute attention with a scheme, calling its hooks from ``rotate`` to ``rotate_back``.

``attend`` computes it by the fastest kernel that serves, ``attend_reference`` step by step; ``record`` hands every
attention inside a block of code, with its weights, to a function.
"""

from __future__ import annotations

from clockhands.attention.dispatch import attend, get_recorder, record
from clockhands.attention.install import Installed, install, is_installed, list_installed
from clockhands.attention.positioning import Cache, Positioning
from clockhands.attention.reference import RecordedAttention, attend_reference
from clockhands.attention.request import AttentionRequest, Mask

__all__ = [
    "AttentionRequest", "Cache", "Installed", "Mask", "Positioning", "RecordedAttention", "attend",
    "attend_reference", "get_recorder", "install", "is_installed", "list_installed", "record",
]  # fmt: skip
