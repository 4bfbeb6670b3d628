"""Frequencies that are consistent and useless are told, planted each way; a sound spectrum is silent."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.checking.checks.check import select
from clockhands.checking.models.make_subjects import from_build, from_model
from clockhands.checking.models.tiny import build_model, find, tiny_config
from clockhands.checking.verdict.judge import run_checks
from clockhands.checking.verdict.outcome import Outcome
from tests.checking.scratch.planted import build, examine

ROTATED = "speeds = 10000.0 ** (-torch.arange(0, HEAD, 2, device=x.device).float() / HEAD)"
ADDED = "speeds = 10000.0 ** (-torch.arange(0, WIDTH, 2).float() / WIDTH)"
USELESS = (
    ("n ** 0.0", "pairs turn by the same 1 radians a place"),
    ("2 * math.pi * (1 + n)", "no pair turns by more than"),
    ("math.pi / 4 * (1 + n)", "places 8 apart are the same"),
    ("1e-6 * 0.9**n", "no pair turns by more than"),
)


def judge(scheme: str, speeds: str = "") -> Outcome:
    """Return the outcome on the GPT from scratch with these speeds of its pairs n = 0, 2, 4 …"""
    old = ROTATED if scheme == "rope" else ADDED
    numbers = old[old.index("torch") : old.index(".float()")] + ".float()"
    edits = ((old, f"n = {numbers}; speeds = {speeds}"),) if speeds else ()
    (outcome,) = examine(build(scheme, 0, *edits), ["spectrum"])
    return outcome


@pytest.mark.parametrize("scheme", ["rope", "sinusoidal"])
@pytest.mark.parametrize(("speeds", "said"), USELESS, ids=["equal", "whole turns", "aliases", "slow"])
def test_useless_frequencies_are_told(scheme: str, speeds: str, said: str) -> None:
    outcome = judge(scheme, speeds)
    assert outcome.verdict == "FAIL" and said in outcome.note


@pytest.mark.parametrize("scheme", ["rope", "sinusoidal"])
def test_a_sound_spectrum_is_silent(scheme: str) -> None:
    outcome = judge(scheme)
    assert (outcome.verdict, outcome.note, outcome.reason) == ("PASS", "", "")


def test_a_slower_pair_tells_apart_what_faster_ones_do_not() -> None:
    """Quarter turns and their multiples begin anew after four places, halves of halves of a turn not within a text."""
    assert "places 4 apart are the same" in judge("rope", "math.pi / 4 * (n + 2)").note
    assert judge("rope", "math.pi * 0.5**n").verdict == "PASS"


def with_frequencies(change: Any) -> Outcome:
    (tiny,) = find("llama:causal")
    module: Any = build_model(tiny_config(tiny), "causal")
    frequencies = module.model.rotary_emb.inv_freq
    frequencies.copy_(change(frequencies))
    (outcome,) = run_checks(from_model(module)[0], select(["spectrum"]), "llama")
    return outcome


def test_frequencies_of_zero_in_a_model_that_rotates_are_told() -> None:
    outcome = with_frequencies(torch.zeros_like)
    assert (outcome.verdict, outcome.note) == ("FAIL", "no pair turns: every frequency is zero")


def test_pairs_at_rest_are_told_and_are_no_fault() -> None:
    """Of eight frequencies 10,000^(-c/8) two are above 0.2; the others are put to rest, as Gemma 4 does of some."""
    outcome = with_frequencies(lambda speeds: speeds * (speeds > 0.2))
    assert (outcome.verdict, outcome.reason) == ("PASS", "6 of 8 pairs stand still: they carry content alone")


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("llama", "PASS"), ("gptj", "PASS"), ("marian:causal", "PASS"), ("bloom", "N/A"), ("opt", "N/A")],
)
def test_architectures_of_the_library_are_left_alone(name: str, verdict: str) -> None:
    subject = from_build(find(name)[0])[0]
    (outcome,) = run_checks(subject, select(["spectrum"]), name)
    assert (outcome.verdict, outcome.note) == (verdict, "")
