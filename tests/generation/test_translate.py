"""Translation keeps order, streams, and gives what the model gives."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clockhands.data import open_corpus
from clockhands.errors import CheckpointError, ClockhandsWarning, UsageError
from clockhands.generation import Search, compute_cross_attention, draw_cross_attention, generate, translate
from clockhands.generation.translate import bound_length
from clockhands.runs import Run, open_run
from clockhands.runs.recipe import vary_recipe
from clockhands.training import train


def sentences(translator: Run) -> list[str]:
    return open_corpus("roles", train=600, validation=10, test=20, adjectives=0.0).sources("test")


def test_order_is_kept_whatever_the_batch(translator: Run) -> None:
    sources = sentences(translator)
    single = [translation.text for translation in translate(translator, sources, Search(batch=1))]
    batched = list(translate(translator, sources, Search(batch=7)))
    endless = translate(translator, sources, Search(batch=2**63 - 1))
    assert [translation.text for translation in endless] == single
    assert [translation.source for translation in batched] == sources
    assert [translation.text for translation in batched] == single
    assert len(set(single)) > 5


def test_a_translation_that_does_not_end_does_not_depend_on_the_sentences_beside_it(
    translator: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_run(translator.path)
    monkeypatch.setattr(opened.model.config, "eos_token_id", None)
    weight = opened.model.get_output_embeddings().weight
    end = opened.tokenizers.target.eos_token_id
    with torch.no_grad():
        weight[end] = -weight.mean(0)  # unlikely everywhere
    short, long = "Tom saw Anna", "Tom saw Anna " * 12
    alone = next(translate(opened, [short])).text
    assert len(alone.split()) > 20, "it is to run to its bound"
    assert next(translate(opened, [short, long])).text == alone
    assert [t.text for t in translate(opened, [long, short, short])][1:] == [alone, alone]


def test_it_agrees_with_generate_of_transformers(translator: Run) -> None:
    opened = open_run(translator)
    ids = opened.tokenizers.source(["Tom bit Anna"], return_tensors="pt")["input_ids"]
    for beam in (1, 3):
        theirs = opened.model.generate(input_ids=ids, num_beams=beam, do_sample=False, max_new_tokens=20)
        ours = next(translate(opened, ["Tom bit Anna"], Search(beam=beam, max_length=20)))
        assert ours.text == opened.tokenizers.target.decode(theirs[0], skip_special_tokens=True)
        assert ours.score <= 0


@pytest.mark.parametrize("search", [{}, {"beam": 2}, {"engine": "transformers"}, {"engine": "ctranslate2"}])
def test_logits_that_are_no_numbers_are_refused(translator: Run, search: dict[str, Any], tmp_path: Path) -> None:
    """The weights are finite, and their products are not: an empty line would look like a translation."""
    folder = shutil.copytree(translator.path, tmp_path / "run")
    weights = load_file(folder / "model.safetensors")
    save_file({name: 1e25 * weight for name, weight in weights.items()}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="run gives NaN or infinite logits; its weights may be damaged"):
        list(translate(folder, ["Tom saw Anna"], Search(**search)))
    with pytest.raises(CheckpointError, match="run gives NaN or infinite logits"):
        compute_cross_attention(folder, "Tom saw Anna", "Anna")


@pytest.mark.parametrize("penalty", [0.0, 0.3, 2.0])
def test_the_score_is_what_the_search_maximised(translator: Run, penalty: float) -> None:
    """transformers tells by ``sequences_scores`` what its beam compared."""
    opened = open_run(translator)
    ids = opened.tokenizers.source(["Tom bit Anna"], return_tensors="pt")["input_ids"]
    theirs = opened.model.generate(
        input_ids=ids, num_beams=3, do_sample=False, max_new_tokens=20, length_penalty=penalty, early_stopping=False,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    ours = next(translate(opened, ["Tom bit Anna"], Search(beam=3, max_length=20, length_penalty=penalty)))
    assert ours.score == pytest.approx(float(theirs.sequences_scores[0]), abs=1e-4)


def test_a_stream_is_read_as_it_is_needed(translator: Run) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "Tom saw Anna"

    assert len(list(islice(translate(translator, endless(), Search(batch=2)), 3))) == 3
    assert read < 1000


def test_an_empty_line_stays_an_empty_line(translator: Run) -> None:
    done = list(translate(translator, ["", "Tom saw Anna", "  "]))
    assert [bool(translation.text) for translation in done] == [False, True, False]


def test_what_cannot_be_asked_is_refused(translator: Run, writer: Run, tmp_path: object) -> None:
    with pytest.raises(
        UsageError, match=r"cannot translate with .* the model there continues text; this needs one that"
    ):
        translate(writer, ["x"])
    with pytest.raises(UsageError, match="there is no source sentence"):
        compute_cross_attention(translator, " ")
    with pytest.raises(UsageError, match="cannot draw cross-attention with"):
        compute_cross_attention(writer, "Tom")
    with pytest.raises(UsageError, match="the model there translates; this needs one that continues text"):
        generate(translator, "x")
    with pytest.raises(CheckpointError, match=r"is not a finished run \(config\.json not found\)"):
        open_run(str(tmp_path))


def test_a_foreign_checkpoint_is_named(tmp_path: Path) -> None:
    from transformers import GPT2Config

    GPT2Config(n_layer=1).save_pretrained(str(tmp_path))
    with pytest.raises(CheckpointError, match="holds a model of type 'gpt2', not one of this project"):
        open_run(str(tmp_path))
    (tmp_path / "config.json").write_text('{"d_model": 8}')
    with pytest.raises(CheckpointError, match=r"config\.json names no model type;") as caught:
        open_run(str(tmp_path))
    assert "None" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"beam": 0}, "beam is 0, but must be from 1 to 1,024"),
        ({"max_length": 0}, "max_length is 0, but must be at least 1"),
        ({"max_source": 0}, "max_source is 0, but must be at least 1"),
        ({"batch": 0}, "batch is 0, but must be at least 1"),
        ({"beam": 2, "length_penalty": math.nan}, "length_penalty is nan, but must be a finite number"),
        ({"beam": 2, "length_penalty": 1e300}, "length_penalty is 1e[+]300, but must be from -10 to 10"),
        ({"length_penalty": 0.6}, "length_penalty is 0.6, but beam is 1, and the penalty compares"),
    ],
)
def test_a_search_that_cannot_be(given: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Search(**given)


def test_a_long_line_is_cut_and_counted(translator: Run) -> None:
    opened = open_run(translator)
    lines = ["Tom saw Anna", "Tom saw Anna " * 130_000, "Anna saw " * 100]
    with pytest.warns(
        ClockhandsWarning, match=r"2 texts have more than 9 tokens, .* the first 9 are read; raise max_s"
    ):
        cut = list(translate(opened, lines, Search(max_source=9)))
    # What is read of the second is its first 8 words and its end.
    short = list(translate(opened, ["Tom saw Anna", "Tom saw Anna Tom saw Anna Tom saw"], Search(max_source=9)))
    assert [t.text for t in cut[:2]] == [t.text for t in short]
    assert cut[1].source == lines[1]


@pytest.mark.parametrize("engine", ["transformers", "ctranslate2"])
def test_a_source_of_which_only_the_end_is_left_is_empty(translator: Run, engine: str) -> None:
    with pytest.warns(ClockhandsWarning, match="only the first 1 are read"):
        (done,) = translate(translator, ["Tom saw Anna"], Search(max_source=1, engine=engine))
    assert (done.text, done.score) == ("", 0.0)


def test_a_translation_longer_than_any_memory_is_refused_at_the_call(translator: Run) -> None:
    with pytest.raises(UsageError, match=r"^1 text of 2,147,483,648 tokens at a time needs .*lower max_length"):
        translate(translator, ["Tom bit Anna"], Search(max_length=2**31))


def test_a_beam_that_no_memory_holds_is_refused_before_anything_is_written(
    translator: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clockhands.devices.measure_free_memory", lambda device: 10**6)
    found = list(translate(translator, ["Tom saw Anna"] * 3, Search(beam=2)))
    assert len(found) == 3
    with pytest.raises(
        UsageError, match=r"3,000 texts of 4 tokens at a time need .* are free; lower beam .--beam. or batch .--batch."
    ):
        list(translate(translator, ["Tom saw Anna"] * 3, Search(beam=1000)))


@pytest.mark.parametrize(("tokens", "most"), [(1, 82), (16, 82), (17, 114), (160, 370)])
def test_a_translation_may_have_twice_the_tokens_of_its_source_and_fifty(tokens: int, most: int) -> None:
    """The source counts as a multiple of 16 tokens; a length that was asked for is taken instead."""
    assert bound_length(tokens) == most
    assert bound_length(tokens, 7) == 7


def test_cross_attention_is_a_distribution_over_the_source(translator: Run) -> None:
    weights, sources, targets = compute_cross_attention(translator, "Tom bit Anna")
    assert weights.shape == (1, 2, len(targets), len(sources))
    assert sources[:3] == ["Tom", "bit", "Anna"] or [word.strip() for word in sources[:3]] == ["Tom", "bit", "Anna"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    figure = draw_cross_attention(translator, "Tom bit Anna")
    assert [panel.title for panel in figure.panels] == ["layer 1, head 1", "layer 1, head 2"]
    assert figure.panels[1].marks[0].z[0][0] == pytest.approx(float(weights[0, 1, 0, 0]))
    assert figure.caption.endswith("every row sums to 1.")


def test_a_target_of_the_caller_is_read_instead_of_the_translation(translator: Run) -> None:
    weights, _, targets = compute_cross_attention(translator, "Tom bit Anna", "Anna bit Tom Tom")
    assert len(targets) == len(translator.tokenizers.target("Anna bit Tom Tom")["input_ids"]) == weights.shape[2]
    assert [word.strip() for word in targets[:4]] == ["Anna", "bit", "Tom", "Tom"]


def test_a_decoder_without_layers_is_refused(translator: Run, tmp_path: Path) -> None:
    recipe = vary_recipe(translator.recipe, {"model.decoder_layers": 0, "training.max_steps": 1})
    run = train(recipe, tmp_path / "run")
    with pytest.raises(UsageError, match="a decoder of 0 layers, so there is no cross-attention"):
        compute_cross_attention(run, "Tom bit Anna")


def test_a_caption_does_not_say_that_rows_sum_to_1_where_a_scheme_replaces_the_softmax(
    translator: Run, tmp_path: Path
) -> None:
    recipe = vary_recipe(translator.recipe, {"position.cross.scheme": "sinks", "training.max_steps": 1})
    run = train(recipe, tmp_path / "run")
    weights, _, _ = compute_cross_attention(run, "Tom bit Anna", "Anna bit Tom")
    assert bool((weights.sum(-1) < 0.99).all())
    assert draw_cross_attention(run, "Tom bit Anna", "Anna bit Tom").caption.endswith("rows need not sum to 1.")
