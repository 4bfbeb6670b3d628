"""What is measured: a model of anybody's, with its tokenizer and the place where position enters."""

from clockhands.inspection.subject.clockhands_model import ClockhandsSubject
from clockhands.inspection.subject.subject import Side, Subject
from clockhands.inspection.subject.tables import Tables

__all__ = ["ClockhandsSubject", "Side", "Subject", "Tables"]
