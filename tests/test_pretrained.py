"""What somebody else made is opened without running it, without a question, and with one message where it cannot be."""

from __future__ import annotations

import ast
import builtins
import io
import json
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from safetensors.torch import load_file, save_file

import clockhands
from clockhands.cli import main
from clockhands.data import Pair, Tokenizers, open_corpus, open_tokenizer
from clockhands.errors import CheckpointError, ClockhandsError
from clockhands.inspection import open_subject
from clockhands.pretrained import forbid_questions
from clockhands.runs import Run, open_run
from clockhands.training import resume
from tests.generation.conftest import translator, writer
from tests.runs.tiny import save_model

__all__ = ["translator", "writer"]

Capture: TypeAlias = pytest.CaptureFixture[str]
SOURCE = Path(clockhands.__file__).parent


class Canary:
    """A file that hostile code would write, and a record of every question that was asked."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "canary"
        self.asked: list[str] = []

    @property
    def code(self) -> str:
        """A module with every class that an ``auto_map`` may name."""
        classes = "".join(f"\nclass {name}: pass" for name in "TCMP")
        return f"from pathlib import Path\nPath({str(self.file)!r}).write_text('it ran'){classes}\n"

    def __reduce__(self) -> tuple[Any, ...]:
        """As a pickle: write the file when it is read."""
        return Path.write_text, (self.file, "it ran")

    def answer(self, question: str = "") -> str:
        """Say yes to whatever is asked."""
        self.asked.append(question)
        return "y"

    def sings(self) -> None:
        """Fail if code ran or a question was asked."""
        assert not self.file.exists(), "code of the folder was run"
        assert self.asked == [], "a question was asked on standard input"


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canary]:
    bird = Canary(tmp_path)
    monkeypatch.setattr(builtins, "input", bird.answer)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"y\nzwei\n"), encoding="utf8"))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.chdir(tmp_path)
    yield bird
    bird.sings()


def change(path: Path, **keys: Any) -> None:
    """Change keys of a JSON file; it may be new."""
    known = json.loads(path.read_text("utf8")) if path.is_file() else {}
    path.write_text(json.dumps({**known, **keys}), encoding="utf8")


def bring_code(run: Path, bird: Canary) -> None:
    (run / "evil.py").write_text(bird.code)


def evil_tokenizer(run: Path, bird: Canary) -> None:
    """The attack that worked: transformers asked on standard input, and the text to translate answered."""
    bring_code(run, bird)
    change(run / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]}, tokenizer_class="T")


def evil_class(name: str) -> Callable[[Path, Canary], None]:
    """An Auto class named as the tokenizer: it is called in turn, and trust is not passed on to it."""

    def attack(run: Path, bird: Canary) -> None:
        bring_code(run, bird)
        maps = {"AutoConfig": "evil.C", "AutoModel": "evil.M", "AutoProcessor": "evil.P"}
        change(run / "tokenizer_config.json", tokenizer_class=name)
        change(run / "config.json", auto_map={"AutoTokenizer": ["evil.T", None], **maps}, model_type="theirs")

    return attack


def evil_configuration(run: Path, bird: Canary) -> None:
    bring_code(run, bird)
    models = dict.fromkeys(["AutoModel", "AutoModelForSeq2SeqLM", "AutoModelForCausalLM"], "evil.M")
    change(run / "config.json", auto_map={"AutoConfig": "evil.C", **models})


def evil_model(run: Path, bird: Canary) -> None:
    evil_configuration(run, bird)
    change(run / "config.json", model_type="theirs")


def evil_generation(run: Path, bird: Canary) -> None:
    (run / "custom_generate").mkdir()
    (run / "custom_generate" / "generate.py").write_text(bird.code + "\ndef generate(model, **_): pass\n")
    change(run / "generation_config.json", custom_generate=str(run), trust_remote_code=True)


def evil_processor(run: Path, bird: Canary) -> None:
    bring_code(run, bird)
    for name in ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"):
        change(run / name, auto_map={"AutoProcessor": "evil.P", "AutoImageProcessor": "evil.P"}, processor_class="P")


def evil_pickle(run: Path, bird: Canary) -> None:
    (run / "model.safetensors").unlink()
    (run / "pytorch_model.bin").write_bytes(pickle.dumps(bird))


def evil_shards(run: Path, bird: Canary) -> None:
    names = list(load_file(run / "model.safetensors"))
    (run / "model.safetensors").unlink()
    (run / "part.bin").write_bytes(pickle.dumps(bird))
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, "part.bin")}
    change(run / "model.safetensors.index.json", **index)


def evil_loading_code(run: Path, bird: Canary) -> None:
    """The file that our own auto_map names, for transformers with trust_remote_code: nothing here imports it."""
    assert json.loads((run / "config.json").read_text("utf8"))["auto_map"]
    classes = "ClockhandsConfig = ClockhandsForSeq2SeqLM = ClockhandsForCausalLM = None\n"
    (run / "modeling_clockhands.py").write_text(bird.code + classes)


ATTACKS = {
    "loading code": evil_loading_code,
    "tokenizer": evil_tokenizer,
    "tokenizer is an Auto class": evil_class("AutoTokenizer"),
    "tokenizer is a model": evil_class("AutoModel"),
    "tokenizer is a processor": evil_class("AutoProcessor"),
    "configuration": evil_configuration,
    "model": evil_model,
    "generation": evil_generation,
    "processor": evil_processor,
    "pickle": evil_pickle,
    "shards": evil_shards,
}
MODEL = ("translate", "evaluate", "generate", "inspect", "explore", "check", "begin_from")
VERBS = {
    "tokenizer": ("translate", "evaluate", "generate", "inspect", "tokenizer.name", "begin_from", "compare"),
    **dict.fromkeys([name for name in ATTACKS if name.startswith("tokenizer is")], ("tokenizer.name", "inspect")),
    **dict.fromkeys(["configuration", "pickle", "shards"], MODEL),
    "model": (*MODEL, "explain"),
}
HARMLESS = {
    "loading code": ("translate", "evaluate", "generate", "inspect", "check", "explain", "begin_from"),
    "generation": ("translate", "generate", "explain"),
    "processor": ("translate", "explain"),
    "tokenizer": ("check", "explain"),
    **dict.fromkeys(["configuration", "pickle", "shards"], ("explain",)),
}
"""What opens all the same, as nothing of what is hostile there is needed."""


def command(verb: str, evil: Path, corpus: list[str]) -> list[str]:
    """The words of one verb over a folder; short, as nothing should come of it."""
    text = [*corpus, "--set", "training.max_steps=1", "data.train=40", "training.threads=1"]
    plan = evil.parent / "plan.toml"
    plan.write_text(
        'seeds = 2\n[recipe.data]\ncorpus = "roles"\ntrain = 40\n[recipe.training]\nmax_steps = 1\n'
        f'[recipe.tokenizer]\nname = "{evil}"\n[vary]\n"position.scheme" = ["none", "rope"]\n'
    )
    return {
        "translate": ["translate", str(evil)],
        "evaluate": ["evaluate", str(evil)],
        "generate": ["generate", str(evil), "--prompt", "the", "--tokens", "2"],
        "inspect": ["inspect", str(evil), "--texts", "8", "--length", "8", "--json"],
        "check": ["check", str(evil), "--only", "order.matters"],
        "explore": ["explore", str(evil), "--out", str(evil.parent / "page.html"), "--quiet"],
        "explain": ["explain", str(evil)],
        "tokenizer.name": ["train", *text, f"tokenizer.name={evil}", "--out", "out"],
        "begin_from": ["train", *text, f"training.begin_from={evil}", "--out", "out"],
        "compare": ["compare", str(plan), "--out", "compared"],
    }[verb]


def copy_of(run: Run, folder: Path) -> Path:
    return Path(shutil.copytree(run.path, folder / "evil"))


def asked(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(attack, verb) for attack, verbs in table.items() for verb in verbs]


def run_verb(attack: str, verb: str, runs: tuple[Run, Run], bird: Canary, folder: Path) -> int:
    """Attack a copy of a run, run one verb over it, and look after the canary."""
    evil = copy_of(runs[verb == "generate"], folder)
    shutil.rmtree(evil / "checkpoints")
    ATTACKS[attack](evil, bird)
    preset = [] if verb == "begin_from" else ["--preset", "tiny"]
    code = main(command(verb, evil, ["--corpus", "roles", *preset]))
    bird.sings()
    return code


@pytest.mark.parametrize(("attack", "verb"), asked(VERBS))
def test_no_verb_runs_what_lies_in_a_folder_or_asks_whether_to(
    attack: str, verb: str, translator: Run, writer: Run, canary: Canary, tmp_path: Path, capsys: Capture
) -> None:
    assert run_verb(attack, verb, (translator, writer), canary, tmp_path) in (1, 2)
    told, _, said = capsys.readouterr().err.partition("clockhands: ")
    assert said.count("\n") == 1 and str(tmp_path / "evil") in said and "Traceback" not in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("attack", "verb"), asked(HARMLESS))
def test_what_is_hostile_and_not_needed_is_left_alone(
    attack: str, verb: str, translator: Run, writer: Run, canary: Canary, tmp_path: Path, capsys: Capture
) -> None:
    assert run_verb(attack, verb, (translator, writer), canary, tmp_path) == 0


def test_the_api_runs_nothing_either(translator: Run, canary: Canary, tmp_path: Path) -> None:
    evil = copy_of(translator, tmp_path)
    evil_tokenizer(evil, canary)
    calls: list[Callable[[], Any]] = [
        lambda: list(clockhands.translate(evil, ["x"])),
        lambda: clockhands.generate(evil, "x"),
        lambda: clockhands.evaluate(evil, [Pair("x", "y")]),
        lambda: clockhands.inspect(str(evil)),
        lambda: Run(evil).tokenizers,
        lambda: Tokenizers.load(evil),
        lambda: open_tokenizer(evil),
        lambda: open_subject(evil),
        lambda: resume(evil, {"training.max_steps": 70}),
    ]
    for call in calls:
        with pytest.raises(ClockhandsError, match="brings its own code") as caught:
            call()
        assert "which is never run here" in str(caught.value)
        canary.sings()


def test_a_target_tokenizer_is_looked_at_too(translator: Run, canary: Canary, tmp_path: Path) -> None:
    evil = copy_of(translator, tmp_path)
    (evil / "target").mkdir()
    for path in translator.path.glob("tokenizer*"):
        shutil.copy(path, evil / "target")
    evil_tokenizer(evil / "target", canary)
    with pytest.raises(ClockhandsError, match=r"evil/target.*brings its own code"):
        open_run(evil)


@pytest.mark.parametrize("layout", ["script", "script in folder", "saved"])
def test_no_script_of_a_data_set_is_run(layout: str, canary: Canary, tmp_path: Path) -> None:
    folder = tmp_path / "evil"
    folder.mkdir()
    (folder / "evil.py").write_text(canary.code)
    (folder / "dataset_infos.json").write_text("{}")
    if layout == "saved":
        (folder / "dataset_dict.json").write_text('{"splits": ["train"]}')
    name = str(folder / "evil.py") if layout == "script" else str(folder)
    with pytest.raises(ClockhandsError, match="cannot open the data set"):
        open_corpus("huggingface", dataset=name)


@pytest.mark.parametrize(
    "name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin", "adapter_model.bin"]
)
def test_no_pickle_of_a_checkpoint_is_run(name: str, translator: Run, canary: Canary, tmp_path: Path) -> None:
    evil = copy_of(translator, tmp_path)
    last = Run(evil).checkpoints[-1]
    (last / name).write_bytes(pickle.dumps(canary))
    with pytest.raises(CheckpointError, match=name):
        resume(evil, {"training.max_steps": 70})


def test_a_tokenizers_code_is_not_saved_into_a_run(translator: Run, tmp_path: Path) -> None:
    """One of transformers' own classes beside code: it opens without the code, and a run of it opens again."""
    shutil.copytree(translator.path, tmp_path / "theirs")
    settings = {"auto_map": {"AutoTokenizer": ["evil.T", None]}, "tokenizer_class": "PreTrainedTokenizerFast"}
    change(tmp_path / "theirs" / "tokenizer_config.json", **settings)
    opened = open_tokenizer(tmp_path / "theirs")
    Tokenizers(opened, opened).save(tmp_path / "saved")
    assert "auto_map" not in json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text("utf8"))


READING = (
    ["evaluate", "--text", "{text}", "--length", "16"],
    ["generate", "--prompt", "the", "--tokens", "2"],
    ["extend", "--only", "measure", "--to", "2x", "--text", "{text}", "--texts", "8", "--items", "10", "--json"],
    ["inspect", "--texts", "8", "--length", "8", "--json"],
    ["check", "--only", "order.matters"],
    ["check", "--only", "order.matters", "--weights", "streamed"],
    ["check", "--against", "{sound}"],
    ["explore", "--out", "{out}.html", "--quiet"],
)


@pytest.mark.parametrize("words", READING, ids=" ".join)
@pytest.mark.parametrize("damage", ["renamed", "two layers more"])
def test_every_verb_refuses_a_model_with_weights_that_are_missing(
    words: list[str], damage: str, tmp_path: Path, capsys: Capture
) -> None:
    """transformers draws them at random, and all that would be said of the model would be said of that."""
    folder, sound, text = (tmp_path / name for name in ("theirs", "sound", "text.txt"))
    save_model(sound, "llama")
    shutil.copytree(sound, folder)
    text.write_text("the cat sat on the mat. " * 40, encoding="utf8")
    if damage == "renamed":
        weights = load_file(folder / "model.safetensors")
        weights["model.old"] = weights.pop("model.embed_tokens.weight")
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    else:
        change(folder / "config.json", num_hidden_layers=4)
    names = {"text": text, "out": tmp_path / "out", "sound": sound}
    code = main([words[0], str(folder), *(word.format(**names) for word in words[1:])])
    said = capsys.readouterr().err.splitlines()[-1]
    assert code == 1 and "missing" in said and ("embed_tokens" if damage == "renamed" else "and 15 more") in said
    assert not (tmp_path / "out.html").exists()


@pytest.mark.parametrize("written", ["NaN", '{"__float__": "NaN"}'])
def test_a_configuration_with_nan_is_refused(written: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "theirs", "llama")
    text = (folder / "config.json").read_text("utf8")
    (folder / "config.json").write_text(text.replace('"rms_norm_eps": 1e-06', f'"rms_norm_eps": {written}'), "utf8")
    with pytest.raises(CheckpointError, match=r"sets rms_norm_eps = NaN in config\.json"):
        open_subject(folder)


def test_transformers_asks_where_nobody_keeps_it_from_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary can sing: without the door the question is asked, and within it there is an error instead."""
    from transformers import AutoTokenizer

    bird = Canary(tmp_path)
    folder = tmp_path / "evil"
    folder.mkdir()
    evil_tokenizer(folder, bird)
    monkeypatch.setattr(builtins, "input", lambda question="": bird.answer(question) and "n")
    with pytest.raises(ValueError, match="trust_remote_code"):
        AutoTokenizer.from_pretrained(str(folder))
    assert len(bird.asked) == 1
    with pytest.raises(ValueError, match="trust_remote_code"), forbid_questions():
        AutoTokenizer.from_pretrained(str(folder))
    assert len(bird.asked) == 1
    with pytest.raises(ValueError, match="trust_remote_code"):
        AutoTokenizer.from_pretrained(str(folder))
    assert len(bird.asked) == 2, "outside of the door transformers is as it was"


DOOR = "pretrained"
OPENERS = {"from_pretrained", "from_config", "load_dataset", "load_from_disk", "get_class_from_dynamic_module"}
UNPICKLES = {"torch.load": {"weights_only": True}, "np.load": {"allow_pickle": False}}


def calls_of(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text("utf8"))) if isinstance(node, ast.Call))


def named(call: ast.Call) -> tuple[str, str]:
    """The last two parts of what is called: ``torch.load``."""
    function = call.func
    if isinstance(function, ast.Name):
        return "", function.id
    if not isinstance(function, ast.Attribute):
        return "", ""
    return (function.value.id if isinstance(function.value, ast.Name) else ""), function.attr


@pytest.mark.parametrize("package", sorted({path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py")}))
def test_there_is_one_door(package: str) -> None:
    """No module but one opens what transformers or datasets can run, and that one says whether to trust."""
    top = SOURCE / package
    for path in [top] if top.is_file() else sorted(top.rglob("*.py")):
        for call in calls_of(path):
            owner, name = named(call)
            given = {keyword.arg: getattr(keyword.value, "value", keyword.value) for keyword in call.keywords}
            where = f"{path}:{call.lineno}"
            assert name not in OPENERS or package == DOOR, f"{where} opens by itself; {DOOR} is for that"
            assert owner not in ("pickle", "joblib", "dill", "cloudpickle"), f"{where} unpickles"
            for option, safe in UNPICKLES.get(f"{owner}.{name}", {}).items():
                assert given.get(option) is safe, f"{where} may unpickle; pass {option}={safe}"
            if name in OPENERS and owner not in ("", "datasets"):
                assert "trust_remote_code" in given, f"{where} does not say whether to trust"
            if name == "from_pretrained" and owner == "opener":
                assert given.get("use_safetensors") is True, f"{where} may open a pickle"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_hidden_layers": 10**6}, "num_hidden_layers = 1000000 in config.json; no model has more than 2,000"),
        ({"text_config": {"num_layers": 1e300}}, r"text_config\.num_layers = 1e\+300 in config\.json; no model"),
        ({"num_labels": 10**9}, "num_labels = 1000000000 in config.json; no model has more than"),
        ({"architectures": [{}]}, r"architectures = \[\{\}\] in config\.json; it must be a list of names of classes"),
        ({"architectures": "LlamaModel"}, "architectures = 'LlamaModel' in config"),
        ({"attn_implementation": "evil/kernel"}, r"brings its own code \(attn_implementation = 'evil/kernel', a k"),
        ({"transformers_weights": "pytorch_model.bin"}, "names 'pytorch_model.bin' as its weights"),
    ],
)
def test_a_foreign_configuration_is_judged_before_anything_is_built(
    keys: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """By what looks inside and by what checks: one door for both."""
    folder = save_model(tmp_path / "theirs", "llama")
    change(folder / "config.json", **keys)
    for opened in (lambda: open_subject(folder), lambda: clockhands.check(str(folder))):
        with pytest.raises(CheckpointError, match=message):
            opened()


def test_code_of_a_checkpoint_is_trusted_by_nobody_who_was_not_told_to() -> None:
    """Every default of the package, of functions and of fields, read in its source."""
    sources = (path.read_text("utf8") for path in SOURCE.rglob("*.py"))
    defaults = [value for text in sources for value in re.findall(r"\btrust_remote_code: bool = (\w+)", text)]
    assert len(defaults) > 5 and set(defaults) == {"False"}
