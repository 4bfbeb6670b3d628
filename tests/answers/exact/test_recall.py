"""The least loss on associative recall: by hand, by chance, and below every model that was trained."""

from __future__ import annotations

import json
import math
import random

import pytest
from exact.recall import find_least_losses, list_least_losses
from kept import list_kept, read_text

SIX, SIXTEEN = math.log(6), math.log(16)


def list_losses(text: str) -> list[float]:
    return [round(loss, 6) for loss in list_least_losses(text.split(" "), names=6, words=16)]


def rounded(*losses: float) -> list[float]:
    return [round(loss, 6) for loss in losses]


def test_losses_of_lines_worked_out_by_hand() -> None:
    first, other = (0, SIXTEEN, SIXTEEN, 0, 0), -math.log(5 / 6 / 15)
    assert list_losses("@ a red a \n @ a red a \n @ b red b \n") == rounded(
        *first, 0, SIX, 0, 0, 0, 0, other, SIXTEEN, 0, 0
    )


@pytest.mark.parametrize(
    ("cut", "losses", "next_line"),
    [
        ("a red a \n", (SIXTEEN, SIXTEEN, 0, 0), (SIX, 0)),
        ("red a \n", (SIXTEEN, SIXTEEN, 0), (SIX, 0)),
        ("a \n", (SIXTEEN, 0), (SIX, SIXTEEN)),
        ("\n", (0,), (SIXTEEN, SIXTEEN)),
    ],
)
def test_a_window_may_begin_inside_a_line(cut: str, losses: tuple[float, ...], next_line: tuple[float, float]) -> None:
    """A value with the name after it is known; a name without its value is not."""
    assert list_losses(f"{cut} @ a red a \n") == rounded(*losses, 0, *next_line, 0, 0)


def test_another_document_tells_nothing_of_this_one() -> None:
    line = (0, SIXTEEN, SIXTEEN, 0, 0)
    assert list_losses("@ a red a \n </s> @ a red a \n") == rounded(*line, 0, *line)


def test_shares_of_names_are_those_of_drawn_documents() -> None:
    """Over many documents no other guess of the next name does better, and the mean loss is the entropy of the draw."""
    rng, losses, shares = random.Random(0), [], {True: 0, False: 0}
    for _ in range(4000):
        pool = rng.sample(range(16), 6)
        drawn = rng.choices(pool, k=4)
        text = " ".join(f"@ n{name} v n{name} \n" for name in drawn)
        losses.append(list_losses(text)[16])
        shares[drawn[3] in drawn[:3]] += len({*drawn[:3]}) == 3
    again = shares[True] / sum(shares.values())
    assert again == pytest.approx(3 / 6, abs=0.03)
    # Of the fourth name: by how many different names stood before it, each with its chance.
    chances = {1: 1 / 36, 2: 15 / 36, 3: 20 / 36}
    entropy = sum(
        chance * (n / 6 * SIX - (6 - n) / 6 * math.log((6 - n) / 6 / (16 - n))) for n, chance in chances.items()
    )
    assert sum(losses) / len(losses) == pytest.approx(entropy, abs=0.02)


def test_no_trained_model_is_below_it() -> None:
    """The models read the same texts; those that learned come within two hundredths of a nat at the trained length."""
    least, found = find_least_losses(), {}
    for name in (name for name in list_kept() if name.startswith("which-layers-recall")):
        for trial in json.loads(read_text(name))["trials"]:
            found.setdefault("1x", []).append(trial["scores"]["loss"])
            for split, longer in trial["longer"].items():
                found.setdefault(f"{split[0]}x", []).append(longer["loss"])
    assert {*found} == {*least}
    assert all(min(found[times]) > least[times] for times in least)
    assert min(found["1x"]) < least["1x"] + 0.02
