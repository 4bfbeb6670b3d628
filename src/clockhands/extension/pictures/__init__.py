"""A grid of learned positions made larger, so that a model that names pictures reads larger ones.

::

    from clockhands.extension.pictures import open_picture_model, read_pictures

    model = open_picture_model("vit")
    pictures = read_pictures("photographs", model, most=512, largest=448)
    judge_grids(model, pictures, longest=2 * model.side)
"""

from __future__ import annotations

from clockhands.extension.pictures.extend import PicturePlan, extend_grid
from clockhands.extension.pictures.judge import JudgedGrid, judge_grids
from clockhands.extension.pictures.model import PictureModel, lengthen, open_picture_model
from clockhands.extension.pictures.reading import Pictures, read_pictures
from clockhands.extension.pictures.tables import GRIDS, stretch_grid

__all__ = [
    "GRIDS",
    "JudgedGrid",
    "PictureModel",
    "PicturePlan",
    "Pictures",
    "extend_grid",
    "judge_grids",
    "lengthen",
    "open_picture_model",
    "read_pictures",
    "stretch_grid",
]
