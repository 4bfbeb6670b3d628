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
from clockhands.inspection.reading.reading import Reading, read_model
from clockhands.inspection.reading.windows import cut_ids
from clockhands.models.subject import Subject

from .. import planted
from ..tiny import VOCAB, tiny

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_says_what_it_asks_compares_and_does_and_has_its_entry_on_the_page(name: str) -> None:
    measure = MEASURES[name]
    assert measure.name == name and measure.question.endswith("?") and measure.method.endswith(".")
    assert measure.references and measure.source and measure.heading
    assert "null" not in measure.method.lower().split()
    page = (ROOT / "docs" / "inspect.md").read_text("utf8").splitlines()
    assert f"| `{name}` | {measure.question} | {', '.join(measure.references)} |" in page


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


@pytest.mark.parametrize("same", [True, False])
def test_that_one_text_many_times_tells_nothing_of_tokens_is_said(same: bool) -> None:
    """All heads were praised for attending by position."""
    ids = planted.ids(1).repeat(8, 1) if same else planted.ids(8)
    found = inspect(planted.previous_token(), ids=ids, control=False)
    for name in ("logits.layers", "logits.heads", "survival", "heads.positional"):
        assert found[name].verdict.endswith("what positions do.") == same, name
    assert found["heads.positional"].light == ("info" if same else "good")
    assert str(found.facts["size"]).startswith("1 layer, 2 heads, width 64")


@pytest.mark.parametrize(
    ("reason", "said"),
    [("its attention is in blocks", "its attention is in blocks"), ("", "no self-attention was seen")],
)
def test_a_measure_that_needs_attention_is_left_out_with_the_reason_where_none_can_be_read(
    reason: str, said: str
) -> None:
    subject, recorded = planted.subject_of(planted.uniform(), 4)
    recorded.layers, recorded.unread_reason = [], reason
    reading = Reading(subject, recorded)
    for name in ("logits.layers", "logits.heads", "heads.distance", "heads.positional", "kernel", "kernel.terms"):
        (found,) = MEASURES[name].answer(reading)
        assert (found.light, found.verdict) == ("skip", f"Not measured: {said}."), name
    assert not list(MEASURES["heads.across"].answer(reading)), "there is no other side to look at"
