"""What does not run in a page is refused by name, everything at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from clockhands.errors import UsageError
from clockhands.exploring import support
from clockhands.exploring.support import OPTIONS, check_support
from clockhands.model import TransformerConfig
from clockhands.model.position_config import PositionConfig
from tests.exploring.models import make_run


@pytest.mark.parametrize("scheme", OPTIONS)
def test_every_scheme_that_is_listed_is_taken(scheme: str, tmp_path: Path) -> None:
    check_support(make_run(tmp_path, encoder=scheme, decoder=scheme))


def test_every_reason_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "LARGEST", 100)
    run = make_run(
        tmp_path,
        kind="unigram",
        output_transform=True,
        encoder={
            "scheme": "sinusoidal",
            "random_phases": True,
            "transform": "scaled",
            "transform_options": {"factor": 2.0},
        },
        decoder={"scheme": "rope", "spectrum": "linear", "factor": 2.0, "values": True},
        cross="rope",
    )
    with pytest.raises(UsageError) as told:
        check_support(run)
    first, *reasons = str(told.value).splitlines()
    assert first == f"the model in {tmp_path} does not run in a page:"
    for reason in (
        "model.output_transform", "cross.scheme = 'rope'", "encoder.transform = 'scaled'",
        "encoder.random_phases = True", "decoder.spectrum = 'linear'", "decoder.factor = 2.0",
        "decoder.values = True",
        "source tokenizer is of the kind Unigram", "and a page runs at most 100",
    ):  # fmt: skip
        assert sum(reason in line for line in reasons) == 1, reason
    assert len(reasons) == 9


def test_another_scheme_is_named_with_those_there_are(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder="kerple", decoder="kerple")
    with pytest.raises(UsageError, match=r"encoder.scheme = 'kerple': the page computes none, sinusoidal, learned"):
        check_support(run)


def test_layers_with_schemes_of_their_own_are_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder_layers=2, encoder={"scheme": "rope", "layers": ["none", "alibi"]})
    with pytest.raises(UsageError, match=r"encoder\.layers: the page has one scheme for all layers of a side"):
        check_support(run)


def test_every_field_of_a_configuration_is_computed_or_refused() -> None:
    """A field that is new in the model has to be computed by the page or refused here before it is listed."""
    sizes = (
        "kind vocab_size source_vocab_size d_model num_heads num_kv_heads head_dim d_ff encoder_layers decoder_layers"
    )
    norms = "norm final_norm norm_kind norm_eps norm_bias embedding_norm token_scale tying output_bias output_scale"
    layers = "attention_bias ffn_bias activation gated attention_scale residual causal_encoder encoder decoder"
    in_training = "initialisation dropout dropout_places"
    refused = "output_transform cross query_key_norm first_norm latent_width experts"
    # These need one of the refused ones.
    of_refused = "latent_query_width shared_key_dim value_dim experts_per_token expert_width expert_layers"
    of_refused += " shared_expert_width router router_scale expert_groups expert_groups_per_token"
    # With cross-attention the model itself refuses `parallel`.
    known = {*f"{sizes} {norms} {layers} {in_training} {refused} {of_refused} parallel".split()}
    assert {field.name for field in dataclasses.fields(TransformerConfig)} == known
    computed = "scheme options combine width every_layer skip_every"
    refused = "layers kinds transform transform_options"
    assert {field.name for field in dataclasses.fields(PositionConfig)} == {*f"{computed} {refused}".split()}


def test_parallel_layers_of_a_language_model_are_refused() -> None:
    config = TransformerConfig.from_dict({"kind": "decoder", "norm": "pre", "parallel": True, "decoder": "rope"})
    (reason,) = support._find_faults(config)
    assert reason.startswith("model.parallel")
