"""Which tokens influence which others: one token is changed, and the states that change with it are found."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands.models.input_table import Forward
from clockhands.shapes import Bool, Int, Tensor

MOST_TEXTS = 4
"""Texts in which tokens are changed."""
LEAST_DIFFERENCE = 1e-6
"""Differences above this share of the size of a state are changes. A masked token changes nothing at all."""


@dataclass(frozen=True)
class Influence:
    """Where the tokens stand that influence a token's last state, through all layers together.

    ``before``: whether some token before it influences it; ``after``: whether some token after it does; ``complete``:
    whether all tokens on these sides do.
    """

    before: bool
    after: bool
    complete: bool

    @property
    def causal(self) -> bool:
        """Whether tokens are influenced by others before them, and by none after them."""
        return self.before and not self.after

    @property
    def sentence(self) -> str:
        """Which tokens influence each token, in a few words, in which a token sees those that influence it."""
        if not self.before and not self.after:
            return "no token sees another one"
        if self.before and self.after:
            return "every token sees all others" if self.complete else "tokens see some of those before and after them"
        side = "before" if self.before else "after"
        return f"each token sees {'those' if self.complete else 'some of those'} {side} it"


@torch.no_grad()
def find_influence(
    forward: Forward,
    ids_NT: Int[Tensor, "N T"],
    ordinary_T: Bool[Tensor, " T"] | None = None,
    source_NS: Int[Tensor, "N S"] | None = None,
    vocabulary_size: int | None = None,
) -> Influence:
    """Change the first, the middle and the last ordinary token of a few texts, and see which last states change.

    ``forward`` returns the hidden states of token ids (``Subject.forward``), and reads ``source_NS`` as ``source_BS``.
    A token is replaced by the next larger id that occurs in the texts, the largest by the smallest; in texts that
    consist of one id alone, by an id beside it. Of a model that knows one id (``vocabulary_size``) nothing can be told:
    no token is then said to see another.
    """
    ids, vocabulary = ids_NT[:MOST_TEXTS], ids_NT.unique()
    if len(vocabulary) == 1 and vocabulary_size != 1:
        vocabulary = torch.cat([vocabulary - 1, vocabulary]) if int(vocabulary) else torch.tensor([0, 1])
    source = {} if source_NS is None else {"source_BS": source_NS[: len(ids)]}
    ordinary = torch.ones(ids.shape[1], dtype=torch.bool) if ordinary_T is None else ordinary_T
    positions = ordinary.nonzero().flatten().tolist()
    original = forward(ids, **source)[-1].float()
    size = float(original.square().mean().sqrt())
    # States at later positions than the changed token's have it before them, those at earlier positions after them.
    by_token_before, by_token_after = [], []
    for position in sorted({positions[0], positions[len(positions) // 2], positions[-1]}):
        changed_ids = ids.clone()
        next_larger = torch.searchsorted(vocabulary, ids[:, position].contiguous()) + 1
        changed_ids[:, position] = vocabulary[next_larger % len(vocabulary)]
        difference_T = (forward(changed_ids, **source)[-1].float() - original).abs().amax((0, 2))
        changes = difference_T > LEAST_DIFFERENCE * size
        by_token_before.append(changes[position + 1 :].cpu())
        by_token_after.append(changes[:position].cpu())
    before, after = torch.cat(by_token_before), torch.cat(by_token_after)
    sides = [side for side in (before, after) if bool(side.any())]
    return Influence(bool(before.any()), bool(after.any()), all(bool(side.all()) for side in sides))
