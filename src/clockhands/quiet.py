"""Libraries that warn of what is wanted, and bars that nobody asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(library: str) -> Iterator[None]:
    """Inside, a library warns of nothing; what fails in the end is raised."""
    logger = logging.getLogger(library)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def without_bars() -> Iterator[None]:
    """Inside, transformers draws no progress bar, such as the one for loading weights; afterwards as before."""
    from transformers.utils import logging as transformers_logging

    drawn = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if drawn:
            transformers_logging.enable_progress_bar()
