"""The main job, once through: train a small translator, use it, and see what its positional encoding does."""

from clockhands.studies.tour.result_findings import tour

__all__ = ["tour"]
