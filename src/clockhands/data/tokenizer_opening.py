"""Open an existing tokenizer, from a folder or from the Hugging Face hub, without running code that comes with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from clockhands.data.kinds import SPECIAL
from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.pretrained import TRUST, load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["open_tokenizer"]


def open_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """Open an existing tokenizer, from a folder or by its name on the Hugging Face hub.

    A missing end of text is taken from the separator (BERT), a missing padding token is added (GPT-2). No code that
    comes with a tokenizer is run. Raises DataError if it cannot be opened, UsageError if it cannot end a text.
    """
    looks_local = str(name).startswith((".", "/", "~")) or str(name).count("/") > 1 or isinstance(name, Path)
    if looks_local and not Path(name).is_dir():
        raise DataError(f"there is no tokenizer folder {name}")
    here = Path(name).is_dir()
    try:
        tokenizer = load_tokenizer(name, local_files_only=here or not _is_reachable(str(name)))
    except CheckpointError as fault:
        # No command that trains or translates can be told to trust it.
        raise DataError(str(fault).replace(TRUST, "which is never run here; take a tokenizer without code")) from fault
    # Which class of the tokenizer's own code stood beside it: that is not used, and must not be saved into a run.
    tokenizer.init_kwargs.pop("auto_map", None)
    if tokenizer.eos_token is None:
        if tokenizer.sep_token is None:
            raise UsageError(f"tokenizer {str(name)!r} has no token that ends a text (eos or sep); give another")
        tokenizer.eos_token = tokenizer.sep_token
    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": SPECIAL["pad_token"]})
    return tokenizer


def _is_reachable(name: str) -> bool:
    """Return whether the hub answers. It is asked once: a library would try each of several files for many seconds."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().model_info(name, timeout=10)
    except HfHubHTTPError:
        return True  # It answered, though not with a model; opening says what is wrong.
    except Exception:
        return False  # No network, or asked to stay offline: what was fetched before can still be opened.
    return True
