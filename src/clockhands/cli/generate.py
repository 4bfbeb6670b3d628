"""``clockhands generate``: continue a prompt."""

from __future__ import annotations

import argparse
import json

from clockhands.cli.common import add_device, number, prepare, seed, whole
from clockhands.cli.positions import add_opening, add_positions, open_model, read_positions

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    'clockhands generate runs/shakespeare --prompt "ROMEO:" --tokens 200 --seed 1',
    'clockhands generate runs/stdlib --prompt "def " --temperature 0',
    "clockhands generate runs/stdlib --samples 3 --top-k 40 --json",
    'clockhands generate llama --prompt "The clock" --tokens 20 --position.spectrum yarn --factor 4',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", help="folder of a trained run; or folder or hub name of any causal Hugging Face model")
    parser.add_argument("--prompt", default="", help="the text to continue (default: the start of a text)")
    parser.add_argument("--tokens", type=whole, default=200, help="how many tokens to add (default: %(default)s)")
    parser.add_argument("--max-prompt", type=whole, default=1024, metavar="N",
                        help="tokens of the prompt that are read, the last ones (default: %(default)s)")  # fmt: skip
    parser.add_argument("--temperature", type=number, help="0 takes the likeliest (default: 0.8)")
    parser.add_argument("--top-k", type=whole, help="draw among the k likeliest tokens (default: all)")
    parser.add_argument("--top-p", type=number, help="draw among the likeliest that make up this share (default: 1)")
    parser.add_argument("--beam", type=whole, default=1, help="search this many beams instead of sampling")
    parser.add_argument("--samples", type=whole, default=1, help="how many continuations")
    parser.add_argument("--seed", type=seed, help="draw the same again")
    parser.add_argument("--json", action="store_true", help="JSON Lines with prompt and text")
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
        print(json.dumps({"prompt": options.prompt, "text": text}, ensure_ascii=False) if options.json else text)
    return 0
