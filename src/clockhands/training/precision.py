"""The precision that a run computes in: fp32, or bf16 where the hardware itself multiplies in it.

Weights and optimizer states are float32 either way; bf16 is PyTorch's autocast of the products of matrices. Nothing is
timed: a busy machine would choose otherwise than a quiet one, and the same recipe would end with other weights.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from clockhands.model.config import TransformerConfig
from clockhands.runs.recipe.sections import Training

NARROWEST = 128
"""The smallest ``d_model`` at which ``auto`` takes bf16 on a CPU. Below it autocast's conversions cost what the
products save: with AVX512-BF16 a feed-forward layer of width 64 gains 1.1 times, of 128 1.6 times, of 256 2 times."""


@dataclass(frozen=True)
class Precision:
    """What a run computes in: ``name`` (fp32 or bf16), and on which ``device`` (cpu, cuda) that was decided."""

    name: str
    device: str


def choose_precision(training: Training, model: TransformerConfig, device: torch.device) -> Precision:
    """Choose the precision that ``training.precision`` asks for; for ``auto``, bf16 where the hardware has it.

    On a CPU ``auto`` takes bf16 for models at least ``NARROWEST`` wide. Log a warning where bf16 was asked for and is
    only emulated.
    """
    native = multiplies_in_bf16(device)
    if training.precision == "bf16" and not native:
        logging.getLogger(__name__).warning(
            "training.precision is 'bf16', which this %s only emulates; training.precision=fp32 or auto is faster",
            "GPU" if device.type == "cuda" else "processor",
        )
    wide = device.type != "cpu" or model.d_model >= NARROWEST
    auto = "bf16" if native and wide else "fp32"
    return Precision(auto if training.precision == "auto" else training.precision, device.type)


def choose_trial_precision(training: Training, device: torch.device) -> Precision:
    """Choose the precision of a trial: for ``auto``, bf16 on a GPU that has it, and fp32 on every CPU.

    Trials of one comparison may run on several machines and must all compute alike.
    """
    auto = "bf16" if device.type == "cuda" and multiplies_in_bf16(device) else "fp32"
    return Precision(auto if training.precision == "auto" else training.precision, device.type)


def read_precision(
    record: Mapping[str, Any], training: Training, model: TransformerConfig, device: torch.device
) -> Precision:
    """Return the precision that a run began with, as its record keeps it, so that it goes on exactly.

    On another kind of device that is impossible, and it is chosen anew.
    """
    stored = record.get("precision")
    if training.precision == "auto" and isinstance(stored, Mapping) and stored.get("device") == device.type:
        return Precision(stored["name"], stored["device"])
    return choose_precision(training, model, device)


def multiplies_in_bf16(device: torch.device) -> bool:
    """Return whether a device has instructions that multiply in bf16; what only emulates it is many times slower."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # torch's own reading of the processor; releases without one of these questions answer no, and compute in fp32.
    questions = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(ask is not None and ask() for ask in questions)
