"""Refuse the options of a transform, with everything that is wrong with them in one error."""

from __future__ import annotations

from clockhands.errors import ConfigError


def refuse_faults(name: str, *checks: tuple[bool, str]) -> None:
    """Raise ConfigError with the sentence of every check that is True, if any is.

    A check of a number is written ``not x > 0`` instead of ``x <= 0``: every comparison with NaN is false, and NaN must
    be refused.
    """
    faults = [f"{name}: {sentence}" for failed, sentence in checks if failed]
    if faults:
        raise ConfigError(faults, f"position transform {name!r}")
