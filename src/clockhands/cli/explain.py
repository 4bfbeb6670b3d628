"""``clockhands explain``: explain what a position configuration means in numbers, or how two of them differ."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clockhands.cli.flags import POSITIONAL, list_given
from clockhands.errors import UsageError
from clockhands.options import Count

EXAMPLES = (
    "clockhands explain llama",
    "clockhands explain llama --as vllm --json",
    "clockhands explain llama --other-as transformers4",
    'clockhands explain llama --hf-overrides \'{"rope_parameters": {"rope_theta": 500000}}\'',
    "clockhands explain llama --llama-flags '--rope-scaling yarn --rope-scale 4'",
    "clockhands explain llama --to llama.cpp",
    "clockhands explain runs/rope --to smollm3",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which configuration is explained, and what it is compared with.

    Args:
        file: a config.json or its folder, a hub name, a .gguf file, a params.json, or a file of Megatron's arguments
        other: another such file: print the first difference of the two, and its cause
        program: read config.json as this program does
        other_program: compare with the other file, or the same file, as this program reads it
        hf_overrides: compare with the same file under vLLM's --hf-overrides
        llama_flags: compare with the same file under flags of llama.cpp
        length: the length of the text, for angles that depend on it
        to: print the configuration as another program wants it, or all keys about position of a config.json of
            transformers, by its model_type
        json: print the table, or the difference, as JSON
    """

    file: Annotated[str, POSITIONAL]
    other: Annotated[str | None, POSITIONAL] = None
    program: Annotated[str, "PROGRAM", "--as"] = "transformers5"
    other_program: Annotated[str | None, "PROGRAM", "--other-as"] = None
    hf_overrides: Annotated[str | None, "JSON"] = None
    llama_flags: Annotated[str | None, "FLAGS"] = None
    length: Annotated[Count | None, "TOKENS"] = None
    to: Annotated[str | None, "FORMAT"] = None
    json: bool = False


def complete(parser: argparse.ArgumentParser) -> None:
    """Add the names that --as, --other-as and --to take, which are read where programs and formats are."""
    from clockhands.explanation import FORMATS, PROGRAMS
    from clockhands.interchange.architectures import ARCHITECTURES

    for action in parser._actions:
        if action.dest in ("program", "other_program"):
            action.choices, action.metavar = PROGRAMS, None
        elif action.dest == "to":
            action.choices = [*FORMATS, *ARCHITECTURES]
            action.help = (
                f"print the configuration as another program wants it ({', '.join(FORMATS)}), or all keys about "
                f"position of a config.json of transformers, by its model_type ({', '.join(ARCHITECTURES)})"
            )


def run(options: Options) -> int:
    """Explain one configuration, compare two (1 where they differ, as ``diff``), or write one for another program."""
    from clockhands.explanation import FORMATS, compare, convert, describe, describe_difference, read_positions, to_json

    _leave_torch_out(options)
    first = read_positions(options.file, options.program)
    other = None
    if any(getattr(options, name) for name in ("other", "other_program", "hf_overrides", "llama_flags")):
        program = options.other_program or options.program
        other = read_positions(options.other or options.file, program, options.hf_overrides, options.llama_flags or "")
    if options.to:
        if other is not None:
            raise UsageError("--to writes one configuration; leave out the other")
        if unused := list_given(options, ("json", "length")):
            raise UsageError(f"--to writes what another program reads; leave out {' and '.join(unused)}")
        if options.to in FORMATS:
            print(convert(first, options.to))
            return 0
        from clockhands.interchange.position_keys import convert_position_keys

        if options.program != "transformers5":
            raise UsageError(f"--to {options.to} writes what transformers 5 reads; leave out --as")
        print(json.dumps(convert_position_keys(options.file, options.to), indent=2))
        return 0
    if other is None:
        print(json.dumps(to_json(first, options.length), indent=1) if options.json else describe(first, options.length))
        return 0
    difference = compare(first, other, options.length)
    if options.json:
        print(json.dumps(dataclasses.asdict(difference) if difference else None, indent=1))
    else:
        print(describe_difference(difference, first, other))
    return 0 if difference is None else 1


def _leave_torch_out(options: Options) -> None:
    """Keep transformers from importing torch, which takes longer than all the rest, where nothing of it is needed.

    Only where this command is the whole process: transformers looks for torch once, and goes without it from then on.
    """
    from clockhands.explanation import FORMATS

    alone = Path(sys.argv[0]).name in ("clockhands", "__main__.py") and "torch" not in sys.modules
    if alone and options.to in (None, *FORMATS):
        sys.modules["torch"] = None  # type: ignore[assignment]
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        warnings.filterwarnings("ignore", category=FutureWarning)  # of keys that a file has, and that are told anyway
