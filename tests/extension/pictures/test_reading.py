"""Pictures are read with the class of their folder, and become what the processor of transformers makes of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from clockhands.errors import DataError, UsageError
from clockhands.extension.pictures import open_picture_model, read_pictures
from clockhands.extension.pictures.reading import prepare, resize
from tests.extension.pictures.tiny import SIDE, save_pictures, save_vit


def test_pictures_are_what_their_files_hold(tmp_path: Path) -> None:
    model = open_picture_model(save_vit(tmp_path / "vit"))
    pictures = read_pictures(save_pictures(tmp_path / "some", 5), model, 100)
    assert pictures.classes == (0,) * 5 + (1,) * 5 and pictures.count_smaller(33) == 10
    with Image.open(tmp_path / "some" / "standing" / "0.png") as image:
        values = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    torch.testing.assert_close(prepare(model, pictures.pictures[5:6])[0], values / 127.5 - 1)
    assert len(read_pictures(tmp_path / "some", model, 8)) == 8
    flat = resize(torch.full((3, 32, 32), 0.25), SIDE)
    torch.testing.assert_close(flat, torch.full((3, SIDE, SIDE), 0.25))
    (tmp_path / "some" / "standing").rename(tmp_path / "some" / "1")
    assert set(read_pictures(tmp_path / "some", model, 100).classes) == {0, 1}, "a class may be named by its number"


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    model = open_picture_model(save_vit(tmp_path / "vit"))
    with pytest.raises(UsageError, match="there is no such folder"):
        read_pictures(tmp_path / "none", model, 100)
    with pytest.raises(DataError, match="has 6 pictures in folders of their classes; at least 8"):
        read_pictures(save_pictures(tmp_path / "few", 3), model, 100)
    some = save_pictures(tmp_path / "some", 5)
    (some / "lying" / "0.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"0\.png cannot be read as a picture"):
        read_pictures(some, model, 100)
    (some / "lying").rename(some / "leaning")
    with pytest.raises(UsageError, match=r"has a folder 'leaning', and that is no class of .*; it has lying, standing"):
        read_pictures(some, model, 100)


def test_photographs_are_kept_no_larger_than_they_are_read(tmp_path: Path) -> None:
    model = open_picture_model(save_vit(tmp_path / "vit"))
    some = save_pictures(tmp_path / "some", 5, side=48)
    os.mkfifo(some / "lying" / "waits-for-ever.png")
    whole, smaller = read_pictures(some, model, 100), read_pictures(some, model, 100, largest=32)
    assert {picture.shape for picture in whole.pictures} == {(3, 48, 48)}
    assert {picture.shape for picture in smaller.pictures} == {(3, 32, 32)}
    torch.testing.assert_close(smaller.pictures[0], resize(whole.pictures[0], 32))
    small = read_pictures(some, model, 100, largest=64)
    assert small.count_smaller(64) == 10, "none is blown up, so that smaller ones are counted"
