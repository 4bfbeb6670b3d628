"""Which tokens see which others: one token is changed, and the states that change with it are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from clockhands.shapes import Bool, Int, Tensor

TEXTS = 4
CHANGED = 1e-6
"""The part of a state's size from which a difference is a change. What a token cannot see changes nothing at all."""


@dataclass(frozen=True)
class Influence:
    """Whether tokens see some token before them, and after them; and whether they see all that are on those sides."""

    before: bool
    after: bool
    all: bool

    @property
    def causal(self) -> bool:
        """Whether tokens see others before them, and none after them."""
        return self.before and not self.after

    @property
    def sentence(self) -> str:
        """What each token sees, in a few words."""
        if not self.before and not self.after:
            return "no token sees another one"
        if self.before and self.after:
            return "every token sees all others" if self.all else "tokens see some of those before and after them"
        which = "before" if self.before else "after"
        return f"each token sees {'those' if self.all else 'some of those'} {which} it"


@torch.no_grad()
def find_influence(
    forward: Callable[..., tuple[Tensor, ...]],
    ids_NT: Int[Tensor, "N T"],
    ordinary_T: Bool[Tensor, " T"] | None = None,
    source_NS: Int[Tensor, "N S"] | None = None,
) -> Influence:
    """Change the first, the middle and the last ordinary token of a few texts, and see which last states change.

    ``forward`` returns the hidden states of token ids (``Subject.forward``).

    A token is replaced by the next larger id that occurs in the texts. Texts that consist of one id alone are taken
    for texts in which nothing can be seen.
    """
    ids, known = ids_NT[:TEXTS], ids_NT.unique()
    given = {} if source_NS is None else {"source_BS": source_NS[: len(ids)]}
    ordinary = torch.ones(ids.shape[1], dtype=torch.bool) if ordinary_T is None else ordinary_T
    places = ordinary.nonzero().flatten().tolist()
    before = forward(ids, **given)[-1].float()
    size = float(before.square().mean().sqrt())
    seen: dict[bool, list[Tensor]] = {True: [], False: []}
    for place in sorted({places[0], places[len(places) // 2], places[-1]}):
        changed = ids.clone()
        changed[:, place] = known[(torch.searchsorted(known, ids[:, place].contiguous()) + 1) % len(known)]
        moved = (forward(changed, **given)[-1].float() - before).abs().amax((0, 2)) > CHANGED * size
        seen[True].append(moved[place + 1 :].cpu())
        seen[False].append(moved[:place].cpu())
    later, earlier = (torch.cat(seen[side]) for side in (True, False))
    sides = [side for side in (later, earlier) if bool(side.any())]
    return Influence(bool(later.any()), bool(earlier.any()), all(bool(side.all()) for side in sides))
