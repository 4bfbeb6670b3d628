"""Measure what a step of training takes with a sum and with concatenations, and keep it in docs/studies/cost.json.

    python docs/tools/answers/cost.py

A language model of two layers over 8,000 tokens reads 16 texts of 64 tokens. The time is that of the processor, one
thread, the least of eleven steps, so that other programs make it no longer. The sum has a width of 128.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import torch
from kept import STUDY_PAGES

from clockhands.files import write_text
from clockhands.model import PositionConfig, TransformerConfig
from clockhands.model.huggingface import ClockhandsForCausalLM
from clockhands.model.huggingface_base import ClockhandsConfig

KEPT = STUDY_PAGES / "cost.json"
VOCABULARY, TEXTS, LENGTH = 8_000, 16, 64
CASES: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "sum 128": (128, {}),
    "96 + 32": (128, {"combine": "concatenate", "width": 32}),
    "128 + 32": (160, {"combine": "concatenate", "width": 32}),
    "128 + 128": (256, {"combine": "concatenate", "width": 128}),
}
"""The width of the model, and how positions enter it."""


def measure_step(width: int, position: Mapping[str, Any]) -> tuple[float, int]:
    """Return the milliseconds of a step, forward and backward, and the number of parameters."""
    torch.manual_seed(0)
    config = TransformerConfig(
        kind="decoder", vocab_size=VOCABULARY, d_model=width, num_heads=4, d_ff=4 * width, decoder_layers=2,
        tying="none", dropout=0.0, decoder=PositionConfig(scheme="sinusoidal", **position),
    )  # fmt: skip
    model = ClockhandsForCausalLM(ClockhandsConfig(config.to_dict())).train()
    ids_BT = torch.randint(4, VOCABULARY, (TEXTS, LENGTH))
    seconds = []
    for _ in range(12):
        started = time.process_time()
        model(input_ids=ids_BT, labels=ids_BT).loss.backward()
        model.zero_grad()
        seconds.append(time.process_time() - started)
    return 1000 * min(seconds[1:]), sum(parameter.numel() for parameter in model.parameters())


def main() -> None:
    """Measure every case, and keep that."""
    torch.set_num_threads(1)
    kept: dict[str, float] = {}
    for name, (width, position) in CASES.items():
        kept[f"{name}, ms"], parameters = measure_step(width, position)
        kept[f"{name}, million"] = parameters / 1e6
        print(name, kept[f"{name}, ms"], parameters, flush=True)
    write_text(KEPT, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
