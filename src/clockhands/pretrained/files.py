"""Names of the files of a saved model, and guards around what a library does with them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clockhands.errors import CheckpointError, ClockhandsError, ConfigError

OWN = "clockhands"
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER, GENERATION = "tokenizer_config.json", "generation_config.json"
ADAPTER = "adapter_config.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
LOADING_CODE = "modeling_clockhands.py"
"""A file beside the weights that imports the classes of this project, for transformers with trust_remote_code."""
OWN_AUTO_MAP = {
    auto_class: f"{LOADING_CODE.removesuffix('.py')}.{name}"
    for auto_class, name in (
        ("AutoConfig", "ClockhandsConfig"),
        ("AutoModelForSeq2SeqLM", "ClockhandsForSeq2SeqLM"),
        ("AutoModelForCausalLM", "ClockhandsForCausalLM"),
        ("AutoModelForMaskedLM", "ClockhandsForMaskedLM"),
    )
}
"""What ``auto_map`` of a model of this project may say. Nothing here reads it: the classes are imported directly."""
FOREIGN = (
    "auto_map", "custom_pipelines", "quantization_config", "attn_implementation", "experts_implementation",
    "fusion_config", "transformers_weights",
)  # fmt: skip
"""Settings that make transformers load or run something else; a model of this project has none of them but
``auto_map`` with values of ``OWN_AUTO_MAP``."""


TRUST = "which would run on this machine; read it, then give --trust-remote-code (trust_remote_code=True)"


def describe_untrusted(source: str | Path, what: str) -> str:
    """Say that something brings code, and how to allow it."""
    return f"{source} brings its own code ({what}), {TRUST}"


@contextmanager
def forbid_questions() -> Iterator[None]:
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


_OUTPUT = threading.RLock()
"""Held while standard output is another: of two threads the second would keep what the first put in its place."""


@contextmanager
def print_to_errors() -> Iterator[None]:
    """Send to standard error what compiled code of a library prints, which would stand in the middle of our JSON.

    That of tokenizers prints a line for a key that it does not know, and has no switch for it. Other threads print
    there too meanwhile.
    """
    with _OUTPUT:
        try:
            sys.stdout.flush()
            output = os.dup(1)
        except (AttributeError, OSError, ValueError):  # closed: `>&-` leaves no sys.stdout
            yield
            return
        try:
            with suppress(OSError):
                os.dup2(2, 1)
            yield
        finally:
            os.dup2(output, 1)
            os.close(output)


@contextmanager
def explain_faults(source: str | Path, what: str = "the model in") -> Iterator[None]:
    """Turn whatever is raised while ``source`` is opened into one CheckpointError.

    Libraries raise anything for a damaged or hostile file, so every exception of theirs is turned. Of our own only a
    ConfigError is: the faults of a configuration that somebody else wrote. The others say already what to do.
    """
    try:
        yield
    except ConfigError as fault:
        raise CheckpointError(f"{source} describes no model that can be built: {fault}") from fault
    except ClockhandsError:
        raise
    except Exception as fault:
        if "trust_remote_code" in str(fault):
            raise CheckpointError(describe_untrusted(source, f"named in its {CONFIG} or {TOKENIZER}")) from fault
        raise CheckpointError(f"cannot open {what} {source}: {first_line(fault)}") from fault


def first_line(fault: BaseException) -> str:
    """Return the first line of a library's message, at most 300 characters; the type of the fault if there is none."""
    lines = [line.strip() for line in str(getattr(fault, "strerror", None) or fault).strip().splitlines()]
    if not lines:
        return type(fault).__name__
    # Some end their first line in a colon, and say on the next one what is wrong.
    return " ".join(lines[: 1 + lines[0].endswith(":")])[:300]
