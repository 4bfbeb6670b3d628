"""A run opens itself once, with its own settings."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from clockhands.data import Tokenizers, train_tokenizer
from clockhands.errors import CheckpointError, UsageError
from clockhands.generation import generate
from clockhands.model import make_preset
from clockhands.model.huggingface import ClockhandsForCausalLM
from clockhands.model.huggingface_base import ClockhandsConfig
from clockhands.runs import Run, open_run
from clockhands.runs.opening import change_scheme


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an untrained language model of characters with rotary positions."""
    path = tmp_path_factory.mktemp("runs") / "run"
    tokenizer = train_tokenizer(["the cat sees a dog"], kind="character")
    tokenizers = Tokenizers(tokenizer, tokenizer)
    sizes = {"kind": "decoder", "vocab_size": len(tokenizer), "d_model": 16, "num_heads": 2, "d_ff": 16}
    config = ClockhandsConfig(
        transformer=make_preset("tiny", {**sizes, "decoder": "rope"}).to_dict(),
        pad_token_id=0, bos_token_id=1, eos_token_id=2, tokenizer_fingerprint=tokenizers.fingerprint,
    )  # fmt: skip
    ClockhandsForCausalLM(config).save_pretrained(path)
    tokenizers.save(path)
    (path / "recipe.toml").write_text("")
    return path


def test_a_run_that_is_not_loaded_yet_opens_with_its_own_settings(folder: Path) -> None:
    run = Run(folder, "cpu", torch.float64, {"spectrum": "linear", "factor": 4.0})
    opened = open_run(run)
    assert (opened.device, opened.dtype) == ("cpu", torch.float64)
    assert opened.model.dtype == torch.float64
    assert opened.model.config.transformer_config.decoder.options["factor"] == 4.0


def test_a_run_loads_its_model_once(folder: Path, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(folder, tmp_path / "run")), "cpu")
    assert not run.is_loaded
    generate(run, "the", tokens=1)
    assert run.is_loaded
    shutil.rmtree(run.path)
    assert generate(run, "the", tokens=1, temperature=0)[0].startswith("the")
    assert open_run(run) is run


def test_arguments_make_another_run_of_one_that_is_open(folder: Path) -> None:
    run = open_run(Run(folder, "cpu", torch.float64))
    bent = open_run(run, position={"spectrum": "linear", "factor": 9.0})
    assert bent is not run
    assert bent.model.config.transformer_config.decoder.options["factor"] == 9.0
    assert bent.model.dtype == torch.float64
    assert "factor" not in run.model.config.transformer_config.decoder.options


def test_settings_that_cannot_be_are_told_at_once(folder: Path) -> None:
    with pytest.raises(UsageError, match="spectrm"):
        open_run(Run(folder, "cpu", position={"spectrm": "yarn"}))
    with pytest.raises(UsageError, match="device"):
        open_run(Run(folder, "nowhere"))


def test_changed_positions_do_not_excuse_other_missing_weights(folder: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(folder, tmp_path / "run"))
    weights = load_file(path / "model.safetensors")
    name = next(name for name in weights if "blocks.0" in name)
    save_file(
        {key: value for key, value in weights.items() if key != name}, path / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(CheckpointError, match=f"{re.escape(name)} is missing"):
        open_run(path, position={"spectrum": "linear", "factor": 2.0})


def test_another_scheme_takes_over_the_weights(folder: Path) -> None:
    model = open_run(folder).model
    ids = torch.arange(4, 9)[None]
    far = change_scheme(model, {"scheme": "rerope", "window": 100})
    assert far.config.transformer_config.decoder.scheme == "rerope"
    with torch.inference_mode():
        torch.testing.assert_close(far(input_ids=ids).logits, model(input_ids=ids).logits)
        near = change_scheme(model, {"scheme": "rerope", "window": 2})
        assert (near(input_ids=ids).logits - model(input_ids=ids).logits).abs().max() > 1e-6
    with pytest.raises(CheckpointError, match="the model has other weights"):
        change_scheme(model, {"scheme": "learned", "max_length": 9})
