"""KERPLE's bounds: values stay inside them, and gradients are those of the value at the bound."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch

from clockhands.schemes import Kerple

FAR = torch.tensor([0.0, 1.0, 5.0, 9.0])


def kerple(form: Literal["log", "power"], size: float, shape: float) -> Kerple:
    scheme = Kerple(1, form=form)
    with torch.no_grad():
        scheme.size_H.fill_(size)
        scheme.shape_H.fill_(shape)
    return scheme


@pytest.mark.parametrize(
    ("form", "size", "shape", "inside"),
    [
        ("log", 0.5, 0.3, (0.5, 0.3)), ("log", -1.0, 0.3, (0.01, 0.3)), ("log", 0.5, -1.0, (0.5, 0.01)),
        ("log", 0.5, 7.0, (0.5, 7.0)), ("power", 0.5, 1.5, (0.5, 1.5)), ("power", 0.5, 3.0, (0.5, 2.0)),
        ("power", -0.5, -3.0, (0.01, 0.01)),
    ],
)  # fmt: skip
def test_parameters_act_inside_their_bounds_and_learn_outside_of_them(
    form: Literal["log", "power"], size: float, shape: float, inside: tuple[float, float]
) -> None:
    """As the authors clamp in place: value and gradient are those at the bound, so that a step may return."""
    scheme = kerple(form, size, shape)
    bias = scheme.compute_curve(FAR)[0]
    bias.sum().backward()
    r1, r2 = inside
    far = FAR.tolist()
    if form == "log":
        wanted = [-r1 * math.log(1 + r2 * r) for r in far]
        slope = sum(-r1 * r / (1 + r2 * r) for r in far)
    else:
        wanted = [-r1 * r**r2 for r in far]
        slope = sum(-r1 * r**r2 * math.log(r) for r in far if r)
    torch.testing.assert_close(bias.detach(), torch.tensor(wanted))
    torch.testing.assert_close(scheme.size_H.grad, torch.tensor([sum(wanted) / r1]))
    torch.testing.assert_close(scheme.shape_H.grad, torch.tensor([slope]))
