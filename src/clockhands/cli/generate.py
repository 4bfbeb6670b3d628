"""``clockhands generate``: continue a prompt."""

from __future__ import annotations

import argparse
import json

from clockhands.cli.common import add_device, as_float, as_int, as_seed, prepare
from clockhands.cli.positions import RUN_OR_MODEL, add_opening, add_positions, open_model, read_positions
from clockhands.streams import get_raw_output

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    'clockhands generate runs/shakespeare --prompt "ROMEO:" --tokens 200 --seed 1',
    'clockhands generate runs/stdlib --prompt "def " --temperature 0',
    "clockhands generate runs/stdlib --samples 3 --top-k 40 --json",
    'clockhands generate llama --prompt "The clock" --tokens 20 --position.spectrum yarn --factor 4',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", help=RUN_OR_MODEL)
    parser.add_argument("--prompt", default="", metavar="TEXT", help="the text to continue (default: an empty text)")
    parser.add_argument(
        "--tokens", type=as_int, default=200, metavar="N", help="add at most N tokens (default: %(default)s)"
    )
    parser.add_argument("--max-prompt", type=as_int, default=1024, metavar="N",
                        help="read only the last N tokens of the prompt (default: %(default)s)")  # fmt: skip
    parser.add_argument("--temperature", type=as_float, metavar="T",
                        help="sample from the logits divided by T; 0 takes the most likely token at each step "
                        "(default: 0.8)")  # fmt: skip
    parser.add_argument("--top-k", type=as_int, metavar="K", help="sample from the K most likely tokens (default: all)")
    parser.add_argument("--top-p", type=as_float, metavar="P",
                        help="sample from the most likely tokens whose probabilities sum to P (default: 1, all "
                        "tokens)")  # fmt: skip
    parser.add_argument("--beam", type=as_int, default=1, metavar="N",
                        help="search with a beam of N continuations instead of sampling")  # fmt: skip
    parser.add_argument("--samples", type=as_int, default=1, metavar="N",
                        help="print N continuations (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=as_seed, metavar="N", help="the same seed samples the same text again")
    parser.add_argument("--json", action="store_true", help="print JSON Lines with prompt and text")
    add_positions(parser)
    add_opening(parser)
    add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Print the continuations of a prompt."""
    prepare(options)
    from clockhands.generation import generate

    texts = generate(
        open_model(options, read_positions(options)),
        options.prompt,
        tokens=options.tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        beam=options.beam,
        samples=options.samples,
        seed=options.seed,
        max_prompt=options.max_prompt,
    )
    for text in texts:
        shown = json.dumps({"prompt": options.prompt, "text": text}, ensure_ascii=False) if options.json else text
        print(shown, file=get_raw_output())
    return 0
