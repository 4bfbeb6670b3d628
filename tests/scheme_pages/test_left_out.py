"""What is left out says why, and is not secretly there."""

from __future__ import annotations

from clockhands.scheme_pages.left_out import LEFT_OUT
from clockhands.schemes import CATALOGUE


def test_everything_left_out_has_a_reason_and_no_catalogue_line() -> None:
    for name, reason in LEFT_OUT.items():
        assert len(reason.split()) > 5, name
        assert name.lower() not in CATALOGUE


def test_nothing_is_left_out_that_layers_can_say() -> None:
    """Such as RePo in the upper layers and RoPE in the lower: ``layers = ["rope", "rope", "repo", "repo"]``."""
    assert not [name for name, reason in LEFT_OUT.items() if "schedule of layers" in reason]
