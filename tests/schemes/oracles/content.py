"""Oracles of the schemes in which position meets content."""

from __future__ import annotations

import math

from tests.schemes.oracles.registry import Case, Expected, oracle


@oracle("cope", {"max_position": 3})
def cope(case: Case) -> Expected:
    """Golovneva et al. 2024, equations 3 to 6, with the gates of the masked logits."""
    table = case.scheme.embedding_PK.detach().double()
    scores = case.scores()

    def term(h: int, i: int, j: int) -> float:
        p = sum(1 / (1 + math.exp(-float(scores[h, i, t]))) for t in range(j, i + 1))
        p = min(p, len(table) - 1)
        low, high = math.floor(p), math.ceil(p)
        at_low, at_high = (float(case.q_HSK[h, i] @ table[n]) for n in (low, high))
        return at_low if low == high else (1 - (p - low)) * at_low + (p - low) * at_high

    return case.add(term)
