"""The usable length of models whose limit was planted is right, and not overstated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clockhands.errors import UsageError
from clockhands.extension import choose_lengths, make_measure_findings, measure
from clockhands.extension.measure import LengthMeasurement, describe_usable, judge_usable
from clockhands.extension.reading import Drift
from clockhands.extension.retrieval import Retrieval
from tests.extension.planted import make_planted, make_stream

TRAINED = 64
LENGTHS = choose_lengths(TRAINED, 8 * TRAINED)


def find_usable(seed: int, **limit: Any) -> Any:
    stream = make_stream(20_000, seed)
    return measure(make_planted(**limit), stream, LENGTHS, TRAINED, texts=16, items=30, seed=seed)


def test_the_rungs_are_doublings_of_the_trained_length() -> None:
    assert LENGTHS == (16, 32, 64, 128, 256, 512)
    assert choose_lengths(1024, 3000) == (128, 256, 512, 1024, 2048, 3000)
    assert choose_lengths(100, 100) == (25, 50, 100)
    with pytest.raises(UsageError, match="a trained length of 30 tokens is too short"):
        choose_lengths(30, 80)


@pytest.mark.parametrize(
    ("limit", "usable"),
    [({}, 512), ({"window": 64}, 64), ({"window": 130}, 128), ({"table": 128}, 128), ({"period": 250}, 256)],
)
def test_a_planted_limit_is_found(limit: dict[str, int], usable: int) -> None:
    measurement = find_usable(0, **limit)
    assert measurement.usable.learned == ("passkey", "recall")
    assert measurement.usable.length == usable
    findings = list(make_measure_findings(measurement, margin=0.05))
    said = "It reads at least 512 tokens (8×" if usable == 512 else f" up to {usable} tokens ("
    assert said in findings[0].verdict
    assert findings[2].reference("passkey, without the facts").value == pytest.approx(0.5, abs=0.01)


@pytest.mark.slow
def test_of_twenty_planted_limits_nineteen_are_right_within_a_rung_and_one_at_most_is_overstated() -> None:
    kinds = ["window", "table", "period"]
    # Half of the limits lie on a rung, half of them between two.
    cases = [(kinds[n % 3], int(LENGTHS[1 + n % 4] * (1 + 0.4 * (n % 2))), n) for n in range(20)]
    right = overstated = 0
    for kind, limit, seed in cases:
        usable = find_usable(seed, **{kind: limit}).usable.length
        right += limit / 2.1 <= usable <= 2 * limit
        overstated += usable > limit
    assert right >= 19 and overstated <= 1, (right, overstated)


RUNGS = (32, 64, 128, 256)


def make_drift(*rises: float, noise: float = 0.02, texts: int = 40) -> Drift:
    rng = np.random.default_rng(0)
    own_N1 = rng.normal(3, 1, (texts, 1))
    return Drift(RUNGS, 16, own_N1 + np.array(rises) + rng.normal(0, noise, (texts, 4)))


def make_retrieval(*means: float, noise: float = 0.05, items: int = 60) -> Retrieval:
    rng = np.random.default_rng(1)
    ranks_NR = np.clip(np.array(means) + rng.normal(0, noise, (items, 4)), 0, 1)
    control = {"recall": np.full(items, 0.5)}
    return Retrieval(RUNGS, {"recall": ranks_NR}, control, {"recall": np.zeros((5, 4))}, {"recall": items}, "a b")


CHANCE = make_retrieval(0.5, 0.5, 0.5, 0.5)
PERFECT = make_retrieval(0.95, 0.95, 0.95, 0.95)


@pytest.mark.parametrize(
    ("drift", "retrieval", "usable", "undecided", "said"),
    [
        (make_drift(0.1, 0, 0, 0), PERFECT, 256, False, "It reads at least 256 tokens"),
        (make_drift(0.1, 0, 0, 0.3), PERFECT, 128, False, "at 256 tokens the loss rises by +0."),
        (make_drift(0.1, 0, 0.05, 0.3, noise=0.2), PERFECT, 64, True,
         "a limit of --texts, not of the model: at 128 tokens nothing is shown either way (the"),
        (make_drift(0.1, 0, -0.05, -0.05, noise=0.6), PERFECT, 64, True,
         "is shown to read up to 64 tokens (1× the trained length). That is a limit of --texts"),
        (make_drift(0.1, 0, 0, 0), PERFECT, 256, False, "and recall keeps 75% of the lead over chance."),
        (make_drift(0.1, 0, 0, 0), make_retrieval(0.95, 0.95, 0.6, 0.5), 64, False, "recall falls by 0.3"),
        (make_drift(0.1, 0, 0, 0), CHANCE, 256, False, "so this rests on the loss alone"),
        (make_drift(0.1, 0, np.nan, np.nan), PERFECT, 64, False, "at 128 tokens it cannot be read"),
        (make_drift(0, 0.3, 0.3, 0.3), PERFECT, 32, False, "at 64 tokens the loss rises"),
    ],
)  # fmt: skip
def test_the_verdict_says_what_the_numbers_show(
    drift: Drift, retrieval: Retrieval, usable: int, undecided: bool, said: str
) -> None:
    judged = judge_usable(drift, retrieval, TRAINED)
    assert (judged.length, judged.undecided) == (usable, undecided)
    assert said in describe_usable(LengthMeasurement(TRAINED, drift, retrieval, judged), 0.05)
    guessing = LengthMeasurement(TRAINED, drift, retrieval, judged, guess=float(drift.losses_NR.mean(0).min()))
    assert ("This cannot be told" in describe_usable(guessing, 0.05)) == (not judged.learned)


def test_chance_alone_is_seldom_taken_for_retrieval() -> None:
    rng = np.random.default_rng(2)
    learned = 0
    for _ in range(60):
        ranks_NR = rng.uniform(0, 1, (60, 4))
        retrieval = Retrieval(RUNGS, {"recall": ranks_NR}, {}, {}, {}, "")
        learned += bool(judge_usable(make_drift(0, 0, 0, 0), retrieval, TRAINED).learned)
    assert learned <= 8, "5 % are expected"


def test_two_texts_whose_ranks_are_alike_show_nothing() -> None:
    retrieval = Retrieval(RUNGS, {"recall": np.full((2, 4), 0.54)}, {}, {}, {"recall": 10}, "")
    assert judge_usable(make_drift(0, 0, 0, 0), retrieval, TRAINED).learned == ()
    sure = Retrieval(RUNGS, {"recall": np.full((12, 4), 0.95)}, {}, {}, {"recall": 60}, "")
    assert judge_usable(make_drift(0, 0, 0, 0), sure, TRAINED).learned == ("recall",)
