"""The model that is inspected, ours or anybody's: how it is run, and where position enters it."""

from clockhands.inspection.subject.clockhands_model import ClockhandsSubject
from clockhands.inspection.subject.huggingface_model import HuggingFaceSubject
from clockhands.inspection.subject.side import Side
from clockhands.inspection.subject.subject import Subject
from clockhands.inspection.subject.tables import Tables

__all__ = ["ClockhandsSubject", "HuggingFaceSubject", "Side", "Subject", "Tables"]
