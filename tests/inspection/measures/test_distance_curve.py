"""What distance alone adds to the logits: the curves as they are, beside shuffled distances."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from clockhands.findings import Finding
from clockhands.inspection.measures.distance_curve import _compute_distance_curve, _measure_spread
from clockhands.inspection.reading.capture import capture
from clockhands.inspection.reading.logit_split import DISTANCE, split_by_batch, split_first_batch, sum_groups
from clockhands.model import PositionConfig
from clockhands.models.subject import Subject
from clockhands.schemes import Alibi, Scheme

from .. import planted
from ..planted import answer
from ..tiny import tiny
from .readings import WINDOW, draw_ids, read_own


def _kernel(model: Any) -> Finding:
    subject, recorded = planted.subject_of(model)
    return answer("kernel", subject, recorded, logit_splits=planted.split(recorded))


@pytest.mark.parametrize("scheme", ["rope", "alibi"])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_distance_is_compared_with_shuffled_distances(kind: str, scheme: str) -> None:
    found, still = (_kernel(planted.kernel(kind, scheme, still=still)) for still in (False, True))
    assert found.verdict.startswith("Distance alone accounts for up to")
    assert still.verdict.startswith("Distance alone adds next to nothing: it changes no logit by 0.0001")
    reference = found.reference("distances shuffled")
    assert reference is not None and reference.interval is not None and found.interval is not None
    assert found.interval[0] > reference.interval[1]
    assert (found.details["beyond"], still.details["beyond"]) == (True, False)
    assert _kernel(planted.uniform(kind)).light == "skip"


def test_an_interval_above_zero_that_shuffled_distances_reach_is_no_effect_yet() -> None:
    """A random Llama: its share of 0.1 to 0.2 % was told as "No effect", which the interval denies."""
    model = tiny("llama")
    subject = Subject.of(model)
    recorded = capture(subject.model, subject.forward, draw_ids())
    splits = planted.split(recorded)
    reach = replace(splits[0], logit_sums_by_offset_HJ=100 * splits[0].logit_sums_by_offset_HJ)
    found = answer("kernel", subject, recorded, logit_splits=[reach, splits[1]])
    assert found.verdict.startswith("Whether distance alone has an effect is undecided: it accounts for at most")


def test_shuffled_distances_are_the_largest_of_any_layer_as_the_share_is() -> None:
    """The layer where distance does most was compared with its own shuffles alone."""
    subject, recorded = planted.subject_of(planted.kernel("encoder", "rope"))
    (plain,) = planted.split(recorded)
    weak = replace(plain, logit_sums_by_offset_HJ=plain.logit_sums_by_offset_HJ * 0.5, cov_NHt=plain.cov_NHt * 0.5)
    pair = replace(recorded, layers=[recorded.layers[0]] * 2)
    lone = answer("kernel", subject, recorded, logit_splits=[weak]).reference("distances shuffled")
    both = answer("kernel", subject, pair, logit_splits=[weak, replace(plain, cov_NHt=plain.cov_NHt * 0)])
    reference = both.reference("distances shuffled")
    assert lone is not None and reference is not None and lone.interval is not None and reference.interval is not None
    assert both.details["share"][0] > both.details["share"][1] == 0.0, "the first layer is the one that is told of"
    assert reference.interval[1] == pytest.approx(2 * lone.interval[1], rel=1e-6), "the second's shuffles reach further"


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon-alibi"])
def test_alibi_is_read_as_its_slopes(name: str) -> None:
    """Slopes of four heads: 2^-2, 2^-4, 2^-6, 2^-8; Falcon divides them by √d_head with the rest of the logits.

    The vectors of the constant part give a second term, which the model without content does not have.
    """
    model = tiny(name)
    with torch.no_grad():
        model.get_input_embeddings().weight.zero_()
        for label, weight in model.named_parameters():
            if label.endswith("bias"):
                weight.zero_()
    subject = Subject.of(model)
    recorded = capture(subject.model, subject.forward, draw_ids())
    found, spread = _compute_distance_curve(split_first_batch(recorded.layers[0]))
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], dtype=torch.float64)
    slopes = slopes * 8**-0.5 if name == "falcon-alibi" else slopes
    offsets = torch.arange(1 - WINDOW, 1)
    torch.testing.assert_close(found[:, :WINDOW], slopes[:, None] * offsets, atol=1e-5, rtol=1e-2)
    assert found[:, WINDOW:].isnan().all(), "a causal mask hides these offsets"
    assert spread < 1e-4


def test_own_alibi_and_its_share() -> None:
    subject, recorded = read_own(PositionConfig("alibi"))
    scheme = subject.model.schemes[0]
    assert isinstance(scheme, Scheme) and isinstance(scheme, Alibi)
    for _, batch in split_by_batch(recorded.layers[0]):
        expected = scheme.compute_curve(torch.arange(WINDOW)[:, None].sub(torch.arange(WINDOW)).flatten())
        expected = expected.unflatten(1, (WINDOW, WINDOW))
        allowed = batch.real.mask_BHST[0]
        assert torch.allclose(batch.compute_term("added, constant")[0][allowed], expected[allowed], atol=1e-5)
        assert not batch.compute_term("added, content").any()
    shares = [sum_groups(row)[DISTANCE] for row in planted.split(recorded)[0].compute_head_shares()]
    assert shares[0] > shares[1] > shares[2] > shares[3], "the steeper the slope, the larger its part"


@pytest.mark.parametrize("name", ["llama", "gpt-neox", "roformer", "gpt-j", "cohere", "modernbert"])
def test_rotation_gives_a_curve_of_distance_alone(name: str) -> None:
    subject = Subject.of(tiny(name))
    recorded = capture(subject.model, subject.forward, draw_ids())
    _, spread = _compute_distance_curve(split_first_batch(recorded.layers[0]))
    assert (spread < 1e-5) == (name != "cohere"), "queries divided by their own length depend on the token too"


def test_t5_shares_its_first_layers_bias_and_it_is_the_table() -> None:
    subject = Subject.of(tiny("t5"))
    recorded = capture(subject.model, subject.forward, draw_ids())
    table = subject.model.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    for layer in recorded.layers:
        for _, batch in split_by_batch(layer):
            bias = batch.compute_term("added, constant")
            torch.testing.assert_close(torch.diagonal(bias[0], dim1=1, dim2=2), table[0][:, None].expand(-1, WINDOW))
            assert math.isclose(float(bias[0, 1, 3, 2]), float(table[1, 1]), rel_tol=1e-5)


@pytest.mark.parametrize(("scheme", "skipped"), [("learned", True), ("none", True), ("alibi", False)])
def test_attention_that_adds_nothing_for_a_distance_is_not_asked(scheme: str, skipped: bool) -> None:
    options = {"max_length": planted.LENGTH} if scheme == "learned" else {}
    verdict = _kernel(planted.uniform("encoder", scheme, **options)).verdict
    assert verdict.startswith("Its attention adds nothing for a distance. ") == skipped


def test_the_spread_of_a_diagonal_is_measured_from_the_first_pair_that_is_allowed() -> None:
    """A diagonal whose first pair is masked counted as one on which the logits are equal."""
    nan = torch.nan
    assert _measure_spread(torch.tensor([[nan, 1.0, 4.0], [nan, 2.0, 2.0]])) == 3.0
    assert _measure_spread(torch.tensor([[1.0, nan, 0.5]])) == 0.5
    assert _measure_spread(torch.tensor([[nan, nan]])) == 0.0
