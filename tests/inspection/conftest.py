"""Set-up of the tests of inspection."""

from __future__ import annotations

from functools import partial

import pytest


@pytest.fixture(autouse=True)
def _networks_fitted_in_few_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that reads positions back is most of the time of ``inspect``; test_survival.py asks what it reads."""
    from clockhands.inspection.estimators.probes import fit_network_r2  # late: what cannot be imported fails a test

    if request.path.name != "test_survival.py":
        few = partial(fit_network_r2, steps=20)
        monkeypatch.setattr("clockhands.inspection.measures.survival.fit_network_r2", few)
