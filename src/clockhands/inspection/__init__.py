"""What position does inside any Transformer: open a checkpoint, capture it, measure it.

``inspect(model, tokenizer, texts)`` returns ``Findings``; ``open_subject`` opens a checkpoint; ``capture`` records a
model's hidden states and lets its attention be replayed, exactly, layer by layer.
"""

from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_split import TERMS, LogitSplit, split_logits
from clockhands.inspection.reading.windows import Windows, cut_windows
from clockhands.inspection.run import inspect
from clockhands.models.door import open_subject
from clockhands.models.subject import Subject

__all__ = [
    "TERMS",
    "Capture",
    "Layer",
    "LogitSplit",
    "Subject",
    "Windows",
    "capture",
    "cut_windows",
    "inspect",
    "open_subject",
    "split_logits",
]
