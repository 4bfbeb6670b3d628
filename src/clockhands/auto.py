"""Import this module, and the Auto classes of transformers open the models of this project::

    import clockhands.auto
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained("runs/tour")

``import clockhands`` alone registers nothing, so that it stays cheap and leaves Python's import system alone. The
modules of the models register their classes when they are imported, by this module or by training.
"""

from __future__ import annotations

# Both modules register their classes when they are imported.
from clockhands.model.huggingface import ClockhandsForCausalLM, ClockhandsForMaskedLM, ClockhandsForSeq2SeqLM
from clockhands.model.huggingface_base import ClockhandsConfig

__all__ = ["ClockhandsConfig", "ClockhandsForCausalLM", "ClockhandsForMaskedLM", "ClockhandsForSeq2SeqLM"]
