"""When and with what a page of measurements was made."""

from __future__ import annotations

import datetime

from clockhands.checking.result import versions
from tests.conformance.scripts import sweeping


def tell_measured() -> str:
    """Return the day and the versions, with that of the code that decides a verdict."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    made_with = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"Measured on {today}: {made_with}, version {sweeping.identify_code()} of the checks."
