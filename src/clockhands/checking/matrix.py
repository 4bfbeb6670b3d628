"""The matrix: every architecture against every check, as plain data for JSON and for its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clockhands.checking.checks.check import CHECKS, USES
from clockhands.checking.code_version import identify_code
from clockhands.checking.result import Result
from clockhands.checking.verdict.outcome import Outcome

SCHEMA = 2
VERDICTS = ("PASS", "FAIL", "WARN", "PROPERTY", "N/A", "LIBRARY")


def matrix(results: Sequence[Result]) -> dict[str, Any]:
    """Return plain data. A cell is [verdict, size, size again, note, explanation, safe, where, thread].

    The first number of a cell is one into ``verdicts``, the last five are into ``texts``.

    Columns are ``checks``, in their order; a row's ``cells`` are by check name, ``source.`` before those of the source
    side of an encoder-decoder. ``causes`` are the same failures by what causes them, those of the library first.
    ``reliance`` of a row is the number of the text that says what may be relied on, ``code`` that of the version of the
    checks that measured it, in ``codes``; the newest of them is the first.
    """
    texts: dict[str, int] = {"": 0}
    codes = list(dict.fromkeys((identify_code(), *(result.versions.get("code", "") for result in results))))
    rows = [_row(result, texts, codes) for result in results]
    versions = next((dict(result.versions) for result in results if result.versions), {})
    versions.pop("code", None)
    checks = [{"name": c.name, "asserts": c.asserts, "catches": c.catches} for c in CHECKS.values() if not c.optional]
    counts = {verdict: sum(result.count(verdict) for result in results) for verdict in VERDICTS}
    return {
        "schema": SCHEMA,
        "versions": versions,
        "codes": codes,
        "verdicts": list(VERDICTS),
        "counts": counts,
        "uses": list(USES),
        "checks": checks,
        "causes": list_causes(results),
        "texts": list(texts),
        "rows": rows,
    }


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


def _row(result: Result, texts: dict[str, int], codes: Sequence[str]) -> dict[str, Any]:
    return {
        "model": result.model,
        "kind": result.task,
        "scheme": result.scheme,
        "fault": result.fault,
        "code": codes.index(result.versions.get("code", "")),
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
