"""Weights left in their files: the same verdicts, and never more than one layer in memory."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from clockhands.checking import examine
from clockhands.checking.against import compare
from clockhands.checking.models import subject as subjects
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.models.tiny import build_model, find, tiny_config
from clockhands.checking.result import Result
from clockhands.errors import CheckpointError, UsageError
from clockhands.models import open_with_head, streaming
from tests.checking.checks.test_planted_transformers import LIBRARY, PLANTED, SecondTurnFromNought, registered
from tests.shared import Logged

CPU = torch.device("cpu")
SECOND_COPY = {"load.config", "precision.long", "precision.order"}
"""Checks that need weights of a second copy: where there is no room for one they are not made."""


def saved(folder: Path, name: str, **changed: Any) -> Path:
    """A shrunk model in several files."""
    (build,) = (each for each in find(name) if not each.variant)
    config = tiny_config(build)
    for key, value in changed.items():
        setattr(config, key, value)
    build_model(config, build.task).save_pretrained(folder, max_shard_size="50KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("llama"), "llama", num_hidden_layers=4)


def told(result: Result) -> list[dict[str, Any]]:
    """All that is said of every check, but for the time, the floor, and those that need a second copy."""
    return [
        {**outcome.as_dict(), "seconds": 0, "floor": 0}
        for outcome in result.outcomes
        if outcome.check not in SECOND_COPY
    ]


def not_made(result: Result) -> set[str]:
    """Those of the checks that need a second copy which were not made."""
    return {outcome.check for outcome in result.outcomes if outcome.check in SECOND_COPY and outcome.verdict == "N/A"}


def resident(model: nn.Module) -> int:
    """Parameters in memory."""
    return sum(p.numel() for p in model.parameters() if not p.is_meta)


@pytest.fixture
def at_every_layer() -> Iterator[Any]:
    """Watch a model: the parameters in memory and how many layers have some, each time that a part is run."""
    handles = []

    def watch(model: Any) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []

        def look(*_: Any) -> None:
            seen.append((resident(model), sum(resident(layer) > 0 for layer in model.model.layers)))

        for part in (model.model.embed_tokens, *model.model.layers, *(layer.mlp for layer in model.model.layers)):
            handles.append(part.register_forward_pre_hook(look))
            handles.append(part.register_forward_hook(look))
        return seen

    yield watch
    for handle in handles:
        handle.remove()


def test_the_verdicts_are_those_of_weights_in_memory(llama: Path) -> None:
    (there,), (here,) = (examine(str(llama), weights=way) for way in ("streamed", "memory"))
    assert told(there) == told(here)
    assert not_made(there) >= {"load.config", "precision.order"} and not not_made(here)
    assert {"PASS", "LIBRARY", "WARN", "N/A"} == {outcome.verdict for outcome in there.outcomes}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_never_more_than_one_layer_is_in_memory(llama: Path, dtype: torch.dtype, at_every_layer: Any) -> None:
    model, task = open_with_head(str(llama), "float32", "cpu", False, "streamed")
    (subject,) = from_model(model, origin=str(llama), task=task)
    twin: Any = subject.copy_model(1, dtype).module
    seen = at_every_layer(twin)
    ids = torch.arange(10, 22)[None]
    assert twin(ids).logits.dtype == dtype
    twin.generate(ids, max_new_tokens=2)
    parts = [twin.model.embed_tokens, twin.lm_head, *twin.model.layers]
    assert max(count for count, _ in seen) <= max(sum(p.numel() for p in part.parameters()) for part in parts)
    assert {layers for _, layers in seen} == {0, 1}
    assert resident(twin) == resident(model) == 0


def test_a_planted_bug_is_found(tmp_path: Path) -> None:
    raw = tiny_config(find("llama:causal")[0]).to_dict()
    config = registered(SecondTurnFromNought).from_dict({k: v for k, v in raw.items() if k != "model_type"})  # type: ignore[attr-defined]
    model = build_model(config, "causal")
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**written, "architectures": ["LlamaForCausalLM"]}))
    (result,) = examine(str(tmp_path), weights="streamed")
    failed = {outcome.check: outcome for outcome in result.outcomes if outcome.verdict == "FAIL"}
    assert set(failed) == PLANTED[SecondTurnFromNought]
    assert {outcome.check for outcome in result.outcomes if outcome.verdict == "LIBRARY"} == LIBRARY["llama"]
    assert all(outcome.confirmed is not None and outcome.confirmed > 0.1 for outcome in failed.values())


@pytest.mark.parametrize("name", ["gpt2", "mixtral", "jamba", "t5", "mobilebert", "reformer:causal"])
def test_tied_converted_and_shared_weights_come_in_too(name: str, tmp_path: Path) -> None:
    """GPT-2 ties its head, Mixtral's experts lie in the file one by one; MobileBERT reads matrices from outside."""
    folder = saved(tmp_path, name)
    ids = torch.arange(10, 30)[None]
    logits = []
    for way in ("memory", "streamed"):
        model, task = open_with_head(str(folder), "float32", "cpu", False, way)
        logits.append(from_model(model, origin=str(folder), task=task)[0].logits(ids))
        assert streaming.is_streamed(model) == (way == "streamed")
    assert torch.equal(*logits)


def test_a_tied_copy_that_an_index_names_and_no_file_holds_is_read_from_the_other(tmp_path: Path) -> None:
    """As many checkpoints were published: the copy was dropped when they were saved, and not from the index."""
    config = LlamaConfig(vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
                         tie_word_embeddings=True)  # fmt: skip
    made = AutoModelForCausalLM.from_config(config).eval()
    made.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "part.safetensors")
    names = dict.fromkeys([*made.state_dict()], "part.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    ids = torch.arange(8)[None]
    for way in ("memory", "streamed"):
        model, _ = open_with_head(str(tmp_path), weights=way)
        with torch.no_grad():
            assert torch.equal(model(ids).logits, made(ids).logits)


def test_what_was_written_again_goes_with_the_model(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "mixtral", "mixtral")
    monkeypatch.setattr(streaming.tempfile, "tempdir", str(tmp_path_factory.mktemp("scratch")))
    model = streaming.open_streamed(AutoModelForCausalLM, str(folder), CPU)
    (scratch,) = Path(streaming.tempfile.gettempdir()).iterdir()
    assert list(scratch.glob("*experts*.safetensors"))
    del model
    gc.collect()
    assert not scratch.exists()


def test_weights_that_do_not_fit_are_streamed(llama: Path, monkeypatch: pytest.MonkeyPatch, logged: Logged) -> None:
    shards = json.loads((llama / "model.safetensors.index.json").read_text())
    size = shards["metadata"]["total_size"]
    for free, streamed in ((size * 1.3, False), (size * 1.2, True)):  # 0.8 of it may be weights
        monkeypatch.setattr(streaming, "measure_free_memory", lambda device, free=int(free): free)
        model, _ = open_with_head(str(llama), "float32", "cpu", False)
        assert streaming.is_streamed(model) == streamed
        assert ("streamed from their files" in logged.text) == streamed
    logged.records.clear()
    assert not streaming.is_streamed(open_with_head(str(llama), "bfloat16", "cpu", False)[0])  # half as much
    assert not streaming.is_streamed(open_with_head(str(llama), "float32", "cpu", False, "memory")[0])
    assert logged.text == ""


def test_a_model_that_needs_weights_of_another_layer_is_refused(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = LlamaForCausalLM.forward

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        output = original(self, *given, **named)
        output.logits = output.logits @ self.model.layers[0].mlp.down_proj.weight
        return output

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)
    with pytest.raises(
        CheckpointError, match=r"its weights streamed \(hold them in memory instead\) .*: a module uses"
    ):
        open_with_head(str(llama), "float32", "cpu", False, "streamed")


def test_an_unknown_way_is_refused(llama: Path) -> None:
    with pytest.raises(UsageError, match="unknown weights 'disk': they are held in 'memory' or 'streamed'"):
        open_with_head(str(llama), "float32", "cpu", False, "disk")


def test_a_port_is_explained_with_both_streamed(llama: Path, tmp_path: Path) -> None:
    port = AutoModelForCausalLM.from_pretrained(llama)
    port.config.rope_parameters["rope_theta"] = 5e5
    port.save_pretrained(tmp_path)
    found = compare(str(tmp_path), str(llama), weights="streamed")
    assert found.explanation == "the model has base 500,000, not 10,000"
    assert found.as_dict() == compare(str(tmp_path), str(llama)).as_dict()


def test_a_model_too_large_for_copies_streams_them_from_its_files(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (small,) = examine(str(llama), only=["precision", "load", "packing"])
    monkeypatch.setattr(subjects, "measure_free_memory", lambda device: 0)
    opened: list[torch.dtype] = []
    original = streaming.open_streamed

    def counted(*given: Any, **named: Any) -> Any:
        opened.append(named["dtype"])
        return original(*given, **named)

    monkeypatch.setattr(subjects, "open_streamed", counted)
    (large,) = examine(str(llama), weights="memory", only=["precision", "load", "packing"])
    assert told(large) == told(small)
    assert not_made(large) == SECOND_COPY and not not_made(small)
    assert {torch.float64, torch.bfloat16, torch.float32} == set(opened)  # a fault again, low precision, round trip


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_refused_though_they_stay_in_their_files(value: float, tmp_path: Path) -> None:
    """The model with its weights in memory was refused; streamed, it was taken."""
    folder = saved(tmp_path, "llama")
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[2, 3] = value
    model.save_pretrained(folder, max_shard_size="50KB")
    with pytest.raises(CheckpointError, match=r"1 of [\d,]+ numbers of model.layers.1.mlp.up_proj.weight are NaN"):
        streaming.open_streamed(AutoModelForCausalLM, str(folder), CPU)
