"""Packed numbers, read back byte by byte."""

from __future__ import annotations

import base64
import struct

import torch

from clockhands.inspection.measures.base64_numbers import pack_int8, pack_int16


def test_numbers_of_16_bits_are_little_endian_integers() -> None:
    content = base64.b64decode(pack_int16(torch.tensor([32767.0, -2.4, 0.0])))
    assert struct.unpack("<3h", content) == (32767, -2, 0)


def test_numbers_of_8_bits_are_127ths_and_cut_at_one() -> None:
    content = base64.b64decode(pack_int8(torch.tensor([1.0, -1.0, 0.5, 0.0, 3.0])))
    assert struct.unpack("<5b", content) == (127, -127, 64, 0, 127)
