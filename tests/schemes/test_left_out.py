"""What is left out says why, and is not secretly there."""

from __future__ import annotations

from clockhands.schemes import CATALOGUE, LEFT_OUT


def test_everything_left_out_has_a_reason_and_no_catalogue_line() -> None:
    for name, reason in LEFT_OUT.items():
        assert len(reason.split()) > 5, name
        assert name.lower() not in CATALOGUE
