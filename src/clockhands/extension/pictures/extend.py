"""All of ``clockhands extend --pictures``: judge larger grids, write the chosen one and open it again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from clockhands import __version__
from clockhands.errors import CheckpointError
from clockhands.extension.pictures.findings import describe_grid_choice, make_grid_findings
from clockhands.extension.pictures.judge import judge_grids
from clockhands.extension.pictures.model import PROCESSOR, PictureModel, lengthen, open_picture_model
from clockhands.extension.pictures.reading import Pictures
from clockhands.extension.write import TOLERANCE, publish, stage
from clockhands.files import write_text
from clockhands.findings import Findings
from clockhands.progress import CountProgress, ignore_count

__all__ = ["PicturePlan", "extend_grid"]


@dataclass(frozen=True)
class PicturePlan:
    """What is to be found out: the pictures, the pixels of a side to reach, and the command that does this again."""

    pictures: Pictures
    longest: int
    command: str = ""


def extend_grid(
    model: PictureModel,
    plan: PicturePlan,
    folder: Path,
    *,
    write_page: Callable[[Findings], object],
    progress: CountProgress = ignore_count,
) -> Findings:
    """Judge larger grids on pictures, and write the model with the chosen one, a card and a page.

    ``folder``: nothing else may be writing in it; its configuration is written last. Without a chosen grid only the
    page is written. Raises UsageError for a size that is no multiple of the patch, CheckpointError where what was
    written does not compute what was judged.
    """
    judged = judge_grids(model, plan.pictures, plan.longest, progress)
    text = f"{len(plan.pictures)} pictures of {plan.pictures.source}"
    made = tuple(make_grid_findings(judged, plan.pictures, command=plan.command, basis={"pictures": text}))
    known = {"model": model.source, "trained size": f"{model.side} pixels", "pictures": text, "version": __version__}
    with stage(folder) as place:
        if judged.chosen is not None:
            error = _write(lengthen(model, plan.longest, judged.chosen.way), place)
            known["written"] = f"{folder}; logits differ by at most {error:.1g} from those that were judged"
            card = f"# {model.source}, for pictures of {plan.longest} pixels\n\n{describe_grid_choice(judged)}\n\n"
            write_text(place / "README.md", card + f"Made by `{plan.command}`.\n")
        findings = Findings(f"How large a picture {model.source} reads", made, known, command=plan.command)
        write_page(findings)
        publish(place, folder)
    return findings


def _write(longer: PictureModel, place: Path) -> float:
    """Write a model with its processor into an empty folder, and return the largest difference of its logits."""
    longer.model.save_pretrained(place)
    if longer.processor:
        write_text(place / PROCESSOR, json.dumps({**longer.processor, **_resize_processor(longer)}, indent=2) + "\n")
    pixels_1CSS = torch.rand(
        1, int(longer.vision.num_channels), longer.side, longer.side, generator=torch.Generator().manual_seed(0)
    )
    written = open_picture_model(place, device=str(longer.model.device))
    error = float((written.compute_logits(pixels_1CSS) - longer.compute_logits(pixels_1CSS)).abs().max())
    if not error <= TOLERANCE:
        raise CheckpointError(f"what was written for {longer.source} differs by {error:.2g}; nothing was kept")
    return error


def _resize_processor(longer: PictureModel) -> dict[str, object]:
    """Return the entries of a processor that name a size, with the new one."""
    square = {"height": longer.side, "width": longer.side}
    changed: dict[str, object] = {}
    for key in ("size", "crop_size"):
        old = longer.processor.get(key)
        if isinstance(old, dict) and "shortest_edge" in old:
            changed[key] = {"shortest_edge": longer.side}
        elif old is not None:
            changed[key] = longer.side if isinstance(old, int) else square
    return changed
