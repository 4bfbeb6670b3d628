"""The table of position vectors that a model adds at its input: read it, replace its rows, and see what enters with it.

Paths are those of ``named_modules`` and ``named_parameters`` of the stack of layers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from clockhands.inspection.subject.tables import Tables
from clockhands.shapes import Float, Int, Tensor

Forward = Callable[..., tuple[Tensor, ...]]
"""From token ids [B, T] to hidden states [B, T, D], the embedding output first; such as ``Subject.forward``."""
IDS_AT_ONCE = 8
"""Token ids whose vectors are read in one run of the model."""


@dataclass(frozen=True)
class InputTable:
    """Where the table is stored, and how its rows reach the layers.

    Row ``first_row`` of the tensor at ``path`` is multiplied by ``factor`` and added to the vector of the first token.
    The sum is the input of the module at ``module_path``, and goes through the norm at ``norm_path`` if there is one.
    ``token_vectors`` says what is added to it: the rows of the token table times ``scale`` ("rows"); vectors that must
    be read from the model, because something else happens to the rows ("read"); or mixtures of neighbouring tokens, so
    that a token has no vector of its own ("mixed").
    """

    path: str
    first_row: int
    factor: float
    module_path: str
    norm_path: str = ""
    scale: float = 1.0
    token_vectors: Literal["rows", "read", "mixed"] = "rows"

    def view_rows(self, model: nn.Module) -> Float[Tensor, "N D"]:
        """Return the stored rows from the first token's on, as a view into the model."""
        tensor: Tensor = operator.attrgetter(self.path)(model)
        return tensor.data.reshape(tensor.shape[-2:])[self.first_row :]

    @contextmanager
    def replace_rows(self, model: nn.Module, rows_ND: Float[Tensor, "N D"]) -> Iterator[None]:
        """Inside the block, the model reads these rows, already times ``factor``, in place of its first N."""
        tensor: Tensor = operator.attrgetter(self.path)(model)

        def write(data: Tensor) -> None:
            data[self.first_row : self.first_row + len(rows_ND)] = (rows_ND / self.factor).to(data)

        with edit_rows(tensor, write):
            yield

    def read(
        self,
        model: nn.Module,
        forward: Forward,
        ids_BT: Int[Tensor, "B T"],
        stored_VE: Float[Tensor, "V E"] | None,
        vocabulary_size: int,
    ) -> Tables | None:
        """Return the vectors of tokens and positions in float32 on the CPU; None where tokens have none of their own.

        ``ids_BT`` are texts of ordinary tokens, ``stored_VE`` the token table where the model has one.
        """
        if self.token_vectors == "mixed":
            return None
        positions_ND = self.view_rows(model).float().cpu() * self.factor
        total_BTD = capture_input(model, self.module_path, forward, ids_BT).float().cpu()
        if self.token_vectors == "rows" and stored_VE is not None:
            tokens_VD = stored_VE.detach().float().cpu() * self.scale
        else:
            tokens_VD = self._read_tokens(model, forward, positions_ND, vocabulary_size)
        segment_D = (total_BTD - tokens_VD[ids_BT] - positions_ND[: ids_BT.shape[1]]).mean((0, 1))
        norm = model.get_submodule(self.norm_path) if self.norm_path else None
        return Tables(tokens_VD, positions_ND, segment_D, self.scale, norm)

    def _read_tokens(
        self, model: nn.Module, forward: Forward, positions_ND: Tensor, vocabulary_size: int
    ) -> Float[Tensor, "V D"]:
        """Return what each token adds to the sum: what is left of the sum without the position."""
        vectors = []
        for ids in torch.arange(vocabulary_size).split(IDS_AT_ONCE):
            total_BTD = capture_input(model, self.module_path, forward, ids[None])
            vectors.append(total_BTD[0].float().cpu() - positions_ND[: len(ids)])
        return torch.cat(vectors)


@contextmanager
def edit_rows(tensor: Tensor, change: Callable[[Tensor], object]) -> Iterator[None]:
    """Inside the block, the rows of a tensor are changed in place; afterwards they are as before, to the bit."""
    before = tensor.data.clone()
    try:
        change(tensor.data.reshape(tensor.shape[-2:]))
        yield
    finally:
        tensor.data.copy_(before)


class _InputKnown(Exception):
    """Leaves a model as soon as the input of the module is known."""


def capture_input(model: nn.Module, path: str, forward: Forward, ids_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    """Return the input of the module at ``path`` for these texts; the run of the model ends there."""
    captured: list[Tensor] = []

    def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensor = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        captured.extend(copy_token_vectors(tensor, ids_BT.shape))
        raise _InputKnown

    hook = model.get_submodule(path).register_forward_pre_hook(stop, with_kwargs=True)
    try:
        forward(ids_BT)
    except _InputKnown:
        pass
    finally:
        hook.remove()
    return captured[0]


def copy_token_vectors(x: Tensor, shape: torch.Size) -> list[Tensor]:
    """Return one copy of x as texts × tokens × width, without padding; an empty list if x holds no token vectors."""
    texts, length = shape
    if x.ndim != 3 or not x.is_floating_point():
        return []
    if x.shape[1] == texts and len(x) >= length > texts:
        x = x.transpose(0, 1)
    return [x[:, :length].detach().clone()] if len(x) == texts and x.shape[1] >= length else []


def find_power_of_two_above(x: Tensor) -> float:
    """Return the smallest power of two above the largest magnitude; 1 if all numbers are zero.

    Division by it is exact, and squares of the quotients can be added up: those of numbers above 1.8e19, and sums of
    many squares of smaller ones, leave the range of float32.
    """
    return 2.0 ** math.frexp(float(x.abs().max()))[1]
