"""The table of position vectors that a model adds at its input: find it, read it, and replace its rows.

Nothing is known here of any architecture. A tensor is the table if row ``first_row + t`` changes what enters the layers
at position t, for every position of two texts that have different tokens there, and at no other position. Paths are
those of ``named_modules`` and ``named_parameters`` of the stack of layers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from clockhands.errors import CheckpointError
from clockhands.shapes import Bool, Float, Int, Tensor

Forward = Callable[..., tuple[Tensor, ...]]
"""From token ids [B, T] to hidden states [B, T, D], the embedding output first; such as ``Subject.forward``."""
_IDS_AT_ONCE = 8
"""Token ids whose vectors are read in one run of the model."""
PROBE_LENGTH = 8
"""Tokens in the texts that are tried; they have to be different ones."""
_NO_TABLES = (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.modules.conv._ConvNd)
"""Layers whose weights are no tables, whatever their shape."""


@dataclass(frozen=True)
class Tables:
    """The vectors that a model adds at its input, in float32 on the CPU.

    ``tokens_VD`` holds the vector of every token, with its factor ``scale`` in it; ``positions_ND`` those of positions
    0, 1, 2 ...; ``segment_D`` is what is added to every token beside these two, such as BERT's segment vector. ``norm``
    is applied to the sum; None if nothing is. Raises CheckpointError for NaN or infinite values.
    """

    tokens_VD: Float[Tensor, "V D"]
    positions_ND: Float[Tensor, "N D"]
    segment_D: Float[Tensor, " D"]
    scale: float
    norm: nn.Module | None

    def __post_init__(self) -> None:
        for name, rows in (("position", self.positions_ND), ("token", self.tokens_VD)):
            broken = ~rows.isfinite().all(dim=-1)
            if bool(broken.any()):
                row = int(broken.nonzero()[0])
                raise CheckpointError(
                    f"the {name} table holds NaN or infinite values (first in row {row}), so the model cannot be "
                    "inspected; its weights are damaged"
                )


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

        with _edit_rows(tensor, write):
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
        if self.token_vectors == "rows" and stored_VE is not None:
            tokens_VD = stored_VE.detach().float().cpu() * self.scale
        else:  # what is left of the sum without the position
            vectors = []
            for ids in torch.arange(vocabulary_size).split(_IDS_AT_ONCE):
                sum_TD = _capture_input(model, self.module_path, forward, ids[None])[0].float().cpu()
                vectors.append(sum_TD - positions_ND[: len(ids)])
            tokens_VD = torch.cat(vectors)
        total_BTD = _capture_input(model, self.module_path, forward, ids_BT).float().cpu()
        segment_D = (total_BTD - tokens_VD[ids_BT] - positions_ND[: ids_BT.shape[1]]).mean((0, 1))
        norm = model.get_submodule(self.norm_path) if self.norm_path else None
        return Tables(tokens_VD, positions_ND, segment_D, self.scale, norm)


@contextmanager
def _edit_rows(tensor: Tensor, change: Callable[[Tensor], object]) -> Iterator[None]:
    """Inside the block, the rows of a tensor are changed in place; afterwards they are as before, to the bit."""
    before = tensor.data.clone()
    try:
        change(tensor.data.reshape(tensor.shape[-2:]))
        yield
    finally:
        tensor.data.copy_(before)


class _InputKnown(Exception):
    """Leaves a model as soon as the input of the module is known."""


def _record_inputs(
    model: nn.Module, forward: Forward, ids_BT: Int[Tensor, "B T"], last: str = ""
) -> list[tuple[str, Tensor]]:
    """Return copies of the token vectors [B, T, width] that enter modules, with their paths, in order of computation.

    ``last``: the path of a module that alone is recorded; the run of the model ends there. Padding is left out.
    """
    recorded: list[tuple[str, Tensor]] = []
    texts, length = ids_BT.shape

    def record(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        if x is not None and x.ndim == 3 and x.is_floating_point():
            if x.shape[1] == texts and len(x) >= length > texts:
                x = x.transpose(0, 1)
            if len(x) == texts and x.shape[1] >= length:
                recorded.append((name, x[:, :length].detach().clone()))
        if last:
            raise _InputKnown

    with suppress(_InputKnown), ExitStack() as stack:
        for name, module in model.named_modules():
            if name and last in ("", name):
                hook = module.register_forward_pre_hook(partial(record, name), with_kwargs=True)
                stack.callback(hook.remove)
        forward(ids_BT)
    return recorded


def _capture_input(model: nn.Module, path: str, forward: Forward, ids_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    """Return the input of the module at ``path`` for these texts."""
    return _record_inputs(model, forward, ids_BT, last=path)[0][1]


def find_power_of_two_above(x: Tensor) -> float:
    """Return the smallest power of two above the largest magnitude; 1 if all numbers are zero.

    Division by it is exact, and squares of the quotients can be added up: those of numbers above 1.8e19, and sums of
    many squares of smaller ones, leave the range of float32.
    """
    return 2.0 ** math.frexp(float(x.abs().max()))[1]


def find_input_table(
    model: nn.Module, forward: Forward, ids_2T: Int[Tensor, "two T"], tokens_VE: Tensor | None
) -> InputTable | None:
    """Find the table of position vectors that a model adds at its input; None if it has none.

    ``ids_2T`` are two texts of ordinary tokens that have no token in common at any position; ``tokens_VE`` is the token
    table where the model has one.
    """
    before_2TD = forward(ids_2T)[0]
    candidates = {path: tensor for path, tensor in _list_matrices(model, ids_2T.shape[1]) if tensor is not tokens_VE}
    with ExitStack() as stack:
        for tensor in candidates.values():
            stack.enter_context(_edit_rows(tensor, lambda data: data.add_(_make_noise(data))))
        if torch.equal(forward(ids_2T)[0], before_2TD):
            return None  # one run for the many tensors of a model that has no table
    for path, tensor in candidates.items():
        first_row = _find_first_row(tensor, lambda: forward(ids_2T)[0], before_2TD)
        if first_row is not None:
            return _follow_rows(model, forward, ids_2T, tokens_VE, path, first_row, before_2TD)
    return None


def is_position_at_input(forward: Forward, token: int, length: int = PROBE_LENGTH) -> bool:
    """Tell whether one token has different vectors at different positions where the layers begin."""
    states_TD = forward(torch.full((1, length), token))[0][0]
    return not torch.allclose(states_TD, states_TD[:1].expand_as(states_TD), rtol=1e-4, atol=1e-5)


def _list_matrices(model: nn.Module, length: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the matrices of at least ``length`` rows that could be tables: embeddings, parameters, buffers."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        if isinstance(module, _NO_TABLES):
            continue
        for label, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            is_matrix = tensor.ndim >= 2 and tensor.shape[-2:].numel() == tensor.numel() and tensor.is_floating_point()
            if is_matrix and tensor.shape[-2] >= length and id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"{name}.{label}".lstrip("."), tensor


def _make_noise(rows_ND: Tensor) -> Tensor:
    """Return a random vector for every row, about as long as the rows are."""
    generator = torch.Generator().manual_seed(0)
    divisor = find_power_of_two_above(rows_ND)
    size = ((rows_ND.float() / divisor).square().mean().sqrt() * divisor).clamp_min(1e-2)
    return (torch.randn(rows_ND.shape, generator=generator) * size.cpu()).to(rows_ND)


def _find_first_row(tensor: Tensor, run: Callable[[], Tensor], before_BTD: Tensor) -> int | None:
    """Return the row that position 0 reads, if every position t of every text reads row first + t and no other.

    The row that a position reads is found bit by bit: one run for each binary digit, in which the rows whose number has
    that digit are changed, shows which positions read one of them.
    """
    rows = tensor.shape[-2]
    noise = _make_noise(tensor.data.reshape(tensor.shape[-2:]))
    numbers_N = torch.arange(rows, device=tensor.device)

    def find_changes(chosen_N: Bool[Tensor, " N"]) -> Bool[Tensor, "B T"]:
        with _edit_rows(tensor, lambda data: data.add_(noise * chosen_N[:, None])):
            after_BTD = run()
        return ((after_BTD - before_BTD).abs().amax(-1) > 1e-6 * before_BTD.abs().amax()).cpu()

    if not bool(find_changes(numbers_N >= 0).all()):
        return None
    read_BT = torch.zeros(before_BTD.shape[:2], dtype=torch.long)
    for digit in range(rows.bit_length()):
        read_BT += find_changes((numbers_N >> digit) % 2 == 1).long() << digit
    first = int(read_BT[0, 0])
    positions_T = torch.arange(before_BTD.shape[1])
    middle = len(positions_T) // 2
    if not bool((read_BT == first + positions_T).all()) or first + len(positions_T) > rows:
        return None
    # The digits of several rows that one position reads can look like those of one row: so one row is tried alone.
    by_middle_row_BT = find_changes(numbers_N == first + middle)
    return first if bool((by_middle_row_BT == (positions_T == middle)).all()) else None


def _follow_rows(
    model: nn.Module,
    forward: Forward,
    ids_2T: Tensor,
    tokens_VE: Tensor | None,
    path: str,
    first_row: int,
    before_2TD: Tensor,
) -> InputTable | None:
    """Follow a table's rows to the first module whose input holds token and position together."""
    tensor: Tensor = operator.attrgetter(path)(model)
    noise_ND = _make_noise(tensor.data.reshape(tensor.shape[-2:]))
    added_TD = noise_ND[first_row : first_row + ids_2T.shape[1]].float()
    divisor = find_power_of_two_above(added_TD)
    rows_TD = added_TD / divisor
    inputs = _record_inputs(model, forward, ids_2T)
    with _edit_rows(tensor, lambda data: data.add_(noise_ND)):
        changed_inputs = _record_inputs(model, forward, ids_2T)
    for (name, x), (changed_name, changed_x) in zip(inputs, changed_inputs, strict=True):
        if name != changed_name or x.shape[-1] != added_TD.shape[-1]:
            continue
        change = changed_x.float() - x.float()
        factor = float((change / divisor * rows_TD).sum() / (rows_TD.square().sum() * len(ids_2T)))
        carries_tokens = not torch.allclose(x[0], x[1], rtol=1e-4, atol=1e-6)
        if not (carries_tokens and factor and _is_close(change, factor * added_TD, changed_x)):
            continue
        norm_path = ""  # the first norm whose input is the sum, unless the sum is the embedding output itself
        if before_2TD.shape != x.shape or not _is_close(before_2TD, x):
            for path_after, after in inputs:
                is_norm = "norm" in type(model.get_submodule(path_after)).__name__.lower()
                if is_norm and after.shape == x.shape and torch.equal(after, x):
                    norm_path = path_after
                    break
        scale, token_vectors = _describe_token_vectors(model, forward, ids_2T, tokens_VE, name, x)
        return InputTable(path, first_row, factor, name, norm_path, scale, token_vectors)
    return None


def _is_close(x: Tensor, y: Tensor, rounded: Tensor | None = None) -> bool:
    """Tell whether x and y are the same but for rounding, also that of the precision of ``rounded``."""
    error = 1e-4 * y.abs().max()
    if rounded is not None:
        error = error + 4 * torch.finfo(rounded.dtype).eps * rounded.abs().max()
    return bool((x - y).abs().max() <= error)


def _describe_token_vectors(
    model: nn.Module, forward: Forward, ids_2T: Tensor, tokens_VE: Tensor | None, path: str, x_2TD: Tensor
) -> tuple[float, Literal["rows", "read", "mixed"]]:
    """Return the factor of the token rows in the sum, and what the sum holds of tokens (see ``InputTable``)."""
    if tokens_VE is not None and tokens_VE.shape[-1] == x_2TD.shape[-1]:
        rows_2TD = tokens_VE.detach()[ids_2T.to(tokens_VE.device)].to(x_2TD)
        difference, of_rows = x_2TD[0] - x_2TD[1], rows_2TD[0] - rows_2TD[1]
        divisor = find_power_of_two_above(of_rows)
        scale = float((difference / divisor * (of_rows / divisor)).sum() / (of_rows / divisor).square().sum())
        if _is_close(difference, scale * of_rows):
            return scale, "rows"
    with_other_neighbours = ids_2T.clone()
    with_other_neighbours[:, 1::2] = ids_2T[:, 1::2].flip(0)
    again = _capture_input(model, path, forward, with_other_neighbours)
    return 1.0, "read" if _is_close(again[:, ::2], x_2TD[:, ::2]) else "mixed"
