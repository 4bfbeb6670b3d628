"""One stack of a Transformer of this project: which it is, what its schemes do, and how many positions they have."""

from __future__ import annotations

from clockhands.inspection.subject.side import Side
from clockhands.model.stack import SideSchemes, Stack
from clockhands.model.transformer import Transformer
from clockhands.schemes import Declares


def select_stack(transformer: Transformer, side: Side | None) -> Stack:
    """Return the stack of a side; of a model of one stack, that one."""
    stacks = (transformer.decoder,) if side == "decoder" else (transformer.encoder, transformer.decoder)
    return next(stack for stack in stacks if stack is not None)


def name_mechanisms(schemes: SideSchemes) -> tuple[str, ...]:
    """Return the names in ``families.MECHANISM_CLAUSES`` of what the schemes of a side do.

    They go by hooks: Temperature, and SSMax that counts by position, are "rotary" too, for they scale queries in the
    hook ``rotate``.
    """
    hooks = schemes.active_hooks()
    names = []
    if "encode" in hooks:
        names.append("learned" if any(True for _ in schemes.at_input.parameters()) else "sinusoid")
    if "rotate" in hooks:
        names.append("rotary")
    if hooks & {"bias", "logits", "values", "weigh", "locate"}:
        names.append("attention")
    return tuple(names) or ("none",)


def find_position_limit(declared: Declares) -> int | None:
    """Return how many positions there are before one is refused, as schemes declare; None where there is no end."""
    return declared.max_length if declared.beyond == "raise" else None
