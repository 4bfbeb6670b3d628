"""An effect of distance alone is reported where distance is all there is, and not where it is nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clockhands.findings import Finding
from clockhands.inspection.reading.logit_split import split

from .. import planted
from ..planted import answer


def _kernel(model: Any) -> Finding:
    subject, recorded = planted.subject_of(model)
    return answer("kernel", subject, recorded, splits=[split(recorded.layers[0], recorded.ordinary_T)])


@pytest.mark.parametrize("scheme", ["rope", "alibi"])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_distance_is_compared_with_shuffled_distances(kind: str, scheme: str) -> None:
    found, still = (_kernel(planted.kernel(kind, scheme, still=still)) for still in (False, True))
    assert found.verdict.startswith("Distance alone accounts for up to")
    assert still.verdict.startswith("No effect of distance alone was found")
    reference = found.reference("distances shuffled")
    assert reference is not None and reference.interval is not None and found.interval is not None
    assert found.interval[0] > reference.interval[1]
    assert (found.details["beyond"], still.details["beyond"]) == (True, False)
    assert _kernel(planted.uniform(kind)).light == "skip"


def test_shuffled_distances_are_the_largest_of_any_layer_as_the_share_is() -> None:
    """The layer where distance does most was compared with its own shuffles alone."""
    subject, recorded = planted.subject_of(planted.kernel("encoder", "rope"))
    plain = split(recorded.layers[0], recorded.ordinary_T)
    weak = replace(plain, offsets_HJ=plain.offsets_HJ * 0.5, cov_NHt=plain.cov_NHt * 0.5)
    pair = replace(recorded, layers=[recorded.layers[0]] * 2)
    lone = answer("kernel", subject, recorded, splits=[weak]).reference("distances shuffled")
    both = answer("kernel", subject, pair, splits=[weak, replace(plain, cov_NHt=plain.cov_NHt * 0)])
    reference = both.reference("distances shuffled")
    assert lone is not None and reference is not None and lone.interval is not None and reference.interval is not None
    assert both.details["share"][0] > both.details["share"][1] == 0.0, "the first layer is the one that is told of"
    assert reference.interval[1] == pytest.approx(2 * lone.interval[1], rel=1e-6), "the second's shuffles reach further"
