"""Models of transformers: loaded from safetensors, or built with fresh weights; code runs only where it is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from clockhands.pretrained.guards import forbid_questions
from clockhands.quiet import quiet, without_bars

__all__ = ["build_model", "count_numbers", "load_model"]


def load_model(opener: Any, source: str | Path, *, trust_remote_code: bool = False, **options: Any) -> Any:
    """Load a model from safetensors. ``opener``: an Auto class, or the class of the model; raises what that raises.

    ``options`` are those of ``from_pretrained``. No bar is drawn meanwhile.
    """
    with forbid_questions(), without_bars():
        return opener.from_pretrained(str(source), use_safetensors=True, trust_remote_code=trust_remote_code, **options)


def build_model(opener: Any, config: Any, *, trust_remote_code: bool = False, **options: Any) -> Any:
    """Build a model with fresh weights. ``opener``: an Auto class; raises what that raises."""
    with forbid_questions():
        return opener.from_config(config, trust_remote_code=trust_remote_code, **options)


def count_numbers(opener: Any, config: Any, *, trust_remote_code: bool = False) -> int | None:
    """Count the numbers of a model, parameters and tables, by building it without storage.

    ``opener``: an Auto class. None where the model cannot be built so; opening it says what is wrong.
    """
    try:
        with torch.device("meta"), quiet("accelerate.big_modeling"):
            model = build_model(opener, config, trust_remote_code=trust_remote_code)
    except Exception:  # code of a model's own may do anything here
        return None
    return sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
