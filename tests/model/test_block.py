"""The input layer: where the scale of the tokens begins, and that it is learned only where that is asked."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from clockhands.model import Transformer
from tests.model.tiny import core


@pytest.mark.parametrize(("option", "start"), [("sqrt", math.sqrt(32)), ("one", 1.0), ("learned", math.sqrt(32))])
def test_the_scale_begins_as_the_option_says(option: str, start: float) -> None:
    made = Transformer(core(token_scale=option))
    for stack in (made.encoder, made.decoder):
        assert stack is not None
        assert float(torch.as_tensor(stack.input.scale).detach()) == pytest.approx(start)
        assert isinstance(stack.input.scale, nn.Parameter) == (option == "learned")
