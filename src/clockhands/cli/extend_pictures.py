"""``clockhands extend --pictures``: make a grid of positions read larger pictures."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from clockhands.cli.extend_options import find_longest, write_command
from clockhands.errors import UsageError

if TYPE_CHECKING:
    from clockhands.findings import Findings
    from clockhands.progress import ProgressCounter

__all__ = ["extend_grid"]

MOST_PICTURES = 512
"""Pictures that are read at most, evenly over the files."""


def extend_grid(
    options: argparse.Namespace, write_page: Callable[[Findings], Path], progress: ProgressCounter
) -> Findings:
    """Make the grid of a model larger, write it, and return what was found; ``write_page`` writes the page of it.

    Raises UsageError where ``--to`` asks for no more than the model reads.
    """
    from clockhands.extension.pictures import PicturePlan, open_picture_model, read_pictures
    from clockhands.extension.pictures import extend_grid as extend

    model = open_picture_model(options.run, device=options.device)
    longest = find_longest(options.to, model.side, "pixels")
    if longest == model.side:
        raise UsageError(f"--to {options.to} is the {longest:,} pixels that it reads already; give more")
    pictures = read_pictures(options.pictures, model, MOST_PICTURES, largest=longest)
    plan = PicturePlan(pictures, longest, write_command(options))
    return extend(model, plan, Path(options.out), write_page=write_page, progress=progress)
