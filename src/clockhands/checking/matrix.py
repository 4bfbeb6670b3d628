"""The matrix: every architecture against every check, as plain data for JSON and for its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clockhands.checking.checks.check import CHECKS, USES
from clockhands.checking.result import Result
from clockhands.checking.verdict.known_faults import read_entries
from clockhands.checking.verdict.outcome import Outcome

SCHEMA = 2
VERDICTS = ("PASS", "FAIL", "WARN", "PROPERTY", "N/A", "LIBRARY")


def matrix(results: Sequence[Result]) -> dict[str, Any]:
    """Return plain data. A cell is [verdict, size, size again, note, explanation, safe, where, thread].

    The first number of a cell is one into ``verdicts``, the last five are into ``texts``.

    Columns are ``checks``, in their order; a row's ``cells`` are by check name, ``source.`` before those of the source
    side of an encoder-decoder. ``causes`` are the same failures by what causes them, those of the library first.
    ``reliance`` of a row is the number of the text that says what may be relied on.
    """
    texts: dict[str, int] = {"": 0}
    rows = [_row(result, texts) for result in results]
    versions = next((dict(result.versions) for result in results if result.versions), {})
    checks = [{"name": c.name, "asserts": c.asserts, "catches": c.catches} for c in CHECKS.values() if not c.optional]
    counts = {verdict: sum(result.count(verdict) for result in results) for verdict in VERDICTS}
    return {
        "schema": SCHEMA,
        "versions": versions,
        "verdicts": list(VERDICTS),
        "counts": counts,
        "uses": list(USES),
        "checks": checks,
        "causes": list_causes(results),
        "texts": list(texts),
        "rows": rows,
    }


def upgrade_matrix(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a matrix of schema 1 in that of today; others as they are.

    Schema 1 knew no verdict LIBRARY: a failure gets it where the known fault that explains it says so. What precision
    does by itself was not stored, so that ``times`` stays unknown until models are checked anew.
    """
    if data["schema"] == SCHEMA:
        return dict(data)
    rows = [
        {**row, "cells": {name: _upgrade_cell(row["model"], name, cell, data) for name, cell in row["cells"].items()}}
        for row in data["rows"]
    ]
    numbers = [cell[0] for row in rows for cell in row["cells"].values()]
    counts = {verdict: numbers.count(number) for number, verdict in enumerate(VERDICTS)}
    changed = {"schema": SCHEMA, "verdicts": list(VERDICTS), "counts": counts}
    causes = _list_stored_causes(rows, data["texts"])
    return {**data, **changed, "causes": causes, "rows": rows}


def _upgrade_cell(model: str, name: str, cell: Sequence[Any], data: Mapping[str, Any]) -> list[Any]:
    """Return a cell with the verdict LIBRARY where it fails by a fault of code that models share."""
    check, cause = name.removeprefix("source."), data["texts"][cell[4]]
    if data["verdicts"][cell[0]] != "FAIL":
        return list(cell)
    known = next((fault for fault in read_entries() if fault.cause == cause and fault.fits(model, check)), None)
    shared = known is not None and known.verdict == "LIBRARY"
    return [VERDICTS.index("LIBRARY"), *cell[1:]] if shared else list(cell)


def _list_stored_causes(rows: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return what ``list_causes`` returns, from the cells of a matrix."""
    groups: dict[tuple[bool, str], list[tuple[str, str, Sequence[Any]]]] = {}
    for row in rows:
        for name, cell in row["cells"].items():
            verdict, cause = VERDICTS[cell[0]], texts[cell[4]]
            if verdict in ("FAIL", "LIBRARY"):
                groups.setdefault((verdict == "LIBRARY", cause or name), []).append((row["model"], name, cell))
    entries = [
        {
            "library": shared,
            "cause": cause,
            "checks": list(dict.fromkeys(name for _, name, _ in touched)),
            "models": list(dict.fromkeys(model for model, *_ in touched)),
            "largest": max((cell[1] for *_, cell in touched if cell[1] is not None), default=None),
            "times": None,
            "safe": texts[touched[0][2][5]],
            "thread": texts[touched[0][2][7]],
        }
        for (shared, cause), touched in groups.items()
    ]
    return sorted(entries, key=_rank_cause)


def _rank_cause(entry: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Return by what causes are sorted: those of shared code first, then those that touch most models."""
    return (not entry["library"], -len(entry["models"]), entry["cause"])


def list_causes(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return what makes models fail, one entry a cause: which models it touches, how far, and where it is discussed.

    ``times`` is the largest size over what the precision does by itself. Those that lie in code which models share come
    first, then those that touch most models.
    """
    groups: dict[tuple[bool, str], list[tuple[str, Outcome]]] = {}
    for result in results:
        for outcome in result.outcomes:
            if outcome.verdict in ("FAIL", "LIBRARY"):
                cause = outcome.cause or outcome.reason or outcome.check
                groups.setdefault((outcome.verdict == "LIBRARY", cause), []).append((result.model, outcome))
    entries = [_cause(shared, cause, touched) for (shared, cause), touched in groups.items()]
    return sorted(entries, key=_rank_cause)


def _cause(shared: bool, cause: str, touched: Sequence[tuple[str, Outcome]]) -> dict[str, Any]:
    outcomes = [outcome for _, outcome in touched]
    sizes = [o.size for o in outcomes if o.size is not None and o.size < float("inf")]
    times = [o.size / o.floor for o in outcomes if o.size is not None and o.floor]
    return {
        "library": shared,
        "cause": cause,
        "checks": list(dict.fromkeys(outcome.check for outcome in outcomes)),
        "models": list(dict.fromkeys(model for model, _ in touched)),
        "largest": _short(max(sizes, default=None)),
        "times": _short(max(times, default=None)),
        "safe": outcomes[0].safe,
        "thread": outcomes[0].thread,
    }


def _row(result: Result, texts: dict[str, int]) -> dict[str, Any]:
    return {
        "model": result.model,
        "kind": result.task,
        "scheme": result.scheme,
        "fault": result.fault,
        "rely": [None if safe is None else int(safe) for safe in result.rely().values()],
        "reliance": texts.setdefault(result.reliance(), len(texts)),
        "cells": {outcome.check: _cell(outcome, texts) for outcome in result.outcomes},
    }


def _cell(outcome: Outcome, texts: dict[str, int]) -> list[Any]:
    explanation = ": ".join(part for part in (outcome.change, outcome.cause or outcome.reason) if part)
    said = (outcome.note, explanation, outcome.safe, outcome.where, outcome.thread)
    numbers = [texts.setdefault(text, len(texts)) for text in said]
    return [VERDICTS.index(outcome.verdict), _short(outcome.size), _short(outcome.confirmed), *numbers]


def _short(size: float | None) -> float | None:
    if size is None or size != size or size == float("inf"):
        return None
    return float(f"{size:.2g}")
