"""Mistakes planted in a second model from scratch get their cause, and a sound model gets none."""

from __future__ import annotations

import pytest

from tests.checking.scratch.planted import ARANGE, CHECKED, PLANTED, Planted, build, examine

VALUES = "torch.cat([old[0], k], 2), torch.cat([old[1], v], 2)"

# One of each kind, with a check that it fails: a place, the mask's positions, an end, a mask, a cache, a table, a bias.
FAST = {
    ("rope", "1 place too late"): "cache.reorder",
    ("sinusoidal", "half its position, rounded down"): "cache.reorder",
    ("rope", "bfloat16"): "shift",
    ("learned", "from the end"): "causal.prefix",
    ("rope", "a text sees 1 later key"): "causal.future",
    ("learned", "misses 1 key"): "cache.prefix",
    ("rope", "order"): "cache.chunks",
    ("rope", "layer"): "cache.chunks",
    ("rope", "sign"): "shift",
    ("learned", "does not multiply its tokens by √48"): "cache.reorder",
    ("alibi", "reads the pads"): "padding.content",
    ("sinusoidal", "row of the batch"): "batch.order",
    ("sinusoidal", "first row"): "padding.beside",
}
UNCAUGHT = {("learned", "5 places too late"), ("learned", "longest row")}
"""What no check calls a fault: a learned table may count pads."""
UNNAMED = {*UNCAUGHT, ("rope", "keys"), ("learned", "other row")}
"""Besides those, keys beside values that are not theirs: taken back in one of both, or not reordered with the rows."""


def marked(fault: Planted) -> object:
    return pytest.param(fault, marks=pytest.mark.exhaustive, id=fault.name)


@pytest.mark.parametrize(("kind", "check"), FAST.items(), ids=lambda value: str(value[-1]) if value else "")
def test_a_planted_mistake_is_named_by_a_check_that_fails(kind: tuple[str, str], check: str) -> None:
    fault = next(fault for fault in PLANTED if (fault.scheme, fault.says[-1]) == kind)
    outcomes = fault.examine([check])
    assert [outcome.verdict for outcome in outcomes] == ["FAIL"]
    assert fault.is_named(outcomes), outcomes[0].cause


@pytest.mark.parametrize("fault", [marked(fault) for fault in PLANTED if (fault.scheme, fault.says[-1]) not in UNNAMED])
def test_every_planted_mistake_is_named(fault: Planted) -> None:
    outcomes = fault.examine()
    assert fault.is_named(outcomes), {outcome.check: outcome.cause for outcome in outcomes if outcome.verdict == "FAIL"}


@pytest.mark.parametrize("scheme", ["learned", "rope", "alibi", "sinusoidal"])
@pytest.mark.parametrize("window", [0, 16])
def test_a_sound_model_fails_nothing_and_gets_no_cause(scheme: str, window: int) -> None:
    outcomes = examine(build(scheme, window), CHECKED)
    assert {
        (outcome.check, outcome.cause) for outcome in outcomes if outcome.verdict == "FAIL" or outcome.cause
    } == set()


def test_what_is_no_matter_of_position_gets_no_cause() -> None:
    """Values lost, a louder last token, dropout: nothing that is read explains them. A mean is told."""
    for old, new, check in (
        ("x = self.add_position(x, places)", "x = F.dropout(self.add_position(x, places), 0.1)", "batch.order"),
        (VALUES, "torch.cat([old[0], k], 2), torch.cat([old[1], old[1][:, :, -v.shape[2] :]], 2)", "cache.prefix"),
        ("return k, v\n\n    def add_places", "return k, v * (v.shape[2] < 12)\n\n    def add_places", "cache.chunks"),
        ("return self.head(self.norm(x))", "return self.head(self.norm(x)) * (1 + (new == 1))", "cache.steps"),
        ("return self.head(self.norm(x))", "return self.head(self.norm(x + x.mean(1, keepdim=True)))", "causal.prefix"),
    ):
        (outcome,) = examine(build("rope", 0, (old, new)), [check])
        beside = outcome.cause.startswith("tokens reach each other beside attention")
        assert (outcome.verdict, beside or outcome.cause) == ("FAIL", True if "mean" in new else "")


def test_a_plain_list_for_a_cache_hides_no_cause() -> None:
    edits = (
        ("        return Cache()", "        return [Cache()]"),
        ("cache.crop(tokens)", "cache[0].crop(tokens)"),
        ("cache.select(rows)", "cache[0].select(rows)"),
        ("        past = 0 if", "        cache = cache[0] if cache else None\n        past = 0 if"),
        (ARANGE, "torch.arange(new, device=ids.device)"),
    )
    outcomes = examine(build("rope", 0, *edits), ["cache.chunks", "cache.reorder"])
    assert [o.cause for o in outcomes] == [f"each {n} begins at position 0" for n in ("later chunk", "decode step")]
