"""Scores models with lm-evaluation-harness, under the positions that they have or under others.

It needs the extra ``harness``. This module is the harness's own command with one model type more::

    python -m clockhands.harness run --model clockhands --tasks lambada_openai \\
      --model_args pretrained=runs/stdlib,position.spectrum=yarn,position.factor=4

``pretrained`` is a run of this project that continues text, or a folder or hub name of any causal model of
transformers; every argument that begins with ``position.`` changes its positions, as in ``clockhands evaluate``.
"""

from __future__ import annotations

import sys
from typing import Any

from clockhands.errors import ClockhandsError, MissingPackageError, UsageError

try:
    from lm_eval.api.registry import register_model
    from lm_eval.models.huggingface import HFLM
except ImportError as fault:
    missing = MissingPackageError("clockhands.harness", str(fault.name), "harness")
    if __name__ == "__main__":  # main, which prints other faults without a traceback, is not there yet
        print(f"clockhands: {missing}", file=sys.stderr)
        raise SystemExit(UsageError.exit_code) from None
    raise missing from fault

from clockhands.devices import read_dtype
from clockhands.models import open_language_model
from clockhands.options import parse

PREFIX = "position."
SHORTEST = 2
"""Tokens that a model must be able to read at least: one, and one that follows it."""


@register_model("clockhands")
class ClockhandsLM(HFLM):
    """A causal model as the harness asks it: log-likelihoods of continuations and of whole texts, and generation.

    Args:
        pretrained: a run, a folder, or a name on the hub.
        device: where to compute; None: the GPU if there is one.
        dtype: of the weights; ``auto``: float32, or as a run was saved.
        max_length: tokens that are read at once; None: those that the model was trained on, times ``position.factor``
            where one is given.
        trust_remote_code: whether code that comes with the model may run.
        **options: those of the harness's own class for transformers (``batch_size``, ``max_batch_size``, ...), and
            options of position with ``position.`` before their names.

    Raises CheckpointError and UsageError as ``clockhands.models.open_language_model`` does.
    """

    def __init__(
        self,
        pretrained: str,
        *,
        device: str | None = None,
        dtype: str = "auto",
        max_length: int | None = None,
        trust_remote_code: bool = False,
        **options: Any,
    ) -> None:
        position = {}
        for name in [name for name in options if name.startswith(PREFIX)]:
            value = options.pop(name)  # of which the harness has made a number already, or a text
            position[name.removeprefix(PREFIX)] = parse(value) if isinstance(value, str) else value
        if max_length is not None and max_length < SHORTEST:
            raise UsageError(
                f"max_length is {max_length:,}; a text has at least {SHORTEST} tokens, so give more or leave it out"
            )
        opened = open_language_model(
            pretrained,
            device=device,
            dtype=None if dtype == "auto" else read_dtype(dtype),
            position=position,
            trust_remote_code=trust_remote_code,
        )
        length = max_length
        if max_length is None and opened.trained_length is not None:
            length = int(opened.trained_length * (position.get("factor") or 1))
        if length is not None and opened.max_length is not None and not SHORTEST <= length <= opened.max_length:
            raise UsageError(
                f"max_length is {length:,}, and {pretrained} reads {SHORTEST} to {opened.max_length:,} tokens"
            )
        super().__init__(
            pretrained=opened.model, tokenizer=opened.tokenizer, backend="causal", max_length=length, **options
        )


def main() -> int:
    """Run the harness's own command line; a fault of the model is one sentence."""
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except ClockhandsError as fault:
        print(f"clockhands: {fault}", file=sys.stderr)
        return fault.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
