"""What does not fit the memory is refused before anything is computed, in one sentence."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from clockhands.cli import main
from clockhands.errors import UsageError
from clockhands.inspection import Subject, capture
from clockhands.inspection.reading import memory_check, tensor_storage
from clockhands.inspection.reading.windows import Windows

from .. import planted
from ..tiny import tiny


def test_windows_whose_attention_does_not_fit_are_refused_before_they_are_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny("bloom").save_pretrained(tmp_path / "bloom")
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(5, 90, (8, 400_000), dtype=np.int32))
    assert main(["inspect", str(tmp_path / "bloom"), "--ids", str(tmp_path / "ids.npy"), "--threads", "1"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(r"8 windows of 400,000 tokens need [\d,.]+ TiB of memory .* lower --length", line), line


def test_the_bytes_are_those_of_the_attention_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one layer's sums over texts really take, and a batch's logits, weights and products."""
    subject, recorded = planted.subject_of(planted.uniform(), 16)
    windows = Windows(recorded.ids_NT, recorded.ordinary_T)
    computed, counted = memory_check.count_bytes(subject.num_heads, windows)
    call = recorded.layers[0].replay(recorded.layers[0].inputs_NTD[:8])
    assert computed == 3 * call.logits_BHST.numel() * call.logits_BHST.element_size()
    counts = planted.HeadSums(recorded.ordinary_T)
    counts.add(call)
    assert counted == counts.sums.total_gHST.numel() * counts.sums.total_gHST.element_size()
    monkeypatch.setattr("clockhands.devices.measure_free_memory", lambda device: computed + counted)
    memory_check.check_memory(subject, windows)
    monkeypatch.setattr("clockhands.devices.measure_free_memory", lambda device: computed + counted - 1)
    with pytest.raises(UsageError, match=r"on 16 windows of 32 tokens needs .* lower --length \(length=...\)"):
        memory_check.check_memory(subject, windows)


def test_states_that_do_not_fit_the_disk_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_storage, "MOST_IN_MEMORY", 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    subject = Subject.of(planted.uniform())
    with pytest.raises(UsageError, match=r"in temporary files, and 1000 bytes are free in .*; lower --texts"):
        capture(subject.model, subject.forward, planted.ids(8))


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "bloom", "xlnet"])
def test_how_many_heads_a_layer_has_is_what_is_computed(name: str) -> None:
    subject = Subject.of(tiny(name))
    recorded = capture(subject.model, subject.forward, torch.randint(7, 90, (2, 12)))
    assert recorded.layers[0].replay(recorded.layers[0].inputs_NTD[:2]).logits_BHST.shape[1] == subject.num_heads == 4
