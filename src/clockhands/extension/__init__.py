"""How far a model can read, and how it is made to read further.

::

    from clockhands.extension import choose_lengths, encode_text, measure
    from clockhands.models import open_language_model

    model = open_language_model("runs/facts")
    lengths = choose_lengths(model.trained_length, 8 * model.trained_length)
    measure(model, encode_text(model, documents), lengths, model.trained_length, texts=48, items=60).usable.length
"""

from __future__ import annotations

from clockhands.extension.archive import Archive, make_signature
from clockhands.extension.card import write_card
from clockhands.extension.choice_findings import compare_tuned, make_choice_findings, make_tuning_finding, measure_short
from clockhands.extension.choose import GUARD, Choice, choose_method
from clockhands.extension.extend import Plan, extend, measure_only
from clockhands.extension.measure import DRIFT_MARGIN, Measurement, Usable, choose_lengths, measure
from clockhands.extension.measure_findings import make_measure_findings
from clockhands.extension.method import Method
from clockhands.extension.methods import apply, list_methods
from clockhands.extension.reading import encode_text, split_stream
from clockhands.extension.tuning import Tuning, tune
from clockhands.extension.write import list_engine_lines, refuse_taken, write_extended

__all__ = [
    "DRIFT_MARGIN",
    "GUARD",
    "Archive",
    "Choice",
    "Measurement",
    "Method",
    "Plan",
    "Tuning",
    "Usable",
    "apply",
    "choose_lengths",
    "choose_method",
    "compare_tuned",
    "encode_text",
    "extend",
    "list_engine_lines",
    "list_methods",
    "make_choice_findings",
    "make_measure_findings",
    "make_signature",
    "make_tuning_finding",
    "measure",
    "measure_only",
    "measure_short",
    "refuse_taken",
    "split_stream",
    "tune",
    "write_card",
    "write_extended",
]
