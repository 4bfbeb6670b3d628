"""The pictures of schemes."""

from __future__ import annotations

from clockhands.scheme_pages.picture import make_encoding_panel
from clockhands.schemes import Index, Sinusoidal


def test_colours_diverge_from_zero_where_there_are_values_on_both_sides() -> None:
    """Sinusoids are on both sides; the index is never below 0."""
    diverging = {
        type(scheme).__name__: make_encoding_panel(scheme).marks[0].diverging for scheme in (Sinusoidal(8), Index(8))
    }
    assert diverging == {"Sinusoidal": True, "Index": False}
