"""The sentences about hands, on periods that are given here."""

from __future__ import annotations

import pytest

from clockhands.inspection.measures.hands_verdict import describe_exact_hands


def test_the_first_and_the_last_period_of_exact_hands_are_told() -> None:
    assert describe_exact_hands([2.0, 10.0, 1000.0], zero_pairs=0, num_rows=500) == (
        "All 3 pairs of columns turn at exactly constant speed, once in 2.0 to 1,000 tokens. 1 of them makes fewer "
        "than two turns within the 500 rows that were read."
    )
    # A slowest period without decimals once stood below the fastest: "6.3 to 6".
    assert "once in 6.3 to 6.4 tokens" in describe_exact_hands([6.3, 6.4], zero_pairs=0, num_rows=500)
    assert "2 of them make fewer" in describe_exact_hands([2.0, 300.0, 1000.0], zero_pairs=0, num_rows=500)


def test_pairs_that_are_zero_are_not_said_to_turn() -> None:
    """It said that all pairs turn, and that one is zero."""
    assert describe_exact_hands([2.0, 10.0], zero_pairs=1, num_rows=50) == (
        "All 2 pairs of columns that are not zero turn at exactly constant speed, once in 2.0 to 10.0 tokens. One "
        "pair is zero."
    )
    assert describe_exact_hands([7.5], zero_pairs=2, num_rows=50) == (
        "The one pair of columns that is not zero turns at exactly constant speed, once in 7.5 tokens. 2 pairs are "
        "zero."
    )
    assert describe_exact_hands([7.5], zero_pairs=0, num_rows=50).startswith("The one pair of columns turns")


@pytest.mark.parametrize(("num_rows", "slow"), [(50, False), (10, True)])
def test_one_pair_that_hardly_turns_is_told(num_rows: int, slow: bool) -> None:
    said = f"It makes fewer than two turns within the {num_rows} rows that were read."
    assert describe_exact_hands([7.5], zero_pairs=0, num_rows=num_rows).endswith(said) == slow
