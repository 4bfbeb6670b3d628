"""Subjects draw their texts, and copies of a model share its weights."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from clockhands.checking import examine
from clockhands.checking.checks.check import select
from clockhands.checking.models import subject as subjects
from clockhands.checking.models.huggingface import HFModel
from clockhands.checking.models.make_subjects import from_build, from_model
from clockhands.checking.models.tiny import build_model, find, tiny_config
from clockhands.checking.verdict.judge import run_checks


@pytest.mark.parametrize("name", ["whisper:causal", "mpt:causal", "led:seq2seq", "encoder-decoder:seq2seq"])
def test_the_claimed_length_is_found_under_each_of_its_names(name: str) -> None:
    """Without it a model would be asked for texts that it never claimed to read. All claim 128 tokens once shrunk."""
    assert [subject.facts.limit for subject in from_build(find(name)[0])] == [128] * (1 + name.endswith("seq2seq"))


def test_tables_of_what_reads_images_are_not_those_of_the_text() -> None:
    (subject,) = from_build(find("qwen3_vl")[0])
    assert (subject.facts.scheme, subject.facts.absolute, subject.facts.limit) == ("RoPE", False, 128)


@pytest.fixture
def adapter() -> HFModel:
    return HFModel(build_model(tiny_config(find("llama:causal")[0]), "causal"), "causal")


def test_a_copy_of_the_same_precision_has_no_weights_of_its_own(adapter: HFModel) -> None:
    twin = subjects.copy_sharing(adapter)
    theirs = dict(adapter.module.named_parameters())
    assert all(p is theirs[name] for name, p in twin.module.named_parameters())
    table = twin.module.model.rotary_emb.inv_freq
    assert table is not adapter.module.model.rotary_emb.inv_freq
    assert twin.module.config is not adapter.module.config


def test_a_cast_of_a_copy_leaves_the_original_as_it_was(adapter: HFModel) -> None:
    before = copy.deepcopy(adapter.module.state_dict())
    twin = subjects.copy_sharing(adapter, torch.float64)
    assert {p.dtype for p in twin.module.parameters()} == {torch.float64}
    assert twin.module.model.rotary_emb.inv_freq.dtype == torch.float64
    low = subjects.copy_without_weights(adapter.module).to(torch.bfloat16)
    assert low.model.rotary_emb.inv_freq.dtype == torch.bfloat16
    assert {p.device.type for p in low.parameters()} == {"meta"}
    after = adapter.module.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert adapter.module.model.rotary_emb.inv_freq.dtype == torch.float32


def test_a_reloaded_model_is_where_the_given_one_is(adapter: HFModel, tmp_path: Path) -> None:
    adapter.module.save_pretrained(tmp_path)
    here = subjects.reload(adapter.module, str(tmp_path), torch.bfloat16)
    assert {(p.device.type, p.dtype) for p in here.parameters()} == {("cpu", torch.bfloat16)}
    elsewhere = subjects.copy_without_weights(adapter.module)  # the one other device that every machine has
    there = subjects.reload(elsewhere, str(tmp_path), torch.float32)
    assert {t.device.type for t in (*there.parameters(), *there.buffers())} == {"meta"}


def test_tied_weights_stay_tied() -> None:
    model = build_model(tiny_config(find("gpt2:causal")[0]), "causal")
    for twin in (subjects.copy_sharing(model), subjects.copy_sharing(model, torch.float64)):
        assert twin.lm_head.weight is twin.transformer.wte.weight


def test_a_model_too_large_for_a_copy_and_without_files_is_checked_without(
    adapter: HFModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked() -> dict[str, str]:
        return {o.check: o.verdict for o in run_checks(from_model(adapter.module)[0], select())}

    small = checked()
    monkeypatch.setattr(subjects, "measure_free_memory", lambda device: 0)
    large = checked()
    without = {"precision.load", "precision.distance", "precision.long", "precision.order", "load.config"}
    without |= {"load.round_trip"}
    assert {check for check in without if large[check] == "N/A"} == without - {"load.round_trip"}
    assert {c: v for c, v in large.items() if c not in without} == {c: v for c, v in small.items() if c not in without}
    assert large["load.round_trip"] == "PASS"  # written, and streamed from what was written


def test_the_number_of_short_forward_passes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(tiny_config(find("llama:causal")[0]), "causal")
    model.save_pretrained(tmp_path)
    calls: list[int] = []
    original = type(model).forward

    def counted(self: torch.nn.Module, input_ids: torch.Tensor, **named: object) -> object:
        calls.append(input_ids.numel())
        return original(self, input_ids, **named)

    monkeypatch.setattr(type(model), "forward", counted)
    examine(str(tmp_path))
    assert 100 < len(calls) < 500
    assert sum(calls) < 12_000


def test_a_copy_in_float64_may_take_half_of_the_free_memory(adapter: HFModel, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = sum(p.numel() for p in {id(p): p for p in adapter.module.parameters()}.values())
    judged = []
    for free in (2 * 8 * weights, 2 * 8 * weights - 1):
        monkeypatch.setattr(subjects, "measure_free_memory", lambda device, free=free: free)
        judged.append(subjects.is_large(adapter))
    assert judged == [False, True]
