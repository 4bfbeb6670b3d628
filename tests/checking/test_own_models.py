"""The project's own models obey the laws that it asks of others: every scheme, behind the Hugging Face classes."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.checking.checks.check import Check, select
from clockhands.checking.models.make_subjects import from_build
from clockhands.checking.models.tiny import Build
from clockhands.checking.verdict.judge import run_checks
from clockhands.checking.verdict.outcome import Outcome
from clockhands.model.huggingface_base import ClockhandsConfig
from clockhands.schemes import CATALOGUE
from clockhands.schemes.rotary.trained_length import add_trained_length
from tests.model.tiny import WORDS, core
from tests.schemes.laws import make

# swin reads images; a temperature and chunks change nothing before their 8192nd token.
SILENT_HERE = {"chunks", "swin", "temperature"}
TASKS = {"decoder": "causal", "encoder": "masked", "encoder-decoder": "seq2seq"}


def outcomes(shape: str, checks: list[Check] | None = None, **sides: Any) -> list[Outcome]:
    sides = add_trained_length(sides, 16, only_needed=True)
    config = ClockhandsConfig(transformer=core(**{"kind": shape, "vocab_size": 60, **sides}).to_dict(), **WORDS)
    subjects = from_build(Build("clockhands", TASKS[shape]), config)  # type: ignore[arg-type]
    return [outcome for subject in subjects for outcome in run_checks(subject, checks or select())]


def bad(found: list[Outcome]) -> list[tuple[str, str, float | None, str]]:
    return [(o.check, o.verdict, o.size, o.reason) for o in found if o.verdict in ("FAIL", "WARN")]


def kind(name: str) -> tuple[object, ...]:
    """Where a scheme acts, and whether it changes with the length: what a cache and pads can do to it follows."""
    scheme = make(name, {})
    return scheme.hooks(), scheme.declares.depends_on_length


# Always these and one scheme of each kind; with --exhaustive the whole catalogue, on the sides where it is defined.
SAMPLE = {"sinusoidal", "rope", "t5"}
SCHEMES = sorted(set(CATALOGUE) - SILENT_HERE, key=lambda name: (name not in SAMPLE, name))
ONE_OF_EACH = {kind(name): name for name in reversed(SCHEMES)}.values()
DECODERS = [pytest.param(name, marks=() if name in ONE_OF_EACH else pytest.mark.exhaustive) for name in SCHEMES]
TWO_WAYS = [name for name in SCHEMES if not make(name, {}).declares.causal_only]
ENCODERS = [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.exhaustive) for name in TWO_WAYS]


@pytest.mark.parametrize("scheme", DECODERS)
def test_a_decoder_of_every_scheme_obeys_every_law(scheme: str) -> None:
    """What generate() and files add is asked of SAMPLE here, and of every scheme in tests/model/test_huggingface.py."""
    checks = [check for check in select() if scheme in SAMPLE or not check.name.startswith(("generate.", "load."))]
    found = outcomes("decoder", checks, decoder=scheme)
    assert bad(found) == []
    assert sum(outcome.verdict == "PASS" for outcome in found) >= (28 if scheme in SAMPLE else 22)


@pytest.mark.parametrize("scheme", ENCODERS)
def test_an_encoder_decoder_obeys_every_law_on_both_sides(scheme: str) -> None:
    found = outcomes("encoder-decoder", encoder=scheme, decoder=scheme)
    assert bad(found) == []
    assert {outcome.check for outcome in found} >= {"source.padding.right", "cache.steps", "generate.forward"}


@pytest.mark.parametrize("scheme", ENCODERS)
def test_an_encoder_obeys_every_law(scheme: str) -> None:
    found = outcomes("encoder", encoder=scheme)
    assert bad(found) == []
    assert sum(outcome.verdict == "PASS" for outcome in found) >= 16


@pytest.mark.parametrize(("read", "written"), [(60, 12), (12, 60)])
def test_either_side_may_have_tokens_of_its_own(read: int, written: int) -> None:
    """One check of each group: those of a group draw their texts alike."""
    chosen = [*select(), *select(["padding.right", "cache.steps"])]
    checks = [*{check.name.partition(".")[0]: check for check in chosen}.values()]
    found = outcomes("encoder-decoder", checks, tying="target", source_vocab_size=read, vocab_size=written)
    assert bad(found) == []
    assert not [outcome for outcome in found if "IndexError" in outcome.reason]
    assert {o.verdict for o in found if o.check in ("cache.steps", "source.padding.right")} == {"PASS"}


def test_an_encoder_without_position_is_a_bag_of_words_and_says_so() -> None:
    (found,) = (o for o in outcomes("encoder", encoder="none") if o.check == "order.matters")
    assert (found.verdict, "bag of words" in found.reason) == ("PROPERTY", True)
