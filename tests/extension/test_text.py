"""The texts of a choice: more of short ones, for the cost of the long ones for which the numbers are meant."""

from __future__ import annotations

import pytest
import torch

from clockhands.extension import Archive, Method
from clockhands.extension.judge import choose_judged_tail, judge
from clockhands.extension.text import multiply_texts
from clockhands.models import LanguageModel
from tests.extension.planted import make_planted, make_stream


def make_model(parameters: int) -> LanguageModel:
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.empty(parameters, device="meta"))
    return LanguageModel("planted", module, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameters", "times"),
    [
        (10_000_000, [8, 8, 4, 2, 1, 1]),
        (300_000, [8, 8, 8, 8, 4, 1]),
        (7_000_000_000, [1] * 6),
    ],
)
def test_shorter_texts_and_smaller_models_are_read_so_much_oftener(parameters: int, times: list[int]) -> None:
    model = make_model(parameters)
    assert [multiply_texts(model, longest) for longest in (64, 256, 500, 1024, 2048, 9999)] == times


def test_half_the_trained_length_is_scored_where_the_text_has_room() -> None:
    assert [choose_judged_tail(trained) for trained in (6, 64, 512, 4096)] == [4, 32, 256, 256]
    assert choose_judged_tail(4096, 30) == 30 and choose_judged_tail(4096, -5) == 4


def test_the_judgement_reads_as_many_more_texts_and_asks_as_much_more() -> None:
    model, stream = make_planted(), make_stream(30_000, 0)
    for longest, texts, questions in ((256, 8 * 8, 8 * 10), (2048, 4 * 8, 4 * 10)):
        judged, _ = judge(
            model, [Method("none", ""), Method("same", "")], stream, longest // 2, longest, texts=16, items=10,
            tasks=("recall",), archive=Archive(None),
        )  # fmt: skip
        assert judged.drift.losses_NR.shape == (texts, 2)
        assert judged.retrieval is not None and judged.retrieval.questions["recall"] == questions
