"""The board of releases as a page and as JSON; made of the data alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clockhands.files import write_text
from clockhands.report.render import render_page


def make_board_page(data: Mapping[str, Any]) -> str:
    """Return one self-contained page. ``data`` is what ``clockhands.checking.board.compare_releases`` returns."""
    return render_page("board.html", "What each release of transformers broke and mended", data=data, lead=_lead(data))


def _lead(data: Mapping[str, Any]) -> str:
    """Say what was swept: all architectures or a sample, which one, and with which version of the checks."""
    count = len(data["models"])
    named = f"a sample of {count}: {', '.join(data['models'])}. The others were not looked at"
    what = f"all {count} architectures" if data["whole"] else named
    codes = sum((Counter(entry["codes"]) for entry in data["releases"]), Counter[str]()).most_common()
    versions = ", ".join(f"{code} ({count:,} {'result' if count == 1 else 'results'})" for code, count in codes)
    measured = f" Measured with version {codes[0][0]} of the checks." if codes else ""
    measured = f" Measured with {len(codes)} versions of the checks: {versions}." if len(codes) > 1 else measured
    return (
        f"The same checks under {len(data['releases'])} releases, each in an environment of its own, on {what}."
        f"{measured} A release broke a check of a model if it fails under it, and applied without failing under the "
        "release before; it mended one that failed there, and applies without failing now. Models that only one of the "
        "two can build are not compared."
    )


def write_board(data: Mapping[str, Any], folder: str | Path) -> list[Path]:
    """Write ``board.json`` and ``index.html`` into the folder, and return their paths."""
    folder = Path(folder)
    return [
        write_text(folder / "board.json", json.dumps(data, ensure_ascii=False, indent=1) + "\n"),
        write_text(folder / "index.html", make_board_page(data)),
    ]
