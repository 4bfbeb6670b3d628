"""Attention with a scheme: the one place that calls rotate, bias, logits, weigh and values."""

from __future__ import annotations

from clockhands.schemes.attend.choose import attend
from clockhands.schemes.attend.reference import Attended, Visible, attend_reference, recording, visible_pairs

__all__ = ["Attended", "Visible", "attend", "attend_reference", "recording", "visible_pairs"]
