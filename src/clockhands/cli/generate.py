"""``clockhands generate``: continue a prompt."""

from __future__ import annotations

import argparse
import json

from clockhands.cli.common import add_device, number, prepare, seed, whole

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    'clockhands generate runs/shakespeare --prompt "ROMEO:" --tokens 200 --seed 1',
    'clockhands generate runs/stdlib --prompt "def " --temperature 0',
    "clockhands generate runs/stdlib --samples 3 --top-k 40 --json",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", help="folder of a trained run")
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
    add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Print the continuations of a prompt."""
    prepare(options)
    from clockhands.generation import generate
    from clockhands.runs import open_run

    texts = generate(
        open_run(options.run, device=options.device),
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
