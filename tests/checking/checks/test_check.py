"""What a check is; and that adding one is what docs/contributing/check.md says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from clockhands.checking.checks.check import CHECKS, Measurement, NotANumber, difference, largest, select, worst
from clockhands.checking.models.make_subjects import from_build, from_model
from clockhands.checking.models.tiny import find
from clockhands.checking.verdict.judge import run_checks
from clockhands.errors import UsageError
from tests.checking.checks import planted
from tests.checking.checks.test_planted import adapter, named, verdicts

ROOT = Path(__file__).resolve().parents[3]
PADDING = ROOT / "src/clockhands/checking/checks/padding.py"


@pytest.fixture
def toy() -> Iterator[dict[str, Any]]:
    """The check and the planted bug of docs/contributing/check.md, put where it says."""
    section = (ROOT / "docs/contributing/check.md").read_text("utf8")
    check, bug = (re.sub("^   ", "", block, flags=re.M) for block in re.findall(r"```python\n(.*?)```", section, re.S))
    names: dict[str, Any] = {"__name__": "toy"}
    exec(re.split(r"^@check", PADDING.read_text("utf8"), maxsplit=1, flags=re.M)[0], names)  # its imports
    exec(check, names)
    names |= vars(planted)
    exec(bug, names)
    yield names
    del CHECKS["padding.none"], planted.PLANTED[names["LouderUnderAMask"]]


def test_a_check_is_added_in_two_places(toy: dict[str, Any]) -> None:
    assert "padding.none" in [check.name for check in select(["padding"])]
    assert verdicts(planted.Correct, ["padding.none"]) == {"padding.none": "PASS"}
    bug = toy["LouderUnderAMask"]
    assert named(verdicts(bug), "FAIL") == planted.PLANTED[bug]


def test_checks_are_chosen_by_name_or_group() -> None:
    assert [check.name for check in select(["shift", "cache.steps"])] == ["cache.steps", "shift"]
    assert {check.name.partition(".")[0] for check in select(["cache"])} == {"cache"}
    assert not any(check.optional for check in select())
    assert any(check.optional for check in select(optional=True))
    assert [check.name for check in select(["padding.left"])] == ["padding.left.mask", "padding.left.positions"]
    with pytest.raises(UsageError, match="unknown check 'paddin'; did you mean 'padding'"):
        select(["paddin"])


def test_a_difference_is_in_standard_deviations_and_has_a_place() -> None:
    wanted = torch.tensor([[[0.0, 2.0], [0.0, 2.0], [0.0, 2.0]]])
    found = wanted.clone()
    found[0, 1, 0] += 3.0
    assert difference(found, wanted) == pytest.approx(3.0 / wanted.std().item())
    assert worst(found, wanted) == (pytest.approx(3.0 / wanted.std().item()), 1)
    assert difference(found[:, :2], wanted) == float("inf")


def test_logits_that_are_nan_are_called_so_with_the_place_where_they_begin() -> None:
    found = torch.zeros(2, 5, 3)
    found[1, 2:, 0] = float("nan")
    with pytest.raises(NotANumber, match=r"^3 of 30 logits are NaN, first at token 2 of row 1$"):
        difference(found, torch.rand(2, 5, 3))
    with pytest.raises(NotANumber, match=r"^15 of 30 logits are infinite, first at token 0 of row 0$"):
        difference(torch.rand(2, 5, 3), torch.tensor([[[float("-inf")]], [[0.0]]]).expand(2, 5, 3))


def test_a_measurement_is_expected_if_a_difference_is_there_exactly_where_it_should_be() -> None:
    small, large = 1e-4, 1e-1
    expected = [Measurement(size, wanted=wanted).expected for size in (small, large) for wanted in (False, True)]
    assert expected == [True, False, False, True]
    assert largest(Measurement(small), Measurement(large)).size == large
    assert largest(Measurement(small, wanted=True), Measurement(large, wanted=True)).size == small


def test_what_only_models_of_transformers_have_is_not_asked_of_others() -> None:
    """A plain module has no configuration, does not generate and is not exported with transformers' cache."""
    (subject,) = from_model(adapter(planted.Correct), "Correct")
    about = {
        check.name for check in select(optional=True) if check.inapplicable(subject) == "about models of transformers"
    }
    every = {check.name for check in CHECKS.values() if check.name.partition(".")[0] in ("config", "generate")}
    assert every | {"export.compile", "export.export"} <= about


REFUSED = [
    ("rwkv:causal", "generate.beam", "the model refuses: RwkvForCausalLM cannot use beam search with a cache"),
    ("blt:causal", "inputs.embeds", "the model refuses: input_ids is required"),
    ("ibert:masked", "inputs.embeds", "the embedding of the model gives more than vectors"),
    ("dots1:causal", "config.keys", "no such key in the configuration"),
]


@pytest.mark.parametrize(("name", "check", "reason"), REFUSED)
def test_what_a_model_refuses_with_a_reason_does_not_apply(name: str, check: str, reason: str) -> None:
    (outcome,) = run_checks(from_build(find(name)[0])[0], [CHECKS[check]], name)
    assert (outcome.verdict, outcome.reason[: len(reason)]) == ("N/A", reason)


def test_a_crash_is_not_explained_by_the_check_that_another_depends_on() -> None:
    """Reformer does not tell documents apart, and raises where a mask stands beside positions: both are said."""
    subject = from_build(find("reformer:causal")[0])[0]
    _, masked = run_checks(subject, [CHECKS["packing.positions"], CHECKS["packing.mask"]], "reformer:causal")
    assert masked.size is None and masked.known == "reformer-axial"
