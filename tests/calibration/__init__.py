"""The tools behind docs/studies/calibration.md, which are scripts beside the package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "tools" / "calibration"))

import laws
import simulation

__all__ = ["laws", "simulation"]
