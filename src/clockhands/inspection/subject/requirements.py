"""What a model must be to be inspected: it reads token ids, and gives one state for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import nn

from clockhands.errors import CheckpointError, ClockhandsError, UsageError
from clockhands.pretrained import first_line
from clockhands.shapes import Tensor

_CONTENTS = {
    "pixel_values": "images",
    "pixel_values_videos": "videos",
    "input_features": "sound",
    "input_values": "sound",
    "audio_mel": "sound",
    "past_values": "time series",
}
"""What a model reads, by the name of its main input."""


@runtime_checkable  # so that the tests, in which annotations are checked while they run, can check this one
class SubjectLike(Protocol):
    """What ``check_reads_tokens`` needs of a subject: a protocol, since ``HuggingFaceSubject`` imports this module."""

    model: nn.Module
    encoder_decoder: nn.Module | None
    name: str

    @property
    def reads_source(self) -> bool: ...

    @property
    def max_length(self) -> int | None: ...

    def make_probe_ids(self) -> Tensor: ...

    def forward(self, ids_BT: Tensor) -> tuple[Tensor, ...]: ...


def check_reads_tokens(subject: SubjectLike) -> None:
    """Raise CheckpointError, saying why, if the model does not turn token ids alone into one state per token."""
    encoder_decoder: Any = subject.encoder_decoder
    for stack in (subject.model, *([encoder_decoder.get_encoder()] if subject.reads_source else [])):
        main_input = getattr(stack, "main_input_name", "input_ids")
        if main_input != "input_ids":
            raise CheckpointError(
                f"{subject.name} reads {_CONTENTS.get(main_input, main_input)}, not text: its "
                f"{type(stack).__name__} is given {main_input}, and inspect measures models that are given token ids"
            )
    ids = subject.make_probe_ids()
    if subject.max_length is not None and subject.max_length < ids.shape[1]:
        raise CheckpointError(
            f"{subject.name} reads no more than {subject.max_length} tokens at a time; inspect needs {ids.shape[1]} or "
            "more"
        )
    try:
        states = subject.forward(ids)
    except ClockhandsError:
        raise
    except Exception as fault:  # foreign code may need more than token ids, and raise anything without it
        raise CheckpointError(
            f"{subject.name} cannot be inspected: a {type(subject.model).__name__} does not run on the ids of "
            f"{ids.shape[1]} tokens and nothing else ({type(fault).__name__}: {first_line(fault)})"
        ) from fault
    shapes = {tuple(state.shape[:-1]) for state in states if isinstance(state, Tensor)}
    if shapes != {tuple(ids.shape)}:
        raise CheckpointError(
            f"{subject.name} cannot be inspected: the layers of a {type(subject.model).__name__} do not give one state "
            f"per token (of 2 texts of {ids.shape[1]} tokens, they give {_describe_shapes(states)})"
        )


def read_configuration(model: nn.Module) -> Any:
    """Return the configuration of a model of transformers. Raise UsageError, saying what is needed, for any other."""
    config = getattr(model, "config", None)
    if config is not None and hasattr(model, "get_input_embeddings"):
        return config
    raise UsageError(
        f"inspect cannot read a {type(model).__name__}: it takes a model of transformers or of Clockhands. Make your "
        "own module a transformers.PreTrainedModel: with a config, get_input_embeddings(), and "
        "forward(input_ids, attention_mask=None, output_hidden_states=None, **kwargs) that returns hidden_states, the "
        "embedding output first and then every layer's (examples/inspect_custom_model.py)"
    )


def _describe_shapes(states: Sequence[Any]) -> str:
    """Return the different shapes of the states, as text."""
    shapes = dict.fromkeys(str(list(state.shape)) if isinstance(state, Tensor) else "nothing" for state in states)
    return ", ".join(shapes) or "no hidden states"
