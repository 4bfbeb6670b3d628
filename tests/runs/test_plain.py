"""A run that is opened without transformers translates as one that is opened with it, or is not opened so at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from clockhands.data import Pair
from clockhands.errors import CheckpointError
from clockhands.generation import evaluate, translate
from clockhands.runs import open_run
from clockhands.runs.plain import open_plain
from clockhands.training import train
from tests.training.tiny import tables

TEXTS = ["Anna sees Bob .", "Bob sees Anna .", "", "unknown words <s> here </s>"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tables(max_steps=6, save_steps=None), tmp_path_factory.mktemp("runs") / "run").path


def test_it_translates_as_the_run_that_transformers_opens(run: Path) -> None:
    plain = open_plain(run)
    assert plain is not None
    whole = open_run(run)
    for name, weight in whole.model.named_parameters():
        assert plain.model.get_parameter(name).equal(weight), name
    source, theirs = plain.tokenizers.source, whole.tokenizers.source
    rows = [theirs(text)["input_ids"] for text in TEXTS]
    assert [source(text)["input_ids"] for text in TEXTS] == rows
    assert source.batch_decode(rows, skip_special_tokens=True) == theirs.batch_decode(rows, skip_special_tokens=True)
    assert [t.text for t in translate(run, TEXTS)] == [t.text for t in translate(whole, TEXTS)]
    pairs = [Pair(text, "Bob") for text in TEXTS[:2]]
    assert evaluate(run, pairs).loss.mean == pytest.approx(evaluate(whole, pairs).loss.mean, rel=1e-6)


@pytest.mark.parametrize("command", ["translate", "evaluate"])
def test_transformers_is_not_imported(command: str, run: Path) -> None:
    words = [command, str(run), *(["Anna sees Bob ."] if command == "translate" else [])]
    code = (
        "import sys; sys.argv = ['clockhands']; from clockhands.cli import main; "
        f"code = main({words!r}); "
        "loaded = [name for name in ('transformers', 'torch._dynamo') if name in sys.modules]; "
        "sys.exit(code or ' '.join(loaded) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def _drop_weight(run: Path) -> None:
    weights = load_file(run / "model.safetensors")
    weights.pop(next(name for name in weights if "attention" in name))
    save_file(weights, run / "model.safetensors", {"format": "pt"})


def _change(name: str, **changes: object) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / name).write_text(json.dumps({**json.loads((run / name).read_text()), **changes}))

    return change


@pytest.mark.parametrize(
    "damage",
    [
        _drop_weight, _change("config.json", tokenizer_fingerprint="0"), _change("config.json", eos_token_id=10**6),
        _change("generation_config.json", num_beams=4), _change("tokenizer_config.json", tokenizer_class="T5Tokenizer"),
        lambda run: (run / "model.safetensors").write_bytes(b"x"), lambda run: (run / "config.json").unlink(),
        lambda run: (run / "tokenizer.json").write_bytes(b""),
    ],
)  # fmt: skip
def test_what_is_not_as_training_wrote_it_is_left_to_the_ordinary_door(
    damage: Callable[[Path], None], run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in run.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    assert open_plain(copy) is not None
    damage(copy)
    assert open_plain(copy) is None


def test_the_ordinary_door_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a finished run"):
        next(translate(tmp_path, ["x"]))
