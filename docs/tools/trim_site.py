"""A hook of mkdocs: deletes from the built site what no reader needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def on_post_build(config: Mapping[str, Any]) -> None:
    """Delete what the theme brings for its own developers, and its word breaker for Thai."""
    for pattern in ("*.map", "wordcut.js"):
        for path in Path(config["site_dir"]).rglob(pattern):
            path.unlink()
