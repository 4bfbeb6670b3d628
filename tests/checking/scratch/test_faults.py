"""Mistakes planted in models from scratch: all of them apply, and a sample is found on every change."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from clockhands.checking.checks.check import CHECKS
from tests.checking.checks.planted import REUSED, STEPS, UNEVEN
from tests.checking.scratch.faults import FAULTS, SCHEMES, SOURCE, VARIANTS, Fault, build, failures
from tests.checking.scratch.score import PAGE, cases, is_named, run, write_page

# One of each kind, over the four models: the mask, the batch, the cache, padding, angles, a bias, the source. Where it
# says so these are all the checks that fail.
SAMPLE: dict[tuple[str, str], set[str]] = {
    ("rope", "masked scores are -5"): set(),
    ("rope", "values do not follow the beams"): {"cache.reorder"},
    ("rope", "a ring that turns too early"): {*STEPS, *UNEVEN, "cache.prefix"},
    ("rope", "keys of rejected drafts stay"): {"cache.rollback"},
    ("rope", "counted beside the cache"): {"cache.prefix", "cache.rollback"},
    ("rope", "positions made in rotate"): {*REUSED, *UNEVEN, "cache.rollback_rows", "positions.matter"},
    ("rope", "a block mask ignored"): {"packing.block_mask"},
    ("rope", "angles by a product"): {"precision.autocast"},
    ("rope", "pads read in later chunks"): {"cache.prefill", "cache.rollback_rows"},
    ("learned", "cached tokens not counted"): REUSED,
    ("learned", "a table too short"): {"length.claimed", "length.mask", "precision.long"},
    ("learned", "positions of the mask cut at its beginning"): {"cache.mask", "cache.left_mask"},
    ("alibi", "no bias at a single step"): set(),
    ("alibi", "a mean over the batch"): set(),
    ("alibi", "scaled by the logarithm of the length"): {
        *(REUSED | UNEVEN), "cache.rollback_rows", "causal.prefix", "padding.left.mask", "padding.left.positions",
        "padding.right", "packing.block_mask", "batch.unequal", "length.short",
    },
    ("t5", "pads of the source read in the encoder"): set(),
}  # fmt: skip
CORRECT = {"rope": "a sink", "alibi": "a window", "learned": "as it is"}


def test_every_fault_has_one_place_and_names_checks_that_exist() -> None:
    for fault in (*FAULTS, *VARIANTS):
        assert fault.apply(SOURCE) != SOURCE
        assert set(fault.named_by.split()) <= set(CHECKS), fault.name
    assert min(Counter(scheme for scheme, _ in cases(FAULTS)).values()) >= 60
    assert len(cases(VARIANTS)) >= 20
    assert [name for name, count in Counter(cases(FAULTS)).items() if count > 1] == []


@pytest.mark.parametrize(("scheme", "name"), SAMPLE, ids="-".join)
def test_a_planted_fault_is_found_and_named(scheme: str, name: str) -> None:
    (fault,) = (fault for fault in FAULTS if fault.name == name and scheme in fault.schemes)
    exactly = SAMPLE[scheme, name]
    failing = failures(build(scheme, fault.apply(SOURCE))) if exactly else run((scheme, fault))
    assert is_named(fault, failing) and failing == (exactly or failing)


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
