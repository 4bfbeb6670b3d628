"""How far a chosen method is behind the best of all, with intervals: part of extending_pairs.py.

The best of all is one method: by the command's own rule the one that is least behind in what it does worse, loss or
rank. Beside it stands how far the choice is behind the best by loss and the best by rank, which are often two methods;
then none may be within both bounds.

The best of several measured means is partly the luckiest, so a gap to it is too large. Here the best is found on one
half of the texts and the gap is measured on the other, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from clockhands.extension.choose import GUARD, RANK_STEP, measure_lags

__all__ = ["LOSS_BOUND", "RANK_BOUND", "judge_pair", "list_finalists", "tally"]

LOSS_BOUND, RANK_BOUND = GUARD, RANK_STEP
"""What the choice may be behind: a share of the loss, and of the rank. Set before anything is measured."""
LAG = 1.0
"""How much further behind than the least a method may be and still be measured at length, in units of the bounds."""


def list_finalists(pair: Mapping[str, Any]) -> list[str]:
    """Return the methods that may be the best, as a whole or in one measure, and the chosen one."""
    cheap = _list_cheap(pair["contenders"], pair["chosen"])
    losses, ranks = _average(cheap)
    lags = measure_lags(losses, ranks)
    near = [name for name, lag in lags.items() if lag <= min(lags.values()) + LAG]
    firsts = [
        min(losses, key=lambda name: losses[name]),
        *([max(ranks, key=lambda name: ranks[name])] if ranks else []),
    ]
    return list(dict.fromkeys([*near, *firsts, pair["chosen"]]))


def judge_pair(pair: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the chosen method with the best of those that cost little on short text, both on text of their own."""
    chosen = pair["chosen"]
    cheap = _list_cheap(pair["finalists"], chosen)
    losses, ranks = _average(cheap)
    lags, least = measure_lags(losses, ranks), min(losses.values())
    loss, rank = _find_gaps_to_one(cheap, chosen)
    apart_loss = [value / least for value in _find_gap(cheap, chosen, "losses", 1)]
    apart_rank = _find_gap(cheap, chosen, "ranks", -1) if ranks else (0.0, 0.0, 0.0)
    costs = {name: entry["cost"] for name, entry in pair["measured"].items()}
    return {
        "pair": f"{pair['model']}, {pair['factor']}x", "usable": pair["usable"], "chosen": chosen,
        "best of all": min(lags, key=lambda name: lags[name]), **_tell(loss, rank, bool(ranks)),
        "best by loss": min(losses, key=lambda name: losses[name]),
        "best by rank": max(ranks, key=lambda name: ranks[name]) if ranks else "no task is learned",
        "beside both": _tell(apart_loss, apart_rank, bool(ranks)),
        "within both bounds by their means": [name for name, lag in lags.items() if lag <= 1],
        "cost on short text, %": round(100 * cheap[chosen]["cost"], 2),
        "passed the guard at more than 1 %": [name for name in pair["passed"] if costs[name] > GUARD],
    }  # fmt: skip


def _tell(loss: Sequence[float], rank: Sequence[float], ranked: bool) -> dict[str, Any]:
    return {
        "loss above it, %": [round(100 * value, 2) for value in loss],
        "points of rank below it": [round(100 * value, 1) for value in rank] if ranked else None,
        "estimates within the bounds": bool(loss[0] <= LOSS_BOUND and rank[0] <= RANK_BOUND),
        "verdict": _decide(loss, rank),
    }


def _list_cheap(entries: Mapping[str, Mapping[str, Any]], chosen: str) -> dict[str, Mapping[str, Any]]:
    """Return those that can read so far and cost no more than the guard allows, and the chosen one."""
    return {
        name: entry
        for name, entry in entries.items()
        if "losses" in entry and (entry["cost"] <= GUARD or name == chosen)
    }


def _average(
    cheap: Mapping[str, Mapping[str, Any]], texts: slice = slice(None)
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the mean loss and, of those that have one, the mean rank of each method on some of the texts."""
    losses, ranks = (
        {name: float(np.mean(entry[key][texts])) for name, entry in cheap.items() if key in entry}
        for key in ("losses", "ranks")
    )
    return losses, ranks


def _find_gaps_to_one(
    cheap: Mapping[str, Mapping[str, Any]], chosen: str
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Return how far the chosen method is behind the one best of all, in the loss and in the rank, with intervals."""
    mine = {key: np.asarray(cheap[chosen][key]) for key in ("losses", "ranks") if key in cheap[chosen]}
    gaps = {key: np.empty(len(scores_N)) for key, scores_N in mine.items()}
    shares = []
    for half in (0, 1):
        lags = measure_lags(*_average(cheap, slice(1 - half, None, 2)))
        best = min(lags, key=lambda name: lags[name])
        for key, sign in (("losses", 1), ("ranks", -1)):
            if key in mine:
                gaps[key][half::2] = sign * (mine[key] - np.asarray(cheap[best][key]))[half::2]
        shares.append(float(np.mean(cheap[best]["losses"])))
    loss = [value / float(np.mean(shares)) for value in _make_interval(gaps["losses"])]
    return (loss[0], loss[1], loss[2]), _make_interval(gaps["ranks"]) if "ranks" in gaps else (0.0, 0.0, 0.0)


def _make_interval(gaps_N: np.ndarray) -> tuple[float, float, float]:
    """Return the mean of paired gaps with a 95 % t interval over texts."""
    mean, error = float(gaps_N.mean()), float(gaps_N.std(ddof=1)) / len(gaps_N) ** 0.5
    reach = float(stats.t.ppf(0.975, len(gaps_N) - 1)) * error
    return mean, mean - reach, mean + reach


def _find_gap(cheap: Mapping[str, Mapping[str, Any]], chosen: str, key: str, sign: int) -> tuple[float, float, float]:
    """Return how far the chosen method is behind the best of all in one measure, with an interval."""
    rivals_KN = sign * np.array([entry[key] for entry in cheap.values() if key in entry])
    chosen_N = sign * np.array(cheap[chosen][key])
    gaps_N = np.empty(len(chosen_N))
    for half in (0, 1):
        best = int(rivals_KN[:, 1 - half :: 2].mean(1).argmin())
        gaps_N[half::2] = (chosen_N - rivals_KN[best])[half::2]
    return _make_interval(gaps_N)


def _decide(loss: Sequence[float], rank: Sequence[float]) -> str:
    """Return ``within`` where both are shown to be, ``beyond`` where one is shown to be, else ``undecided``."""
    if loss[1] > LOSS_BOUND or rank[1] > RANK_BOUND:
        return "beyond"
    return "within" if loss[2] <= LOSS_BOUND and rank[2] <= RANK_BOUND else "undecided"


def tally(judged: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many pairs got which verdict."""
    dear = sum(bool(entry["passed the guard at more than 1 %"]) for entry in judged)
    return {
        **_count(judged), "beside the best of each measure": _count([entry["beside both"] for entry in judged]),
        "pairs in which no method is within both bounds": sum(
            not entry["within both bounds by their means"] for entry in judged
        ),
        "pairs in which something passed the guard at more than 1 %": dear,
    }  # fmt: skip


def _count(judged: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    verdicts = [entry["verdict"] for entry in judged]
    near = sum(entry["estimates within the bounds"] for entry in judged)
    counts = {verdict: verdicts.count(verdict) for verdict in ("within", "undecided", "beyond")}
    return {"verdicts": counts, "estimates within the bounds": f"{near} of {len(judged)}"}
