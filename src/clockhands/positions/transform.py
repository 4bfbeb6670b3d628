"""The base of the changes of positions that a configuration names, and what each of them is told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from clockhands.positions.making import TokenMask
from clockhands.shapes import Num, Tensor


@dataclass(frozen=True)
class TransformContext:
    """What a transform is told besides the positions.

    ``mask_BS`` is False at padding; None: there is none. ``generator`` draws what training draws; None: PyTorch's own.
    """

    mask_BS: TokenMask | None = None
    training: bool = False
    generator: torch.Generator | None = None


class Transform(ABC):
    """A change of positions. A subclass is a frozen dataclass whose fields are its options, and has ``apply``."""

    @property
    def depends_on_length(self) -> bool:
        """Whether a token's new position depends on the tokens after it, so that cached keys become stale."""
        return False

    @property
    def real_valued(self) -> bool:
        """Whether the new positions lie between the integers: tables cannot take them."""
        return False

    @abstractmethod
    def apply(self, pos_BS: Num[Tensor, "B S *A"], context: TransformContext) -> Num[Tensor, "B S *A"]:
        """Return the positions to use in place of ``pos_BS``."""

    def __call__(
        self,
        pos_BS: Num[Tensor, "B S *A"],
        mask_BS: TokenMask | None = None,
        *,
        training: bool = False,
        generator: torch.Generator | None = None,
    ) -> Num[Tensor, "B S *A"]:
        """Return the positions to use in place of ``pos_BS``; the arguments are those of ``TransformContext``."""
        return self.apply(pos_BS, TransformContext(mask_BS, training, generator))
