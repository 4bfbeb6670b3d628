"""What is said of a length rests on paired differences; what is not shown is undecided."""

from __future__ import annotations

import numpy as np
import pytest

from clockhands.extension.drift import Drift
from clockhands.extension.measure import Measurement
from clockhands.extension.measure_findings import describe_usable
from clockhands.extension.retrieval import Retrieval
from clockhands.extension.usable import judge_usable

LENGTHS = (32, 64, 128, 256)
TRAINED = 64


def make_drift(*rises: float, noise: float = 0.02, texts: int = 40) -> Drift:
    rng = np.random.default_rng(0)
    own_N1 = rng.normal(3, 1, (texts, 1))
    return Drift(LENGTHS, 16, own_N1 + np.array(rises) + rng.normal(0, noise, (texts, 4)))


def make_retrieval(*means: float, noise: float = 0.05, items: int = 60) -> Retrieval:
    rng = np.random.default_rng(1)
    ranks_NR = np.clip(np.array(means) + rng.normal(0, noise, (items, 4)), 0, 1)
    control = {"recall": np.full(items, 0.5)}
    return Retrieval(LENGTHS, {"recall": ranks_NR}, control, {"recall": np.zeros((5, 4))}, {"recall": items}, "a b")


CHANCE = make_retrieval(0.5, 0.5, 0.5, 0.5)
PERFECT = make_retrieval(0.95, 0.95, 0.95, 0.95)


@pytest.mark.parametrize(
    ("drift", "retrieval", "usable", "undecided", "said"),
    [
        (make_drift(0.1, 0, 0, 0), PERFECT, 256, False, "It reads at least 256 tokens"),
        (make_drift(0.1, 0, 0, 0.3), PERFECT, 128, False, "at 256 tokens the loss rises by +0."),
        (
            make_drift(0.1, 0, 0.05, 0.3, noise=0.2),
            PERFECT,
            64,
            True,
            "a limit of --texts, not of the model: at 128 tokens nothing is shown either way (the",
        ),
        (
            make_drift(0.1, 0, -0.05, -0.05, noise=0.6),
            PERFECT,
            64,
            True,
            "is shown to read up to 64 tokens (1× the trained length). That is a limit of --texts",
        ),
        (make_drift(0.1, 0, 0, 0), PERFECT, 256, False, "and recall keeps 75% of the lead over chance."),
        (make_drift(0.1, 0, 0, 0), make_retrieval(0.95, 0.95, 0.6, 0.5), 64, False, "recall falls by 0.3"),
        (make_drift(0.1, 0, 0, 0), CHANCE, 256, False, "so this rests on the loss alone"),
        (make_drift(0.1, 0, np.nan, np.nan), PERFECT, 64, False, "at 128 tokens it cannot be read"),
        (make_drift(0, 0.3, 0.3, 0.3), PERFECT, 32, False, "at 64 tokens the loss rises"),
    ],
)
def test_the_verdict_says_what_the_numbers_show(
    drift: Drift, retrieval: Retrieval, usable: int, undecided: bool, said: str
) -> None:
    judged = judge_usable(drift, retrieval, TRAINED)
    assert (judged.length, judged.undecided) == (usable, undecided)
    assert said in describe_usable(Measurement(TRAINED, drift, retrieval, judged), 0.05)


def test_chance_alone_is_seldom_taken_for_retrieval() -> None:
    rng = np.random.default_rng(2)
    learned = 0
    for _ in range(60):
        ranks_NR = rng.uniform(0, 1, (60, 4))
        retrieval = Retrieval(LENGTHS, {"recall": ranks_NR}, {}, {}, {}, "")
        learned += bool(judge_usable(make_drift(0, 0, 0, 0), retrieval, TRAINED).learned)
    assert learned <= 8, "5 % are expected"


def test_two_texts_whose_ranks_are_alike_show_nothing() -> None:
    retrieval = Retrieval(LENGTHS, {"recall": np.full((2, 4), 0.54)}, {}, {}, {"recall": 10}, "")
    assert judge_usable(make_drift(0, 0, 0, 0), retrieval, TRAINED).learned == ()
    sure = Retrieval(LENGTHS, {"recall": np.full((12, 4), 0.95)}, {}, {}, {"recall": 60}, "")
    assert judge_usable(make_drift(0, 0, 0, 0), sure, TRAINED).learned == ("recall",)
