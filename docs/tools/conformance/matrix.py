"""The matrix: every architecture against every check, as plain data and as a page with filters.

python docs/tools/conformance/matrix.py FOLDER       # FOLDER/index.html from FOLDER/matrix.json.gz
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, FileSystemLoader
from markupsafe import Markup

from clockhands.checking.checks.check import CHECKS, USES
from clockhands.checking.result import Result
from clockhands.checking.verdict.outcome import Outcome
from clockhands.files import write_text
from clockhands.report.render import make_environment, make_policy, read_asset

HERE = Path(__file__).parent
MATRIX = "matrix.json.gz"
SCHEMA = 2
VERDICTS = ("PASS", "FAIL", "WARN", "PROPERTY", "N/A", "LIBRARY")


def matrix(results: Sequence[Result], code: str) -> dict[str, Any]:
    """Return plain data. A cell is [verdict, size, size again, note, explanation, safe, where, thread].

    The first number of a cell is one into ``verdicts``, the last five are into ``texts``.

    Columns are ``checks``, in their order; a row's ``cells`` are by check name, ``source.`` before those of the source
    side of an encoder-decoder. ``causes`` are the same failures by what causes them, those of the library first.
    ``reliance`` of a row is the number of the text that says what may be relied on, ``code`` that of the version of the
    checks that measured it, in ``codes``; the newest of them is the first.
    """
    texts: dict[str, int] = {"": 0}
    codes = list(dict.fromkeys((code, *(result.versions.get("code", "") for result in results))))
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


VERDICT_WORDS = {
    "PASS": "passes",
    "FAIL": "fails",
    "WARN": "careful",
    "PROPERTY": "a property",
    "N/A": "does not apply",
    "LIBRARY": "fails by its library",
}
"""Each verdict of a check as the page writes it."""
SIGNS = {"PASS": "✓", "FAIL": "×", "WARN": "!", "PROPERTY": "·", "N/A": "–", "LIBRARY": "○"}
"""What stands in a cell, so that no verdict is told by its colour alone."""
_SEVERITY = ("N/A", "PASS", "PROPERTY", "WARN", "LIBRARY", "FAIL")
"""The verdicts from the least to the worst."""


def make_matrix_page(data: Mapping[str, Any]) -> str:
    """Return one self-contained page: a table, filters, and for each cell its evidence and what reproduces it.

    ``data`` is what ``matrix.json.gz`` holds (``matrix``).
    """
    names = [check["name"] for check in data["checks"]]
    groups = list(dict.fromkeys(name.partition(".")[0] for name in names))
    schemes = sorted({row["scheme"] for row in data["rows"] if row["scheme"]})
    filters = (
        ("kind", "Task", _label_by_value(dict.fromkeys(row["kind"] for row in data["rows"]))),
        ("scheme", "Encoding", _label_by_value(schemes)),
        ("group", "Checks", _label_by_value([*groups, *(name for name in names if "." in name)])),
        ("verdict", "Verdict", [(index, VERDICT_WORDS[name]) for index, name in enumerate(data["verdicts"])]),
    )
    program = (HERE / "matrix.js").read_text("utf8").replace("</", "<\\/")
    environment = make_environment()
    environment = environment.overlay(loader=ChoiceLoader([FileSystemLoader(HERE), environment.loader]))
    return environment.get_template("matrix.html").render(
        title="How models handle position",
        policy=make_policy(program),
        style=Markup(read_asset("style.css")),
        script=Markup(program),
        data={**data, "groups": list_groups(data), "signs": [SIGNS[name] for name in data["verdicts"]]},
        filters=filters,
        words=VERDICT_WORDS,
        choose_worst=choose_worst,
        code_sentence=describe_codes(data),
        tells_libraries="LIBRARY" in data["verdicts"],
    )


def describe_codes(data: Mapping[str, Any]) -> str:
    """Say which version of the checks measured how many architectures; empty where the data does not tell."""
    codes = data.get("codes")
    if not codes:
        return ""
    counts = [sum(row["code"] == number for row in data["rows"]) for number in range(len(codes))]
    if counts[0] == len(data["rows"]):
        return f"All were measured with version {codes[0]} of the checks."
    parts = [f"{count} with version {code or 'unknown'}" for count, code in zip(counts, codes, strict=True) if count]
    return f"They were not measured at once: {', '.join(parts)} of the checks. A row tells its version."


def list_groups(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what makes models fail, by cause: ``cause``, whether it is of a ``library``, and the ``cells`` it is of.

    A cell is [model, check]. The models' own causes come first, then those with most models. The cause of a cell is
    its explanation, or its note, or the name of its check.
    """
    texts, verdicts = data["texts"], data["verdicts"]
    groups: dict[tuple[bool, str], list[tuple[str, str]]] = {}
    for row in data["rows"]:
        for check, (verdict, _, _, note, explanation, *_) in row["cells"].items():
            if verdicts[verdict] in ("FAIL", "LIBRARY"):
                cause = texts[explanation] or texts[note] or check
                groups.setdefault((verdicts[verdict] == "LIBRARY", cause), []).append((row["model"], check))
    entries = [{"cause": cause, "library": library, "cells": cells} for (library, cause), cells in groups.items()]
    return sorted(entries, key=lambda entry: (entry["library"], -len({model for model, _ in entry["cells"]})))


def choose_worst(cells: Mapping[str, Sequence[Any]], check: str, verdicts: Sequence[str]) -> int | None:
    """Return the number of the worse verdict of a check, of the model and of its source side; None if it was not made.

    An encoder-decoder has two cells a check, the second with ``source.`` before its name.
    """
    made = [cells[name][0] for name in (check, f"source.{check}") if name in cells]
    return max(made, key=lambda number: _SEVERITY.index(verdicts[number]), default=None)


def dump_matrix(data: Mapping[str, Any]) -> str:
    """Return the data as JSON with a line for each model, so that two versions can be compared line by line."""
    lines = ",\n".join(_dump(row) for row in data["rows"])
    return _dump({**data, "rows": []}).replace('"rows":[]', '"rows":[\n' + lines + "\n]") + "\n"


def write_matrix(data: Mapping[str, Any], folder: str | Path) -> list[Path]:
    """Write ``matrix.json.gz`` and ``index.html`` into the folder, and return their paths."""
    packed = Path(folder) / MATRIX
    packed.write_bytes(gzip.compress(dump_matrix(data).encode("utf8"), mtime=0))
    return [packed, write_text(Path(folder) / "index.html", make_matrix_page(data))]


def read_matrix(folder: str | Path) -> dict[str, Any]:
    """Return the data of the matrix in a folder."""
    data: dict[str, Any] = json.loads(gzip.decompress((Path(folder) / MATRIX).read_bytes()))
    return data


def _label_by_value(values: Iterable[str]) -> list[tuple[str, str]]:
    """Return the choices of a filter whose values are their own labels."""
    return [(value, value) for value in values]


def _dump(value: Any) -> str:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    text = make_matrix_page(read_matrix(folder))
    print(write_text(folder / "index.html", text))
