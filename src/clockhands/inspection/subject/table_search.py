"""Find the table of position vectors that a model adds at its input: by shape, and by what editing its rows changes.

Nothing is known here of any architecture. A tensor is the table if row ``first_row + t`` changes what enters the layers
at position t, for every position of two texts that have different tokens there, and at no other position.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Literal

import torch
from torch import nn

from clockhands.inspection.subject.input_table import (
    Forward,
    InputTable,
    capture_input,
    copy_token_vectors,
    edit_rows,
    find_power_of_two_above,
)
from clockhands.shapes import Bool, Int, Tensor

PROBE_LENGTH = 8
"""Tokens in the texts that are tried; they have to be different ones."""
_NO_TABLES = (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.modules.conv._ConvNd)
"""Layers whose weights are no tables, whatever their shape."""


def find_input_table(
    model: nn.Module, forward: Forward, ids_2T: Int[Tensor, "two T"], tokens_VE: Tensor | None
) -> InputTable | None:
    """Find the table of position vectors that a model adds at its input; None if it has none.

    ``ids_2T`` are two texts of ordinary tokens that have no token in common at any position; ``tokens_VE`` is the token
    table where the model has one.
    """
    before_2TD = forward(ids_2T)[0]

    def run() -> Tensor:
        return forward(ids_2T)[0]

    candidates = {path: tensor for path, tensor in _list_matrices(model, ids_2T.shape[1]) if tensor is not tokens_VE}
    with ExitStack() as stack:
        for tensor in candidates.values():
            stack.enter_context(edit_rows(tensor, lambda data: data.add_(_make_noise(data))))
        if torch.equal(run(), before_2TD):
            return None  # one run for the many tensors of a model that has no table
    for path, tensor in candidates.items():
        first_row = _find_first_row(tensor, run, before_2TD)
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
        with edit_rows(tensor, lambda data: data.add_(noise * chosen_N[:, None])):
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
    inputs = _record_inputs(model, lambda: forward(ids_2T), ids_2T.shape)
    with edit_rows(tensor, lambda data: data.add_(noise_ND)):
        changed_inputs = _record_inputs(model, lambda: forward(ids_2T), ids_2T.shape)
    for (name, x), (changed_name, changed_x) in zip(inputs, changed_inputs, strict=True):
        if name != changed_name or x.shape[-1] != added_TD.shape[-1]:
            continue
        change = changed_x.float() - x.float()
        rows_TD = added_TD / divisor
        factor = float((change / divisor * rows_TD).sum() / (rows_TD.square().sum() * len(ids_2T)))
        carries_tokens = not torch.allclose(x[0], x[1], rtol=1e-4, atol=1e-6)
        if carries_tokens and factor and _is_close(change, factor * added_TD, changed_x):
            is_embedding_output = before_2TD.shape == x.shape and _is_close(before_2TD, x)  # nothing follows the sum
            norm_path = "" if is_embedding_output else _find_norm(model, inputs, x)
            scale, token_vectors = _describe_token_vectors(model, forward, ids_2T, tokens_VE, name, x)
            return InputTable(path, first_row, factor, name, norm_path, scale, token_vectors)
    return None


def _is_close(x: Tensor, y: Tensor, rounded: Tensor | None = None) -> bool:
    """Tell whether x and y are the same but for rounding, also that of the precision of ``rounded``."""
    error = 1e-4 * y.abs().max()
    if rounded is not None:
        error = error + 4 * torch.finfo(rounded.dtype).eps * rounded.abs().max()
    return bool((x - y).abs().max() <= error)


def _record_inputs(model: nn.Module, run: Callable[[], object], shape: torch.Size) -> list[tuple[str, Tensor]]:
    """Return copies of the token vectors that enter every module, by its path, in the order of the computation."""
    recorded: list[tuple[str, Tensor]] = []

    def make_hook(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            recorded.extend((name, vectors) for tensor in tensors[:1] for vectors in copy_token_vectors(tensor, shape))

        return hook

    hooks = [
        module.register_forward_pre_hook(make_hook(name), with_kwargs=True)
        for name, module in model.named_modules()
        if name
    ]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return recorded


def _find_norm(model: nn.Module, inputs: list[tuple[str, Tensor]], entering: Tensor) -> str:
    """Return the path of the first norm whose input is the sum; empty if there is none."""
    for name, x in inputs:
        class_name = type(model.get_submodule(name)).__name__.lower()
        if "norm" in class_name and x.shape == entering.shape and torch.equal(x, entering):
            return name
    return ""


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
    again = capture_input(model, path, forward, with_other_neighbours)
    return 1.0, "read" if _is_close(again[:, ::2], x_2TD[:, ::2]) else "mixed"
