"""For every check a correct model passes, and the same model with one planted bug fails where it should, only there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.checking.checks.check import select
from clockhands.checking.models.adapter import ModuleAdapter
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.models.tiny import make_position_audible
from clockhands.checking.verdict.judge import run_checks
from tests.checking.checks import planted as p
from tests.checking.scratch import planted as scratch


def adapter(kind: type[p.Correct], seed: int = 0) -> ModuleAdapter:
    torch.manual_seed(seed)
    made = ModuleAdapter(make_position_audible(kind(), seed), p.VOCABULARY)
    made.audible = True
    made.fresh = lambda: ModuleAdapter(kind(), p.VOCABULARY)
    return made


def verdicts(kind: type[p.Correct], only: list[str] | None = None, **extra: Any) -> dict[str, str]:
    made = adapter(kind)
    for name, value in extra.items():
        setattr(made, name, value)
    (subject,) = from_model(made, kind.__name__)
    return {outcome.check: outcome.verdict for outcome in run_checks(subject, select(only))}


def named(found: dict[str, str], verdict: str) -> set[str]:
    return {check for check, each in found.items() if each == verdict}


@pytest.mark.parametrize("kind", [p.Correct, p.Absolute, p.Alibi, p.Encoder, p.OneRowPacked])
def test_a_correct_model_passes(kind: type[p.Correct]) -> None:
    found = verdicts(kind)
    assert named(found, "FAIL") == set()
    assert named(found, "WARN") == set()
    properties = {"shift"} if kind is p.Absolute else set()
    assert named(found, "PROPERTY") == properties
    assert len(named(found, "PASS")) >= 18


@pytest.mark.parametrize("kind", p.PLANTED, ids=lambda kind: kind.__name__)
def test_one_bug_fails_its_checks_and_no_others(kind: type[p.Correct]) -> None:
    assert named(verdicts(kind), "FAIL") == p.PLANTED[kind]


@pytest.mark.parametrize("place", [0, 5, 22])
def test_a_leak_into_one_single_token_is_found_wherever_it_is(place: int) -> None:
    (subject,) = from_model(adapter(type("Leak", (p.SeesTheNext,), {"place": place})))
    (outcome,) = run_checks(subject, select(["causal.future"]))
    assert (outcome.verdict, outcome.note) == ("FAIL", f"largest from token {place + 1}")


def test_dropout_left_on_is_no_determinism() -> None:
    assert verdicts(p.DropoutLeftOn, ["deterministic"])["deterministic"] == "FAIL"


def test_what_a_sound_model_may_do_otherwise_is_no_fault() -> None:
    """Sinusoids that are added without a declaration, a window of a few slots, a table whose length is not claimed."""
    added, windowed = scratch.build("sinusoidal"), scratch.build("rope", 8)
    added.absolute, added.max_length, windowed.packs = False, None, False
    (outcome,) = scratch.examine(added, ["precision.long"])
    assert (outcome.verdict, "does not read 512 tokens" in outcome.reason) == ("N/A", True)
    added.max_length = scratch.build("sinusoidal").max_length
    outcomes = scratch.examine(added, ["shift"]) + scratch.examine(windowed, ["cache.rollback_rows"])
    assert [o.verdict for o in outcomes] == ["PROPERTY", "PROPERTY"]
    assert "own vector" in outcomes[0].reason and "rejected drafts" in outcomes[1].reason


def test_a_bare_index_error_beyond_the_table_is_a_warning() -> None:
    assert verdicts(p.BareIndexError, ["length.claimed", "length.beyond"]) == {
        "length.claimed": "PASS",
        "length.beyond": "WARN",
    }
    assert verdicts(p.Absolute, ["length"])["length.beyond"] == "PASS"


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        (p.BeginsAgain, "72 tokens: runs on, its places begin again from the first"),
        (p.TurnsAgain, "72 tokens: runs on, its places begin again from the first"),
        (p.StaysAtTheLast, "72 tokens: runs on, all its places there are the last"),
        (p.Correct, "72 tokens: runs on"),
    ],
)
def test_a_model_that_runs_on_is_asked_with_which_places(kind: type[p.Correct], note: str) -> None:
    (subject,) = from_model(adapter(kind), kind.__name__)
    (outcome,) = run_checks(subject, select(["length.beyond"]))
    assert outcome.note == note
    assert outcome.verdict == ("PASS" if kind is p.Correct else "WARN")
    assert outcome.reason == (
        "" if kind is p.Correct else "a longer text is read without a word, with places that other tokens had"
    )


def test_of_a_very_long_claim_the_last_place_is_tried() -> None:
    (subject,) = from_model(adapter(p.TableTooShortForItsClaim), "short")
    claimed, beyond = run_checks(subject, select(["length.claimed", "length.beyond"]))
    assert (claimed.verdict, claimed.note) == ("FAIL", "a token at 4999: index out of range in self")
    assert beyond.note.startswith("a token at 5007: refused with 'position 5007 is beyond the maximum")


def test_what_an_adapter_does_not_take_is_not_judged() -> None:
    found = verdicts(p.Encoder, ["cache", "causal"])
    assert set(found.values()) == {"N/A"}


@pytest.mark.parametrize(
    ("mistake", "verdict", "why"),
    [
        (
            "q, k = (rotate(F.normalize(x, dim=-1), places) * (1 + torch.arange(HEAD) / 9) for x in (q, k))",
            "PROPERTY",
            "gains",
        ),
        ("q = rotate(q, places) * (1 + places / 90)[:, None, :, None]", "PROPERTY", "a temperature by position"),
        ("q = rotate(q, places) * (1 + places / 90)[:, None, :, None]; places = 0 * places", "FAIL", ""),
        (
            "q = rotate(q, places) * (1 + 0.1 * (places // 16))[:, None, :, None]",
            "PROPERTY",
            "a temperature by position",
        ),
        # Gains excuse nothing that is left without them: keys that rotate half as fast.
        ("q, k = (rotate(x, n * places) * (1 + torch.arange(HEAD) / 9) for n, x in ((2, q), (1, k)))", "FAIL", ""),
        (
            "q = rotate(q, places); a, b = q[..., 0::2], q[..., 1::2]; q = torch.stack([b, a], -1).flatten(-2)",
            "FAIL",
            "",
        ),
    ],
)
def test_what_moves_with_the_place_of_the_query_is_told_from_a_mistake(mistake: str, verdict: str, why: str) -> None:
    """A norm with gains behind the rotation, and a temperature, as Hunyuan and Ministral 3 have them."""
    edits = [(scratch.QROT, mistake)] + ([(scratch.KROT, "pass")] if mistake.startswith("q, k") else [])
    (outcome,) = scratch.examine(scratch.build("rope", 0, *edits), ["shift"])
    assert (outcome.verdict, why in outcome.reason) == (verdict, True)


@pytest.mark.parametrize(
    ("beside", "packed", "verdict"),
    [
        ("F.pad(x, (0, 0, 1, 0))[:, :-1]", scratch.PACKED, "PROPERTY"),
        ("F.pad(x, (0, 0, 1, 0))[:, :-1]", "document[:, None, :, None] >= 0 * document[:, None, None, :]", "FAIL"),
        ("x.mean(1, keepdim=True)", scratch.PACKED, "FAIL"),
    ],
)
def test_what_reaches_tokens_beside_attention_excuses_no_mistake_in_it(beside: str, packed: str, verdict: str) -> None:
    """A convolution carries one document into the next; a mean over the text is a mistake, and so is an open mask."""
    attention = "x + self.attention(self.first(x), *rest)"
    model = scratch.build("rope", 0, (attention, f"{attention} + {beside}"), (scratch.PACKED, packed))
    (outcome,) = scratch.examine(model, ["packing.positions"])
    assert outcome.verdict == verdict and ("other documents" in outcome.cause) == (packed != scratch.PACKED)
    model.packs = False
    (outcome,) = scratch.examine(model, ["cache.rollback_rows"])
    assert outcome.verdict == ("FAIL" if "mean" in beside else "PROPERTY")


class CausalEncoder(p.Encoder):
    def allowed(self, *given: Any) -> torch.Tensor:
        return super().allowed(*given).tril()


@pytest.mark.parametrize(("kind", "remark"), [(p.Encoder, ""), (CausalEncoder, "no token sees a later one")])
def test_an_encoder_in_which_nothing_sees_later_tokens_is_told(kind: type[p.Correct], remark: str) -> None:
    (outcome,) = run_checks(from_model(adapter(kind))[0], select(["order.matters"]))
    assert outcome.verdict == "PASS" and outcome.reason.partition(":")[0] == remark


def test_packed_rows_that_are_refused_together_are_told() -> None:
    (subject,) = from_model(adapter(p.OneRowPacked), "one row")
    (outcome,) = run_checks(subject, select(["packing.positions"]))
    assert (outcome.verdict, outcome.reason) == ("PASS", "one packed row at a time: two together are refused")
