"""Order in a model with fresh weights: what a permutation of the tokens changes."""

from __future__ import annotations

import torch

from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.model.masks import TokenBatch
from clockhands.shapes import Float, Int, Tensor
from exact.added import Numbers

LENGTH = 12


def make_encoder(scheme: str, *, causal: bool = False) -> Transformer:
    """Return an encoder of four layers and 64 channels with fresh weights, in float64, without dropout."""
    torch.manual_seed(0)
    config = TransformerConfig(
        kind="encoder", vocab_size=100, encoder_layers=4, d_model=64, num_heads=4, d_ff=128, norm="pre",
        encoder=PositionConfig(scheme=scheme), causal_encoder=causal,
    )  # fmt: skip
    return Transformer(config).double().eval()


@torch.no_grad()
def read(model: Transformer, ids_S: Int[Tensor, " S"]) -> Float[Tensor, "S D"]:
    """Return the last states of a text."""
    return model.encode(TokenBatch(ids_S[None])).states_BTD[0]


def measure_permutation() -> Numbers:
    """Return how far the states of permuted tokens are from the permuted states, over the size of a state.

    0: the encoder sees a bag of tokens. Without positions; with the sinusoid; without positions under a causal mask.
    """
    generator = torch.Generator().manual_seed(1)
    ids, order = torch.randint(4, 100, (LENGTH,), generator=generator), torch.randperm(LENGTH, generator=generator)
    models = {
        "none": make_encoder("none"),
        "sinusoid": make_encoder("sinusoidal"),
        "causal": make_encoder("none", causal=True),
    }
    values: Numbers = {
        name: _change(read(model, ids[order]), read(model, ids)[order]) for name, model in models.items()
    }
    return {**values, "causal percent": 100 * values["causal"]}


def _change(states: Tensor, others: Tensor) -> float:
    return float((states - others).norm() / others.norm())
