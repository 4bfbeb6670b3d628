"""The checks, by what they are about. Importing this package fills the registry."""

from clockhands.checking.checks import (  # noqa: F401
    attention,
    caching,
    causality,
    configuration,
    exporting,
    generating,
    lengths,
    packing,
    padding,
    precision,
    saving,
    shifting,
    state,
)
