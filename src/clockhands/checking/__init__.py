"""Does a model handle position correctly? Laws, measured, with honest verdicts."""

from clockhands.checking.examine import check, examine
from clockhands.checking.result import Result

__all__ = ["Result", "check", "examine"]
