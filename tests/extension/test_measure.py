"""The usable length of models whose limit was planted is right, and not overstated."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.errors import UsageError
from clockhands.extension import choose_lengths, make_measure_findings, measure
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
    findings = list(make_measure_findings(measurement, margin=0.05, command="", basis={}))
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
