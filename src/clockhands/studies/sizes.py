"""The sizes in which a study can be run: as planned, longer, on another task, or with wider and deeper models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Tables = Mapping[str, Any]


NUMBERS, ROLES, PYTHON = "recipes/numbers.toml", "recipes/roles.toml", "recipes/python.toml"
"""Recipes of the three tasks. The variants of a study of pairs in one layer a side can be trained on the others."""


@dataclass(frozen=True)
class Size:
    """``says``: what it is; ``times``: of the plan's budget; ``shape``: settings that all variants share.

    ``recipe``: of the task that takes the place of ``replaces``, the study's. ``plan``: what the plan says of it, its
    metric. ``own``: the size whose changes in a study's file hold here too, where the file says nothing of this one.
    ``declared``: whether a study needs a table for this size.
    """

    says: str
    times: int = 1
    shape: Tables = field(default_factory=dict)
    recipe: str = ""
    replaces: str = NUMBERS
    plan: Tables = field(default_factory=dict)
    own: str = ""
    declared: bool = False


def _make_wide_shape(width: int, layers: int, rate: float, warmup: int) -> dict[str, Any]:
    return {
        "model.d_model": width, "model.num_heads": 8, "model.d_ff": 4 * width, "model.encoder_layers": layers,
        "model.decoder_layers": layers, "training.learning_rate": rate, "training.warmup_steps": warmup,
        "training.device": "auto",
    }  # fmt: skip


TWICE = {"model.d_model": 128, "model.num_heads": 4, "model.d_ff": 512, "training.learning_rate": 3e-3}
WIDE = {"model.d_model": 256, "model.num_heads": 8, "model.d_ff": 1024, "training.learning_rate": 2e-3}
WIDER = {"model.d_model": 512, "model.num_heads": 8, "model.d_ff": 2048, "training.learning_rate": 1e-3}

OF_PYTHON: dict[str, Any] = {
    "redraw_text": True,
    "metric": "loss",
    "margin": 0.03,
    "target": 2.0,
    "inside": (),
    "despite": {
        "ceiling": "The bag of the characters before it hardly occurs twice in a text: of a text the ceiling says "
        "nothing."
    },
}
"""What a plan says of the text of Python's standard library."""

WITHIN_A_POINT: dict[str, Any] = {
    "seeds": 10,
    "redraw_text": True,
    "margin": 1.0,
    "inside": (),
    "despite": {
        "baseline": "The question is whether two good models differ by a point; the intervals are exact near 100 %."
    },
}
"""What a plan says where differences of a point are asked for."""

SIZES = {
    "cpu": Size("as planned, for one processor core"),
    "long": Size("as planned, with four times the budget, which tells slow from impossible", 4),
    "longest": Size("as planned, with ten times the budget: minutes a trial on one core", 10, declared=True),
    "rates": Size("as planned, with other learning rates, which a study's table names", declared=True),
    "bases": Size(
        "with other bases of the rotation, which a study's table names: half a minute a trial on one core",
        declared=True,
    ),
    "bases-longer": Size(
        "with other bases of the rotation, trained on longer texts, which a study's table sets: a minute a trial on "
        "one core",
        declared=True,
    ),
    "roles": Size(
        "on another task, English to Esperanto with clauses, with twice the budget: a minute a trial on one core",
        2,
        recipe=ROLES,
    ),
    "numbers": Size(
        "on another task, German number words to English, with a training text of its own for each seed: seconds a "
        "trial on one core",
        recipe=NUMBERS,
        replaces=ROLES,
        plan={"redraw_text": True},
        declared=True,
    ),
    "stdlib": Size(
        "on another task, the next character of Python's standard library, with twice the budget and a training text "
        "of its own for each seed: seconds a trial on one core",
        2,
        recipe=PYTHON,
        plan=OF_PYTHON,
        declared=True,
    ),
    "roles-long": Size(
        "on English to Esperanto with clauses, with eight times the budget: minutes a trial on one core",
        8,
        recipe=ROLES,
        declared=True,
    ),
    "stdlib-long": Size(
        "on the next character of Python's standard library, with eight times the budget and a training text of its "
        "own for each seed: a minute a trial on one core",
        8,
        recipe=PYTHON,
        plan=OF_PYTHON,
        declared=True,
    ),
    "twice": Size(
        "width 128, else as planned unless the study's table for this size says more: half a minute a trial or more on "
        "one core",
        shape=TWICE,
        declared=True,
    ),
    "twice-long": Size(
        "width 128 and a longer training, which the study's table sets: minutes a trial on one core",
        shape=TWICE,
        declared=True,
    ),
    "twice-more": Size(
        "width 128, with more seeds of the variants that the study's table names: minutes a trial on one core",
        shape=TWICE,
        declared=True,
    ),
    "post": Size(
        "post-norm in place of pre-norm, else as planned: seconds a trial on one core",
        shape={"model.norm": "post"},
        declared=True,
    ),
    "scores": Size(
        "as planned, with other factors of the scores of attention and a training text of its own for each seed: "
        "seconds a trial on one core",
        plan={"redraw_text": True, "inside": ("loudness", "terms")},
        declared=True,
    ),
    "finer": Size(
        "as planned, with ten seeds, a training text of its own for each, 1,000 test items and a margin of one point: "
        "half a minute a trial on one core",
        shape={"data.test": 1000},
        plan=WITHIN_A_POINT,
        declared=True,
    ),
    "finer-long": Size(
        "ten seeds, a training text of its own for each, 1,000 test items and a margin of one point, with four times "
        "the budget: half a minute a trial on one core",
        4,
        shape={"data.test": 1000},
        plan=WITHIN_A_POINT,
        declared=True,
    ),
    "wide": Size(
        "width 256, else as planned: minutes a trial on one core",
        shape=WIDE,
        own="gpu",
    ),
    "wide-long": Size("width 256 and four times the budget: minutes a trial on one core", 4, shape=WIDE, declared=True),
    "wider": Size("width 512, else as planned: minutes a trial on one core", shape=WIDER, declared=True),
    "gpu": Size(
        "width 256 and 3 layers a side unless a variant sets its own, three times the budget: for one GPU",
        3,
        _make_wide_shape(256, 3, 1e-3, 100),
    ),
    "paper": Size(
        "width 512 and 6 layers a side unless a variant sets its own, ten times the budget: for several GPUs and Ray",
        10,
        _make_wide_shape(512, 6, 5e-4, 200),
    ),
}
"""What ``clockhands study NAME --scale`` takes."""
