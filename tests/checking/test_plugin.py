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
    assert run.parseoutcomes() == {"passed": 2, "failed": 2, "xfailed": 2, "skipped": 42}
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


OWN = """
import pytest, torch
from torch import nn


class Sums(nn.Module):
    causal, max_length = True, 64

    def __init__(self, width=8, how="cumsum"):
        super().__init__()
        self.embed, self.how = nn.Embedding(40, width), how
        made.append((width, how))

    def forward(self, ids):
        return getattr(self.embed(ids), self.how)(1) @ self.embed.weight.T


made = []


def make_model():
    return Sums()

{rest}
"""


@pytest.mark.parametrize(
    ("rest", "outcomes"),
    [
        pytest.param(
            """
@pytest.mark.position_conformance(make_model)
def test_position(position_outcome):
    if position_outcome.check.startswith("causal."):
        position_outcome.require()
""",
            {"passed": 2},
            id="a function alone",
        ),
        pytest.param(
            """
@pytest.mark.position_conformance(model=Sums, only="causal")
class TestSums:
    def test_position(self, position_outcome):
        position_outcome.require()

    def test_something_else(self):
        assert made in ([], [(8, "cumsum")])
""",
            {"passed": 3},
            id="a class of tests, of which one is about something else",
        ),
        pytest.param(
            """
def make_any(width, how):
    return Sums(width, how)

@pytest.fixture
def width():
    return 12

@pytest.mark.position_conformance(make_any, only=["causal"], allow="causal")
@pytest.mark.parametrize("how", ["cumsum", "softmax"])
def test_position(position_outcome, how):
    position_outcome.require()
    assert made[-1] == (12, how)

def test_two_models_were_made():
    assert made == [(12, "cumsum"), (12, "softmax")]
""",
            {"passed": 3, "xfailed": 2},
            id="a parametrised argument and a fixture",
        ),
        pytest.param(
            """
def make_with(vocabulary):
    return lambda ids: Sums()(ids % vocabulary)

def logits(ids):
    return torch.nn.functional.one_hot(ids.cumsum(1) % 40, 40).float()

@pytest.mark.position_conformance(logits, only="causal", vocabulary=40)
def test_position(position_outcome):
    position_outcome.require()
""",
            {"passed": 2},
            id="a function from ids to logits",
        ),
    ],
)
def test_the_mark_works_as_it_is_naturally_written(
    rest: str, outcomes: dict[str, int], pytester: pytest.Pytester
) -> None:
    """pytest takes a mark that is called with one function for a decorator of that function."""
    pytester.makepyfile(OWN.format(rest=rest))
    found = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-q", "-k", "causal or not test_position"
    ).parseoutcomes()
    assert {name: count for name, count in found.items() if name != "deselected"} == outcomes


WRONG = {
    "position_conformance(make_model, allow=['cache.step'])": "unknown check 'cache.step'; did you mean 'cache.steps'?",
    "position_conformance(make_model, only='paddin')": "unknown check 'paddin'; did you mean 'padding'?",
    "position_conformance": "position_conformance takes one model*make_model",
    "position_conformance(only='cache')": "position_conformance takes one model*make_model",
    "position_conformance(lambda size: Sums(size))": "needs size, which is neither a parametrised argument of test_x*",
}


@pytest.mark.parametrize("mark", WRONG)
def test_what_cannot_be_meant_is_refused(mark: str, pytester: pytest.Pytester) -> None:
    rest = f"@pytest.mark.{mark}\ndef test_x(position_outcome):\n    position_outcome.require()"
    pytester.makepyfile(OWN.format(rest=rest))
    run = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-x")
    run.stdout.fnmatch_lines([f"*{WRONG[mark]}*".replace("[", "[[]")])
    assert run.ret != 0
    if "(make_model" in mark or "lambda" in mark:
        run.stdout.no_fnmatch_line("*plugin.py:*")


def test_a_test_is_about_one_model(pytester: pytest.Pytester) -> None:
    mark = "@pytest.mark.position_conformance(make_model)\n"
    pytester.makepyfile(OWN.format(rest=f"{mark}{mark}def test_x(position_outcome): pass"))
    run = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    run.stdout.fnmatch_lines(["*marked position_conformance 2 times*"])
