"""Oracles of the schemes that turn queries and keys."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import torch

from tests.schemes.oracles.registry import Case, Expected, oracle


def turning(case: Case, turned: int, angle: Callable[[int, Any, int], float], amplitude: float = 1.0) -> Expected:
    """Su et al. 2021, equation 34, as complex products: Re Σ_c q_c e^{iφ(h, m, c)} (k_c e^{iφ(h, n, c)})*."""
    width, half = case.q_HSK.shape[-1], case.options.get("layout", "half") == "half"

    def complexes(x: list[float], h: int, p: Any) -> list[complex]:
        pairs = [(c, c + turned // 2) if half else (2 * c, 2 * c + 1) for c in range(turned // 2)]
        return [complex(x[a], x[b]) * amplitude * cmath.exp(1j * angle(h, p, c)) for c, (a, b) in enumerate(pairs)]

    logits = torch.zeros(case.q_HSK.shape[0], len(case.qpos_S), len(case.kpos_T), dtype=torch.float64)
    for h in range(logits.shape[0]):
        keys = [complexes(case.k_HTK[h, j].tolist(), h, n) for j, n in enumerate(case.kpos_T.tolist())]
        for i, m in enumerate(case.qpos_S.tolist()):
            query = complexes(case.q_HSK[h, i].tolist(), h, m)
            for j, key in enumerate(keys):
                total = sum((a * b.conjugate()).real for a, b in zip(query, key, strict=True))
                total += float(case.q_HSK[h, i, turned:] @ case.k_HTK[h, j, turned:])
                logits[h, i, j] = total / math.sqrt(width)
    return Expected(logits_HST=logits)


def yarn(o: dict[str, Any], theta: float, c: int, turned: int, base: float) -> float:
    """Peng et al. 2023, equations 17 to 20 (``ramp`` rotations), or the authors' code (channel)."""
    length, slow, fast = o.get("original_length", 2048), o.get("beta_slow", 1.0), o.get("beta_fast", 32.0)
    if o.get("ramp", "channel") == "rotations":
        rotations = length * theta / (2 * math.pi)
        gamma = min(max((rotations - slow) / (fast - slow), 0), 1)
    else:
        low, high = (turned * math.log(length / (2 * math.pi * b)) / (2 * math.log(base)) for b in (fast, slow))
        if o.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, turned - 1)
        gamma = 1 - min(max((c - low) / ((high - low) or 0.001), 0), 1)
    return (1 - gamma) * theta / o["factor"] + gamma * theta


def bent(o: dict[str, Any], c: int, turned: int, longest: int, p: int) -> float:
    """θ_c under each spectrum; ``longest``: the length of the row."""
    base, spectrum, factor = o.get("base", 10_000.0), o.get("spectrum", "default"), o.get("factor", 1.0)
    theta, length = base ** (-2 * c / turned), o.get("original_length", 2048)
    if spectrum == "linear":
        return theta / factor
    if spectrum == "ntk":
        return (base * factor ** (turned / (turned - 2))) ** (-2 * c / turned)
    if spectrum == "dynamic" and longest > length:
        return (base * (factor * longest / length - (factor - 1)) ** (turned / (turned - 2))) ** (-2 * c / turned)
    if spectrum == "yarn":
        return yarn(o, theta, c, turned, base)
    if spectrum == "longrope" and p >= o.get("unscaled_first", 0):
        return theta / o["long_factor" if longest > length else "short_factor"][c]
    if spectrum == "llama3":
        wave, low, high = 2 * math.pi / theta, o.get("low_frequency_factor", 1.0), o.get("high_frequency_factor", 4.0)
        if wave > length / low:
            return theta / factor
        if wave < length / high:
            return theta
        smooth = (length / wave - low) / (high - low)
        return (1 - smooth) * theta / factor + smooth * theta
    if spectrum == "proportional":
        return theta if c < int(o.get("share", 0.25) * turned // 2) else 0.0
    return theta


@oracle(
    "rope",
    {"layout": "interleaved"},
    {"fraction": 0.5, "base": 500.0},
    {"learned": True},
    {"spectrum": "linear", "factor": 4.0},
    {"spectrum": "ntk", "factor": 4.0, "layout": "interleaved"},
    {"spectrum": "dynamic", "factor": 3.0, "original_length": 6},
    {"spectrum": "yarn", "factor": 8.0, "original_length": 40, "beta_fast": 4.0},
    {"spectrum": "yarn", "factor": 8.0, "original_length": 40, "ramp": "rotations", "beta_fast": 9.0},
    {"spectrum": "yarn", "factor": 2.0, "original_length": 300, "truncate": False, "attention_factor": 1.3},
    {
        "spectrum": "longrope",
        "factor": 4.0,
        "original_length": 6,
        "short_factor": (1.0, 1.1, 1.2, 1.4),
        "long_factor": (1.5, 2.0, 3.0, 9.0),
        "unscaled_first": 2,
    },
    {"spectrum": "llama3", "factor": 8.0, "original_length": 64, "base": 100.0},
    {"spectrum": "proportional", "share": 0.5},
)
def rope(case: Case) -> Expected:
    o = case.options
    turned = int(case.q_HSK.shape[-1] * o.get("fraction", 1.0))
    learned = case.scheme.alpha_F.double().exp().tolist() if o.get("learned") else [1.0] * turned
    longest, amplitude = max(case.kpos_T.tolist()) + 1, o.get("attention_factor", 1.0)
    if o.get("spectrum") == "yarn" and "attention_factor" not in o:
        amplitude = 0.1 * math.log(o["factor"]) + 1
    if o.get("spectrum") == "longrope":
        amplitude = math.sqrt(1 + math.log(o["factor"]) / math.log(o["original_length"]))
    return turning(case, turned, lambda h, p, c: p * bent(o, c, turned, longest, p) * learned[c], amplitude)


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
