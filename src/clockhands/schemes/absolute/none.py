"""No positional encoding: the control of every experiment."""

from __future__ import annotations

from typing import final

from clockhands.schemes.scheme import Declares, Scheme


@final
class NoPosition(Scheme):
    """Adds nothing anywhere (NoPE; Haviv et al. 2022, Kazemnejad et al. 2023).

    Under a causal mask the mask alone tells order; without one the network is permutation-equivariant.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import NoPosition
        >>> NoPosition().encode(torch.tensor([[0, 1, 2]])) is None
        True
    """

    equation = r"x_p = e(w_p)"
    source = "Haviv et al. 2022; Kazemnejad et al. 2023"
    peers = ("NoPE",)
    models = ("Llama 4", "SmolLM3", "Cohere2", "Kimi Linear")

    declares = Declares(translation_invariant=True, real_valued=True, axes=None)
