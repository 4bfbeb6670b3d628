"""The main job, once through: train a small translator, use it, and see what its positional encoding does."""

from clockhands.tour.run import tour

__all__ = ["tour"]
