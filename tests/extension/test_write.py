"""An extended model is a folder that plain transformers opens, and computes there what was judged."""

from __future__ import annotations

import copy
import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Phi3Config

from clockhands.errors import CheckpointError, UsageError
from clockhands.extension import apply, list_engine_lines, list_methods, write, write_extended
from clockhands.extension.choose import Judged, Setting, judge
from clockhands.extension.methods import find_dependence
from clockhands.extension.reading import Drift, cut_texts
from clockhands.extension.write import make_cache_finding
from clockhands.models import open_language_model
from tests.runs.tiny import LENGTH, make_tokenizer, save_model, save_own_model

LONG = 4 * LENGTH


def make_ids() -> torch.Tensor:
    return torch.randint(3, 99, (1, LONG), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("kind", "name"), [("llama", "yarn"), ("llama", "dynamic"), ("llama", "ntk-beyond"), ("gpt2", "tiled")]
)
def test_transformers_opens_what_was_written(kind: str, name: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", kind)
    make_tokenizer(model_max_length=LENGTH).save_pretrained(folder)
    model = open_language_model(folder)
    (method,) = (each for each in list_methods(model, LENGTH, LONG) if each.name == name)
    assert write_extended(model, method, LENGTH, LONG, tmp_path / "longer").error < 1e-5
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "longer").eval()
    with apply(model, method) as extended, torch.inference_mode():
        expected = extended.compute_logits(make_ids())
        torch.testing.assert_close(theirs(input_ids=make_ids()).logits, expected, atol=1e-5, rtol=0)
    longer_text = AutoTokenizer.from_pretrained(tmp_path / "longer")("a" * 2 * LONG, truncation=True)["input_ids"]
    assert len(longer_text) == LONG, "the tokenizer cuts texts at the new length"
    assert not list((tmp_path / "longer").glob(".writing*"))
    with pytest.raises(UsageError, match="holds a model already; name another folder"):
        write_extended(model, method, LENGTH, LONG, tmp_path / "longer")
    if kind == "llama":
        old = json.loads((tmp_path / "longer" / "config.transformers4.json").read_text())
        assert "rope_parameters" not in old and old["rope_scaling"]["factor"] == 4.0
        assert AutoConfig.from_pretrained(tmp_path / "longer").max_position_embeddings == (
            LENGTH if name == "dynamic" else LONG
        )


TOLD = {
    "yarn": {
        "vLLM": ['--hf-overrides \'{"rope_parameters"', "--max-model-len 128"],
        "SGLang": ["--json-model-override-args", "--context-length 128"],
        "llama.cpp": ["--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32"],
        "GGUF": ["llama.rope.scaling.type = yarn"],
    },
    "by-parts-beyond": {
        "vLLM": ["--max-model-len 128"],
        "llama.cpp": ["cannot be told: llama.cpp takes the factors of LongRoPE from tensors"],
    },
    "dynamic": {name: ["cannot be told: ", "one base for texts of every length"] for name in ("vLLM", "SGLang")},
}
"""What each program is told of a method; one with one base for all texts cannot be told of a base that grows."""


@pytest.mark.parametrize("name", TOLD)
def test_each_program_is_told_or_cannot_be(name: str, tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path / "model", "llama"))
    (method,) = (each for each in list_methods(model, LENGTH, LONG) if each.name == name)
    write_extended(model, method, LENGTH, LONG, tmp_path / name)
    lines = dict(list_engine_lines(tmp_path / name))
    for program, (first, *others) in TOLD[name].items():
        assert first in lines[program] and all(part in lines[program] for part in others)
        assert lines[program].startswith("cannot be told") == first.startswith("cannot be told")


def decode(folder: Path, ids_NS: torch.Tensor, prefill: int) -> torch.Tensor:
    """Compute logits with plain transformers: the first tokens at once, then one token a step, with the cache."""
    theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.inference_mode():
        reading = theirs(input_ids=ids_NS[:, :prefill], use_cache=True)
        pieces = [reading.logits]
        for place in range(prefill, ids_NS.shape[1]):
            token_N1 = ids_NS[:, place : place + 1]
            reading = theirs(input_ids=token_N1, past_key_values=reading.past_key_values, use_cache=True)
            pieces.append(reading.logits)
    return torch.cat(pieces, dim=1)


@pytest.mark.parametrize("name", ["dynamic-1", "ntk-beyond", "yarn"])
def test_what_the_page_says_of_a_cache_is_what_transformers_computes(name: str, tmp_path: Path) -> None:
    """The losses of the page are those of plain transformers, which decodes with its cache the texts of the judgement.

    One that sees no difference would say that of one pass, which is another here.
    """
    model = open_language_model(save_model(tmp_path / "model", "llama"))
    stream = np.random.default_rng(0).integers(3, 99, 3000)
    methods = [each for each in list_methods(model, LENGTH, LONG) if each.name in ("none", name)]
    plain, chosen = judge(Setting(model, stream, (LENGTH, 2 * LENGTH, LONG), 8, 10, ()), methods)
    written = write_extended(model, chosen.method, LENGTH, LONG, tmp_path / "longer")
    finding = make_cache_finding(written, chosen, plain, ours=False)
    texts, tail = len(chosen.drift.losses_NR), chosen.drift.tail
    ids_NS = torch.from_numpy(cut_texts(stream, LONG, tail, texts, ()))
    whole, cached = (decode(tmp_path / "longer", ids_NS, prefill) for prefill in (LONG, LENGTH))
    losses = [
        float(F.cross_entropy(logits[:, -tail - 1 : -1].transpose(1, 2), ids_NS[:, -tail:]))
        for logits in (whole, cached)
    ]
    assert written.steps == 32 and written.step_error < 1e-4
    if name == "yarn":
        assert "Nothing: its positions do not depend" in finding.verdict and (whole - cached).abs().max() < 1e-4
        return
    assert f"{losses[0]:.3f}" != f"{losses[1]:.3f}"
    assert f"at {LONG} tokens is {losses[1]:.3f}; in one pass it is {losses[0]:.3f}" in finding.verdict
    assert ("After a text of 128 tokens, one of 32 gives" in finding.verdict) == (name == "dynamic-1")
    longer = AutoModelForCausalLM.from_pretrained(tmp_path / "longer").eval()
    ids_1S = torch.randint(0, len(model.tokenizer), (1, LONG), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        fresh = longer(input_ids=ids_1S[:, :LENGTH]).logits
        longer(input_ids=ids_1S)
        changed = float((longer(input_ids=ids_1S[:, :LENGTH]).logits - fresh).abs().max())
    assert written.stale == pytest.approx(changed, abs=1e-4) and (changed > 0.1) == (name == "dynamic-1")


@pytest.mark.parametrize("kind", [LlamaConfig, Phi3Config])
def test_generate_of_phi_3_reads_the_whole_text_again_and_the_page_says_so(kind: type[Any], tmp_path: Path) -> None:
    config = kind(
        vocab_size=100, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        pad_token_id=0, max_position_embeddings=LENGTH, original_max_position_embeddings=LENGTH, initializer_range=0.2,
    )  # fmt: skip
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    model = open_language_model(tmp_path / "model")
    methods = [each for each in list_methods(model, LENGTH, LONG) if each.name in ("none", "ntk-beyond")]
    stream = np.random.default_rng(0).integers(3, 99, 3000)
    plain, chosen = judge(Setting(model, stream, (LENGTH, LONG), 8, 10, ()), methods)
    written = write_extended(model, chosen.method, LENGTH, LONG, tmp_path / "longer")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "longer").eval()
    text_1S = ids_1S = make_ids()[:, : LENGTH - 4]
    with torch.inference_mode():
        for _ in range(30):
            text_1S = torch.cat([text_1S, theirs(text_1S, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    is_alike = torch.equal(theirs.generate(ids_1S, max_new_tokens=30, min_new_tokens=30, do_sample=False), text_1S)
    verdict = make_cache_finding(written, chosen, plain, ours=False).verdict
    assert ("For `generate` nothing: it reads the whole text again" in verdict) == is_alike == (kind is Phi3Config)
    assert "otherwise: after 32 tokens at once" in verdict


def test_a_model_of_ours_says_that_it_takes_no_cache_where_keys_would_be_stale(tmp_path: Path) -> None:
    said = {}
    for name, layers, steps in (("yarn", 2, 32), ("ntk-beyond", 2, 0), ("dynamic", 1, 32)):
        model = open_language_model(save_own_model(tmp_path / str(layers), "rope", decoder_layers=layers))
        methods = {method.name: method for method in list_methods(model, LENGTH, LONG)}
        written = write_extended(model, methods[name], LENGTH, LONG, tmp_path / name)
        drift, dependence = Drift((LENGTH, LONG), 8, np.zeros((8, 2))), find_dependence(model, methods[name])
        judged = Judged(methods[name], drift, None, None, 2.0, dependence=dependence)
        said[name] = make_cache_finding(written, judged, judged, ours=True).verdict
        assert written.steps == steps
    assert "Nothing: its positions do not depend" in said["yarn"]
    assert "It takes none beyond 32 tokens" in said["ntk-beyond"]
    assert "its one layer keeps keys as they are before they turn" in said["dynamic"]


def test_a_folder_is_cleared_of_what_was_half_written_and_of_nothing_else(tmp_path: Path) -> None:
    """Below ``--out runs`` another process may be training."""
    own = [tmp_path / ".measured.json.1f.writing", tmp_path / "report" / "figures" / ".loss.svg.2f.writing"]
    others = [tmp_path / "ours" / ".model.safetensors.3f.writing", tmp_path / ".odd.writing" / "kept"]
    for path in (*own, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with write.stage(tmp_path) as place:
        assert place.is_dir() and not any(path.exists() for path in own)
    assert all(path.exists() for path in others)


@pytest.mark.parametrize("changes", range(6))
def test_a_command_that_is_killed_while_it_publishes_may_begin_again(
    changes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, left = tmp_path / write.STAGE, iter(range(changes))
    place.mkdir()
    for path in (tmp_path / write.MEASURED, *(place / name for name in ("config.json", "README.md", "recipe.toml"))):
        path.touch()
    for name in ("replace", "unlink"):
        act = getattr(Path, name)
        # The iterator ends after so many changes, with StopIteration.
        monkeypatch.setattr(Path, name, lambda path, *to, act=act, **how: (next(left), act(path, *to, **how)))
    with pytest.raises(StopIteration) if changes < 5 else nullcontext():
        write.publish(place, tmp_path)
    monkeypatch.undo()
    if changes == 5:
        assert {path.name for path in tmp_path.iterdir()} == {place.name, "config.json", "README.md", "recipe.toml"}
        return
    write.refuse_taken(tmp_path, tmp_path / "model")
    shutil.rmtree(place)
    (tmp_path / write.MEASURED).unlink(missing_ok=True)
    with pytest.raises(UsageError, match="which would be replaced") if changes else nullcontext():
        write.refuse_taken(tmp_path, tmp_path / "model")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_does_not_compute_the_same_is_not_kept(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 16 bits, too, of which all models were refused: their steps by a cache round elsewhere than one pass does."""
    model = open_language_model(save_model(tmp_path / "model", "llama"), dtype=dtype)
    yarn = next(each for each in list_methods(model, LENGTH, LONG) if each.name == "yarn")
    written = write_extended(model, yarn, LENGTH, LONG, tmp_path / "sound")
    assert written.steps == 32 and written.step_error < 0.05 * written.spread
    monkeypatch.setattr(write, "make_configuration", lambda extended, _: copy.deepcopy(extended.model.config))
    with pytest.raises(CheckpointError, match=r"differs by .* in its logits from what was judged; nothing was kept"):
        write_extended(model, yarn, LENGTH, LONG, tmp_path / "longer")
    assert not list((tmp_path / "longer").iterdir())
