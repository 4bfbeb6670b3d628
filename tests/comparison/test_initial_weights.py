"""The same initial weights wherever names and shapes agree."""

from __future__ import annotations

import torch

from clockhands.comparison.initial_weights import draw_by_name
from clockhands.runs.recipe import make_recipe
from clockhands.training import prepare, vary_recipe
from clockhands.training.architecture import build
from tests.training.tiny import tables


def test_weights_agree_across_variants_and_differ_across_seeds() -> None:
    recipe = make_recipe(tables(), {})
    material = prepare(recipe)
    drawn = {}
    for scheme in ("sinusoidal", "learned", "t5"):
        for seed in (1, 2):
            torch.manual_seed(hash(scheme) % 1000)
            model = build(vary_recipe(recipe, {"position.scheme": scheme}), material.tokenizers)
            draw_by_name(model, seed)
            drawn[scheme, seed] = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    plain = drawn["sinusoidal", 1]
    for scheme in ("learned", "t5"):
        other = drawn[scheme, 1]
        assert set(other) > set(plain), "a learned scheme has parameters of its own"
        assert all(torch.equal(plain[name], other[name]) for name in plain)
    changed = [
        name for name in plain if plain[name].dim() > 1 and not torch.equal(plain[name], drawn["sinusoidal", 2][name])
    ]
    assert len(changed) == sum(weight.dim() > 1 for weight in plain.values())


def test_drawing_by_name_keeps_the_law_of_the_weights() -> None:
    recipe = make_recipe({**tables(), "model": {"preset": "tiny", "encoder_layers": 1, "decoder_layers": 1}}, {})
    material = prepare(recipe)
    model = build(recipe, material.tokenizers)
    before = {name: float(weight.std()) for name, weight in model.named_parameters() if weight.numel() > 4000}
    draw_by_name(model, 7)
    assert before
    for name, weight in model.named_parameters():
        if name in before:
            assert abs(float(weight.std()) / before[name] - 1) < 0.05
