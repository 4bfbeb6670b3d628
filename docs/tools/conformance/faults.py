"""Writes docs/conformance/faults.md from the matrix: ``python docs/tools/conformance/faults.py``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matrix import read_matrix
from transformers.models.auto import modeling_auto

FOLDER = Path(__file__).resolve().parents[2] / "conformance"
PAGE = FOLDER / "faults.md"
PLACE = re.compile(r"(?:generation/)?\w+\.py:\d+")
HEAD = """# Every cause of a failure, and the builds that it touches

Of the {builds} builds of [the matrix](matrix.json.gz), measured with transformers {version}, {failing} fail by the
own code of their models, in {cells} cells: {text} of them read text alone, {more} images, video or sound as well.
{library} more cells fail by code that many models share: {shared} causes, each one finding about the library.

A cause is the library's where its lines stand outside of transformers' folder of models (`generation/`,
`masking_utils.py`, `modeling_rope_utils.py`), where the model shows that a line of its own file does what those of many
models do (a mask made without position_ids, a table of angles that a cast rounds), or where transformers has copied the
lines into at least five types of models. All others are the model's own. Each cause has a page with a script in plain
transformers that shows it; the page takes one of the models. Written by `python docs/tools/conformance/faults.py`.

"""
OWN = "## The models' own code\n\n| cause | builds | cells | page |\n|---|---|---|---|\n"
SHARED = (
    "\n## Code of the library\n\n*Times*: the largest difference, over what the precision does by itself.\n\n"
    "| cause | builds | cells | times | thread | page |\n|---|---|---|---|---|---|\n"
)


@dataclass
class Cause:
    """The cells of one cause: how many, of which builds, with the lines that they name."""

    cells: int = 0
    models: list[str] = field(default_factory=list)
    lines: set[str] = field(default_factory=set)


def collect(data: dict[str, Any], verdict: str) -> dict[str, Cause]:
    """Return the causes of all cells with a verdict."""
    causes: dict[str, Cause] = {}
    for row in data["rows"]:
        for number, _, _, _, cause, _, where, _ in row["cells"].values():
            if data["verdicts"][number] == verdict:
                found = causes.setdefault(data["texts"][cause], Cause())
                found.cells += 1
                found.models += [row["model"]] if row["model"] not in found.models else []
                found.lines.update(PLACE.findall(data["texts"][where]))
    return causes


def find_page(cause: Cause, pages: dict[str, str]) -> str:
    """Return a link to the page that names most of a cause's lines, and fewest others."""
    hits = {stem: sum(f"`{line}`" in text for line in cause.lines) for stem, text in pages.items()}
    best = max(hits, key=lambda stem: (hits[stem], -len(PLACE.findall(pages[stem]))))
    return f"[{best}](defects/{best}.md)" if hits[best] else ""


def make_page(data: dict[str, Any]) -> str:
    """Return the page of a matrix."""
    pages = {path.stem: path.read_text("utf8") for path in sorted((FOLDER / "defects").glob("*.md"))}
    own, shared = collect(data, "FAIL"), collect(data, "LIBRARY")
    failing = {model for cause in own.values() for model in cause.models}
    more = {model for model in failing if _reads_more(model)}
    head = HEAD.format(
        builds=len(data["rows"]),
        version=data["versions"]["transformers"],
        failing=len(failing),
        cells=data["counts"]["FAIL"],
        text=len(failing - more),
        more=len(more),
        library=data["counts"]["LIBRARY"],
        shared=len(shared),
    )
    told = {(entry["library"], entry["cause"]): entry for entry in data["causes"]}
    rows = [f"| {name} | {', '.join(c.models)} | {c.cells} | {find_page(c, pages)} |" for name, c in _ranked(own)]
    others = []
    for name, cause in _ranked(shared):
        entry = told[True, name]
        models = ", ".join(cause.models[:8]) + (f" and {len(cause.models) - 8} more" if len(cause.models) > 8 else "")
        times = f"{entry['times']:.2g}" if entry["times"] else ""
        others.append(
            f"| {name} | {models} | {cause.cells} | {times} | {entry['thread']} | {find_page(cause, pages)} |"
        )
    return head + OWN + "\n".join(rows) + "\n" + SHARED + "\n".join(others) + "\n"


def _ranked(causes: dict[str, Cause]) -> list[tuple[str, Cause]]:
    return sorted(causes.items(), key=lambda pair: (-len(pair[1].models), pair[0]))


def _reads_more(model: str) -> bool:
    return model.partition(":")[0].partition("+")[0] in modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES


if __name__ == "__main__":
    PAGE.write_text(make_page(read_matrix(FOLDER)), encoding="utf8")
