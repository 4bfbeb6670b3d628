"""The results of the studies that are kept in docs/studies/results, and the types of what pages tell of them."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clockhands.comparison import Comparison, judge
from clockhands.comparison.verdicts import Verdict
from clockhands.studies import STUDIES

STUDY_PAGES = Path(__file__).parents[2] / "studies"
RESULTS = STUDY_PAGES / "results"
Measured = Mapping[str, Comparison]
"""Comparisons by the name of their study, those of other sizes by name and size: ``scale.long``."""
Facts = Mapping[str, Mapping[str, Any]]
"""What was computed exactly, or measured in one model: values by key, by the name of the fact."""


def list_kept() -> list[str]:
    """Return the names of all kept results: those of the planned size in the order of the studies, then the others."""
    names = sorted(path.name.removesuffix(".json.gz") for path in RESULTS.glob("*.json.gz"))
    return [*(name for name in STUDIES if name in names), *(name for name in names if name not in STUDIES)]


def read_text(name: str) -> str:
    """Return kept results as the document that ``Comparison.to_json`` wrote."""
    return gzip.decompress((RESULTS / f"{name}.json.gz").read_bytes()).decode("utf8")


def read_kept(name: str) -> Comparison:
    """Return the comparison that is kept under a name."""
    return Comparison.from_json(read_text(name))


def keep(name: str, comparison: Comparison) -> None:
    """Keep a comparison; the same one gives the same bytes."""
    (RESULTS / f"{name}.json.gz").write_bytes(gzip.compress(comparison.to_json().encode("utf8"), mtime=0))


_JUDGED: dict[str, tuple[Comparison, list[Verdict]]] = {}


def judge_once(name: str, comparison: Comparison) -> list[Verdict]:
    """Return the verdicts of a comparison, computed once for all slots and guards of a page."""
    if name not in _JUDGED or _JUDGED[name][0] is not comparison:
        _JUDGED[name] = (comparison, judge(comparison))
    return _JUDGED[name][1]
