"""Mistakes planted in models from scratch: all of them apply, and a sample is found on every change."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from clockhands.checking.checks.check import CHECKS
from tests.checking.scratch.faults import FAULTS, SCHEMES, SOURCE, VARIANTS, Fault, build, failures
from tests.checking.scratch.score import PAGE, cases, is_named, run, write_page

# One of each kind, over the four models: the mask, the batch, the cache, padding, angles, a bias, the source.
SAMPLE = {
    "rope": (
        "angles of pairs, rotation of halves",
        "masked scores are -5",
        "values do not follow the beams",
        "a ring that turns too early",
        "keys of rejected drafts stay",
        "counted beside the cache",
        "positions made in rotate",
        "a block mask ignored",
        "angles by a product",
    ),
    "learned": (
        "cached tokens not counted",
        "explicit positions from 1",
        "a table too short",
        "positions of the mask cut at its beginning",
    ),
    "alibi": ("no bias at a single step", "a mean over the batch", "scaled by the logarithm of the length"),
    "t5": ("pads of the source read in the encoder",),
}
CORRECT = {"rope": "a sink", "alibi": "a window"}


def test_every_fault_has_one_place_and_names_checks_that_exist() -> None:
    for fault in (*FAULTS, *VARIANTS):
        assert fault.apply(SOURCE) != SOURCE
        assert set(fault.named_by.split()) <= set(CHECKS), fault.name
    assert min(Counter(scheme for scheme, _ in cases(FAULTS)).values()) >= 60
    assert len(cases(VARIANTS)) >= 20
    assert [name for name, count in Counter(cases(FAULTS)).items() if count > 1] == []


@pytest.mark.parametrize(("scheme", "name"), [(scheme, name) for scheme, names in SAMPLE.items() for name in names])
def test_a_planted_fault_is_found_and_named(scheme: str, name: str) -> None:
    (fault,) = (fault for fault in FAULTS if fault.name == name and scheme in fault.schemes)
    assert is_named(fault, run((scheme, fault)))


@pytest.mark.parametrize("scheme", CORRECT)
def test_a_correct_model_is_left_alone(scheme: str) -> None:
    (variant,) = (variant for variant in VARIANTS if variant.name == CORRECT[scheme])
    assert run((scheme, variant)) == set()


def test_what_depends_on_the_length_passes_where_the_author_declares_it() -> None:
    (variant,) = (variant for variant in VARIANTS if variant.declared)
    only = ["cache.steps", "shift"]
    assert failures(build("rope", variant.apply(SOURCE)), only) == set()
    silent = replace(variant, declared="")
    assert failures(build("rope", silent.apply(SOURCE)), only) == {"cache.steps", "shift"}


def test_the_page_counts_what_was_found() -> None:
    one, two = (Fault(name, "a", "b", "shift", ("rope",)) for name in ("x", "y"))
    page = write_page(
        {("rope", one): {"shift"}, ("rope", two): set(), ("t5", one): {"cache.steps"}}, {("rope", one): set()}
    )
    assert "| RoPE | 2 | 1 (50%) | 1 (50%) |" in page
    assert "| all | 3 | 2 (66%) | 1 (33%) |" in page
    assert "## Missed\n\n- RoPE: y\n" in page and "T5's bias: x (cache.steps)" in page


def test_the_page_is_about_the_faults_that_there_are() -> None:
    """Its numbers are measured by hand (minutes); that they are of these faults, and good enough, is tested."""
    text = PAGE.read_text("utf8")
    counts = Counter(scheme for scheme, _ in cases(FAULTS))
    rows = re.findall(r"\| .+? \| (\d+) \| \d+ \((\d+)%\) \| \d+ \((\d+)%\) \|", text)
    assert [int(count) for count, _, _ in rows] == [*(counts[scheme] for scheme in SCHEMES), sum(counts.values())]
    assert all(int(caught) >= 95 and int(named) >= 80 for _, caught, named in rows)
    assert f"{len(cases(VARIANTS))} variants" in text
