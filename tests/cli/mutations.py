"""Commands, recipes, plans and configuration files that work, changed at random in one to three places.

What would only take long, and is what was asked for (a million steps), is not drawn; what no machine holds is.
"""

# ruff: noqa: E501 (commands stand as they are typed)
from __future__ import annotations

import functools
import gzip
import importlib
import io
import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from clockhands.cli import VERBS, Parser
from clockhands.cli.flags import declare
from clockhands.runs.recipe.tables import find_keys

NUMBERS = ("nan", "inf", "-inf", "1e400", "1e-320", "-1", "0", "1", "2", "3", "7", "0.5", "-0.5", "1e3", "2147483648",
           "9223372036854775807", "9223372036854775808", "99999999999999999999999", "9" * 5000)  # fmt: skip
TEXTS = ("", " ", "\x00", "\udce9", "ä", "\u2028", "x" * 100_000, "none", "true", "../..", "/dev/null", "/dev/zero", "pipe", "http://[::1/", "http://127.0.0.1:9/v1", "a\x1b[31mb", "a.tsv", "~nobody/x",
         "zzz", "RoPE", "[", "]", "=", "{}", "%s", "--", "-", "..", "a.txt/b", "run")  # fmt: skip
NESTED = "[" * 5000 + "]" * 5000
TOML = (*NUMBERS, '""', '"x"', '"none"', "true", "[]", "{}", "[1]", '["a", "b"]', "[[1], [2]]", "{a = 1}", '"\\u0000"',
        NESTED, "1979-05-27", f'"{"x" * 100_000}"', '"../.."', '"/dev/null"', "'''a\nb'''")  # fmt: skip
JSON = ("NaN", "Infinity", "-Infinity", "1e400", "-1", "0", "1", "2147483648", "9223372036854775808", "1" * 400, "1" * 5000, "0.5", '"\\u001b[31mx"',
        "1e-320", "true", "false", "null", '""', '"x"', '"\\u0000"', '"\\ud800"', "[]", "[1]", "[null]", "{}", '{"a": 1}',
        NESTED, f'"{"x" * 100_000}"', '"../.."')  # fmt: skip
SLOW = ("max_steps", "epochs", "accumulate", "--steps", "--tokens", "--seconds", "--seeds")
"""What may be asked for in any number; of these only numbers that are few, or that nothing holds, are drawn."""
FEW = tuple(text for text in NUMBERS if text not in ("1e3", "2147483648", "9223372036854775807"))
NEVER = ("--slow",)
"""Checks that compile: minutes."""
RECIPE: dict[str, dict[str, str]] = {
    "data": {"corpus": '"table"', "train": '"a.tsv"', "holdout": "0.2"},
    "tokenizer": {"kind": '"word"'},
    "model": {"preset": '"tiny"', "d_model": "16", "d_ff": "16", "num_heads": "2", "encoder_layers": "1", "decoder_layers": "1"},
    "position": {"scheme": '"rope"', "base": "500.0"},
    "batches": {"size": "8"},
    "training": {"max_steps": "1", "learning_rate": "1e-3", "log_steps": "1", "seed": "3"},
}  # fmt: skip
PLAN = {
    "recipe": "{" + ", ".join(f"{name} = {{{', '.join(f'{k} = {v}' for k, v in table.items())}}}" for name, table in RECIPE.items()) + "}",
    "seeds": "2", "metric": '"exact"', "match": '"width"', "budget": "{steps = 1}", "target": "0.1", "inside": "[]",
    "vary": '{"position.scheme" = ["rope", "none"]}', "title": '"a"', "baseline": '"rope"',
}  # fmt: skip
COMMANDS = (
    "schemes", "schemes rope base=500", "schemes alibi --draw a.svg", "schemes --json", "study", "--version", "tour --out a.tsv",
    "train --data a.tsv --preset tiny --set training.max_steps=1 model.d_model=16 tokenizer.kind=word --out new --quiet",
    "train --source a.de --target a.en --preset tiny --set training.max_steps=1 model.d_model=16 --dry-run --seed 3 --threads 1",
    "train --text a.txt --preset tiny --set training.max_steps=1 model.d_model=16 batches.window=16 data.unit=file --dry-run",
    "train --resume run --set training.max_steps=2 --quiet",
    "translate run Hund --beam 2 --length-penalty 0.6 --batch 2 --max-length 5 --json",
    "translate run --input a.de --output out.txt --max-length 5 --max-source 9",
    "translate run Hund --attention a.svg --threads 1 --device cpu",
    "evaluate run --source a.de --target a.en --max-length 5 --tokenize char --lowercase --json",
    "evaluate run --split validation --max-length 5", "evaluate writer --text a.txt --length 8,1x --set position.base=500",
    "evaluate writer --length 2x --position.spectrum yarn --factor 2 --json",
    "generate writer --prompt cat --tokens 3 --temperature 0.5 --top-k 3 --top-p 0.9 --samples 2 --seed 3",
    "generate writer --tokens 3 --beam 2 --json --max-prompt 4",
    "compare a.toml --dry-run --seeds 2 --workers 1", "inspect run --texts 8 --length 8 --no-control --json --side encoder",
    "compare --data a.tsv --vary model.d_model=8,16 --set model.d_ff=8 --steps 1 --seeds 2 --dry-run --metric loss --match width",
    "check run --only shift --threads 1", "check --type gpt2 --tiny --only shift", "check http://127.0.0.1:9/v1", "push run me/x --dry-run",
    "explain run", "explain run writer", "explain writer --json", "explain run --to llama.cpp", "explain run writer --length 64 --json",
    "explain run --llama-flags '--rope-scale 4'", "explain run --hf-overrides {}", "explain run --other-as vllm",
    "extend writer --text a.txt --only measure --texts 8 --items 10 --to 2x --json", "explore run --out e.html --quiet",
    "check run --only shift --baseline base.json", "check run --against run --only shift",
)  # fmt: skip
OF_RUN = (
    "translate run Hund --max-length 5", "evaluate run --source a.de --target a.en --max-length 5", "evaluate run --split validation --max-length 5",
    "train --resume run --quiet --set training.max_steps=2", "train --data a.tsv --set training.begin_from=run training.max_steps=1 --out new --quiet",
    "inspect run --texts 8 --length 8 --no-control --json", "check run --only shift", "train --resume run --dry-run",
    "push run me/x --dry-run", "explain run", "inspect run --texts 8 --length 8 --no-control", "explore run --out e.html --quiet",
)  # fmt: skip
OF_WRITER = (
    "generate writer --tokens 3 --seed 1", "evaluate writer --length 8", "inspect writer --texts 8 --length 8 --no-control --json",
    "train --text a.txt --set training.begin_from=writer training.max_steps=1 batches.window=16 --out new --quiet", "check writer --only shift",
    "extend writer --text a.txt --only measure --texts 8 --items 10 --to 2x",
)  # fmt: skip
FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", "run.json", "recipe.toml",
         "metrics.jsonl", "model.safetensors")  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A command with the files it finds; ``copies`` are folders by the folder they are a copy of."""

    arguments: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        files = {name: content[:3000] for name, content in self.files.items()}
        return f"Case({[a[:200] for a in self.arguments]}, {files}, {self.copies})"


def cases(folder: Path) -> st.SearchStrategy[Case]:
    """All kinds of mutations; ``folder`` holds the runs that ``forks`` made."""
    return st.one_of(
        recipes(), settings_of_recipes(), plans(), commands(), texts(), sources(), configurations(folder), explained(), results(folder),
    )  # fmt: skip


EXPLAINED: dict[str, tuple[str, str]] = {
    "config.json": ("explain config.json", json.dumps({
        "model_type": "gemma3_text", "num_hidden_layers": 4, "head_dim": 32, "hidden_size": 64, "num_attention_heads": 2,
        "sliding_window": 8, "max_position_embeddings": 64, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {
            "full_attention": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16,
                               "beta_fast": 32, "beta_slow": 1, "attention_factor": 1.1, "mscale": 1, "truncate": True},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e3}},
    })),
    "flat.json": ("explain flat.json", json.dumps({
        "model_type": "phi3", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": 64,
        "original_max_position_embeddings": 16, "rope_theta": 1e4, "partial_rotary_factor": 0.5, "sliding_window": 8,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
    })),
    "params.json": ("explain params.json", json.dumps({
        "dim": 64, "n_layers": 2, "n_heads": 2, "head_dim": 32, "rope_theta": 1e4, "sliding_window": [8, None],
        "yarn": {"factor": 4, "original_max_position_embeddings": 16, "beta": 32, "alpha": 1, "apply_scale": False},
        "llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 16}, "max_seq_len": 64,
    })),
    "m.txt": ("explain m.txt", "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --position-embedding-type rope --rotary-base 500 "
              "--rotary-percent 0.5 --window-size (4,0) --window-attn-skip-freq [1,0] --no-rope-freq 2 --max-position-embeddings 64"),
    "a.gguf": ("explain a.gguf", ""),
}  # fmt: skip
"""Files that ``explain`` reads, each with the command."""
MORE = ("--json", "--to hf4", "--to hf5", "--to gguf", "--to vllm", "--to llama.cpp", "--to sglang", "--to llama", "--as vllm", "--length 99999",
        "--other-as transformers4", "--hf-overrides", "--llama-flags", "run", "writer")  # fmt: skip
OVERRIDES = ('{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}', '{"rope_theta": 1e6}', "{}", '{"a": {"a": 1}}')
FLAGS = (
    "--rope-scaling yarn --rope-scale 4",
    "--rope-freq-base 1e6 --yarn-ext-factor 0.5",
    "--yarn-beta-fast 16 --yarn-orig-ctx 16",
)


@functools.cache
def make_gguf() -> bytes:
    """A GGUF file with every key about position."""
    import tempfile

    import gguf
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        writer = gguf.GGUFWriter(Path(folder) / "a.gguf", "laguna")
        for name, value in (
            ("context_length", 64), ("block_count", 2), ("embedding_length", 64), ("head_count", 2), ("rope_freq_base", 500.0),
            ("rope_dimension_count", 16), ("rope_scaling_type", gguf.RopeScalingType.YARN), ("rope_scaling_factor", 4.0),
            ("rope_scaling_orig_ctx_len", 16), ("rope_scaling_yarn_ext_factor", 1.0), ("rope_scaling_yarn_beta_fast", 32.0),
            ("rope_scaling_yarn_log_mul", 0.1), ("sliding_window", 8), ("sliding_window_pattern", [True, False]),
            ("rope_freq_base_swa", 100.0),
        ):  # fmt: skip
            getattr(writer, f"add_{name}")(value)
        writer.add_tensor("rope_freqs.weight", np.ones(8, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return (Path(folder) / "a.gguf").read_bytes()


@st.composite
def explained(draw: st.DrawFn) -> Case:
    """The files of other programs that ``explain`` reads: values replaced, bytes changed, flags added."""
    name = draw(st.sampled_from(list(EXPLAINED)))
    command, text = EXPLAINED[name]
    words = command.split(" ")
    if name == "a.gguf":
        content = make_gguf()
        for _ in range(draw(st.integers(0, 3))):
            content = draw(damaged(content))
    elif name == "m.txt":
        flags = text.split(" ")
        for _ in range(draw(st.integers(0, 3))):
            flags[draw(st.integers(0, len(flags) - 1))] = draw(
                st.sampled_from((*NUMBERS, *TEXTS, '"', "'", "[1]*2", "(" * 9999))
            )
        content = " ".join(flags).encode("utf8", "surrogatepass")
    elif draw(st.integers(0, 4)) == 0:
        content = draw(damaged(text.encode()))
    else:
        content = make_hostile(draw, json.loads(text), draw(st.integers(1, 2)))
    for more in draw(st.lists(st.sampled_from(MORE), max_size=1)):
        words += more.split(" ")
        if more == "--hf-overrides":
            words.append(draw(st.sampled_from((*OVERRIDES, *JSON))))
        elif more == "--llama-flags":
            flags = draw(st.sampled_from(FLAGS)).split(" ")
            if draw(st.booleans()):
                flags[draw(st.integers(0, len(flags) - 1))] = draw(st.sampled_from((*NUMBERS, "", "x", '"')))
            words.append(" ".join(flags))
    return Case(words, {name: content}, {"run": "run", "writer": "writer"})


@st.composite
def results(draw: st.DrawFn, folder: Path) -> Case:
    """The files that a comparison leaves and reads again, and the baseline of ``check``, damaged."""
    files = [
        "base.json",
        *sorted(str(path.relative_to(folder)) for path in (folder / "sweep").iterdir() if path.is_file()),
    ]
    name = draw(st.sampled_from(files))
    content = (folder / name).read_bytes()
    if name.endswith((".json", ".jsonl")) and draw(st.integers(0, 3)):
        lines = content.decode().strip().split("\n") if name.endswith(".jsonl") else [content.decode()]
        place = draw(st.integers(0, len(lines) - 1))
        parts = [line.encode() for line in lines]
        parts[place] = make_hostile(draw, json.loads(lines[place]))
        content = b"\n".join(parts) + b"\n"
    else:
        content = draw(damaged(content))
    command = (
        "check run --only shift --baseline base.json"
        if name == "base.json"
        else "compare b.toml --out sweep --quiet --format csv"
    )
    return Case(command.split(" "), {name: content}, {"run": "run", "sweep": "sweep"})


@st.composite
def recipes(draw: st.DrawFn) -> Case:
    """A recipe file: keys dropped, added, given another value; whole tables too; or its bytes changed."""
    tables = {name: dict(table) for name, table in RECIPE.items()}
    real = draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        table = draw(st.sampled_from(list(RECIPE)))
        key = draw(st.one_of(st.sampled_from(keys(table)), st.sampled_from([*RECIPE[table], "zzz"])))
        match draw(st.sampled_from(["set", "set", "set", "drop", "replace"])):
            case "set":
                tables.setdefault(table, {})[key] = draw(st.sampled_from(quick(key, TOML)))
            case "drop":
                tables.get(table, {}).pop(key, None)
            case "replace":
                tables[table] = {"": draw(st.sampled_from(TOML))}
    plain = [f"{name} = {table['']}" for name, table in tables.items() if "" in table]
    rest = {name: table for name, table in tables.items() if "" not in table}
    content = "\n".join([*plain, write_tables(rest)]).encode("utf8", "surrogatepass")
    if draw(st.integers(0, 4)) == 0:
        content, real = draw(damaged(content)), False
    command = ["train", "a.toml", "--quiet", "--out", "new", *([] if real else ["--dry-run"])]
    return Case(command, {"a.toml": content})


def write_tables(tables: dict[str, dict[str, str]]) -> str:
    lines: list[str] = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {value}" for key, value in table.items())]
    return "\n".join(lines)


@st.composite
def settings_of_recipes(draw: st.DrawFn) -> Case:
    """Values after ``--set``, to a recipe that is right."""
    content = write_tables(RECIPE)
    written = []
    for _ in range(draw(st.integers(1, 3))):
        table = draw(st.sampled_from([*RECIPE, "position.encoder", "position.transform_options", "zzz", ""]))
        key = draw(st.sampled_from([*keys(table.split(".")[0]), "encoder", "zzz", ""]))
        value = draw(st.sampled_from(quick(key, (*TOML, *TEXTS))))
        written.append(f"{table}.{key}={value}" if table else f"{key}{value}")
    real = [] if draw(st.booleans()) else ["--dry-run"]
    return Case(["train", "a.toml", "--out", "new", "--quiet", *real, "--set", *written], {"a.toml": content.encode()})


@st.composite
def plans(draw: st.DrawFn) -> Case:
    """A plan of ``compare``."""
    plan = dict(PLAN)
    for _ in range(draw(st.integers(1, 3))):
        key = draw(st.sampled_from([*PLAN, "variant", "zzz"]))
        if draw(st.integers(0, 4)) == 0:
            plan.pop(key, None)
        else:
            tables = ('{"position.scheme" = [1, 2]}', '{zzz = [1]}', '[{name = "a", set = {"model.d_ff" = nan}}]', '[{name = 1}]',
                      '{steps = nan}', '{steps = "x"}', '{zzz = 1}', '["zzz"]', '"zzz.toml"', "{data = {corpus = [1]}}")  # fmt: skip
            plan[key] = draw(st.sampled_from((*TOML, *tables)))
    content = "\n".join(f"{key} = {value}" for key, value in plan.items()).encode("utf8", "surrogatepass")
    if draw(st.integers(0, 4)) == 0:
        content = draw(damaged(content))
    return Case(["compare", "a.toml", "--dry-run", "--out", "new"], {"a.toml": content})


@st.composite
def commands(draw: st.DrawFn) -> Case:
    """A command line: words replaced, dropped, doubled, exchanged; options of this and other verbs added."""
    base = draw(st.sampled_from(COMMANDS)).split(" ")
    words = list(base)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(words) - 1, 0)))
        match draw(st.sampled_from(["replace", "replace", "drop", "double", "exchange", "add", "add", "other"])):
            case "replace" if words:
                words[place] = draw(st.sampled_from(quick(words[place - 1], (*NUMBERS, *TEXTS))))
            case "drop" if (
                words
                and words[place] not in ("--dry-run", "--out", "a.tsv")
                and not words[place].startswith("training.max")
            ):
                del words[place]
            case "double" if words:
                words.insert(place, words[place])
            case "exchange" if len(words) > 1:
                words[place - 1], words[place] = words[place], words[place - 1]
            case "add":
                verb = words[0] if words and words[0] in OPTIONS else "train"
                words += draw(option(verb))
            case "other":
                words += draw(option(draw(st.sampled_from(list(OPTIONS)))))
    if too_long(words):
        words = [*base, "--zzz"]
    return Case(words, copies={"run": "run", "writer": "writer"})


@st.composite
def option(draw: st.DrawFn, verb: str) -> list[str]:
    """An option of a verb with a value, or without the one it needs."""
    name, takes = draw(st.sampled_from(OPTIONS[verb]))
    value = draw(st.sampled_from(quick(name, (*NUMBERS, *TEXTS))))
    return [name, value] if takes or draw(st.integers(0, 5)) == 0 else [name]


@st.composite
def texts(draw: st.DrawFn) -> Case:
    """The files of text that commands read, damaged."""
    commands = {
        "a.tsv": "train --data a.tsv --preset tiny --dry-run --set training.max_steps=1",
        "a.de": draw(st.sampled_from((
            "translate run --input a.de --max-length 5", "evaluate run --source a.de --target a.en --max-length 5",
            "train --source a.de --target a.en --preset tiny --dry-run --set training.max_steps=1",
        ))),
        "a.txt": draw(st.sampled_from((
            "evaluate writer --text a.txt --length 8", "inspect writer --text a.txt --texts 8 --length 8 --no-control --json",
            "train --text a.txt --preset tiny --dry-run --set training.max_steps=1 batches.window=8",
        ))),
        "a.jsonl": "train --data a.jsonl --preset tiny --dry-run --set training.max_steps=1",
        "a.csv": "train --data a.csv --preset tiny --dry-run --set training.max_steps=1 data.source=a data.target=b",
    }  # fmt: skip
    name = draw(st.sampled_from(list(commands)))
    rows = {
        "a.tsv": b"source\ttarget\n" + b"eins\tone\nzwei\ttwo\n" * 20,
        "a.csv": b"a,b\n" + b'"eins","one"\nzwei,two\n' * 20,
        "a.jsonl": b'{"source": "eins", "target": "one"}\n{"source": "zwei", "target": "two"}\n' * 20,
        "a.de": b"ein Hund\nzwei Hunde\n" * 30, "a.txt": b"the cat sat on the mat. " * 40,
    }  # fmt: skip
    lines = rows[name].split(b"\n")
    if draw(st.booleans()):
        odd = (b"", b"\t", b"a\tb\tc", b"\x00", b"\xff", b"\r", b"x" * 200_000, b"w " * 400_000, NESTED.encode(), b'"', b",", b"a,a",
               b"source\tsource", b'{"source": 1}', b'{"source": "\\ud800", "target": "x"}', b"[1]", "\u2028\x85".encode())  # fmt: skip
        lines[draw(st.integers(0, min(3, len(lines) - 1)))] = draw(st.sampled_from(odd))
        content = b"\n".join(lines)
    else:
        content = draw(damaged(rows[name]))
    return Case(commands[name].split(" "), {name: content}, {"run": "run", "writer": "writer"})


ROWS = {
    "a.tsv": "ein Satz\tone sentence\n", "a.csv": '"ein Satz, lang",one\n', "a.de": "ein Hund\n", "a.txt": "the cat sat. ",
    "a.jsonl": '{"translation": {"de": "eins", "en": "one"}}\n',
}  # fmt: skip


@st.composite
def sources(draw: st.DrawFn) -> Case:
    """Texts as they come from elsewhere: packed, endless, one line, another encoding, no header, quoted, no file."""
    name = draw(st.sampled_from(list(ROWS)))
    flag = {"a.de": "--source a.de --target a.en", "a.txt": "--text a.txt"}.get(name, f"--data {name}")
    command = f"train {flag} --preset tiny --dry-run --set training.max_steps=1".split()
    row = ROWS[name]
    many = draw(st.sampled_from((1, 2, 50, 3_000_000)))
    content = {
        "plain": lambda: (row * min(many, 50)).encode(),
        "bomb": lambda: compress(row, many),
        "zeros": lambda: compress("\0", 400_000_000),
        "line": lambda: (row.strip() * 1_500_000 + "\n" + row).encode(),
        "utf-16": lambda: (row * 50).encode(draw(st.sampled_from(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp500")))),
        "quoted": lambda: ('"sagt ""hi"""\t"a\nb"\n' * 20 + draw(st.sampled_from(('"\n', "", '"a"b\tc\n')))).encode(),
        "escapes": lambda: ("\x1b]0;x\x07\t=cmd()\n" * 20).encode(),
    }[draw(st.sampled_from(("plain", "plain", "bomb", "zeros", "line", "utf-16", "quoted", "escapes")))]()  # fmt: skip
    extra = st.sampled_from(("data.header=false", "data.source=1", "data.target=2", "data.format=tsv", "data.encoding=utf-16",
                             "data.source_encoding=zlib", "data.target_encoding=latin-1", "data.unit=file", "data.text=1"))  # fmt: skip
    command += draw(st.lists(extra, max_size=4, unique=True))
    if draw(st.integers(0, 5)) == 0:
        command[2] = draw(st.sampled_from(("/dev/zero", "/dev/urandom", "pipe", ".", "run", "/proc/self/mem", "none")))
    return Case(command, {name: content})


@functools.cache
def compress(row: str, count: int) -> bytes:
    """Many equal rows, packed; as far as 200 megabytes go."""
    out = io.BytesIO()
    with gzip.open(out, "wb", 1) as packed:
        step = row.encode() * 1000
        for _ in range(min(count // 1000, 200_000_000 // len(step))):
            packed.write(step)
        packed.write(row.encode())
    return out.getvalue()


@st.composite
def configurations(draw: st.DrawFn, folder: Path) -> Case:
    """The files of a run: values replaced, keys dropped, bytes changed; and the commands that open it."""
    run = draw(st.sampled_from(["run", "writer"]))
    command = draw(st.sampled_from(OF_RUN if run == "run" else OF_WRITER))
    name = draw(st.sampled_from([name for name in FILES if (folder / run / name).is_file()]))
    content = (folder / run / name).read_bytes()
    if not name.endswith(".json") or draw(st.integers(0, 3)) == 0:
        content = draw(damaged(content))
    else:
        content = make_hostile(draw, json.loads(content))
    return Case(command.split(" "), {f"{run}/{name}": content}, {"run": "run", "writer": "writer"})


def make_hostile(draw: st.DrawFn, document: Any, count: int = 1) -> bytes:
    """The document as JSON, with ``count`` values replaced by what is no value there, or dropped."""
    mark = "\u0001hostile\u0001"
    for _ in range(count):
        document = replaced(draw, document, mark)
    return json.dumps(document).replace(json.dumps(mark), draw(st.sampled_from(JSON))).encode("utf8", "surrogatepass")


def replaced(draw: st.DrawFn, document: Any, mark: str) -> Any:
    """The document with one value, at any depth, replaced by the mark, or dropped."""
    if not isinstance(document, (dict, list)) or not document or draw(st.integers(0, 5)) == 0:
        return mark
    find_keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    key = draw(st.sampled_from(find_keys))
    changed = dict(document) if isinstance(document, dict) else list(document)
    if draw(st.integers(0, 7)) == 0:
        del changed[key]
    else:
        changed[key] = replaced(draw, document[key], mark)
    return changed


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes cut off, overwritten, put in, doubled, or in front of them a mark."""
    place = draw(st.integers(0, max(len(content) - 1, 0)))
    odd = (b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1f\x8b\x08\x00", b"\r", b"[", b"]", b'"', b"'", b"=", b"\n\n", b"9" * 5000,
           b"[" * 5000, b"{", b"}", b"a.b.c.d = 1\n", b"\xc3\xa4", NESTED.encode())  # fmt: skip
    match draw(st.sampled_from(["cut", "flip", "put", "front", "double", "empty", "binary"])):
        case "cut":
            return content[:place]
        case "flip" if content:
            return content[:place] + bytes([content[place] ^ (1 << draw(st.integers(0, 7)))]) + content[place + 1 :]
        case "put":
            return content[:place] + draw(st.sampled_from(odd)) + content[place:]
        case "front":
            return draw(st.sampled_from(odd)) + content
        case "double":
            return content + content
        case "binary":
            return draw(st.binary(max_size=200))
    return b""


def keys(table: str) -> list[str]:
    """The keys that a table of the recipe above takes, those of a few schemes too."""
    if table == "position":
        schemes = ("rope", "learned", "sinusoidal", "alibi", "t5", "randomised", "fire")
        return sorted({key for name in schemes for key in find_keys({"position": {"scheme": name}}, "position")})
    return sorted(find_keys({"data": {"corpus": "table"}}, table)) if table in RECIPE else ["zzz"]


def quick(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """The values of which none asks only for patience."""
    slow = any(name.endswith(word) for word in SLOW)
    return tuple(value for value in values if not slow or value in FEW or value not in NUMBERS)


def too_long(words: list[str]) -> bool:
    """Whether a mutated command could be right and take minutes: a tour, a study, a comparison, training for epochs."""
    if any(word.startswith(never) for word in words for never in NEVER):
        return True
    match words[:1]:
        case ["tour"]:
            places = [value for name, value in pairwise(words) if name == "--out"]
            return "--help" not in words and places[-1:] != ["a.tsv"]
        case ["explore"]:  # without a model, the tour
            return "--help" not in words and "run" not in words[1:2]
        case ["study"]:
            return len(words) > 1 and "--dry-run" not in words
        case ["compare"]:
            return "--dry-run" not in words
    return False


def _options() -> dict[str, list[tuple[str, bool]]]:
    found = {}
    for verb in VERBS:
        parser = Parser()
        declare(parser, importlib.import_module(f"clockhands.cli.{verb}").Options)
        found[verb] = [
            (name, action.nargs != 0)
            for action in parser._actions
            for name in action.option_strings
            if name not in NEVER
        ]
    return found


OPTIONS = _options()
