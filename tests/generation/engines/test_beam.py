"""The state of a search: which texts stay, how a beam moves on, and when a source is done."""

from __future__ import annotations

import math

import pytest
import torch

from clockhands.generation.engines.beam import (
    BeamState,
    Candidates,
    FinishedTexts,
    GreedyHypothesis,
    add_finished,
    choose_sources_to_keep,
)
from clockhands.generation.translate import LARGEST_PENALTY


def test_few_finished_sentences_stay() -> None:
    def done(pattern: str) -> list[FinishedTexts]:
        return [FinishedTexts(1, 1.0, is_done=letter == "x") for letter in pattern]

    assert choose_sources_to_keep(done("x" + 15 * "-")) == list(range(16))
    assert choose_sources_to_keep(done("xx" + 14 * "-")) == list(range(2, 16))
    assert choose_sources_to_keep(done("-x")) == [0]
    assert choose_sources_to_keep(done("xx")) == []


def test_a_greedy_text_ends_with_its_end_token() -> None:
    text = GreedyHypothesis()
    for token, log_p in ((5, -1.0), (2, -0.5), (7, -9.0)):
        text.add(token, log_p, [2])
    assert (text.tokens, text.log_probability, text.is_done) == ([5, 2], -1.5, True)


def test_the_best_finished_texts_stay_by_their_score() -> None:
    texts = FinishedTexts(2, length_penalty=1.0)
    texts.add([1, 2], -4.0)  # -2 a token
    texts.finish_if_beaten(-0.1, 1)
    assert not texts.is_done, "one text is missing"
    texts.add([1, 2, 3, 4], -4.0)  # -1 a token
    texts.add([1], -3.0)
    assert [score for score, _, _ in texts.texts] == [-1.0, -2.0]
    assert texts.get_best().tokens == [1, 2, 3, 4]
    texts.finish_if_beaten(-5.9, 3)
    assert not texts.is_done, "the hypothesis is better than the worst text"
    texts.finish_if_beaten(-6.0, 3)
    assert texts.is_done


@pytest.mark.parametrize("penalty", [-LARGEST_PENALTY, LARGEST_PENALTY])
def test_every_penalty_ranks_the_longest_texts(penalty: float) -> None:
    texts = FinishedTexts(2, penalty)
    assert -math.inf < texts.score(-1.0, 1_000_000) < 0 and texts.score(-2.0, 1_000_000) < texts.score(-1.0, 1_000_000)


def test_a_beam_continues_the_likeliest_candidates_that_do_not_end() -> None:
    start = BeamState.start(1, 2, 9, torch.device("cpu"))
    assert start.last_token_BW.tolist() == [[9, 9]] and start.log_p_BW.tolist() == [[0.0, -math.inf]]
    first = start.advance(
        Candidates(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[0, 0, 0]]), torch.tensor([[4, 5, 6]])),
        torch.zeros(1, 3, dtype=torch.bool),
    )
    candidates = Candidates(torch.tensor([[-1.5, -2.5, -3.5]]), torch.tensor([[1, 0, 1]]), torch.tensor([[2, 7, 8]]))
    ending_BC = candidates.token_BC == 2
    finished = [FinishedTexts(2, 1.0)]
    add_finished(finished, first, candidates, ending_BC)
    assert finished[0].texts == [(-0.75, [5, 2], -1.5)]
    second = first.advance(candidates, ending_BC)
    assert second.written_BWS.tolist() == [[[4, 7], [5, 8]]]
    assert second.parents_BW is not None and second.parents_BW.tolist() == [[0, 1]]
    assert second.log_p_BW.tolist() == [[-2.5, -3.5]]
