"""The texts of a choice: more of short ones, for the cost of the long ones for which the numbers are meant."""

from __future__ import annotations

from clockhands.extension import Archive, Method
from clockhands.extension.judge import judge
from clockhands.extension.text import multiply_texts
from tests.extension.planted import make_planted, make_stream


def test_shorter_texts_are_read_so_much_oftener() -> None:
    assert [multiply_texts(longest) for longest in (64, 256, 500, 1024, 2048, 9999)] == [8, 8, 4, 2, 1, 1]


def test_the_judgement_reads_as_many_more_texts_and_asks_as_much_more() -> None:
    model, stream = make_planted(), make_stream(30_000, 0)
    for longest, texts, questions in ((512, 4 * 8, 4 * 10), (2048, 8, 10)):
        judged, _ = judge(
            model, [Method("none", ""), Method("same", "")], stream, longest // 2, longest, texts=16, items=10,
            tasks=("recall",), archive=Archive(None),
        )  # fmt: skip
        assert judged.drift.losses_NR.shape == (texts, 2)
        assert judged.retrieval is not None and judged.retrieval.questions["recall"] == questions
