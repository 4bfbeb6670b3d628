"""What is safe instead of a use that failed."""

from __future__ import annotations

from clockhands.checking.verdict.advice import advise, follows_another
from clockhands.checking.verdict.outcome import Outcome


def outcomes(**verdicts: str) -> dict[str, Outcome]:
    names = {name.replace("__", "."): verdict for name, verdict in verdicts.items()}
    return {name: Outcome(name, verdict, 1.0) for name, verdict in names.items()}  # type: ignore[arg-type]


def safe(**verdicts: str) -> list[str]:
    return [outcome.safe for outcome in advise(outcomes(**verdicts))]


def test_another_use_that_passed_is_advised_and_none_that_failed() -> None:
    assert safe(precision__to="FAIL", precision__load="PASS") == ["load with from_pretrained(dtype=torch.bfloat16)", ""]
    assert safe(precision__to="FAIL", precision__load="FAIL") == ["", ""]
    assert safe(precision__to="FAIL") == [""]
    assert safe(precision__to="PROPERTY", precision__load="PASS") == ["", ""], "only a failure needs another way"


def test_the_first_of_several_ways_that_passed_is_advised() -> None:
    both = safe(padding__left__mask="FAIL", padding__left__positions="PASS", padding__right="PASS")
    assert both[0] == "pass position_ids made from the mask"
    assert (
        safe(padding__left__mask="FAIL", padding__left__positions="FAIL", padding__right="PASS")[0]
        == "pad on the right"
    )


def test_packing_under_a_mask_has_the_advice_of_packing_by_positions() -> None:
    found = outcomes(packing__positions="FAIL", packing__mask="WARN", packing__block_mask="PASS")
    assert follows_another("packing.mask", found) and not follows_another("packing.positions", found)
    _, follower, _ = advise(found)
    assert (follower.verdict, follower.safe) == ("WARN", "pass a four-dimensional block mask")
    passed = outcomes(packing__positions="PASS", packing__mask="WARN")
    assert not follows_another("packing.mask", passed)
    assert advise(passed) == list(passed.values())


def test_no_verdict_is_changed() -> None:
    before = outcomes(packing__positions="FAIL", packing__mask="FAIL", cache__steps="FAIL", causal__prefix="PASS")
    assert [o.verdict for o in advise(before)] == [o.verdict for o in before.values()]
