"""The pytest plugin, in a repository of somebody else's."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

MODEL = """
import pytest, torch
from torch import nn


class Bag(nn.Module):
    causal, max_length = True, 64

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 8)

    def forward(self, ids):
        seen = self.embed(ids)
        return (seen.{how}(1) if {mixed} else seen) @ self.embed.weight.T


@pytest.mark.position_conformance(Bag, only=["causal", "cache"], allow={allow})
def test_position(position_outcome):
    position_outcome.require()
"""


def test_each_check_is_a_test_that_passes_fails_or_is_skipped(pytester: pytest.Pytester) -> None:
    """Three models: a mixer that sums the past, one that sees the future, one with leave to."""
    pytester.makepyfile(
        test_past=MODEL.format(how="cumsum", mixed=True, allow=[]),
        test_future=MODEL.format(how="softmax", mixed=True, allow=[]),
        test_allowed=MODEL.format(how="softmax", mixed=True, allow=["causal.prefix", "causal.future"]),
    )
    run = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rA")
    assert run.parseoutcomes() == {"passed": 2, "failed": 2, "xfailed": 2, "skipped": 33}
    run.stdout.fnmatch_lines(
        ["*causal.future: FAIL * std (largest from token *", "PASSED test_past.py::*causal.prefix*"]
    )


def test_a_test_without_the_argument_is_told_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.position_conformance(None)\ndef test_x(): pass")
    run = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    run.stdout.fnmatch_lines(["*needs the argument position_outcome*"])


def test_nothing_is_imported_before_the_marker_is_used(pytester: pytest.Pytester) -> None:
    """The plugin is loaded in every session of whoever installs the package: it is all that is loaded of it."""
    pytester.makepyfile("""
        import sys

        def test_x():
            parts = {name for name in sys.modules if name.partition(".")[0] in ("clockhands", "torch", "transformers")}
            assert parts == {"clockhands", "clockhands.checking", "clockhands.checking.plugin"}
    """)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist").assert_outcomes(passed=1)
