"""The built-in studies: questions people ask, each with its plan and its measured answer. One TOML file a study.

::

    study = STUDIES["scale"]                              # an unknown name raises UnknownNameError with the nearest
    comparison = run_plan(study.make_plan(), "runs/studies/scale", workers=2)
    print(answer_question(study, comparison))             # the answer, with what was measured
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.catalogue import Catalogue
from clockhands.studies.study import Study, read_study

if TYPE_CHECKING:
    from clockhands.studies.answer import answer_question, conclude_study

__all__ = ["STUDIES", "Study", "answer_question", "conclude_study", "read_study"]

_READ = [read_study(path) for path in Path(__file__).parent.glob("*.toml") if path.name != "sizes.toml"]
STUDIES: Catalogue[Study] = Catalogue(
    "study",
    {study.name: study for study in sorted(_READ, key=lambda study: (study.place, study.name))},
    describe=lambda study: study.question,
)
"""Every TOML file of this folder but that of the sizes, by its name, in the order in which a reader meets them."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'clockhands.studies' has no attribute {name!r}")
    return getattr(importlib.import_module("clockhands.studies.answer"), name)
