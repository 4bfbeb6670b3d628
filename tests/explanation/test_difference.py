"""Where two configurations part: the layer, the channel, the angle, and the field that causes it."""

from __future__ import annotations

import dataclasses
import math

import pytest

from clockhands.explanation.difference import compare, compute_largest_error
from clockhands.explanation.rotation import Rotation
from clockhands.explanation.table import Layer, Positions


def positions(*rotations: Rotation | None, program: str = "transformers 5", window: int | None = None) -> Positions:
    return Positions("f", program, "llama", tuple(Layer("full_attention", one, window) for one in rotations))


PLAIN = Rotation(64, 64, 10000.0)
YARN = Rotation(64, 64, 10000.0, "yarn", 8.0, 1024, amplitude=1.2)


def test_the_same_is_told_as_none() -> None:
    assert compare(positions(PLAIN, YARN), positions(PLAIN, YARN)) is None


def test_the_first_layer_and_channel_that_differ_are_named() -> None:
    other = dataclasses.replace(PLAIN, base=20000.0)
    difference = compare(positions(PLAIN, PLAIN, PLAIN), positions(PLAIN, other, other))
    assert difference is not None
    assert (difference.layer, difference.layers, difference.channel) == (1, (1, 2), 1)  # pair 0 has base^0 in both
    assert difference.frequencies == pytest.approx((10000.0 ** (-2 / 64), 20000.0 ** (-2 / 64)))
    assert [cause[0] for cause in difference.causes] == ["base"]


def test_the_error_of_an_angle_is_the_largest_over_the_hands_and_at_most_half_a_turn() -> None:
    assert compute_largest_error([1.0, 0.5], [1.0, 0.25], 4) == pytest.approx(1.0)
    assert compute_largest_error([1.0], [1.0 + 2 * math.pi], 1) == pytest.approx(0.0, abs=1e-12)  # a whole turn is none
    assert compute_largest_error([1.0], [0.0], 4) == pytest.approx(2 * math.pi - 4.0)


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("base", dataclasses.replace(YARN, base=1e6)),
        ("factor", dataclasses.replace(YARN, factor=4.0)),
        ("original_length", dataclasses.replace(YARN, original_length=4096)),
        ("beta_fast", dataclasses.replace(YARN, beta_fast=16.0)),
        ("truncate", dataclasses.replace(YARN, truncate=False)),
        ("amplitude", dataclasses.replace(YARN, amplitude=1.0)),
        ("pairing", dataclasses.replace(YARN, pairing="interleaved")),
        ("direction", dataclasses.replace(YARN, direction=-1)),
        ("logit_factor", dataclasses.replace(YARN, logit_factor=1.5)),
    ],
)
def test_one_changed_field_is_found_and_told_alone(field: str, other: Rotation) -> None:
    difference = compare(positions(YARN), positions(other))
    assert difference is not None
    assert [cause[0] for cause in difference.causes] == [field]


def test_two_changed_fields_are_both_told() -> None:
    other = dataclasses.replace(YARN, base=1e6, amplitude=1.0)
    difference = compare(positions(YARN), positions(other))
    assert difference is not None
    assert {cause[0] for cause in difference.causes} == {"base", "amplitude"}


def test_a_field_without_effect_is_no_cause() -> None:
    other = dataclasses.replace(PLAIN, base=20000.0, beta_fast=4.0)  # the plain rule has no beta
    difference = compare(positions(PLAIN), positions(other))
    assert difference is not None
    assert [cause[0] for cause in difference.causes] == ["base"]


def test_another_pairing_in_another_kind_of_file_is_no_difference() -> None:
    """Converters reorder the weights with it."""
    interleaved = dataclasses.replace(PLAIN, pairing="interleaved")
    assert compare(positions(PLAIN), positions(interleaved, program="llama.cpp")) is None
    assert compare(positions(PLAIN), positions(interleaved)) is not None


def test_windows_rest_and_number_of_layers_are_compared() -> None:
    assert "window" in compare(positions(PLAIN), positions(PLAIN, window=512)).what  # type: ignore[union-attr]
    assert "does not rotate" in compare(positions(PLAIN), positions(None)).what  # type: ignore[union-attr]
    assert "1 layers against 2" in compare(positions(PLAIN), positions(PLAIN, PLAIN)).what  # type: ignore[union-attr]


def test_lists_for_short_texts_are_compared_beside_those_for_long_ones() -> None:
    long = Rotation(4, 4, 10000.0, "longrope", 4.0, 8, factors=(1.0, 1.0), long_factors=(2.0, 2.0))
    pair = [
        dataclasses.replace(positions(rotation), claimed_length=32)
        for rotation in (long, dataclasses.replace(long, factors=(1.5, 1.5)))
    ]
    difference = compare(*pair)
    assert difference is not None and [cause[0] for cause in difference.causes] == ["factors"]
    assert compare(*pair, length=32) is None


def test_length_decides_where_a_rule_depends_on_it() -> None:
    dynamic = Rotation(64, 64, 10000.0, "dynamic", 4.0, 1024)
    assert compare(positions(PLAIN), positions(dynamic), length=512) is None
    assert compare(positions(PLAIN), positions(dynamic), length=4096) is not None


@pytest.mark.parametrize(
    ("origin", "told"), [({"base": "rope_theta"}, "500,000 (rope_theta)"), ({}, "500,000"), ({"share": "x"}, "500,000")]
)
def test_a_value_is_told_with_where_it_was_read(origin: dict[str, str], told: str) -> None:
    difference = compare(positions(dataclasses.replace(PLAIN, base=5e5, origin=origin)), positions(PLAIN))
    assert difference is not None and difference.causes[0][:2] == ("base", told)
