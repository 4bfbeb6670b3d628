"""Node and the packages of the explorer, for tests that build its sources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

EXPLORER = Path(__file__).resolve().parent.parent.parent / "explorer"


def require_node() -> None:
    """Skip the test, saying so, unless the explorer's sources can be built here."""
    if shutil.which("node") is None:
        pytest.skip("there is no node: the sources of the explorer cannot be built")
    if not (EXPLORER / "node_modules" / "vite").is_dir():
        pytest.skip("the packages of the explorer are not installed: cd explorer && npm ci")


def build(*options: str) -> None:
    """Run ``vite build`` in the explorer. Raises AssertionError with what it said if it fails."""
    vite = EXPLORER / "node_modules" / "vite" / "bin" / "vite.js"
    done = subprocess.run(
        ["node", str(vite), "build", "--logLevel", "warn", *options],
        cwd=EXPLORER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
