"""The benchmark of choices, extending_regret.py, must say within, beyond and undecided where each is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.extending_regret import judge_pair, list_finalists, tally

TEXTS = 200


def make_pair(chosen: str, noise: float = 0.01, **planted: tuple[float, float]) -> dict[str, Any]:
    """Make a pair whose methods have these losses and ranks, with noise of mean zero in each half of the texts."""
    rng = np.random.default_rng(0)

    def draw(mean: float) -> list[float]:
        halves = rng.normal(0, noise, (TEXTS // 2, 2))
        return (mean + halves - halves.mean(0)).ravel().tolist()

    entries = {name: {"cost": 0.0, "losses": draw(loss), "ranks": draw(rank)} for name, (loss, rank) in planted.items()}
    return {
        "model": "m", "factor": 4, "usable": 32, "chosen": chosen, "passed": list(planted), "measured": entries,
        "contenders": entries, "finalists": entries,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("chosen", "noise", "best", "verdict", "near"),
    [
        ("a", 0.01, "a", "within", True),
        ("b", 0.01, "a", "beyond", False),
        ("c", 0.01, "a", "beyond", False),
        ("d", 0.01, "a", "within", True),
        ("d", 1.0, "a", "undecided", True),
        ("b", 1.0, "a", "undecided", False),
    ],
)
def test_a_choice_is_judged_by_what_was_planted(chosen: str, noise: float, best: str, verdict: str, near: bool) -> None:
    pair = make_pair(chosen, noise, a=(2.0, 0.8), b=(2.06, 0.8), c=(2.0, 0.75), d=(2.01, 0.79))
    judged = judge_pair(pair)
    assert (judged["best of all"], judged["verdict"], judged["estimates within the bounds"]) == (best, verdict, near)
    counts = tally([judged])
    assert counts["verdicts"][verdict] == 1 and sum(counts["verdicts"].values()) == 1


def test_the_best_of_all_need_not_be_the_best_in_either() -> None:
    pair = make_pair("middle", reads=(2.0, 0.70), finds=(2.2, 0.80), middle=(2.05, 0.77))
    judged = judge_pair(pair)
    assert judged["best of all"] == "middle" and judged["verdict"] == "within"
    assert (judged["best by loss"], judged["best by rank"]) == ("reads", "finds")
    assert judged["beside both"]["verdict"] == "beyond" and judged["within both bounds by their means"] == []


def test_what_costs_too_much_on_short_text_is_no_rival_and_what_is_far_behind_is_not_measured_again() -> None:
    pair = make_pair("a", a=(2.0, 0.8), dear=(1.8, 0.9), far=(2.5, 0.6), near=(2.02, 0.8))
    pair["contenders"]["dear"]["cost"] = 0.02
    assert list_finalists(pair) == ["a", "near"]
    judged = judge_pair(pair)
    assert judged["best of all"] == "a" and judged["passed the guard at more than 1 %"] == ["dear"]
