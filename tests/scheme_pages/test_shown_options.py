"""With the options that it is shown with, every scheme of the catalogue can be built; nobody's options change."""

from __future__ import annotations

from clockhands.scheme_pages.page import PAGE_SIZES
from clockhands.scheme_pages.shown_options import SHOWN_LENGTH, complete_options
from clockhands.schemes import CATALOGUE, build


def test_every_scheme_is_built_with_the_options_that_it_is_shown_with() -> None:
    for name in CATALOGUE:
        assert type(build(CATALOGUE, name, PAGE_SIZES, complete_options(name))) is CATALOGUE[name]


def test_only_a_trained_length_is_added_and_only_where_it_is_needed() -> None:
    needing = {name for name in CATALOGUE if complete_options(name)}
    assert needing == {"fope", "dual-chunk", "rerope", "self-extend"}
    assert complete_options("fope") == {"original_length": SHOWN_LENGTH}
    assert complete_options("fope", {"std": 0.5}, 64) == {"std": 0.5, "original_length": 64}
    assert complete_options("rerope", {"window": 2 * SHOWN_LENGTH}) == {"window": 2 * SHOWN_LENGTH}
    assert complete_options("rope", {"spectrum": "llama3"}) == {"spectrum": "llama3", "original_length": SHOWN_LENGTH}
