"""DAPE: logits of all heads and a bias decide together what the bias should have been."""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import nn

from clockhands.options import Count
from clockhands.schemes.bias.alibi import Alibi
from clockhands.schemes.bias.fire import Fire
from clockhands.schemes.bias.kerple import Kerple
from clockhands.schemes.bias.mlp import Perceptron
from clockhands.schemes.pieces import reads_in_pieces, split_rows
from clockhands.schemes.scheme import AttentionInputs, Declares, Logits, MaskedPairs, Scheme
from clockhands.shapes import Float, Tensor


@final
class DAPE(Scheme):
    """Data-adaptive positional encoding (Zheng et al. 2024, equation 3): A + B + f([A; B]) for each pair of tokens.

    A are the logits, B a bias of its own, and f a network 2H → hidden → H with LeakyReLU over the heads.

    Args:
        num_heads: H.
        causal: whether keys to the right of the query are masked.
        base: where B comes from: ``alibi``, ``kerple`` (logarithmic) or ``fire``.
        hidden: width of the hidden layer.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AttentionInputs, DAPE
        >>> q, pos = torch.randn(1, 2, 3, 8), torch.tensor([[0, 1, 2]])
        >>> mask, logits = torch.ones(1, 1, 3, 3, dtype=torch.bool).tril(), torch.zeros(1, 2, 3, 3)
        >>> DAPE(num_heads=2).logits(logits, mask, AttentionInputs(q, q, pos, pos)).shape
        torch.Size([1, 2, 3, 3])
    """

    equation = r"\ell_{ij} = A_{ij} + B_{ij} + f([A_{ij}; B_{ij}])"
    source = "Zheng et al. 2024, section 3"
    peers = ("chuanyang-Zheng/DAPE (the authors' code; in no library)",)
    per_layer = True

    def __init__(
        self,
        num_heads: int,
        causal: bool = True,
        *,
        base: Literal["alibi", "kerple", "fire"] = "kerple",
        hidden: Count = 32,
    ) -> None:
        super().__init__()
        self.base: Alibi | Kerple | Fire
        if base == "alibi":
            self.base = Alibi(num_heads, causal)
        else:
            self.base = Kerple(num_heads) if base == "kerple" else Fire(num_heads)
        self.mlp = Perceptron(2 * num_heads, hidden, num_heads, activation=nn.LeakyReLU)

    @property
    def declares(self) -> Declares:
        return self.base.declares

    def logits(self, logits_BHST: Logits, mask_BHST: MaskedPairs, at: AttentionInputs) -> Logits:
        bias_BHST = self.base.bias(at).expand_as(logits_BHST)
        if not reads_in_pieces(logits_BHST, bias_BHST, *self.parameters()):
            # Logits and biases of all heads are the 2H inputs of a small network, pair by pair.
            both_BSTG = torch.cat([logits_BHST, bias_BHST.to(logits_BHST.dtype)], dim=1).movedim(1, -1)
            return logits_BHST + bias_BHST + self.mlp(both_BSTG).movedim(-1, 1).to(logits_BHST.dtype)
        adapted_BHST = torch.empty_like(logits_BHST)
        # The hidden layer is wider than all heads together.
        width = max(1, self.mlp.linears()[0].out_features // 4)
        for row in range(len(logits_BHST)):
            for part in split_rows(logits_BHST.shape[2], width * logits_BHST.shape[3]):
                adapted_BHST[row, :, part] = self._adapt(logits_BHST[row, :, part], bias_BHST[row, :, part])
        return adapted_BHST

    def _adapt(self, logits_HRT: Float[Tensor, "H R T"], bias_HRT: Float[Tensor, "H R T"]) -> Float[Tensor, "H R T"]:
        """Return A + B + f([A; B]) for logits A and a bias B: [H, R, T].

        The heads stay in front, which saves two copies; the gradient of that is slower.
        """
        both_GN = torch.cat([logits_HRT, bias_HRT.to(logits_HRT.dtype)]).flatten(1)
        change_HRT = self.mlp.compute_columns(both_GN).unflatten(-1, logits_HRT.shape[1:])
        return logits_HRT + bias_HRT + change_HRT.to(logits_HRT.dtype)
