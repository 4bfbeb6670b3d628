"""``clockhands generate``: continue a prompt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from clockhands.cli.common import DeviceOptions, Opening, PositionOptions, open_model, prepare, read_positions
from clockhands.cli.flags import POSITIONAL
from clockhands.options import Seed
from clockhands.streams import get_raw_output

EXAMPLES = (
    'clockhands generate runs/shakespeare --prompt "ROMEO:" --tokens 200 --seed 1',
    'clockhands generate runs/stdlib --prompt "def " --temperature 0',
    "clockhands generate runs/stdlib --samples 3 --top-k 40 --json",
    'clockhands generate llama --prompt "The clock" --tokens 20 --position.spectrum yarn --factor 4',
)

SAMPLING = ("tokens", "temperature", "top_k", "top_p", "beam", "samples", "seed", "max_prompt")


@dataclass(frozen=True, kw_only=True)
class Options(PositionOptions, Opening, DeviceOptions):
    """What to continue, and how.

    Args:
        run: the folder of a trained run, or the folder or hub name of any causal Hugging Face model
        prompt: the text to continue (default: an empty text)
        tokens: add at most N tokens
        max_prompt: read only the last N tokens of the prompt
        temperature: sample from the logits divided by T; 0 takes the most likely token at each step (default: 0.8)
        top_k: sample from the K most likely tokens (default: all)
        top_p: sample from the most likely tokens whose probabilities sum to P (default: 1, all tokens)
        beam: search with a beam of N continuations instead of sampling (default: sample)
        samples: print N continuations
        seed: the same seed samples the same text again
        json: print JSON Lines with prompt and text
    """

    run: Annotated[str, POSITIONAL]
    prompt: Annotated[str, "TEXT"] = ""
    tokens: Annotated[int, "N"] = 200
    max_prompt: Annotated[int, "N"] = 1024
    temperature: Annotated[float | None, "T"] = None
    top_k: Annotated[int | None, "K"] = None
    top_p: Annotated[float | None, "P"] = None
    beam: Annotated[int, "N"] = 1
    samples: Annotated[int, "N"] = 1
    seed: Annotated[Seed | None, "N"] = None
    json: bool = False


def run(options: Options) -> int:
    """Print the continuations of a prompt."""
    prepare(options)
    from clockhands.generation import generate
    from clockhands.progress import ProgressCounter

    model = open_model(options, read_positions(options))
    with ProgressCounter() as progress:
        texts = generate(
            model, options.prompt, **{name: getattr(options, name) for name in SAMPLING}, progress=progress
        )
    for text in texts:
        shown = json.dumps({"prompt": options.prompt, "text": text}, ensure_ascii=False) if options.json else text
        print(shown, file=get_raw_output())
    return 0
