"""Every row that is no scheme of its own can be built, and is compared with an oracle or with a peer."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clockhands.positions import TRANSFORMS
from clockhands.scheme_pages.page import PAGE_SIZES, list_rows
from clockhands.scheme_pages.variants import LEFT_OUT, SHOWN_LENGTH, VARIANTS, SchemeVariant, complete_options
from clockhands.schemes import CATALOGUE, build
from tests.schemes.oracles import ORACLES
from tests.schemes.oracles import VARIANTS as COMPARED

TESTS = Path(__file__).resolve().parents[1]
ROTARY, POSITIONS = "schemes/test_parity_rotary.py", "test_positions.py"
UNEQUAL = (ROTARY, "test_models_of_images_and_films_share_channels_out_unequally")
PROOFS = {
    "rothp": (ROTARY, "test_rothp_is_rope_on_real_times"),
    "dinov3": (ROTARY, "test_dinov3_has_a_spectrum_for_each_axis_of_patch_centres"),
    "flux": UNEQUAL,
    "wan": UNEQUAL,
    "hunyuan-video": UNEQUAL,
    "cogvideox": UNEQUAL,
    "shifted": (POSITIONS, "test_shape_draws_one_shift_a_row_and_keeps_distances"),
    "randomised": (POSITIONS, "test_randomised_positions_are_distinct_ordered_and_in_range"),
    "random-float": (POSITIONS, "test_random_floats_are_sorted_uniform_draws_that_fill_the_range"),
    "skipping": (POSITIONS, "test_skipping_cuts_a_row_into_chunks_that_stand_further_on"),
    "cape": (POSITIONS, "test_cape_moves_each_axis_by_draws_of_its_own_and_scales_all_alike"),
    "jittered": (POSITIONS, "test_jittered_coordinates_are_those_of_dinov3"),
    "scaled": (POSITIONS, "test_scaled_divides"),
}
"""The tests of what no oracle is compared under; every other row is a variant of its scheme's oracle."""


def is_compared(variant: SchemeVariant) -> bool:
    """Whether an oracle is compared under these options: words and switches alike, numbers given at all."""

    def alike(options: dict[str, Any]) -> bool:
        return all(
            key in options and (options[key] == value or not isinstance(value, (str, bool)))
            for key, value in variant.options.items()
            if not (key in ("base", "layout", "axes") and len(variant.options) > 1)
        )

    return bool(variant.options) and any(alike(options) for options in COMPARED.get(variant.of, []))


def test_there_are_at_least_75_rows_and_each_has_a_test_of_its_own() -> None:
    rows = list_rows()
    assert len(rows) >= 75
    assert len({row["name"] for row in rows}) == len(rows), "a name stands for one row"
    assert set(CATALOGUE) <= set(ORACLES), "each scheme has its oracle"
    for variant in VARIANTS:
        path, test = PROOFS.get(variant.name, ("", ""))
        if not path:
            assert is_compared(variant), f"{variant.name} has neither an oracle under its options nor a test by name"
            continue
        tests = {node.name for node in ast.walk(ast.parse((TESTS / path).read_text("utf8"))) if hasattr(node, "name")}
        assert test in tests, f"{variant.name} names {path}::{test}, which is not there"
    assert set(PROOFS) <= {variant.name for variant in VARIANTS}


def test_a_row_without_a_proof_would_be_noticed() -> None:
    known = next(variant for variant in VARIANTS if variant.name == "yarn-deepseek")
    assert is_compared(known)
    assert not is_compared(replace(known, of="xpos"))
    assert not is_compared(replace(known, options={**known.options, "ramp": "of nobody"}))
    assert not is_compared(replace(known, options={}))


@pytest.mark.parametrize("variant", [one for one in VARIANTS if one.kind != "transform"], ids=lambda one: one.name)
def test_a_variant_is_built_from_its_options(variant: SchemeVariant) -> None:
    wide = replace(PAGE_SIZES, head_dim=128, width=1024, d_model=1024)
    sizes = wide if {"shares", "grid"} & set(variant.options) else PAGE_SIZES
    if variant.name == "cogvideox":
        sizes = PAGE_SIZES
    if variant.name == "sinusoids-3d":
        sizes = replace(PAGE_SIZES, width=516)
    options = complete_options(variant.of, variant.options)
    assert type(build(CATALOGUE, variant.of, sizes, options)) is CATALOGUE[variant.of]


def test_every_transform_is_a_row() -> None:
    assert {variant.name for variant in VARIANTS if variant.kind == "transform"} == set(TRANSFORMS)


def test_everything_left_out_has_a_reason_and_no_catalogue_line() -> None:
    for name, reason in LEFT_OUT.items():
        assert len(reason.split()) > 5, name
        assert name.lower() not in CATALOGUE


def test_only_a_trained_length_is_added_and_only_where_it_is_needed() -> None:
    needing = {name for name in CATALOGUE if complete_options(name)}
    assert needing == {"fope", "dual-chunk", "rerope", "self-extend"}
    assert complete_options("fope") == {"original_length": SHOWN_LENGTH}
    assert complete_options("fope", {"std": 0.5}, 64) == {"std": 0.5, "original_length": 64}
    assert complete_options("rerope", {"window": 2 * SHOWN_LENGTH}) == {"window": 2 * SHOWN_LENGTH}
    assert complete_options("rope", {"spectrum": "llama3"}) == {"spectrum": "llama3", "original_length": SHOWN_LENGTH}
