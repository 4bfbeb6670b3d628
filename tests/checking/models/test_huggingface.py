"""What is given to the encoder of a pair while its decoder is checked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from clockhands.checking.models.huggingface import fixed_source


def test_every_row_gets_the_same_text_of_sixteen_tokens_and_so_it_stays() -> None:
    adapter: Any = SimpleNamespace(opposite=30)
    source = fixed_source(adapter, 3)
    assert source.shape == (3, 16)
    assert torch.equal(source[0], source[2]) and torch.equal(source, fixed_source(adapter, 3))
    assert int(source.min()) >= 10 and int(source.max()) < 30, "low ids are special tokens"
