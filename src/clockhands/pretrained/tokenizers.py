"""Tokenizers of a folder or a hub name; only classes that are tokenizers are called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.errors import CheckpointError, show_value
from clockhands.pretrained.file_names import CONFIG, TOKENIZER
from clockhands.pretrained.guards import explain_faults, forbid_questions
from clockhands.quiet import quiet
from clockhands.reading import read_json, refuse_strange_file

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["load_tokenizer"]


def load_tokenizer(
    source: str | Path, *, trust_remote_code: bool = False, local_files_only: bool = False
) -> PreTrainedTokenizerBase:
    """Open the tokenizer of a folder or hub name. Raises CheckpointError."""
    from transformers import AutoTokenizer, PreTrainedTokenizerBase

    for path in _list_files(Path(source)):
        refuse_strange_file(path)
    where = "" if Path(source).is_dir() else " (no folder here, so taken for a name on the Hugging Face hub)"
    named = explain_faults(f"{str(source)!r}{where}", "the tokenizer")
    with named, quiet("huggingface_hub"), quiet("transformers"), forbid_questions():
        for settings in _read_settings(Path(source)):
            _refuse_strange_class(settings.get("tokenizer_class"), source)
            _refuse_strange_length(settings.get("model_max_length"), source)
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                str(source), trust_remote_code=trust_remote_code, local_files_only=local_files_only
            )
        except Exception:
            # What the library says rarely names the file; the first that is not JSON is named instead.
            for path in _list_files(Path(source)):
                if path.suffix == ".json":
                    read_json(path)
            raise
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise CheckpointError(f"{source} names a {type(tokenizer).__name__} as its tokenizer, which is none")
    return tokenizer


def _list_files(folder: Path) -> list[Path]:
    """List the files of a folder that a tokenizer is read from, by the usual names."""
    names = ("tokenizer.json", TOKENIZER, "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt",
             "merges.txt", "tokenizer.model", "chat_template.jinja")  # fmt: skip
    return [folder / name for name in names if (folder / name).exists() or (folder / name).is_symlink()]


def _read_settings(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what the files of a folder say about its tokenizer."""
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


def _refuse_strange_length(length: Any, source: str | Path) -> None:
    """Raise CheckpointError unless the longest text of a tokenizer is a number, or is not told."""
    if length is not None and (isinstance(length, bool) or not isinstance(length, (int, float))):
        raise CheckpointError(f"{source} sets model_max_length = {show_value(length)} in {TOKENIZER}; it is a number")


def _is_tokenizer(kind: type) -> bool:
    """Return whether a class is a tokenizer, or stands for one whose package is not installed."""
    from transformers import PreTrainedTokenizerBase

    return issubclass(kind, PreTrainedTokenizerBase) or getattr(kind, "is_dummy", False)
