"""The matrix of ``clockhands check --all`` as a page with filters, and as JSON; made of the data alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clockhands.files import write_text
from clockhands.report.render import render_page

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

    ``data`` is what ``matrix.json`` holds (``clockhands.checking.matrix.matrix``).
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
    return render_page(
        "matrix.html",
        "How models handle position",
        script="matrix.js",
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
    """Write ``matrix.json`` and ``index.html`` into the folder, and return their paths."""
    folder = Path(folder)
    return [
        write_text(folder / "matrix.json", dump_matrix(data)),
        write_text(folder / "index.html", make_matrix_page(data)),
    ]


def _label_by_value(values: Iterable[str]) -> list[tuple[str, str]]:
    """Return the choices of a filter whose values are their own labels."""
    return [(value, value) for value in values]


def _dump(value: Any) -> str:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
