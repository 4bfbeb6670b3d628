"""How far a model can read, and how it is made to read further.

::

    from clockhands.extension import choose_lengths, encode_text, measure
    from clockhands.models import open_language_model

    model = open_language_model("runs/facts")
    lengths = choose_lengths(model.trained_length, 8 * model.trained_length)
    measure(model, encode_text(model, documents), lengths, model.trained_length, texts=48, items=60).usable.length
"""

from __future__ import annotations

from clockhands.extension.archive import make_signature
from clockhands.extension.extend import ExtensionPlan, extend, measure_only
from clockhands.extension.measure import choose_lengths, make_measure_findings, measure
from clockhands.extension.methods import apply, list_methods
from clockhands.extension.reading import encode_text
from clockhands.extension.tuning import Tuning, tune
from clockhands.extension.write import list_engine_lines, write_extended

__all__ = [
    "ExtensionPlan",
    "Tuning",
    "apply",
    "choose_lengths",
    "encode_text",
    "extend",
    "list_engine_lines",
    "list_methods",
    "make_measure_findings",
    "make_signature",
    "measure",
    "measure_only",
    "tune",
    "write_extended",
]
