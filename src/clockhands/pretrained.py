"""The one door to what somebody else made: configurations, weights, tokenizers and data sets.

A folder may come from anybody. Nothing that it holds runs as code unless ``trust_remote_code`` is true, and nothing
asks a question on standard input (transformers does where nobody says whether to trust). Weights are read from
safetensors alone: a pickle can run anything. Sizes are judged before memory is taken. What cannot be opened is a
CheckpointError with the path and what to do. No other module of this package calls ``from_pretrained``, ``from_config``
or ``load_dataset``; a test reads the source for it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clockhands.errors import CheckpointError, ClockhandsError, ConfigError, DataError
from clockhands.files import check_readable, is_deep
from clockhands.machine import free_memory
from clockhands.quiet import quiet, without_bars
from clockhands.shapes import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

OWN = "clockhands"
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER, GENERATION = "tokenizer_config.json", "generation_config.json"
ADAPTER = "adapter_config.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
FOREIGN = (
    "auto_map", "custom_pipelines", "quantization_config", "attn_implementation", "experts_implementation",
    "fusion_config", "transformers_weights",
)  # fmt: skip
"""Settings by which transformers loads or runs something else; a model of this project has none of them."""
LARGEST_TEXT = 2**26
"""Bytes of the largest configuration that is read; those of real models have some thousands."""
DEEPEST = 64
"""Levels of tables and lists within each other that a configuration may have."""
ROOM = 1.2
"""What a model needs besides its weights, as a factor."""
MOST = {
    re.compile(r"layers?(_per_\w+)?$|^n_layers?$|blocks?$|^depths?$"): 2_000,
    re.compile(r"heads?$|experts?$|labels?$|groups?$"): 2**17,
}
"""Counts that transformers turns into objects or lists, however small each is, and the largest that is taken."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one table.

    Raises CheckpointError, with the path, for a file that is missing, no ordinary file, too large, not UTF-8, not JSON,
    nested too deeply, or holds something else.
    """
    try:
        _refuse_strange_file(path)
        if path.stat().st_size > LARGEST_TEXT:
            raise CheckpointError(f"{path} has {path.stat().st_size:,} bytes; no configuration is as large")
        found = json.loads(path.read_text(encoding="utf8"))
    except UnicodeDecodeError as fault:
        raise CheckpointError(f"{path} cannot be read: it is not UTF-8 ({fault.reason})") from fault
    except RecursionError as fault:
        raise CheckpointError(f"{path} cannot be read: it is nested thousands of levels deep") from fault
    except (OSError, ValueError) as fault:
        raise CheckpointError(f"{path} cannot be read: {first_line(fault)}") from fault
    if not isinstance(found, dict):
        kind = {list: "a list", str: "a text", type(None): "null"}.get(type(found), "a number")
        raise CheckpointError(f"{path} cannot be read: it holds {kind}, not a table of settings")
    if is_deep(found, DEEPEST):
        raise CheckpointError(f"{path} cannot be read: it is nested more than {DEEPEST} levels deep")
    return found


def _refuse_strange_file(path: Path) -> None:
    """Raise CheckpointError unless a file, or what a link leads to, is an ordinary one: a pipe would never end."""
    if path.is_file():
        try:
            check_readable(path)
        except PermissionError as fault:
            raise CheckpointError(f"cannot read {path}: {fault.strerror}; its owner can allow it") from fault
        return
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder; a file of that name is needed")
    if path.is_symlink() and not path.exists():
        raise CheckpointError(f"{path} is a link to {path.readlink()}, which is not there")
    if path.exists():
        raise CheckpointError(f"{path} is not an ordinary file")
    raise CheckpointError(f"{path} is not there")


def configuration(source: str | Path) -> dict[str, Any]:
    """Read the ``config.json`` of a folder or of a name on the Hugging Face hub, as it is written.

    transformers would drop or repair what must be refused. Raises CheckpointError for a missing path, for what cannot
    be read, and for counts that no model has.
    """
    path = Path(source)
    if path.is_file():
        raise CheckpointError(f"{source} is a file; give the folder that holds config.json and model.safetensors")
    if path.is_dir():
        if not (path / CONFIG).exists() and not (path / CONFIG).is_symlink():
            raise CheckpointError(f"{source} holds no config.json, so it is no saved model")
        raw = read_json(path / CONFIG)
    else:
        raw = _of_hub(source)
    _refuse_counts(raw, source)
    return raw


def _of_hub(source: str | Path) -> dict[str, Any]:
    path = Path(source)
    if path.is_absolute() or str(source).startswith((".", "~")) or str(source).count("/") != 1:
        raise CheckpointError(
            f"there is no folder {source}; give a saved model's folder, or a hub name such as org/name"
        )
    from transformers import PreTrainedConfig

    try:
        with quiet("huggingface_hub"), asks_nothing():
            return dict(PreTrainedConfig.get_config_dict(str(source))[0])
    except Exception as fault:  # whatever the network, the cache or the file gives
        raise CheckpointError(
            f"{source} is neither a folder here nor a model that the hub gives: {first_line(fault)}"
        ) from fault


def _refuse_counts(raw: Mapping[str, Any], source: str | Path) -> None:
    """Raise CheckpointError for a count of layers, heads or labels that would be built one by one."""
    for key, value in _entries(raw):
        for pattern, most in MOST.items():
            if isinstance(value, (int, float)) and pattern.search(key.rpartition(".")[2]) and not value <= most:
                raise CheckpointError(
                    f"{source} sets {key} = {value!r} in config.json; no model has more than {most:,}"
                )


def _entries(raw: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a configuration with its dotted key, those of nested tables too."""
    for key, value in raw.items():
        if isinstance(value, dict):
            yield from _entries(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def is_own(raw: Mapping[str, Any]) -> bool:
    """Whether a configuration is of a model of this project."""
    return raw.get("model_type") == OWN


def is_known(raw: Mapping[str, Any]) -> bool:
    """Whether transformers has the code for a configuration's type of model."""
    from transformers import CONFIG_MAPPING

    kind = raw.get("model_type")
    return isinstance(kind, str) and kind in CONFIG_MAPPING


def refuse_code(raw: Mapping[str, Any], source: str | Path, *, trust_remote_code: bool = False) -> None:
    """Raise CheckpointError if opening a model of this configuration would run code that is not of transformers.

    A model of this project never needs any, so there trust is not asked for.
    """
    if is_own(raw):
        foreign = next((key for key in FOREIGN if raw.get(key) is not None), None)
        if foreign is not None:
            raise CheckpointError(
                f"{source} sets {foreign} in {CONFIG}, which no run of this project does; what it names is neither "
                f"loaded nor run: take {foreign} out where you trust the rest"
            )
        return
    kernels = [
        f"{key} = {value!r}"
        for key, value in _entries(raw)
        if "_implementation" in key and isinstance(value, str) and "/" in value
    ]
    if kernels and not trust_remote_code:
        raise CheckpointError(untrusted(source, f"{kernels[0]}, a kernel of the hub"))
    if "auto_map" in raw and not is_known(raw) and not trust_remote_code:
        raise CheckpointError(untrusted(source, f"model_type {raw.get('model_type')!r}"))


TRUST = "which would run on this machine; read it, then give --trust-remote-code (trust_remote_code=True)"


def untrusted(source: str | Path, what: str) -> str:
    """Say that something brings code, and how to allow it."""
    return f"{source} brings its own code ({what}), {TRUST}"


@contextmanager
def asks_nothing() -> Iterator[None]:
    """Keep transformers from asking on standard input whether to run code: inside, it raises instead.

    Every call of ours says whether to trust; but one that is made by transformers in turn may not pass that on, as
    where a ``tokenizer_config.json`` names ``AutoTokenizer`` as its class. Its time limit of 0 means: nobody is there.
    """
    from transformers import dynamic_module_utils as theirs

    limit = theirs.TIME_OUT_REMOTE_CODE
    theirs.TIME_OUT_REMOTE_CODE = 0
    try:
        yield
    finally:
        theirs.TIME_OUT_REMOTE_CODE = limit


@contextmanager
def opening(source: str | Path, what: str = "the model in") -> Iterator[None]:
    """Turn whatever is raised while ``source`` is opened into one CheckpointError.

    Libraries raise anything for a damaged or hostile file, so every exception is meant; of ours, only the faults of a
    configuration, which somebody else wrote.
    """
    try:
        yield
    except ConfigError as fault:
        raise CheckpointError(f"{source} describes no model that can be built: {fault}") from fault
    except ClockhandsError:
        raise
    except Exception as fault:
        if "trust_remote_code" in str(fault):
            raise CheckpointError(untrusted(source, f"named in its {CONFIG} or {TOKENIZER}")) from fault
        raise CheckpointError(f"cannot open {what} {source}: {first_line(fault)}") from fault


def first_line(fault: BaseException) -> str:
    """Take the first line of what a library said, at most 300 characters; its kind where it said nothing."""
    lines = str(getattr(fault, "strerror", None) or fault).strip().splitlines()
    if not lines:
        return type(fault).__name__
    # Some end their first line in a colon, and say on the next one what is wrong.
    return " ".join(line.strip() for line in lines[: 1 + lines[0].endswith(":")])[:300]


def check_weights(folder: Path, raw: Mapping[str, Any] | None = None) -> None:
    """Raise CheckpointError unless the weights of a folder can be read without running code and fit the memory.

    ``raw``: its configuration, which may name the file. Only the headers are read.
    """
    check_fits(sum(map(stored_bytes, weight_files(folder, raw or {}))), folder)


def weight_files(folder: Path, raw: Mapping[str, Any]) -> list[Path]:
    """List the safetensors files that hold a model's weights.

    Raises CheckpointError for weights that are pickled or missing, for an index that leads elsewhere, and for an
    adapter, which is a part of another model.
    """
    if (folder / ADAPTER).exists():
        raise CheckpointError(
            f"{folder} holds an adapter of another model ({ADAPTER}), which is not put into it here; merge the two "
            "(merge_and_unload of peft), and save that"
        )
    named = raw.get("transformers_weights")
    if named is not None and not (isinstance(named, str) and named.endswith((".safetensors", f".{INDEX[6:]}"))):
        raise CheckpointError(f"{folder} names {named!r} as its weights in {CONFIG}; only safetensors are read")
    chosen = [named] if named else [WEIGHTS, INDEX]
    first = next((folder / name for name in chosen if (folder / name).exists() or (folder / name).is_symlink()), None)
    shards = sorted(path for path in folder.glob("shard-*.safetensors"))
    if first is None and not shards:
        _refuse_pickle(folder)
        raise CheckpointError(f"{folder} holds no weights ({WEIGHTS})")
    found = shards if first is None else _shards(first) if first.name.endswith(".json") else [first]
    for path in found:
        _refuse_strange_file(path)
    return found


def _shards(index: Path) -> list[Path]:
    """The files that an index names, all of them safetensors beside it."""
    table = read_json(index).get("weight_map")
    names = set(table.values()) if isinstance(table, dict) and all(isinstance(n, str) for n in table.values()) else ()
    if not names:
        raise CheckpointError(f"{index} cannot be read: it names no files (weight_map)")
    for name in sorted(names):
        if not name.endswith(".safetensors") or Path(name).name != name:
            raise CheckpointError(f"{index} names {name!r} for weights; only safetensors files beside it are read")
    return [index.parent / name for name in sorted(names)]


def _refuse_pickle(folder: Path) -> None:
    """Raise CheckpointError if a folder holds its weights as a pickle only."""
    pickles = sorted(path.name for path in folder.iterdir() if path.name.endswith((*PICKLES, ".bin.index.json")))
    if pickles:
        raise CheckpointError(
            f"{folder} holds its weights only as pickle ({pickles[0]}), which can run any code when it is read; where "
            "you trust it, load it with transformers and write it again with save_pretrained, as safetensors"
        )


def stored_bytes(path: Path) -> int:
    """Count what the tensors of a safetensors file take as float32; only its header is read. Raises CheckpointError."""
    from safetensors import safe_open

    try:
        _refuse_strange_file(path)
        with safe_open(path, framework="pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except ClockhandsError:
        raise
    except Exception as fault:
        raise CheckpointError(
            f"{path} is no safetensors file, or a damaged one: {first_line(fault)}; put back a whole copy"
        ) from fault
    return sum(4 * math.prod(shape) for shape in shapes)


def check_fits(needed: int, source: str | Path, available: int | None = None) -> None:
    """Raise CheckpointError if a model of ``needed`` bytes does not fit into ``available`` (default: what is free)."""
    if available is None:
        available = free_memory(torch.device("cpu"))
    if needed * ROOM > available:
        raise CheckpointError(
            f"{source} needs {needed / 2**30:.1f} GiB for its weights and more to run, and {available / 2**30:.1f} GiB "
            "of memory are free; use a machine with more, or a smaller model of the family"
        )


def numbers_of(opener: Any, config: Any, *, trust_remote_code: bool = False) -> int | None:
    """Count the numbers of a model, parameters and tables, by building it without storage.

    ``opener``: an Auto class. None where the model cannot be built so; opening it says what is wrong.
    """
    try:
        with torch.device("meta"), quiet("accelerate.big_modeling"):
            model = build_model(opener, config, trust_remote_code=trust_remote_code)
    except Exception:  # code of a model's own may do anything here
        return None
    return sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))


def load_configuration(source: str | Path, *, trust_remote_code: bool = False) -> Any:
    """Open the configuration of a folder or hub name as transformers has it. Raises CheckpointError."""
    from transformers import AutoConfig

    refuse_code(configuration(source), source, trust_remote_code=trust_remote_code)
    with opening(source, "the configuration of"), quiet("huggingface_hub"), asks_nothing():
        return AutoConfig.from_pretrained(str(source), trust_remote_code=trust_remote_code)


def reload_configuration(config: Any, folder: str | Path) -> Any:
    """Read a configuration back from a folder that it was saved to, as the same class."""
    with asks_nothing():
        return type(config).from_pretrained(str(folder))


def load_model(opener: Any, source: str | Path, *, trust_remote_code: bool = False, **options: Any) -> Any:
    """Load a model from safetensors. ``opener``: an Auto class, or the class of the model; raises what that raises.

    ``options`` are those of ``from_pretrained``. No bar is drawn meanwhile.
    """
    with asks_nothing(), without_bars():
        return opener.from_pretrained(str(source), use_safetensors=True, trust_remote_code=trust_remote_code, **options)


def build_model(opener: Any, config: Any, *, trust_remote_code: bool = False, **options: Any) -> Any:
    """Build a model with fresh weights. ``opener``: an Auto class; raises what that raises."""
    with asks_nothing():
        return opener.from_config(config, trust_remote_code=trust_remote_code, **options)


def load_tokenizer(
    source: str | Path, *, trust_remote_code: bool = False, local_files_only: bool = False
) -> PreTrainedTokenizerBase:
    """Open the tokenizer of a folder or hub name. Raises CheckpointError."""
    from transformers import AutoTokenizer, PreTrainedTokenizerBase

    for path in _tokenizer_files(Path(source)):
        _refuse_strange_file(path)
    where = "" if Path(source).is_dir() else " (no folder here, so taken for a name on the Hugging Face hub)"
    named = opening(f"{str(source)!r}{where}", "the tokenizer")
    with named, quiet("huggingface_hub"), quiet("transformers"), asks_nothing():
        for settings in _tokenizer_settings(Path(source)):
            _refuse_strange_class(settings.get("tokenizer_class"), source)
        try:
            found = AutoTokenizer.from_pretrained(
                str(source), trust_remote_code=trust_remote_code, local_files_only=local_files_only
            )
        except Exception:
            # What the library says rarely names the file; the first that is no JSON at all is told of instead.
            for path in _tokenizer_files(Path(source)):
                if path.suffix == ".json":
                    read_json(path)
            raise
    if not isinstance(found, PreTrainedTokenizerBase):
        raise CheckpointError(f"{source} names a {type(found).__name__} as its tokenizer, which is none")
    return found


def _tokenizer_files(folder: Path) -> list[Path]:
    """The files of a folder that a tokenizer is read from, by the usual names."""
    names = ("tokenizer.json", TOKENIZER, "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt",
             "merges.txt", "tokenizer.model", "chat_template.jinja")  # fmt: skip
    return [folder / name for name in names if (folder / name).exists() or (folder / name).is_symlink()]


def _tokenizer_settings(folder: Path) -> Iterator[dict[str, Any]]:
    """What the files of a folder say about its tokenizer."""
    for name in (TOKENIZER, CONFIG):
        if (folder / name).exists() or (folder / name).is_symlink():
            yield read_json(folder / name)


def _refuse_strange_class(name: Any, source: str | Path) -> None:
    """Raise CheckpointError if the class that is named is one of transformers and no tokenizer: any would be called."""
    import transformers

    named = getattr(transformers, name, None) if isinstance(name, str) else None
    if name is not None and not isinstance(name, str):
        raise CheckpointError(f"{source} sets tokenizer_class = {name!r}; it must be the name of a class")
    if named is not None and not (isinstance(named, type) and _is_tokenizer(named)):
        raise CheckpointError(f"{source} sets tokenizer_class = {name!r}, which is no tokenizer")


def _is_tokenizer(kind: type) -> bool:
    """Whether a class is a tokenizer, or stands for one whose package is not installed."""
    from transformers import PreTrainedTokenizerBase

    return issubclass(kind, PreTrainedTokenizerBase) or getattr(kind, "is_dummy", False)


def load_data_set(name: str, subset: str | None = None, revision: str | None = None) -> Any:
    """Open a Hugging Face data set: a folder written by ``save_to_disk``, one of data files, or a name on the hub.

    No code of a data set is run, whatever the settings of ``datasets`` say. Raises DataError, or ImportError where the
    package is not installed.
    """
    import datasets

    try:
        if any((Path(name) / file).is_file() for file in ("dataset_dict.json", "state.json")):
            return datasets.load_from_disk(name)
        return datasets.load_dataset(name, subset, revision=revision, trust_remote_code=False)
    except Exception as fault:
        # The library raises whatever its builders raise; all of it means that there is no such data here.
        raise DataError(f"cannot open the data set {name!r}: {str(fault) or type(fault).__name__}") from fault


def load_state(path: Path) -> Any:
    """Read what torch saved of an optimiser, a schedule or random numbers: tensors and plain data, and no code.

    Raises what torch raises for anything else.
    """
    from transformers.trainer_pt_utils import safe_globals

    _refuse_strange_file(path)
    with safe_globals():
        return torch.load(path, map_location="cpu", weights_only=True)


@torch.no_grad()
def refuse_not_finite(weights: Iterable[tuple[str, Tensor]], source: str | Path) -> None:
    """Raise CheckpointError for the first weight that is NaN or infinite, by name: whatever it touches is NaN.

    The least and the greatest number take one pass over the memory (some seconds for a model of seven billion) and are
    finite only if every number is.
    """
    for name, weight in weights:
        if weight.is_meta or not weight.is_floating_point() or not weight.numel():
            continue
        # No order is defined for numbers of 8 bits.
        numbers = weight if weight.itemsize > 1 else weight.float()
        ends = torch.aminmax(numbers)
        if math.isfinite(float(ends.min)) and math.isfinite(float(ends.max)):
            continue
        bad = int((~torch.isfinite(numbers)).sum())
        raise CheckpointError(
            f"the weights in {source} are damaged: {bad:,} of {weight.numel():,} numbers of {name} are NaN or "
            "infinite; put back a whole copy, or an earlier checkpoint"
        )
