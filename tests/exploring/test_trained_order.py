"""What training showed of the order of tokens, against texts whose pairs are written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clockhands.exploring.page import prepare_model
from clockhands.exploring.trained_order import describe_order
from clockhands.runs import Run


def read_bits(digits: str, columns: int, rows: int) -> list[list[int]]:
    """Read a table of bits from hexadecimal digits, as the page does: the first bit of a digit is its highest."""
    bits = [int(bit) for digit in digits for bit in f"{int(digit, 16):04b}"]
    return [bits[row * columns : (row + 1) * columns] for row in range(rows)]


def test_two_texts_are_described_as_the_page_s_own_test_writes_them_by_hand() -> None:
    described = describe_order([[0, 1, 2], [0, 2], []], 4, least=0)
    assert described == {"shortest": 2, "longest": 3, "next": "61020800", "before": "6200"}


def test_pairs_are_those_of_a_loop_over_all_texts() -> None:
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 6, rng.integers(1, 5)).tolist() for _ in range(4)]
    follows, precedes = np.zeros((8, 8), int), np.zeros((7, 7), int)
    for text in texts:
        for first, second in zip([7, *text], [*text, 7], strict=True):
            follows[first, second] = 1
        for second in range(len(text)):
            for first in range(second):
                precedes[text[first], text[second]] = 1
    described = describe_order(texts, 7, least=0)
    assert read_bits(described["next"], 8, 8) == follows.tolist()
    assert read_bits(described["before"], 7, 7) == precedes.tolist()


def test_rare_tokens_that_never_met_tell_nothing() -> None:
    texts = [[0, 1]] * 40 + [[1, 0]] * 40 + [[2, 0]] * 20
    before = read_bits(describe_order(texts, 4)["before"], 4, 4)
    # By chance 0 and 1 are together in 100 · 80 / 100 texts, 1 and 2 in 80 · 20 / 100, which is fewer than 20.
    assert before == [[0, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("text", ["Tom bit a dog", "the old queen saw Eva"])
def test_a_page_holds_what_the_training_of_its_model_showed(translator: Run, text: str) -> None:
    data = prepare_model(translator, "roles", "who bit whom").data
    size = len(data["tokens"])
    ids = translator.tokenizers.source(text, add_special_tokens=False)["input_ids"]
    follows = read_bits(data["trained"]["next"], size + 1, size + 1)
    seen = [follows[first][second] for first, second in zip([size, *ids], [*ids, size], strict=True)]
    # This translator was trained without adjectives: "old" never stood in a sentence that it read.
    assert all(seen) == (text == "Tom bit a dog")
    assert (data["trained"]["shortest"], data["trained"]["longest"]) == (3, 5)
