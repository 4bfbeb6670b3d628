"""Oracles of the schemes in which position meets content."""

from __future__ import annotations

import math

import torch

from tests.schemes.oracles.registry import Case, Expected, oracle, weights


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


@oracle("shaw", {"clip": 2}, {"clip": 3, "values": False}, {"clip": 0})
def shaw(case: Case) -> Expected:
    """Shaw et al. 2018, equations 3 to 5: keys and values gain a vector for clip(j - i, -k, k)."""
    clip = case.options.get("clip", 16)
    keys = case.scheme.keys_RK.detach().double()

    def row(i: int, j: int) -> int:
        return max(-clip, min(clip, int(case.kpos_T[j] - case.qpos_S[i]))) + clip

    expected = case.add(lambda h, i, j: float(case.q_HSK[h, i] @ keys[row(i, j)]) / math.sqrt(keys.shape[1]))
    if not case.options.get("values", True):
        return expected
    table = case.scheme.values_RK.detach().double()
    weight = weights(expected.logits_HST, case.causal)
    out = torch.zeros_like(case.q_HSK)
    for h in range(out.shape[0]):
        for i in range(out.shape[1]):
            for j in range(weight.shape[2]):
                out[h, i] += weight[h, i, j] * (case.v_HTK[h, j] + table[row(i, j)])
    return Expected(logits_HST=expected.logits_HST, out_HSK=out)
