"""Train a tiny ViT on the spot, and measure what its grid of positions loses on pictures twice as large.

Part of extending.py. The class of a picture is the quarter that holds a bright square, so that it can be told from
positions alone. On larger pictures the same scenes are drawn with as many more pixels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from extending_told import tell_all
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

from clockhands.extension.pictures import PictureModel, Pictures
from clockhands.extension.pictures.judge import score_pictures
from clockhands.extension.pictures.model import lengthen
from clockhands.extension.pictures.tables import GRIDS
from clockhands.shapes import Float

__all__ = ["measure_grid"]

SIDE, PATCH, TIMES, PICTURES = 32, 4, 2, 400
STEPS, BATCH, RATE = 500, 32, 1e-3


def draw(quarter: int, side: int, rng: np.random.Generator) -> torch.Tensor:
    """Draw a bright square of random size and place inside a quarter, on noise as coarse as a trained pixel."""
    noise = rng.uniform(0, 0.5, (3, SIDE, SIDE))
    size = int(rng.integers(4, 9))
    corner = rng.integers(0, SIDE // 2 - size + 1, 2) + SIDE // 2 * np.array(divmod(quarter, 2))
    noise[:, corner[0] : corner[0] + size, corner[1] : corner[1] + size] += 0.4
    return torch.from_numpy(noise.repeat(side // SIDE, 1).repeat(side // SIDE, 2)).float()


def train(seed: int) -> PictureModel:
    """Train the ViT."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    config = ViTConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=3, intermediate_size=96, image_size=SIDE,
        patch_size=PATCH, num_labels=4,
    )  # fmt: skip
    model = ViTForImageClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        kinds = rng.integers(0, 4, BATCH)
        pixels = torch.stack([draw(int(kind), SIDE, rng) for kind in kinds])
        loss = nn.functional.cross_entropy(model(pixel_values=2 * pixels - 1).logits, torch.from_numpy(kinds))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return PictureModel("a ViT of this study", model.eval(), {})


def measure_grid(seeds: Sequence[int]) -> dict[str, Any]:
    """Measure every way to make the grid larger, of one training for each seed, on the same pictures."""
    rng = np.random.default_rng(len(seeds))  # no training has these pictures
    kinds = [number % 4 for number in range(PICTURES)]
    pictures = Pictures("drawn", tuple(draw(kind, TIMES * SIDE, rng) for kind in kinds), tuple(kinds))
    read: dict[str, list[Float[np.ndarray, " N"]]] = {}
    right: dict[str, list[float]] = {}
    weights = []
    for seed in seeds:
        model = train(seed)
        weights.append(_hash(model))
        for way in ("before", *GRIDS):
            side = SIDE if way == "before" else TIMES * SIDE
            losses_N, named_N = score_pictures(model if way == "before" else lengthen(model, side, way), pictures, side)
            read.setdefault(way, []).append(losses_N)
            right.setdefault(way, []).append(float(named_N.mean()))
    stacked = {way: np.stack(losses) for way, losses in read.items()}
    kept: dict[str, Any] = {
        "side": SIDE // PATCH, "longer": TIMES * SIDE // PATCH, "pictures": PICTURES,
        "parameters": sum(weight.numel() for weight in model.model.parameters()), "weights": ", ".join(weights),
        "loss": float(stacked["before"].mean()), "right": float(np.mean(right["before"])),
    }  # fmt: skip
    for way in GRIDS:
        kept |= {f"{way}, loss": float(stacked[way].mean()), f"{way}, right": float(np.mean(right[way]))}
    return kept | tell_all({way: (stacked[way], stacked["before"]) for way in GRIDS})


def _hash(model: PictureModel) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for _, weight in sorted(model.model.state_dict().items()):
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest()
