"""A tiny ViT and pictures of two classes that it can learn to tell: stripes that lie and stripes that stand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

SIDE, PATCH = 16, 4
CLASSES = ("lying", "standing")


def make_picture(kind: int, side: int, rng: np.random.Generator) -> np.ndarray:
    """Make a picture of one bright stripe on noise, which lies (0) or stands (1) in the first half of the picture."""
    values = rng.uniform(0, 120, (side, side))
    begin = int(rng.integers(0, side // 4))
    stripe = slice(begin, begin + side // 4)
    values[(stripe, slice(None)) if kind == 0 else (slice(None), stripe)] += 130
    return np.repeat(values[..., None], 3, axis=2).astype(np.uint8)


def save_pictures(folder: Path, count: int = 12, side: int = 2 * SIDE) -> Path:
    """Save pictures of the two classes in folders with their names."""
    rng = np.random.default_rng(0)
    for kind, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(make_picture(kind, side, rng)).save(folder / name / f"{number}.png")
    return folder


def save_vit(folder: Path, steps: int = 0) -> Path:
    """Save a tiny ViT with fresh weights, or trained for some steps on pictures of its own size."""
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, image_size=SIDE,
        patch_size=PATCH, id2label=dict(enumerate(CLASSES)), label2id={name: n for n, name in enumerate(CLASSES)},
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = ViTForImageClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rng = np.random.default_rng(1)
    for _ in range(steps):
        kinds = rng.integers(0, 2, 16)
        pictures = np.stack([make_picture(int(kind), SIDE, rng) for kind in kinds])
        pixels = torch.from_numpy(pictures).permute(0, 3, 1, 2) / 127.5 - 1
        loss = nn.functional.cross_entropy(model(pixel_values=pixels).logits, torch.from_numpy(kinds))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval().save_pretrained(folder)
    size = {"height": SIDE, "width": SIDE}
    processor = {
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "size": size,
        "image_processor_type": "ViTImageProcessor",
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder
