"""A learned vector for every position."""

from __future__ import annotations

from typing import Any, Literal, final

import torch
from torch import nn

from clockhands.options import Count, FromZero, NotNegative
from clockhands.schemes.frequencies import take_axis
from clockhands.schemes.position_checks import read_index
from clockhands.schemes.scheme import Declares, QueryPositions, Scheme, Vectors


@final
class Learned(Scheme):
    """A table with one learned vector for each position (Gehring et al. 2017; BERT, GPT-2).

    Args:
        width: d_model, or d_p where the encoding is concatenated.
        max_length: number of positions.
        beyond: what happens to position ``max_length`` and later: ``raise`` or ``clamp`` to the last.
        std: the table starts as N(0, std²).
        offset: rows before position 0 that are never used, as in fairseq, BART and OPT checkpoints (padding_idx + 1).

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Learned
        >>> Learned(width=8, max_length=3).encode(torch.tensor([[0, 1, 2]])).shape
        torch.Size([1, 3, 8])
    """

    equation = r"e(p) = E_p, \quad E \in R^{L_{max} \times d}"
    source = "Gehring et al. 2017, section 3.1; Devlin et al. 2019"
    peers = ("transformers GPT-2, BERT, OPT", "fairseq LearnedPositionalEmbedding", "x-transformers")
    models = ("BERT", "RoBERTa", "GPT-2", "OPT", "BART", "ViT")

    def __init__(
        self,
        width: int,
        *,
        max_length: Count = 512,
        beyond: Literal["raise", "clamp"] = "raise",
        std: NotNegative = 0.02,
        offset: FromZero = 0,
    ) -> None:
        super().__init__()
        self.max_length, self.beyond, self.std, self.offset = max_length, beyond, std, offset
        self.table_LP = nn.Parameter(torch.empty(max_length + offset, width))
        self.reset_parameters()

    @property
    def declares(self) -> Declares:
        return Declares(max_length=self.max_length, beyond=self.beyond)

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors:
        pos_BS = read_index(take_axis(pos, "learned"), self.max_length, "learned", self.beyond)
        # The rows before the offset are what other code keeps for padding.
        return nn.functional.embedding(pos_BS + self.offset, self.table_LP)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table_LP, std=self.std)

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return ``max_position_embeddings``, which GPT-2 also answers to."""
        return {"max_position_embeddings": self.max_length}
