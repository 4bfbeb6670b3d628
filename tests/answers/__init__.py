"""The tools behind docs/answers and docs/studies, which are scripts beside the package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "tools" / "answers"))

import kept
import scheme_results

__all__ = ["kept", "scheme_results"]
