"""Does QᵀK act on words and on positions apart? What it connects, at the directions that positions have in a layer.

The score of two states is x_iᵀ M x_j with M = QᵀK of a head. If M keeps positions apart from everything else, no entry
of it joins the directions of positions with those outside.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands.inspection.estimators.matrix_statistics import compute_covariance
from clockhands.inspection.measures.directions import find_subspace
from clockhands.inspection.reading.layer import Layer
from clockhands.shapes import Bool, Float, Tensor

POSITION_SHARE = 0.9
"""Of the variance of positions: as many directions as hold it are called the positions'."""
LEAST_POSITION = 0.01
"""Where positions have a smaller share of the variance of the states, their directions are those of noise."""


@dataclass(frozen=True)
class MixedShare:
    """The share of ‖M‖² that joins the positions' directions with those outside, the mean over heads.

    ``by_chance``: what it would be if the directions that M reads from on its left had nothing to do with those on its
    right. ``num_directions``: how many the positions have.
    """

    share: float
    by_chance: float
    num_directions: int


def compute_mixed_share(
    query_HD: Float[Tensor, "H D"], key_HD: Float[Tensor, "H D"], basis_DK: Float[Tensor, "D K"]
) -> tuple[float, float]:
    """Return the share of ‖M‖² of a head's M = QᵀK that connects a subspace with what is outside it, and its reference.

    The reference is what that share would be if which directions M reads from on its left had nothing to do with those
    on its right: r (1 − c) + c (1 − r), where r and c are the shares of ‖M‖² inside the subspace on either side.
    """
    matrix = query_HD.T @ key_HD
    whole = matrix.square().sum()
    left, right = (basis_DK.T @ matrix).square().sum() / whole, (matrix @ basis_DK).square().sum() / whole
    both = (basis_DK.T @ matrix @ basis_DK).square().sum() / whole
    return float(left + right - 2 * both), float(left * (1 - right) + right * (1 - left))


def measure_mixed_share(layer: Layer, measured_T: Bool[Tensor, " T"]) -> MixedShare | None:
    """Return what QᵀK of a layer joins; None where positions have no directions there, or queries a norm.

    What positions contribute to a state is its mean over texts, whose covariance is lessened by what chance leaves of
    the tokens in a mean over so many texts. Of a layer that rotates, M is that of two states at the first position.
    """
    if layer.needs_freezing:
        return None
    states_NTD = layer.inputs_NTD[:, measured_T].double()
    mean_TD = states_NTD.mean(0)
    tokens_DD = compute_covariance((states_NTD - mean_TD).flatten(0, 1))
    positions_DD = compute_covariance(mean_TD) - tokens_DD / len(states_NTD)
    if float(positions_DD.trace()) < LEAST_POSITION * float(tokens_DD.trace()):
        return None
    basis_DK = find_subspace(positions_DD, POSITION_SHARE)
    query_HKD, key_HKD = read_projections(layer)
    pairs = [compute_mixed_share(q, k, basis_DK) for q, k in zip(query_HKD, key_HKD, strict=True)]
    share, by_chance = torch.tensor(pairs, dtype=torch.float64).mean(0).tolist()
    return MixedShare(share, by_chance, basis_DK.shape[1])


def read_projections(layer: Layer) -> tuple[Float[Tensor, "H K D"], Float[Tensor, "H K D"]]:
    """Return what each head multiplies a state with for its query and key at the first position, without biases.

    It is read from the layer itself, which is run on unit vectors and on zero, so that it is the same for every model
    whose queries and keys are affine in the state.
    """
    width, length = layer.inputs_NTD.shape[-1], layer.inputs_NTD.shape[1]
    zero = _read_first(layer, layer.inputs_NTD.new_zeros(1, length, width))
    units = torch.eye(width, dtype=layer.inputs_NTD.dtype)
    runs = [_read_first(layer, some[:, None].expand(-1, length, -1)) for some in units.split(layer.batch)]
    query_DHK, key_DHK = (torch.cat(rows) - of_zero for *rows, of_zero in zip(*runs, zero, strict=True))
    return query_DHK.permute(1, 2, 0), key_DHK.permute(1, 2, 0)


def _read_first(layer: Layer, x_NTD: Float[Tensor, "N T D"]) -> tuple[Float[Tensor, "N H K"], Float[Tensor, "N H K"]]:
    """Return queries and keys at the first position, as copies: the logits of a run, which are large, are let go."""
    computed = layer.replay(x_NTD)
    return computed.q_BHSK[:, :, 0].double().cpu().clone(), computed.k_BHTK[:, :, 0].double().cpu().clone()
