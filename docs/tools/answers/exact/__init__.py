"""What can be said of positions by computing, without training: facts by name, each a function that returns numbers.

::

    FACTS["hands"]()["never round in 512"]     # of 256 hands, those that do not come round once in 512 tokens
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clockhands.catalogue import Catalogue, import_later

Values = Mapping[str, float | int | str]
"""Numbers, or intervals as text, by what they are."""

FACTS: Catalogue[Callable[[], Values]] = Catalogue(
    "fact",
    {
        "score-shares": import_later("exact.added", "compute_score_shares"),
        "by-channel": import_later("exact.added", "measure_by_channel"),
        "directions": import_later("exact.added", "measure_directions"),
        "concatenation": import_later("exact.added", "compare_concatenation"),
        "trade-off": import_later("exact.trained", "compute_trade_off"),
        "shift": import_later("exact.waves", "measure_shift"),
        "similarity": import_later("exact.waves", "measure_similarity"),
        "hands": import_later("exact.waves", "count_hands"),
        "orthogonal": import_later("exact.waves", "measure_orthogonality"),
        "stretch": import_later("exact.waves", "measure_stretch"),
        "crowd": import_later("exact.crowd", "measure_crowd"),
        "index": import_later("exact.index", "measure_index"),
        "permutation": import_later("exact.order", "measure_permutation"),
        "layouts": import_later("exact.rotated", "compare_layouts"),
        "cached-keys": import_later("exact.rotated", "compare_cached_keys"),
        "values": import_later("exact.rotated", "compare_values"),
        "padding": import_later("exact.rotated", "compare_shifted"),
        "padded": import_later("exact.rotated", "compare_padded"),
        "partial": import_later("exact.rotated", "measure_partial"),
        "base": import_later("exact.longer", "find_bases"),
        "yarn": import_later("exact.longer", "measure_yarn"),
        "temperature": import_later("exact.longer", "measure_temperature"),
        "recall": import_later("exact.recall", "find_least_losses"),
        "learned": import_later("exact.seeds", "bound_learned"),
    },
    describe=lambda fact: (fact.__doc__ or "").partition("\n")[0],
)
"""Every fact by its name; computing one takes at most a second or two."""
