"""One stack of a Transformer of this project: which it is, what its schemes do, and how many positions they have."""

from __future__ import annotations

import torch

from clockhands.inspection.subject.subject import Side
from clockhands.model.stack import SideSchemes, Stack
from clockhands.model.transformer import Transformer
from clockhands.schemes import Declares
from clockhands.shapes import Float, Tensor


def select_stack(transformer: Transformer, side: Side | None) -> Stack:
    """Return the stack of a side; of a model of one stack, that one."""
    stacks = (transformer.decoder,) if side == "decoder" else (transformer.encoder, transformer.decoder)
    return next(stack for stack in stacks if stack is not None)


def name_mechanisms(schemes: SideSchemes) -> tuple[str, ...]:
    """Return the names in ``families.MECHANISM_CLAUSES`` of what the schemes of a side do."""
    hooks = schemes.active_hooks()
    names = []
    if "encode" in hooks:
        names.append("learned" if any(True for _ in schemes.at_input.parameters()) else "sinusoid")
    if "rotate" in hooks:
        names.append("rotary")
    if hooks & {"bias", "logits", "values", "weigh", "locate"}:
        names.append("attention")
    return tuple(names) or ("none",)


def pad_side_by_side(
    tokens_VE: Float[Tensor, "V E"], positions_NP: Float[Tensor, "N P"]
) -> tuple[Float[Tensor, "V D"], Float[Tensor, "N D"]]:
    """Return tokens with zeros in the channels of positions, and positions with zeros in those of tokens."""
    zeros_VP = tokens_VE.new_zeros(len(tokens_VE), positions_NP.shape[1])
    zeros_NE = positions_NP.new_zeros(len(positions_NP), tokens_VE.shape[1])
    return torch.cat([tokens_VE, zeros_VP], dim=-1), torch.cat([zeros_NE, positions_NP], dim=-1)


def find_position_limit(declared: Declares) -> int | None:
    """Return how many positions there are before one is refused, as schemes declare; None where there is no end."""
    return declared.max_length if declared.beyond == "raise" else None
