"""Positions on several axes, as M-RoPE has them: text stands on a line, what is not text on a grid of rows and columns.

The ids are text throughout: what is judged is the way from ``position_ids`` [axes, B, S] to the logits, not what reads
pictures. The grid is that of an image of 4 by 6 tokens between two texts: the text behind it goes on after the longer
side, so that places and numbers of tokens part.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, read_in_pieces
from clockhands.checking.checks.precision import angle_tables
from clockhands.checking.models.subject import Subject

_AXES = 3  # time, height, width
_WIDE, _TALL = (4, 6), (6, 3)
_axes_check = partial(check, huggingface=True, needs=("axes",), uses=("positions on several axes",))


def grid_positions(before: int, grid: tuple[int, int], after: int) -> Tensor:
    """Return positions [axes, 1, S] of a text, a grid of rows by columns, and a text, as Qwen2-VL numbers them."""
    rows, columns = grid
    first = torch.arange(before).expand(_AXES, -1)
    row, column = torch.arange(rows).repeat_interleave(columns), torch.arange(columns).repeat(rows)
    inside = torch.stack([torch.zeros_like(row), row, column])
    last = torch.arange(after).expand(_AXES, -1)
    return torch.cat([first, inside + before, last + before + max(grid)], 1).unsqueeze(1)


def _draw(subject: Subject, before: int, grid: tuple[int, int], after: int, salt: int = 0) -> tuple[Tensor, Tensor]:
    """Return ids [1, S] and their positions [axes, 1, S]."""
    positions = grid_positions(before, grid, after)
    ids = subject.tokens(1, positions.shape[-1], salt)
    return ids, positions.to(ids.device)


@_axes_check("axes.equal", "an axis that is read from another place, or sections that do not add up to the head")
def _equal(subject: Subject) -> Measurement:
    """Text whose position is the same on every axis reads as text with one row of positions."""
    ids = subject.tokens(2, 20)
    lines = subject.arange(2, 20).expand(_AXES, -1, -1)
    return Measurement(difference(subject.logits(ids, positions=lines), subject.logits(ids)))


@_axes_check("axes.heard", "an axis that is dropped")
def _heard(subject: Subject) -> Iterator[Measurement]:
    """The place on each axis reaches the logits."""
    pairs = min((table.shape[-1] for table in angle_tables(subject.get_module()).values()), default=_AXES)
    if pairs < _AXES:
        raise Inapplicable(f"the heads rotate {pairs} pairs, which are too few for {_AXES} axes")
    ids, positions = _draw(subject, 5, _WIDE, 6)
    wanted = subject.logits(ids, positions=positions)
    for axis in range(_AXES):
        moved = positions.clone()
        moved[axis, :, 5 + _WIDE[1] :] += 7  # the text behind the grid
        size = difference(subject.logits(ids, positions=moved), wanted)
        yield Measurement(size, f"axis {axis + 1} of {_AXES} moved by 7", wanted=True)


@_axes_check(
    "axes.pieces",
    "positions of a piece that are not those that were passed; a grid counted by its tokens once it is cached",
)
def _pieces(subject: Subject) -> Measurement:
    """A text with a grid, read in pieces with its positions, equals the whole."""
    ids, positions = _draw(subject, 5, _WIDE, 6)
    grid = 5 + _WIDE[0] * _WIDE[1]
    read = read_in_pieces(subject, ids, [5, *range(grid, ids.shape[1] + 1)], positions=positions)
    return Measurement(difference(read, subject.logits(ids, positions=positions)), "text, a grid, text")


@_axes_check(
    "axes.rows", "one row's positions for all rows; positions counted from the mask in place of those that were passed"
)
def _rows(subject: Subject) -> Iterator[Measurement]:
    """Rows with different grids, the shorter padded on the left, answer in a batch what each answers alone."""
    texts = [_draw(subject, 5, _WIDE, 6), _draw(subject, 3, _TALL, 5, salt=1)]
    width = max(ids.shape[1] for ids, _ in texts)
    padded, lines, masks = [], [], []
    for ids, positions in texts:
        pads = width - ids.shape[1]
        padded.append(torch.cat([subject.tokens(1, pads, salt=2), ids], 1) if pads else ids)
        lines.append(torch.nn.functional.pad(positions, (pads, 0)))
        masks.append(torch.arange(width, device=ids.device).unsqueeze(0) >= pads)
    together = subject.logits(torch.cat(padded), torch.cat(masks), torch.cat(lines, 1))
    for row, (ids, positions) in enumerate(texts):
        actual, alone = together[row : row + 1, -ids.shape[1] :], subject.logits(ids, positions=positions)
        yield Measurement(difference(actual, alone), f"row {row + 1} of {len(texts)}")


@_axes_check("axes.packing", "documents told by the axes of a grid")
def _packing(subject: Subject) -> Iterator[Measurement]:
    """Texts with grids, packed by a first row that counts the tokens of each, do not see each other.

    Positions then have four rows, of which the last three are the axes.
    """
    texts = [_draw(subject, 5, _WIDE, 4), _draw(subject, 3, _TALL, 6, salt=1)]
    lines = torch.cat([torch.arange(ids.shape[1], device=ids.device) for ids, _ in texts]).expand(1, 1, -1)
    joined = torch.cat([lines, torch.cat([positions for _, positions in texts], -1)])
    together = subject.logits(torch.cat([ids for ids, _ in texts], 1), positions=joined)
    parts = together.split([ids.shape[1] for ids, _ in texts], 1)
    for number, (actual, (ids, positions)) in enumerate(zip(parts, texts, strict=True), 1):
        alone = subject.logits(ids, positions=positions)
        yield Measurement(difference(actual, alone), f"document {number} of {len(texts)}")
