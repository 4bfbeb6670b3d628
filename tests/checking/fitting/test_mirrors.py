"""Each mechanism that is named, with its mirror image and its nearest neighbour: each gets its own name."""

# ruff: noqa: E501  (a mistake is one line of a table)

from __future__ import annotations

import pytest

from tests.checking.scratch.planted import (
    ARANGE,
    BIASED,
    CAUSAL,
    COUNTED,
    GIVEN,
    KROT,
    MASKED,
    OLD,
    PACKED,
    QROT,
    SPEEDS,
    TABLE,
    WAVES,
    WINDOWED,
    build,
    examine,
)

STEP = "torch.arange(past {0} * (past > 0), past {0} * (past > 0) + new, device=ids.device)"
FROM = "torch.arange(past and {0}, (past and {0}) + new, device=ids.device)"
LARGE = "x = self.tokens(ids) * math.sqrt(WIDTH)"
SHIFTED = "angles = {0}[:, None, :, None].float() * speeds"
ROLLED = "(mask.roll({0}, 1)[:, None, None, :] if mask.dim() == 2 else mask).bool()"
DROPPED = "k, v = torch.cat([old[0][:, :, {0}], old[0][:, :, {1}], k], 2), torch.cat([old[1][:, :, {0}], old[1][:, :, {1}], v], 2)"
BASE, BLOCK = "10000.0 ** (-torch.arange(0, HEAD", "x + self.attention(self.first(x), *rest)"
ROTATED = "return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)"
HALVES = "a, b = x.chunk(2, -1)\n        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)"
GIVEN_AT = "            return {0}\n"


CASES = (
    # too late, too early, by one and by two
    ("rope", "cache.steps", ARANGE, STEP.format("- 1"), "each decode step stands 1 place too early"),
    ("learned", "cache.steps", ARANGE, STEP.format("+ 2"), "each decode step stands 2 places too late"),
    ("rope", "cache.chunks", ARANGE, "torch.arange(past + past // 11, past + past // 11 + new, device=ids.device)", "each later chunk stands 1 to 2 places too late"),
    # begun anew, never before
    ("rope", "cache.steps", ARANGE, FROM.format("past % 12"), "begins positions anew after 11"),
    ("sinusoidal", "cache.steps", ARANGE, FROM.format("max(past, 12)"), "stands at 12 where it should stand before"),
    # given positions: doubled, halved, the other way
    ("rope", "positions.explicit", GIVEN, GIVEN_AT.format("2 * positions"), "counts each position twice"),
    ("rope", "positions.explicit", GIVEN, GIVEN_AT.format("positions // 2"), "half its position, rounded down"),
    ("rope", "positions.explicit", GIVEN, GIVEN_AT.format("-positions"), "given is rotated the other way"),
    # pads behind
    ("learned", "padding.right", COUNTED, "(mask.long().cumsum(1) - 2).clamp(min=0)", "1 place too early in part"),
    # wrapped one earlier
    ("rope", "shift", SPEEDS, SHIFTED.format("(places % 63)"), "begins positions anew after 62"),
    # the future: two later keys, all; none; the wrong way round; not itself
    ("rope", "causal.future", CAUSAL, "(keys <= queries + 2)[None, None]", "a text sees 2 later keys"),
    ("rope", "causal.future", CAUSAL, "(keys >= 0)[None, None].expand(1, 1, total - past, total)", "sees all later tokens"),
    ("rope", "causal.future", CAUSAL, "(keys >= queries)[None, None]", "tokens and misses every key that was read"),
    ("rope", "cache.steps", CAUSAL, "(keys < queries + (past == 0))[None, None]", "step does not see itself"),
    # the past: the oldest, another one
    ("rope", "cache.steps", CAUSAL, "((keys <= queries) & (keys >= (past > 0)))[None, None]", "1 key, the oldest"),
    ("rope", "cache.steps", CAUSAL, "((keys <= queries) & ((keys != 5) | (past == 0)))[None, None]", "misses 1 key"),
    # another row's mask; a mask moved to either side
    ("rope", "padding.left.positions", MASKED, ROLLED.format(1), "1 of the pads and misses 1 key, the oldest"),
    # the batch axis, the sequence axis
    ("sinusoidal", "cache.steps", WAVES, "x = x + self.waves[torch.arange(x.shape[1])]", "begins at position 0"),
    # keys dropped at either end of the cache
    ("learned", "cache.chunks", OLD, DROPPED.format(":1", ":-1"), "misses 3 keys and sees 1 key more than once"),
    # queries, keys
    ("rope", "cache.steps", KROT, "k = rotate(k, places + (new == 1))", "step with its keys stands 1 place too late"),
    ("rope", "cache.steps", QROT, "q = rotate(q, places + (new == 1))", "step with its queries stands 1 place too late"),
    ("rope", "shift", QROT, "pass", "queries do not rotate"),
    ("rope", "shift", KROT, "k = rotate(k, 2 * places)", "queries rotate 0.5 times as fast as keys"),
    ("rope", "shift", QROT, "q = rotate(q, 2 * places)", "queries rotate 2 times as fast as keys"),
    # twice, half, of the other sign, not at all
    ("alibi", "cache.steps", BIASED, "bias = bias - (1 - 0.5 * (new == 1)) * (slopes", "ALiBi's slopes halved"),
    ("alibi", "cache.steps", BIASED, "bias = bias - (1 - 2 * (new == 1)) * (slopes", "slopes of the wrong sign"),
    ("alibi", "cache.steps", BIASED, "bias = bias - (new > 1) * (slopes", "each decode step adds no bias by distance"),
    ("learned", "cache.steps", TABLE, "x = x + self.table(places) * (new > 1)", "no position added"),
    ("learned", "cache.steps", LARGE, "x = self.tokens(ids) * (48 if past else 48**0.5)", "its tokens by √48, once more"),
    # another rotation in single steps alone: its base, its layout; a temperature; a convolution that the cache lacks
    ("rope", "cache.steps", BASE, "(500000.0 if x.shape[2] == 1 else 10000.0) ** (-torch.arange(0, HEAD", "rotates with base 500,000, a whole text with 10,000"),
    ("rope", "cache.steps", ROTATED, f"if x.shape[2] == 1:\n        {HALVES}\n    {ROTATED}", "rotates halves, a whole text neighbouring pairs"),
    ("rope", "cache.steps", QROT, f"{QROT} * (1 + places * (new > 1) / 50)[:, None, :, None]", "a temperature of another position"),
    ("rope", "cache.steps", BLOCK, f"{BLOCK} + F.pad(x, (0, 0, 1, 0))[:, :-1]", "tokens reach each other beside attention"),
    # the documents of the first row for all rows
    ("rope", "packing.positions", PACKED, "document[:1, None, :, None] == document[:1, None, None, :]", "text is masked as the first row is"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("scheme", "check", "old", "new", "says"),
    [
        pytest.param(*case, marks=() if n % 4 == 0 or n >= len(CASES) - 5 else pytest.mark.exhaustive)
        for n, case in enumerate(CASES)
    ],
    ids=[f"{n}: {case[-1]}" for n, case in enumerate(CASES)],
)
def test_mirror_images_and_neighbours_are_told_apart(scheme: str, check: str, old: str, new: str, says: str) -> None:
    edit = (old, new.replace("(new == 1)", "(x.shape[1] == 1)").replace("(new > 1)", "(x.shape[1] > 1)"))
    (outcome,) = examine(build(scheme, 0, edit), [check])
    assert outcome.verdict == "FAIL" and says in outcome.cause, outcome.cause


@pytest.mark.parametrize(
    ("more", "says"),
    [("1", "sees 1 key outside its window"), ("-1", "misses 1 key, the oldest"), ("2", "sees 2 keys outside its window"),
     ("99", "keys outside its window")],
)  # fmt: skip
def test_a_window_with_a_key_more_or_fewer_is_told(more: str, says: str) -> None:
    seen = f"(queries - keys < WINDOW + {more} * (past > 0))[None, None]"
    (outcome,) = examine(build("rope", 16, (WINDOWED, seen)), ["cache.steps"])
    assert outcome.verdict == "FAIL" and says in outcome.cause, outcome.cause
