"""Other options of position after training: everything else of the configuration stays as it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clockhands.cli import main
from clockhands.data import Pair, Tokenizers, train_tokenizer
from clockhands.errors import CheckpointError, DataError
from clockhands.generation import evaluate, translate
from clockhands.model import TransformerConfig, make_preset
from clockhands.model.huggingface import ClockhandsForSeq2SeqLM
from clockhands.model.huggingface_base import ClockhandsConfig
from clockhands.runs import open_run, opening
from clockhands.runs.opening import change_positions, open_plain
from clockhands.training import train
from tests.training.tiny import tables


def test_other_options_of_a_scheme_change_no_other_field() -> None:
    transformer = make_preset("tiny", {"vocab_size": 50, "encoder": "rope"}).to_dict()
    others = {
        "label_smoothing": 0.2, "smoothing": "others", "pad_token_id": 3, "bos_token_id": 4, "eos_token_id": [5, 6],
        "decoder_start_token_id": 7, "use_cache": False, "tokenizer_fingerprint": "abc",
    }  # fmt: skip
    changed = change_positions(ClockhandsConfig(transformer=transformer, **others), {"base": 5.0})
    assert changed.transformer_config.encoder.options == {"base": 5.0}
    assert {name: getattr(changed, name) for name in others} == others


TEXT = ["the cat sees a dog", "a dog sees the cat"]
Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a translator of words, untrained."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    tokenizer = train_tokenizer(TEXT, kind="word")
    tokenizers = Tokenizers(tokenizer, tokenizer)
    sizes = {"vocab_size": len(tokenizer), "d_model": 16, "num_heads": 2, "d_ff": 16}
    config = ClockhandsConfig(
        transformer=make_preset("tiny", {**sizes, "encoder": "rope", "decoder": "rope"}).to_dict(),
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        tokenizer_fingerprint=tokenizers.fingerprint,
    )  # fmt: skip
    ClockhandsForSeq2SeqLM(config).save_pretrained(folder)
    tokenizers.save(folder)
    (folder / "recipe.toml").write_text("")
    return folder


def text(name: str, content: str | bytes) -> Damage:
    return lambda run: (run / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def cut(name: str) -> Damage:
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[: (run / name).stat().st_size // 2])


def top(**keys: Any) -> Damage:
    def damage(run: Path) -> None:
        path = run / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))

    return damage


def core(**keys: Any) -> Damage:
    def damage(run: Path) -> None:
        table = json.loads((run / "config.json").read_text())["transformer"]
        top(transformer={**table, **keys})(run)

    return damage


def folder(name: str) -> Damage:
    return lambda run: ((run / name).unlink(), (run / name).mkdir())


def pipe(name: str) -> Damage:
    return lambda run: ((run / name).unlink(), os.mkfifo(run / name))


def link(name: str, to: str) -> Damage:
    return lambda run: ((run / name).unlink(), (run / name).symlink_to(to))


def weight(value: float, index: int = 0) -> Damage:
    def damage(run: Path) -> None:
        weights = load_file(run / "model.safetensors")
        name = sorted(weights)[index]
        weights[name].view(-1)[-1] = value
        save_file(weights, run / "model.safetensors", {"format": "pt"})

    return damage


def weights(change: Callable[[dict[str, torch.Tensor], str], object]) -> Damage:
    def damage(run: Path) -> None:
        held = load_file(run / "model.safetensors")
        change(held, next(name for name in held if "feed" in name))
        save_file({name: value.clone() for name, value in held.items()}, run / "model.safetensors", {"format": "pt"})

    return damage


def header(run: Path) -> None:
    """A length of 2⁶⁰ bytes."""
    whole = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes((2**60).to_bytes(8, "little") + whole[8:])


def swapped(run: Path) -> None:
    """The tokenizer of another run, with as many words."""
    tokenizer = train_tokenizer([line.replace("cat", "cow") for line in TEXT], kind="word")
    Tokenizers(tokenizer, tokenizer).save(run)


def lowercased(run: Path) -> None:
    """The same words, and another way to them."""
    tokenizer = train_tokenizer(TEXT, kind="word", lowercase=True)
    Tokenizers(tokenizer, tokenizer).save(run)


def larger(run: Path) -> None:
    path = run / "tokenizer.json"
    table = json.loads(path.read_text("utf8"))
    table["model"]["vocab"]["zebra"] = 999
    path.write_text(json.dumps(table), encoding="utf8")


def smaller(run: Path) -> None:
    tokenizer = train_tokenizer(["a"], kind="word")
    Tokenizers(tokenizer, tokenizer).save(run)
    top(tokenizer_fingerprint=None)(run)


NESTED = '{"a":' * 50_000 + "1" + "}" * 50_000
DAMAGES: dict[str, tuple[Damage, str]] = {
    "a list": (text("config.json", "[]"), "cannot read .*config.json: it holds a list, not a table"),
    "null": (text("config.json", "null"), "cannot read .*config.json: it holds null"),
    "a text": (text("config.json", '"x"'), "cannot read .*config.json: it holds a text"),
    "a number": (text("config.json", "3"), "cannot read .*config.json: it holds a number"),
    "config cut": (cut("config.json"), "cannot read .*config.json"),
    "not UTF-8": (text("config.json", b"\xff\xfe{}"), "cannot read .*config.json: it is not UTF-8"),
    "nested": (text("config.json", NESTED), "cannot read .*config.json: it is nested thousands of levels deep"),
    "nested enough": (text("config.json", '{"a":' * 90 + "1" + "}" * 90), "it is nested more than 64 levels deep"),
    "transformer a list": (top(transformer=[1]), r"transformer is \[1\], but must be a table"),
    "transformer null": (top(transformer=None), "transformer is None, but must be a table"),
    "start too large": (top(decoder_start_token_id=999), "decoder_start_token_id is 999; it must be the id of a token"),
    "start negative": (top(decoder_start_token_id=-1), "decoder_start_token_id is -1; it must be the id of a token"),
    "no start": (top(decoder_start_token_id=None, bos_token_id=None), "names no token that a translation begins with"),
    "pad negative": (top(pad_token_id=-1), "pad_token_id is -1; it must be the id of a token"),
    "an end too large": (top(eos_token_id=[2, 10**9]), "eos_token_id is 1000000000; it must be the id of a token"),
    "begin a fraction": (top(bos_token_id=1.5), r"bos_token_id is 1\.5; it must be the id of a token"),
    "eps infinite": (core(norm_eps=float("inf")), "norm_eps is inf, but must be a finite number"),
    "base infinite": (core(decoder={"scheme": "rope", "base": float("inf")}),
        r"decoder: rope\.base is inf, but must be a finite number"),
    "a million layers": (core(decoder_layers=10**6),
        r"transformer\.decoder_layers = 1000000 .* no model has more than"),
    "d_model": (core(d_model=10**7), "d_model is 10000000, but must be from 1 to 1,048,576"),
    "vocabulary": (core(vocab_size=10**11), "vocab_size is 100000000000, but must be from 1 to"),
    "memory": (core(vocab_size=2 * 10**9, d_model=2**14), r"config\.json: a model of these sizes .* TiB of memory"),
    "a table of positions": (core(encoder={"scheme": "learned", "max_length": 10**12}),
        r"config\.json: a model of these"),
    "smoothing": (top(smoothing=[]), r"label_smoothing is 0\.0 and smoothing \[\]"),
    "dtype": (top(dtype="load"), "sets dtype = 'load', which torch does not have"),
    "labels": (top(num_labels=10**9), "sets num_labels = 1000000000"),
    "quantised": (top(quantization_config={"quant_method": "gptq"}),
        "sets quantization_config in config.json, which no"),
    "kernel": (top(attn_implementation="evil/kernel"), "sets attn_implementation in config.json, which no run"),
    "weights elsewhere": (top(transformers_weights="../x.safetensors"), "sets transformers_weights in config.json"),
    "NaN": (weight(float("nan")),
        r"damaged: 1 of 256 numbers of model\.decoder\.blocks\.0\.attention\.out\.weight are NaN"),
    "infinite": (weight(float("-inf"), -1),
        r"damaged: 1 of 16 numbers of model\.encoder\.norm\.weight are NaN or infinite"),
    "header": (header, "model.safetensors is no safetensors file, or a damaged one"),
    "weights gone": (lambda run: (run / "model.safetensors").unlink(), "holds no weights"),
    "a weight's shape": (weights(lambda held, name: held.update({name: held[name][:1]})),
        r"describes: .*has shape \[1"),
    "a weight missing": (weights(lambda held, name: held.pop(name)), "not those of the model .* is missing"),
    "a weight too many": (weights(lambda held, name: held.update(x=held[name])), "not those .* x has no place in it"),
    "weights cut": (cut("model.safetensors"), "model.safetensors is no safetensors file, or a damaged one"),
    "tokenizer gone": (lambda run: (run / "tokenizer.json").unlink(), "tokenizer"),
    "tokenizer cut": (cut("tokenizer.json"), "cannot read .*tokenizer.json"),
    "tokenizer a list": (text("tokenizer.json", "[]"), "cannot read .*tokenizer.json: it holds a list"),
    "tokenizer's settings": (text("tokenizer_config.json", "[]"),
        "cannot read .*tokenizer_config.json: it holds a list"),
    "tokenizer's class": (text("tokenizer_config.json", '{"tokenizer_class": 3}'), "tokenizer_class = 3; it must be"),
    "tokenizer's code": (text("tokenizer_config.json", '{"auto_map": 3}'), "cannot open the tokenizer"),
    "another tokenizer": (swapped, "is not the one that the model was trained with"),
    "a tokenizer of lower case": (lowercased, "is not the one that the model was trained with"),
    "a larger tokenizer": (larger, r"has ids up to 999, and the encoder has \d+ embeddings"),
    "a smaller tokenizer": (smaller, r"has ids up to 4, and the encoder has \d+ embeddings"),
    "generation": (cut("generation_config.json"), "cannot read .*generation_config.json"),
    "generation's ids": (text("generation_config.json", '{"eos_token_id": 999}'), "eos_token_id is 999; it must be"),
    "generation's numbers": (text("generation_config.json", '{"max_new_tokens": "x"}'), "cannot open the model"),
    "generation's attention": (text("generation_config.json", '{"output_attentions": 1}'),
        "sets output_attentions = 1, but no model"),
    "config a folder": (folder("config.json"), "config.json: it is a folder"),
    "weights a folder": (folder("model.safetensors"), "model.safetensors: it is a folder"),
    "tokenizer a folder": (folder("tokenizer.json"), "tokenizer.json: it is a folder"),
    "config a pipe": (pipe("config.json"), "config.json: it is no ordinary file"),
    "weights a pipe": (pipe("model.safetensors"), "model.safetensors: it is no ordinary file"),
    "tokenizer a pipe": (pipe("tokenizer.json"), "tokenizer.json: it is no ordinary file"),
    "a link to nothing": (link("config.json", "/nowhere"), "config.json: it is a link to /nowhere, which is not there"),
    "a link to a device": (link("model.safetensors", "/dev/zero"), "model.safetensors: it is no ordinary file"),
    "a link to itself": (link("tokenizer.json", "tokenizer.json"), r"tokenizer\.json: it is a link to tokenizer\.json"),
    "an adapter": (text("adapter_config.json", "{}"), "holds an adapter of another model"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_what_was_done_to_a_run_is_told_in_one_message(name: str, run: Path, tmp_path: Path) -> None:
    damage, message = DAMAGES[name]
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    damage(damaged)
    with pytest.raises((CheckpointError, DataError), match=message) as caught:
        open_run(damaged)
    assert str(damaged) in str(caught.value)


@pytest.mark.parametrize("verb", ["inspect", "check", "begin_from"])
@pytest.mark.parametrize("name", ["transformer a list", "start too large", "a million layers", "NaN", "weights cut"])
def test_other_verbs_tell_it_too(
    name: str, verb: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    DAMAGES[name][0](damaged)
    begin = ["train", "--corpus", "roles", "--out", str(tmp_path / "out"), "--set", "data.train=40"]
    begin += ["training.max_steps=1"]
    words = {"begin_from": [*begin, f"training.begin_from={damaged}"]}.get(verb, [verb, str(damaged)])
    assert main(words) == 1
    said = capsys.readouterr().err
    assert said.count("clockhands: ") == 1 and str(damaged) in said.partition("clockhands: ")[2]
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_a_whole_run_opens_and_so_does_one_behind_links(run: Path, tmp_path: Path) -> None:
    """As the hub's cache holds models: a folder of links to ordinary files."""
    for path in run.iterdir():
        (tmp_path / path.name).symlink_to(path)
    assert open_run(tmp_path).tokenizers.fingerprint == open_run(run).tokenizers.fingerprint


def test_embeddings_that_were_padded_open_outside_of_a_run(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "padded")
    smaller(tmp_path / "padded")
    (tmp_path / "padded" / "recipe.toml").unlink()
    assert len(open_run(tmp_path / "padded").tokenizers.source) == 5


def test_a_pickle_beside_safetensors_is_not_looked_at(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "both")
    (tmp_path / "both" / "pytorch_model.bin").write_bytes(b"no pickle")
    torch.testing.assert_close(
        dict(open_run(tmp_path / "both").model.named_parameters()), dict(open_run(run).model.named_parameters())
    )


@pytest.mark.parametrize(("dtype", "size"), [("auto", 4), ("float32", 4), (torch.float16, 2), (torch.float64, 8)])
def test_a_model_is_judged_by_the_bytes_of_its_weights_in_memory(
    dtype: Any, size: int, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint's own precision is not known yet where the size is judged: it counts as float32."""
    judged = []

    def judge(config: TransformerConfig, bytes_per_parameter: int) -> None:
        judged.append(bytes_per_parameter)

    monkeypatch.setattr(opening, "find_memory_fault", judge)
    opening.open_model(run, dtype=dtype)
    assert judged == [size]


TEXTS = ["Anna sees Bob .", "Bob sees Anna .", "", "unknown words <s> here </s>"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tables(max_steps=6, save_steps=None), tmp_path_factory.mktemp("runs") / "trained").path


def test_it_translates_as_the_run_that_transformers_opens(trained: Path) -> None:
    plain = open_plain(trained)
    assert plain is not None
    whole = open_run(trained)
    for name, weight in whole.model.named_parameters():
        assert plain.model.get_parameter(name).equal(weight), name
    source, theirs = plain.tokenizers.source, whole.tokenizers.source
    rows = [theirs(text)["input_ids"] for text in TEXTS]
    assert [source(text)["input_ids"] for text in TEXTS] == rows
    assert source.batch_decode(rows, skip_special_tokens=True) == theirs.batch_decode(rows, skip_special_tokens=True)
    assert [t.text for t in translate(trained, TEXTS)] == [t.text for t in translate(whole, TEXTS)]
    pairs = [Pair(text, "Bob") for text in TEXTS[:2]]
    assert evaluate(trained, pairs).loss.mean == pytest.approx(evaluate(whole, pairs).loss.mean, rel=1e-6)


@pytest.mark.parametrize("command", ["translate", "evaluate"])
def test_transformers_is_not_imported(command: str, trained: Path) -> None:
    words = [command, str(trained), *(["Anna sees Bob ."] if command == "translate" else [])]
    code = (
        "import sys; sys.argv = ['clockhands']; from clockhands.cli import main; "
        f"code = main({words!r}); "
        "loaded = [name for name in ('transformers', 'torch._dynamo') if name in sys.modules]; "
        "sys.exit(code or ' '.join(loaded) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def _drop_weight(trained: Path) -> None:
    weights = load_file(trained / "model.safetensors")
    weights.pop(next(name for name in weights if "attention" in name))
    save_file(weights, trained / "model.safetensors", {"format": "pt"})


def _change(name: str, **changes: object) -> Callable[[Path], None]:
    def change(trained: Path) -> None:
        (trained / name).write_text(json.dumps({**json.loads((trained / name).read_text()), **changes}))

    return change


@pytest.mark.parametrize(
    "damage",
    [
        _drop_weight, _change("config.json", tokenizer_fingerprint="0"), _change("config.json", eos_token_id=10**6),
        _change("generation_config.json", num_beams=4), _change("tokenizer_config.json", tokenizer_class="T5Tokenizer"),
        lambda trained: (trained / "model.safetensors").write_bytes(b"x"),
        lambda trained: (trained / "config.json").unlink(),
        lambda trained: (trained / "tokenizer.json").write_bytes(b""),
    ],
)  # fmt: skip
def test_what_is_not_as_training_wrote_it_is_left_to_the_ordinary_door(
    damage: Callable[[Path], None], trained: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in trained.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    assert open_plain(copy) is not None
    damage(copy)
    assert open_plain(copy) is None


def test_the_ordinary_door_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a finished run"):
        next(translate(tmp_path, ["x"]))
