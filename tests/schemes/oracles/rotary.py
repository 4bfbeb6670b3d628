"""Oracles of the schemes that turn queries and keys."""

from __future__ import annotations

import math

import torch

from tests.schemes.oracles.registry import Case, Expected, oracle


@oracle("rope", {"layout": "interleaved"}, {"fraction": 0.5, "base": 500.0})
def rope(case: Case) -> Expected:
    """Su et al. 2021, equation 34, as complex products: Re Σ_c q_c k_c* e^{i(m-n)θ_c}."""
    width = case.q_HSK.shape[-1]
    turned = int(width * case.options.get("fraction", 1.0))
    base = case.options.get("base", 10_000.0)
    half = case.options.get("layout", "half") == "half"
    logits = torch.zeros(case.q_HSK.shape[0], len(case.qpos_S), len(case.kpos_T), dtype=torch.float64)
    for h in range(logits.shape[0]):
        for i, m in enumerate(case.qpos_S.tolist()):
            for j, n in enumerate(case.kpos_T.tolist()):
                q, k = case.q_HSK[h, i].tolist(), case.k_HTK[h, j].tolist()
                total = sum(a * b for a, b in zip(q[turned:], k[turned:], strict=True))
                for c in range(turned // 2):
                    a, b = (c, c + turned // 2) if half else (2 * c, 2 * c + 1)
                    theta = base ** (-2 * c / turned)
                    product = complex(q[a], q[b]) * complex(k[a], k[b]).conjugate()
                    angle = (m - n) * theta
                    total += (product * complex(math.cos(angle), math.sin(angle))).real
                logits[h, i, j] = total / math.sqrt(width)
    return Expected(logits_HST=logits)


@oracle("grape", {"per_head": True, "base": 40.0}, {"form": "rank-2"})
def grape(case: Case) -> Expected:
    """Zhang et al. 2025, section 3: q_iᵀ exp((i - j)·L)ᵀ k_j with the generator as a matrix."""
    width, heads = case.q_HSK.shape[-1], case.q_HSK.shape[0]
    logits = torch.zeros(heads, len(case.qpos_S), len(case.kpos_T), dtype=torch.float64)
    for h in range(heads):
        generator = torch.zeros(width, width, dtype=torch.float64)
        if case.options.get("form") == "rank-2":
            a, b = case.scheme.span_HK2[h].detach().double().unbind(-1)
            generator = torch.outer(a, b) - torch.outer(b, a)
        else:
            speeds = case.scheme.speed_HF.detach().double().exp()
            for c, speed in enumerate(speeds[h % len(speeds)].tolist()):
                generator[c + width // 2, c], generator[c, c + width // 2] = speed, -speed
        for i, m in enumerate(case.qpos_S.tolist()):
            for j, n in enumerate(case.kpos_T.tolist()):
                turn = torch.linalg.matrix_exp((m - n) * generator)
                logits[h, i, j] = (turn @ case.q_HSK[h, i]) @ case.k_HTK[h, j] / math.sqrt(width)
    return Expected(logits_HST=logits)
