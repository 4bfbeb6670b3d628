"""From names and models to results: checkpoints, configurations, adapters, and what cannot be opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import clockhands
from clockhands.checking import examination, examine
from clockhands.checking.models.adapter import ModuleAdapter
from clockhands.checking.models.tiny import build_model, find, tiny_config
from clockhands.cli import main
from clockhands.errors import CheckpointError, UsageError
from tests.shared import Logged


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    build_model(tiny_config(find("gpt2:causal")[0]), "causal").save_pretrained(folder)
    return folder


ONLY = ["padding", "cache.steps", "shift", "config"]


def test_a_checkpoint_is_checked_with_its_own_weights(checkpoint: Path) -> None:
    (result,) = examine(str(checkpoint), only=ONLY)
    verdicts = {outcome.check: outcome.verdict for outcome in result.outcomes}
    assert verdicts["cache.steps"] == verdicts["padding.left.positions"] == "PASS"
    assert verdicts["padding.left.mask"] == verdicts["shift"] == "PROPERTY"
    assert {verdict for check, verdict in verdicts.items() if check.startswith("config")} == {"N/A"}


def test_a_checkpoints_configuration_alone_is_enough(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((checkpoint / "config.json").read_text())
    (result,) = examine(str(tmp_path), tiny=True, only=["cache.steps"])
    assert (result.model, result.outcomes[0].verdict) == ("gpt2:causal", "PASS")


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no folder .*nowhere"):
        examine(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="unknown dtype 'half8': use float32, float64, bfloat16 or float16"):
        (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
        examine(str(tmp_path), dtype="half8")


def test_a_hub_name_that_cannot_be_had_is_told_once(capsys: pytest.CaptureFixture[str], logged: Logged) -> None:
    with pytest.raises(CheckpointError, match="nobody-at-all/no-such-model is neither a folder"):
        examine("nobody-at-all/no-such-model", tiny=True)
    assert capsys.readouterr().err == "", "one message, not one for each attempt"
    assert not [record for record in logged.records if record.name.startswith("huggingface_hub")]


def test_a_model_that_does_not_run_is_named(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(*given: Any, **named: Any) -> None:
        raise IndexError("index out of range in self")

    monkeypatch.setattr(GPT2LMHeadModel, "forward", forward)
    with pytest.raises(CheckpointError, match="cannot read a text of eight tokens: IndexError: index out of range"):
        examine(str(checkpoint))


def test_weights_only_as_pickle_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((checkpoint / "config.json").read_text())
    model = build_model(tiny_config(find("gpt2:causal")[0]), "causal")
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")  # transformers would read it
    with pytest.raises(CheckpointError, match=r"only as pickle \(pytorch_model\.bin\).*can run any code"):
        examine(str(tmp_path))


def test_an_architecture_with_several_heads_is_not_chosen_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "_result", None)  # nothing is checked before that
    with pytest.raises(UsageError, match="bert is built with several heads; name one: bert:causal, bert:masked"):
        clockhands.check("bert", tiny=True)


IGNORED: list[tuple[object, dict[str, object], str]] = [
    ("gpt2", {"tiny": True, "vocabulary": 30}, "a model by its name does not go with vocabulary"),
    ("gpt2", {"tiny": True, "dtype": "bfloat16"}, "tiny does not go with dtype: .* initialised at random, in float32"),
    ("gpt2", {"tiny": True, "device": "cpu"}, "tiny does not go with device"),
    ("gpt2", {"tiny": True, "trust_remote_code": True}, "an architecture does not go with trust_remote_code"),
    (torch.nn.Embedding(8, 8), {"tiny": True, "dtype": "float32"}, "a model in hand does not go with tiny, dtype"),
    (torch.nn.Embedding(8, 8), {"device": "cpu"}, "a model in hand does not go with device"),
    (torch.nn.Embedding(8, 8), {"trust_remote_code": True}, "a model in hand does not go with trust_remote_code"),
    (ModuleAdapter(torch.nn.Embedding(8, 8)), {"causal": False}, "causal: the ModuleAdapter says itself what it is"),
]


@pytest.mark.parametrize(("model", "options", "message"), IGNORED)
def test_what_would_be_ignored_is_refused(model: object, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        clockhands.check(model, **options)


def test_a_model_of_transformers_takes_no_attributes() -> None:
    model = build_model(tiny_config(find("gpt2:causal")[0]), "causal")
    with pytest.raises(UsageError, match="max_length: the GPT2LMHeadModel says itself what it is"):
        clockhands.check(model, max_length=8)
    assert clockhands.check(model, task="causal", only="deterministic")["check.deterministic"].light == "good"


def test_a_function_is_checked_as_it_is() -> None:
    """The sum of what was read: causal, and blind to order."""
    table = torch.randn(30, 8)

    def logits(ids: Tensor) -> Tensor:
        return table[ids].cumsum(1) @ table.T

    findings = clockhands.check(logits, vocabulary=30, only=["causal", "order", "padding.right"])
    assert findings["check.causal.future"].light == "good"
    assert findings["check.order.matters"].light == "bad"
    assert findings["check.padding.right"].verdict == "It does not apply: the model takes no mask."


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot check a list: give a model folder or name"):
        clockhands.check([1, 2])


def test_a_model_without_embedding_needs_its_vocabulary() -> None:
    with pytest.raises(UsageError, match=r"Linear has no nn\.Embedding: pass vocabulary="):
        clockhands.check(torch.nn.Linear(2, 2))


REBUILDS = {"config.keys", "config.theta", "config.partial", "config.scaling", "config.round_trip", "size.odd"}


def verdicts_either_way(name: str, folder: Path, only: list[str] | None = None) -> list[dict[str, str]]:
    """What is said of a build, and of the same weights saved and opened as a checkpoint."""
    (build,) = (each for each in find(name) if each.name == name)
    build_model(tiny_config(build), build.task).save_pretrained(folder)
    results = [*examine(name, tiny=True, only=only), *examine(str(folder), only=only)]
    return [
        {o.check: o.verdict for o in r.outcomes if o.check.removeprefix("source.") not in REBUILDS} for r in results
    ]


def test_what_a_long_text_leaves_behind_is_found_in_a_checkpoint_too(tmp_path: Path) -> None:
    """Dynamic NTK: the repetition must not begin with the frequencies that the first measurement has stretched."""
    built, opened = verdicts_either_way("llama+dynamic:causal", tmp_path, ["state", "precision.load", "shift"])
    assert built == opened
    assert built["state.medium"] == "LIBRARY" and built["precision.load"] == "PASS"


DECODERS = ["llama", "llama+dynamic", "llama+yarn", "qwen3", "mistral", "phi3", "gemma3_text", "gpt2", "gpt_oss", "opt"]
DECODERS += ["falcon", "bloom", "mpt", "deepseek_v3", "bert", "roberta", "mamba"]
OTHERS = ["bert:masked", "roberta:masked", "modernbert:masked", "t5:seq2seq", "bart:seq2seq"]
SAVED = [*(f"{name}:causal" for name in DECODERS), *OTHERS]


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
def test_a_checkpoint_has_the_verdicts_of_its_configuration(name: str, tmp_path: Path) -> None:
    built, opened = verdicts_either_way(name, tmp_path)
    assert built == opened


def test_logits_that_are_not_finite_are_no_pass_for_any_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An ε of NaN in the norms makes every logit NaN; nothing differs from itself by more than a tolerance then."""
    config = LlamaConfig(vocab_size=120, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                         num_attention_heads=2, max_position_embeddings=64)  # fmt: skip
    for name in ("sound", "damaged"):
        LlamaForCausalLM(config).save_pretrained(tmp_path / name)
    path = tmp_path / "damaged" / "config.json"
    path.write_text(path.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": NaN'))
    damaged, sound = str(tmp_path / "damaged"), str(tmp_path / "sound")
    for options in ([damaged], [damaged, "--tiny"], [damaged, "--only", "order"], [damaged, "--json"]):
        assert main(["check", *options]) == 1, options
        out, told = capsys.readouterr()
        assert "PASS" not in out and "NaN" in out + told, options
    for pair in ((damaged, sound), (sound, damaged), (damaged, damaged)):
        assert main(["check", pair[0], "--against", pair[1]]) == 1
        out, told = capsys.readouterr()
        assert "PASS" not in out and "NaN" in out + told
