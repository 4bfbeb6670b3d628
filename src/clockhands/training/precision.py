"""The precision that a run computes in: fp32, or bf16 where a measurement on this machine says that it is faster.

Weights and optimizer states are float32 either way; bf16 is PyTorch's autocast of the products of matrices.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from clockhands.model.config import TransformerConfig
from clockhands.runs.recipe.sections import Training

__all__ = [
    "ENOUGH",
    "HOPELESS",
    "ROUNDS",
    "TOKENS",
    "WIDEST",
    "Precision",
    "choose_precision",
    "choose_unmeasured_precision",
    "measure_speedup",
    "read_precision",
]

TOKENS, WIDEST = 256, 256
"""The tokens and the largest width of the layer that is measured. Where a processor emulates bf16 it takes 20 times as
long as fp32, so that a wider layer would take seconds."""
ROUNDS = 5
HOPELESS = 4.0
"""The measurement ends after one round if bf16 takes this many times as long."""
ENOUGH = 1.3
"""``auto`` takes bf16 on a CPU if it is measured to be at least this many times as fast as fp32.

It is above 1 because the rest of a step gains less than the layer, and lies between what processors measure, so that a
machine decides the same each time: below 1 where bf16 is emulated, 1.5 to 1.7 with AVX512-BF16, above 2 with AMX.
"""


@dataclass(frozen=True)
class Precision:
    """What a run computes in: ``name`` (fp32 or bf16), on which ``device`` (cpu, cuda) that was decided, and the
    measured ``speedup`` of bf16 over fp32; None where nothing was measured."""

    name: str
    device: str
    speedup: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that ``read_precision`` reads back."""
        return asdict(self)

    @property
    def sentence(self) -> str:
        """One line about the measurement and what was decided; empty if nothing was measured."""
        if self.speedup is None:
            return ""
        speed = f"bf16 is {self.speedup:.2g} times as fast as fp32 here"
        return f"computing in {self.name}: {speed} (measured on a layer as wide as this model's)"


def choose_precision(training: Training, model: TransformerConfig, device: torch.device) -> Precision:
    """Choose the precision that ``training.precision`` asks for; for ``auto`` on a CPU, measure.

    Log a warning where bf16 was asked for and is slower than fp32 on this machine.
    """
    if training.precision == "fp32" or (training.precision == "auto" and device.type != "cpu"):
        return choose_unmeasured_precision(training, device)
    if training.precision == "auto":
        speedup = measure_speedup(model)
        return Precision("bf16" if speedup >= ENOUGH else "fp32", device.type, round(speedup, 3))
    _warn_if_slow(model, device)
    return Precision("bf16", device.type)


def choose_unmeasured_precision(training: Training, device: torch.device) -> Precision:
    """Return the precision that depends on no measurement: for ``auto``, bf16 on a GPU that has it and fp32 elsewhere.

    Trials that are compared use it, since all must compute alike, and so do runs from before there was a measurement.
    """
    if training.precision != "auto":
        return Precision(training.precision, device.type)
    return Precision("bf16" if device.type == "cuda" and _has_gpu_bf16() else "fp32", device.type)


def read_precision(
    record: Mapping[str, Any], training: Training, model: TransformerConfig, device: torch.device
) -> Precision:
    """Return the precision that a run began with, as its record keeps it, so that it goes on exactly.

    On another kind of device that is impossible, and the precision that needs no measurement is taken.
    """
    if training.precision != "auto":
        return choose_precision(training, model, device)
    stored = record.get("precision")
    if isinstance(stored, Mapping) and stored.get("device") == device.type:
        return Precision(**stored)
    return choose_unmeasured_precision(training, device)


def measure_speedup(model: TransformerConfig) -> float:
    """Return how many times as fast as fp32 bf16 is on the CPU, forward and backward, in milliseconds of work.

    The layer is a feed-forward layer of the model's width, up to ``WIDEST``. The two precisions take turns, and the
    shortest time of each counts: other processes can only lengthen one. No random number of the caller is spent.
    """
    width = min(model.d_model, WIDEST)
    inner = max(1, width * model.d_ff // model.d_model)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        layer = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))
        x_TD = torch.randn(TOKENS, width)
        times: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(1 + ROUNDS):
            for low in (False, True):
                seconds = _step(layer, x_TD, low=low)
                if turn > 0:  # the first of each prepares its kernels
                    times[low].append(seconds)
            if turn > 0 and min(times[True]) > HOPELESS * min(times[False]):
                break
    return min(times[False]) / min(times[True])


def _step(layer: nn.Module, x_TD: torch.Tensor, *, low: bool) -> float:
    """Return the seconds of one forward and backward pass."""
    begun = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        y_TD = layer(x_TD)
    y_TD.float().sum().backward()
    seconds = time.perf_counter() - begun
    layer.zero_grad()
    return seconds


def _warn_if_slow(model: TransformerConfig, device: torch.device) -> None:
    """Log a warning if bf16 is emulated, or slower than fp32, on this device."""
    advice = "training.precision=fp32 or auto is faster"
    warn = logging.getLogger(__name__).warning
    if device.type == "cuda" and not _has_gpu_bf16():
        warn("training.precision is 'bf16', which this GPU only emulates; %s", advice)
    if device.type == "cpu" and (speedup := measure_speedup(model)) < 1:
        warn(
            "training.precision is 'bf16', which is slower than fp32 on this processor (%.2g times its speed, measured "
            "on a layer as wide as this model's); %s",
            speedup,
            advice,
        )


def _has_gpu_bf16() -> bool:
    """Return whether the GPU itself computes in bf16; by default PyTorch counts emulation too."""
    return torch.cuda.is_bf16_supported(including_emulation=False)
