"""Every measure has the one shape, and its finding says what the measure declares."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from clockhands.findings import Finding
from clockhands.inspection import inspect
from clockhands.inspection.measures import MEASURES, Measure
from clockhands.inspection.reading.capture import capture
from clockhands.inspection.reading.logit_split import split_logits
from clockhands.inspection.reading.reading import Reading, read_model
from clockhands.inspection.reading.windows import cut_ids
from clockhands.models.subject import Subject

from .. import planted
from ..tiny import VOCAB, tiny

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_says_what_it_asks_compares_and_does(name: str) -> None:
    measure = MEASURES[name]
    assert measure.name == name
    assert measure.question.endswith("?")
    assert measure.method.endswith(".")
    assert measure.references and measure.source and measure.heading
    assert "null" not in measure.method.lower().split()


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_has_its_entry_on_the_page(name: str) -> None:
    page = (ROOT / "docs" / "inspect.md").read_text("utf8")
    row = next((line for line in page.splitlines() if line.startswith(f"| `{name}` |")), "")
    assert row, f"docs/inspect.md has no row for {name}"
    question, references = (cell.strip() for cell in row.split("|")[2:4])
    assert question == MEASURES[name].question
    assert references == ", ".join(MEASURES[name].references)


def test_a_finding_has_the_heading_and_the_references_of_its_measure() -> None:
    """On the decoder of a pair, which every measure of attention applies to; ``test_run`` has the other families."""
    ids = torch.randint(7, VOCAB, (10, 16), generator=torch.Generator().manual_seed(0))
    for finding in inspect(tiny("bart"), texts=ids, name="bart", side="decoder"):
        check_declared(finding)


def check_declared(finding: Finding) -> None:
    """A finding is what its measure declares."""
    measure = MEASURES[finding.name]
    assert finding.question == measure.question
    assert finding.details["group"] == measure.heading
    assert tuple(finding.basis) == measure.rests_on
    assert {reference.name for reference in finding.references} <= set(measure.references), finding.name


class Vowels(Measure):
    """A measure that is nowhere in this project: the part of even token ids."""

    name = "toy"
    question = "Are the ids even?"
    references = ("chance",)
    method = "Counted."
    source = "none"
    heading = "A heading of its own"

    def run(self, reading: Reading) -> Finding:
        return self.make_finding("Some are.", float((reading.capture.ids_NT % 2 == 0).float().mean()))


def test_a_measure_of_another_name_stands_under_its_own_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding whose name began like none of the headings ended in a bare StopIteration."""
    monkeypatch.setitem(MEASURES, "toy", Vowels())
    found = inspect(Subject.of(planted.uniform()), texts=planted.ids(8), control=False)["toy"]
    assert found.details["group"] == "A heading of its own"
    assert found.value == float((planted.ids(8) % 2 == 0).float().mean())
    assert (found.question, found.method, found.basis) == ("Are the ids even?", "Counted.", {})


def test_the_example_of_contributing_is_a_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file, its test and its entry, as they stand there; `inspect` has its control, and its heading."""
    section = (ROOT / "docs/contributing/measure.md").read_text("utf8")
    file, test = (re.sub("^   ", "", block, flags=re.M) for block in re.findall(r"```python\n(.*?)```", section, re.S))
    names: dict[str, Any] = {"__name__": "first_token"}
    exec(file, names)
    measure: Measure = names["FirstToken"]()
    monkeypatch.setitem(MEASURES, measure.name, measure)
    assert f"\n| `{measure.name}` | {measure.question} | {', '.join(measure.references)} |\n" in section
    tested: dict[str, Any] = {"__package__": __package__}
    exec(test, tested)
    tested["test_uniform_attention_gives_the_first_token_its_share"]()
    found = inspect(Subject.of(planted.uniform()), texts=planted.ids(8))[measure.name]
    check_declared(found)
    assert found.value == pytest.approx(1 / planted.LENGTH) and len(found.references) == 1
    # Of another model it is what transformers computes: the largest mean weight of key 0 of any layer.
    model, ids = tiny("gpt2"), torch.randint(7, VOCAB, (10, 16), generator=torch.Generator().manual_seed(0))
    reading = read_model(Subject.of(model), cut_ids(ids, count=10, max_length=None))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(ids, output_attentions=True).attentions
    largest = max(float(weights[..., 0].mean()) for weights in attentions)
    assert measure.run(reading).value == pytest.approx(largest, abs=1e-5)


@pytest.mark.parametrize("kept", [1, 2])
def test_the_numbering_of_layers_is_explained_where_some_could_not_be_read(kept: int) -> None:
    """The reason was dropped, and "layer 1" was the second block."""
    model = tiny("bert")
    subject = Subject.of(model)
    recorded = capture(subject.model, subject.forward, torch.randint(3, VOCAB, (8, 12)))
    if kept == 1:
        recorded.layers, recorded.unread_reason = recorded.layers[1:], "the attention of Blocks cannot be run alone"
    splits = [split_logits(layer, recorded.ordinary_T) for layer in recorded.layers]
    (found,) = MEASURES["logits.layers"].answer(Reading(subject, recorded, splits))
    said = "among the 1 of 2 blocks whose attention could be read (the attention of Blocks cannot be run alone)."
    assert found.verdict.endswith(said) == (kept == 1) and ("numbered" in found.verdict) == (kept == 1)


def test_a_layer_that_cannot_be_run_alone_is_named_though_others_can() -> None:
    """Its attention runs within the whole model only."""
    model = tiny("bert")
    inside: list[bool] = []
    model.register_forward_pre_hook(lambda module, args: inside.append(True))
    model.register_forward_hook(lambda module, args, output: inside.clear())

    def refuse(module: nn.Module, args: Any) -> None:
        if not inside:
            raise ValueError("alone")

    model.encoder.layer[0].attention.self.register_forward_pre_hook(refuse)
    subject = Subject.of(model)
    recorded = capture(subject.model, subject.forward, torch.randint(3, VOCAB, (8, 12)))
    assert len(recorded.layers) == 1
    assert recorded.unread_reason == "the attention of BertSelfAttention cannot be run alone (ValueError: alone)"
    size = inspect(model, ids=torch.randint(3, VOCAB, (8, 12)), control=False).facts["size"]
    assert str(size).startswith("2 layers, 4 heads, width 32"), "it had one layer, the one that could be read"


def test_a_measure_that_needs_attention_is_left_out_where_none_can_be_read() -> None:
    subject, recorded = planted.subject_of(planted.uniform(), 4)
    recorded.layers, recorded.unread_reason = [], "its attention is in blocks"
    reading = Reading(subject, recorded)
    for name in ("logits.layers", "logits.heads", "heads.distance", "heads.positional", "kernel", "kernel.terms"):
        (found,) = MEASURES[name].answer(reading)
        assert (found.light, found.verdict) == ("skip", "Not measured: its attention is in blocks."), name
    assert not list(MEASURES["heads.across"].answer(reading)), "there is no other side to look at"


def test_a_model_whose_attention_is_none_of_self_attention_has_a_reason() -> None:
    """The sentence ended in the colon where nothing said why no layer could be read."""
    reading = Reading.without_text(Subject.of(planted.uniform()))
    (found,) = MEASURES["heads.positional"].answer(reading)
    assert (found.light, found.verdict) == ("skip", "Not measured: no self-attention was seen.")
    reading.capture.unread_reason = "the attention of Odd is not given one vector per token"
    (found,) = MEASURES["heads.positional"].answer(reading)
    assert found.verdict == "Not measured: the attention of Odd is not given one vector per token."
