"""The script and style sheet that are committed are what the sources of the explorer build."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tests.exploring.node import build, require_node


def test_the_bundle_is_what_the_sources_build(tmp_path: Path) -> None:
    require_node()
    build("--outDir", str(tmp_path))
    bundle = files("clockhands.exploring").joinpath("bundle")
    built = {path.name: path.read_text(encoding="utf8") for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text(encoding="utf8") for path in bundle.iterdir()}
    assert sorted(built) == sorted(kept) == ["explorer.css", "explorer.js"]
    assert built == kept, "the sources have changed: cd explorer && npm run build"
