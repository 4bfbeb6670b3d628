"""What the page is told of a scheme is what the scheme computes with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clockhands.exploring.scheme_rules import describe_scheme
from tests.exploring.models import make_run


def test_options_have_their_values_and_hands_their_frequencies(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder={"scheme": "sinusoidal", "base": 16.0}, decoder={"scheme": "rope", "base": 16.0})
    told = describe_scheme(run, "encoder")
    assert (told["name"], told["combine"], told["amplitude"]) == ("sinusoidal", "add", 1.0)
    assert told["options"]["layout"] == "interleaved" and told["options"]["base"] == 16.0
    assert told["frequencies"] == pytest.approx([1, 0.5, 0.25, 0.125])
    assert describe_scheme(run, "decoder")["frequencies"] == pytest.approx([1, 0.25])


def test_what_was_learned_is_a_number(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        encoder={"scheme": "sinusoidal", "learned_amplitude": True},
        decoder={"scheme": "rope", "learned": True},
    )
    with torch.no_grad():
        run.model.transformer.encoder.schemes[0].amplitude.fill_(0.5)
        run.model.transformer.decoder.schemes[0].alpha_F.fill_(0.5)
    assert describe_scheme(run, "encoder")["amplitude"] == 0.5
    assert describe_scheme(run, "decoder")["factors"] == pytest.approx([1.6487213, 1.6487213])


def test_forms_that_follow_from_the_side_are_resolved(tmp_path: Path) -> None:
    run = make_run(tmp_path / "alibi", encoder="alibi", decoder="alibi")
    assert describe_scheme(run, "encoder")["options"]["form"] == "symmetric"
    told = describe_scheme(run, "decoder")
    assert (told["options"]["form"], told["slopes"]) == ("causal", [[0.0625, 0.00390625]])
    run = make_run(tmp_path / "t5", encoder="t5", decoder="t5")
    assert describe_scheme(run, "encoder")["options"]["bidirectional"] is True
    told = describe_scheme(run, "decoder")
    assert told["options"]["bidirectional"] is False
    assert told["starts"] == run.model.transformer.decoder.schemes[0].starts_N.tolist()
