"""Rotary checkpoints between the two layouts of pairs: ``interleaved`` (2c, 2c + 1) and ``half`` (c, c + r/2).

The layouts are the same model once the rows of W_q and W_k are permuted within each head; values and outputs stay
(docs/traps.md, 18, has the error of a model whose rows were not permuted).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from clockhands.errors import CheckpointError
from clockhands.schemes.rotary.rotation import Layout
from clockhands.shapes import Float, Int, Tensor


def compute_row_order(head_dim: int, rotated: int, to: Layout) -> Int[Tensor, " K"]:
    """Return where each channel of a head comes from: ``x[compute_row_order(...)]`` is x in the layout ``to``.

    Only the first ``rotated`` channels pair up; the others stay. Raises CheckpointError where they do not pair up.
    """
    if rotated % 2 or not 0 < rotated <= head_dim:
        raise CheckpointError(f"{rotated} of {head_dim} channels cannot be rotated in pairs")
    pairs_F = torch.arange(rotated // 2)
    # ``half`` has all first channels of the pairs, then all second ones; and the other way round.
    if to == "half":
        order = torch.cat([2 * pairs_F, 2 * pairs_F + 1])
    else:
        order = torch.stack([pairs_F, pairs_F + rotated // 2], dim=-1).flatten()
    return torch.cat([order, torch.arange(rotated, head_dim)])


def convert_rows(
    weight: Float[Tensor, "HK ..."], num_heads: int, to: Layout, rotated: int | None = None
) -> Float[Tensor, "HK ..."]:
    """Convert the weight [H·K, D] or bias [H·K] of a query or key projection to the layout ``to``.

    ``num_heads``: heads of this projection (key heads where they are grouped). ``rotated``: channels of a head that
    rotate; all by default. Converting there and back is exact. Raises CheckpointError where the rows do not divide.
    """
    if weight.shape[0] % num_heads:
        raise CheckpointError(f"{weight.shape[0]} rows cannot be split into {num_heads} heads")
    rows = weight.unflatten(0, (num_heads, -1))
    head_dim = rows.shape[1]
    order = compute_row_order(head_dim, head_dim if rotated is None else rotated, to)
    return rows[:, order.to(weight.device)].flatten(0, 1)


def convert_state_dict(
    state: Mapping[str, Tensor], heads_of: Callable[[str], int | None], to: Layout, rotated: int | None = None
) -> dict[str, Tensor]:
    """Convert a whole checkpoint to the layout ``to``.

    ``heads_of`` gives the number of heads of the query and key projections by name, and None for every other tensor,
    which passes unchanged::

        convert_state_dict(state, lambda name: 8 if ".q_proj." in name or ".k_proj." in name else None, "half")

    Raises CheckpointError where no tensor is such a projection.
    """
    heads = {name: heads_of(name) for name in state}
    if not any(heads.values()):
        raise CheckpointError("no tensor of this checkpoint is named as a query or key projection; nothing to convert")
    return {
        name: tensor if heads[name] is None else convert_rows(tensor, heads[name] or 1, to, rotated)
        for name, tensor in state.items()
    }
