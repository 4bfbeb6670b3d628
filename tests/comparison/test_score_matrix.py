"""The scores that verdicts are computed from have as many test items in every trial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clockhands.comparison.verdicts import judge
from clockhands.errors import UsageError
from tests.comparison.planted import results


def test_trials_with_other_numbers_of_items_are_refused_with_their_seeds() -> None:
    """As where an older version counted windows, and the newer one counts stretches of them."""
    made = results()
    first, *others = made.trials
    mixed = replace(made, trials=(replace(first, items=first.items[:7] if first.items else None), *others))
    with pytest.raises(UsageError, match=rf"the trials of '{first.variant}' .*seed {first.seed} has 7,.*new folder"):
        judge(mixed)
