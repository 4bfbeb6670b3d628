"""The pages of the studies are what their generator writes from the TOML files and the committed results."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_no_page_has_drifted() -> None:
    generate = runpy.run_path(str(DOCS / "studies" / "generate.py"))
    for path, text in generate["write_pages"]().items():
        assert path.read_text("utf8") == text, f"{path.name}: run python docs/studies/generate.py"
