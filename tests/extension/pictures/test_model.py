"""A longer grid is that of transformers where transformers makes one, and other models are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import CLIPConfig, CLIPForImageClassification, ResNetConfig, ResNetForImageClassification

from clockhands.errors import CheckpointError, UsageError
from clockhands.extension.pictures import lengthen, open_picture_model
from tests.extension.pictures.tiny import PATCH, SIDE, save_vit
from tests.runs.tiny import save_model


def test_an_interpolated_grid_is_the_one_that_transformers_makes(tmp_path: Path) -> None:
    model = open_picture_model(save_vit(tmp_path))
    assert (model.side, model.patch, model.table[1:]) == (SIDE, PATCH, (1, SIDE // PATCH))
    pixels = torch.randn(2, 3, 2 * SIDE, 2 * SIDE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = model.model(pixel_values=pixels, interpolate_pos_encoding=True).logits
    torch.testing.assert_close(lengthen(model, 2 * SIDE, "interpolated").compute_logits(pixels), expected)
    assert not torch.allclose(lengthen(model, 2 * SIDE, "tiled").compute_logits(pixels), expected, atol=1e-4)
    with pytest.raises(UsageError, match="30 pixels are no multiple of the patch, 4"):
        lengthen(model, 30, "tiled")


def test_a_table_inside_a_vision_part_is_found(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {**sizes, "image_size": SIDE, "patch_size": PATCH}
    CLIPForImageClassification(CLIPConfig(text_config=sizes, vision_config=vision)).save_pretrained(tmp_path)
    model = open_picture_model(tmp_path)
    longer = lengthen(model, 3 * SIDE, "held")
    assert longer.side == 3 * SIDE and longer.table[2] == 3 * SIDE // PATCH
    assert longer.compute_logits(torch.randn(1, 3, 3 * SIDE, 3 * SIDE)).shape == (1, 2)


def test_models_without_a_grid_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names no pictures"):
        open_picture_model(save_model(tmp_path / "llama", "llama"))
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1])
    ResNetForImageClassification(config).save_pretrained(tmp_path / "resnet")
    with pytest.raises(UsageError, match="both have to be square here"):
        open_picture_model(tmp_path / "resnet")


@pytest.mark.parametrize(
    ("file", "field", "value", "said"),
    [
        ("config.json", "id2label", {"0": "lying", "9": "standing"}, "id2label has the class 9; there are 2 classes"),
        ("preprocessor_config.json", "image_std", [0.5, 0, 0.5], "image_std is .* has to be above 0"),
        ("preprocessor_config.json", "image_std", [0.5, float("nan"), 0.5], "image_std is .*; each has to be finite"),
        ("preprocessor_config.json", "image_mean", "half", "image_mean is 'half', no list of numbers"),
        (
            "preprocessor_config.json",
            "image_mean",
            [0.5, 0.5],
            "image_mean has 2 numbers; give one, or one for each of 3",
        ),
        ("preprocessor_config.json", "image_mean", [float("inf")], "image_mean is .*; each has to be finite"),
        ("config.json", "patch_size", 32, "no patch of 32 pixels fits into pictures of 16"),
        ("config.json", "num_channels", 4, "reads pictures of 4 channels; grey ones have 1, coloured ones 3"),
        ("config.json", "patch_size", 0, "of 16 pixels in patches of 0; both have to be above 0"),
        ("config.json", "image_size", -16, "of -16 pixels in patches of 4; both have to be above 0"),
    ],
)
def test_a_folder_that_means_harm_is_one_error(tmp_path: Path, file: str, field: str, value: object, said: str) -> None:
    path = save_vit(tmp_path) / file
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises((CheckpointError, UsageError), match=said):
        open_picture_model(tmp_path)
