"""How far a chosen method is behind the best of all, with intervals: part of extending_pairs.py.

The best of eighteen measured means is partly the luckiest, so a gap to it is too large. Here the best is found on one
half of the texts and the gap is measured on the other, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from clockhands.extension.judge import GUARD

__all__ = ["LOSS_BOUND", "RANK_BOUND", "find_gap", "judge_pair", "tally"]

LOSS_BOUND, RANK_BOUND = 0.01, 0.02
"""What the choice may be behind: a share of the loss, and of the rank. Set before anything is measured."""


def find_gap(chosen_N: np.ndarray, rivals_KN: np.ndarray) -> tuple[float, float, float]:
    """Return how much more the chosen method scores than the smallest of all, with a 95 % t interval over texts."""
    gaps_N = np.empty(len(chosen_N))
    for half in (0, 1):
        best = int(rivals_KN[:, 1 - half :: 2].mean(1).argmin())
        gaps_N[half::2] = (chosen_N - rivals_KN[best])[half::2]
    error = float(gaps_N.std(ddof=1)) / len(gaps_N) ** 0.5
    reach = float(stats.t.ppf(0.975, len(gaps_N) - 1)) * error
    return float(gaps_N.mean()), float(gaps_N.mean()) - reach, float(gaps_N.mean()) + reach


def judge_pair(pair: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the chosen method with the best of those that cost little on short text, both on text of their own."""
    contenders, chosen = pair["contenders"], pair["contenders"][pair["chosen"]]
    costs = {name: entry["cost"] for name, entry in {**pair["measured"], **contenders}.items() if "cost" in entry}
    cheap = {
        name: entry
        for name, entry in contenders.items()
        if "losses" in entry and (entry["cost"] <= GUARD or name == pair["chosen"])
    }
    means = {name: float(np.mean(entry["losses"])) for name, entry in cheap.items()}
    least = min(means.values())
    loss = [value / least for value in _find_gap(chosen, cheap, "losses", 1)]
    ranked = "ranks" in chosen
    rank = _find_gap(chosen, cheap, "ranks", -1) if ranked else (0.0, 0.0, 0.0)
    ranks = {name: float(np.mean(entry["ranks"])) for name, entry in cheap.items() if "ranks" in entry}
    both = [
        name
        for name in cheap
        if means[name] <= (1 + LOSS_BOUND) * least
        and (not ranked or ranks.get(name, 0.0) >= max(ranks.values()) - RANK_BOUND)
    ]
    return {
        "pair": f"{pair['model']}, {pair['factor']}x", "usable": pair["usable"], "chosen": pair["chosen"],
        "best by loss": min(means, key=lambda name: means[name]),
        "best by rank": max(ranks, key=lambda name: ranks[name]) if ranks else "no task is learned",
        "loss above the best, %": [round(100 * value, 2) for value in loss],
        "points of rank below the best": [round(100 * value, 1) for value in rank] if ranked else None,
        "cost on short text, %": round(100 * chosen["cost"], 2),
        "estimates within the bounds": bool(loss[0] <= LOSS_BOUND and rank[0] <= RANK_BOUND),
        "verdict": _decide(loss, rank), "within both bounds by their means": both,
        "passed the guard at more than 1 %": [name for name in pair["passed"] if costs[name] > GUARD],
    }  # fmt: skip


def _find_gap(chosen: Mapping[str, Any], cheap: Mapping[str, Any], key: str, sign: int) -> tuple[float, float, float]:
    rivals_KN = sign * np.array([entry[key] for entry in cheap.values() if key in entry])
    return find_gap(sign * np.array(chosen[key]), rivals_KN)


def _decide(loss: Sequence[float], rank: Sequence[float]) -> str:
    """Return ``within`` where both are shown to be, ``beyond`` where one is shown to be, else ``undecided``."""
    if loss[1] > LOSS_BOUND or rank[1] > RANK_BOUND:
        return "beyond"
    return "within" if loss[2] <= LOSS_BOUND and rank[2] <= RANK_BOUND else "undecided"


def tally(judged: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many pairs got which verdict."""
    verdicts = [entry["verdict"] for entry in judged]
    counts = {verdict: verdicts.count(verdict) for verdict in ("within", "undecided", "beyond")}
    near = sum(entry["estimates within the bounds"] for entry in judged)
    dear = sum(bool(entry["passed the guard at more than 1 %"]) for entry in judged)
    return {
        "verdicts": counts, "estimates within the bounds": f"{near} of {len(judged)}",
        "pairs in which something passed the guard at more than 1 %": dear,
    }  # fmt: skip
