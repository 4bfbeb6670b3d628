"""The tools behind docs/conformance, which are scripts beside the package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "tools" / "conformance"))

import faults
import matrix
import sweep as sweeping

__all__ = ["faults", "matrix", "sweeping"]
