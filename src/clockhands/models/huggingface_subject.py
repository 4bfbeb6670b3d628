"""Models of transformers as subjects: the input table is found by editing it; the rest is recorded or guessed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from clockhands.errors import CheckpointError, ClockhandsError, UsageError
from clockhands.models.facts import (
    FAMILIES,
    Family,
    describe_mechanisms,
    find_claimed_length,
    guess_mechanisms,
    list_arguments,
    list_special_ids,
)
from clockhands.models.input_table import PROBE_LENGTH, InputTable, Tables, find_input_table, is_position_at_input
from clockhands.models.subject import Side, Subject, choose_side
from clockhands.pretrained import first_line
from clockhands.shapes import Float, Int, Tensor

_CONTENTS = {
    "pixel_values": "images",
    "pixel_values_videos": "videos",
    "input_features": "sound",
    "input_values": "sound",
    "audio_mel": "sound",
    "past_values": "time series",
}
"""What a model reads, by the name of its main input."""


@dataclass
class HuggingFaceSubject(Subject, last=True):
    """A model of transformers that is inspected; of an encoder-decoder, the stack of one ``side``.

    Methods without a docstring do what those of ``Subject`` say.

    Attributes:
        family: what is recorded of its architecture; None if nothing is.
        table: the table of position vectors that is added at the input; None if there is none.
        language_model: the model with its output layer, if it has one stack and came with a layer that predicts tokens.
    """

    family: Family | None = None
    table: InputTable | None = None
    language_model: nn.Module | None = field(default=None, repr=False)

    @classmethod
    def accepts(cls, model: nn.Module) -> bool:
        """Accept any model, last of all; ``wrap`` says what one lacks that is not of transformers."""
        return True

    @classmethod
    def wrap(
        cls, model: nn.Module, tokenizer: Any = None, name: str = "", side: Side | None = None
    ) -> HuggingFaceSubject:
        """Make a subject of a model of transformers. Raises UsageError for any other, and what ``of`` raises."""
        config = read_configuration(model)
        stack: Any = getattr(model, "base_model", model)
        name = name or getattr(config, "name_or_path", "") or type(model).__name__
        encoder_decoder = stack.eval() if getattr(config, "is_encoder_decoder", False) else None
        side = choose_side(side, encoder_decoder is not None, name)
        if encoder_decoder is not None:
            stack = encoder_decoder.get_decoder() if side == "decoder" else encoder_decoder.get_encoder()
        elif type(stack).__name__.endswith("DecoderWrapper"):  # BartForCausalLM and others wrap a decoder once more
            stack = stack.decoder
        family = FAMILIES.get(getattr(config, "model_type", ""))
        subject = cls(stack.eval(), tokenizer, name, side=side, encoder_decoder=encoder_decoder, family=family)
        if encoder_decoder is None and stack is not model and _find_output_layer(model) is not None:
            subject.language_model = model.eval()
        _check_reads_tokens(subject)
        subject.set_table_and_mechanisms()
        return subject

    def set_table_and_mechanisms(self) -> None:
        """Set ``table`` by what the model shows, ``mechanisms`` by ``FAMILIES``, or by what it shows if not listed."""
        self.table = find_input_table(self.model, self.forward, self.make_probe_ids(), self.find_token_table())
        rows = None if self.table is None else self.table.view_rows(self.model)
        config = getattr(self.encoder_decoder or self.model, "config", None)
        self.mechanisms = self.family.mechanisms(config) if self.family else guess_mechanisms(self.model, rows)

    @property
    def class_name(self) -> str:
        if self.encoder_decoder is None:
            return type(self.model).__name__
        return f"{type(self.encoder_decoder).__name__}, its {self.side}"

    @property
    def start_token(self) -> int | None:
        token = getattr(getattr(self.encoder_decoder, "config", None), "decoder_start_token_id", None)
        return int(token) if self.reads_source and token is not None else None

    @property
    def mechanism_sentence(self) -> str:
        return describe_mechanisms(self.mechanisms)

    @property
    def has_unlisted_architecture(self) -> bool:
        return self.family is None

    @property
    def has_no_absolute_positions(self) -> bool:
        return bool(self.mechanisms) and not {"learned", "sinusoid", "rotary"} & set(self.mechanisms)

    def explain_missing_table(self, why: str) -> str:
        if self.table is not None and self.table.token_vectors == "mixed":
            return (
                f"A {self.class_name} mixes neighbouring tokens before it adds positions, so no token has its own "
                "vector."
            )
        if self.mechanisms:
            return f"{why} {self.mechanism_sentence}"
        if is_position_at_input(self.forward, int(self.make_probe_ids()[0, 0])):
            return f"Position enters the input of a {self.class_name}, but not as the rows of one table that are added."
        return f"{why} What a {self.class_name} adds at its input is the same at every position."

    @property
    def max_length(self) -> int | None:
        if self.table is not None:
            return len(self.table.view_rows(self.model))
        return find_claimed_length(getattr(self.model, "config", None), source=self.side == "encoder")

    @property
    def max_source_length(self) -> int | None:
        return None

    def find_token_table(self) -> Float[Tensor, "V E"] | None:
        stack: Any = self.model
        table = getattr(stack, "embed_tokens", None)  # the encoder of FSMT is no model with get_input_embeddings
        with suppress(AttributeError, NotImplementedError):
            table = stack.get_input_embeddings()
        rows = getattr(table, "weight", None)
        return rows if isinstance(rows, Tensor) and rows.ndim == 2 else None

    @property
    def num_heads(self) -> int:
        count = getattr(getattr(self.model, "config", None), "num_attention_heads", None)
        return count if isinstance(count, int) and count > 0 else 1

    def make_probe_ids(self) -> Int[Tensor, "two T"]:
        """Return two texts of ordinary tokens with different tokens at every position, to try the model on."""
        config: Any = getattr(self.encoder_decoder or self.model, "config", None)
        special = list_special_ids(config)
        count = min(self.vocabulary_size or 1000, 1000)
        ids = torch.tensor([token for token in range(count) if token not in special][-PROBE_LENGTH:])
        return torch.stack([ids, ids.roll(1)])

    @torch.no_grad()
    def forward(
        self, ids_BT: Tensor, *, source_BS: Tensor | None = None, positions_BT: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        self.check_ids(ids_BT)
        ids_BT = ids_BT.to(self.device)
        options = {} if positions_BT is None else {"position_ids": positions_BT}
        if self.encoder_decoder is not None and self.reads_source:
            options |= encode_source(self.encoder_decoder, ids_BT if source_BS is None else source_BS.to(self.device))
        with _keep_attention_type(self.model):
            output = self.model(
                input_ids=ids_BT,
                attention_mask=torch.ones_like(ids_BT),
                output_hidden_states=True,
                return_dict=True,
                **({"use_cache": False} if "use_cache" in list_arguments(self.model) else {}),
                **options,
            )
        return tuple(_join_streams(state, ids_BT.shape, self.model) for state in output.hidden_states)

    @torch.no_grad()
    def compute_next_logits(self, ids_BT: Tensor) -> Float[Tensor, "B V"] | None:
        if self.language_model is None:
            return None
        ids_BT = ids_BT.to(self.device)
        arguments = list_arguments(self.language_model)
        options: dict[str, Any] = {"use_cache": False} if "use_cache" in arguments else {}
        if "logits_to_keep" in arguments:
            options["logits_to_keep"] = 1
        mask = torch.ones_like(ids_BT)
        with _keep_attention_type(self.model):
            return self.language_model(input_ids=ids_BT, attention_mask=mask, return_dict=True, **options).logits[:, -1]

    def list_modules(self) -> dict[str, nn.Module]:
        language_model = {} if self.language_model is None else {"language_model": self.language_model}
        return {**language_model, **super().list_modules()}

    def to_float32(self) -> Subject:
        wide = super().to_float32()
        if isinstance(wide, HuggingFaceSubject) and wide is not self:
            wide.set_table_and_mechanisms()  # the factors of the table were read in half precision
        return wide

    def read_tables(self, length: int = 0) -> Tables | None:
        if self.table is None:
            return None
        stored = self.find_token_table()
        return self.table.read(self.model, self.forward, self.make_probe_ids(), stored, self.vocabulary_size or 0)

    @property
    def interleaved(self) -> bool:
        return self.family is not None and self.family.interleaved

    @property
    def concatenated(self) -> bool:
        return False

    def run_shifted(self, ids_BT: Tensor, step: int, *, source_BS: Tensor | None = None) -> tuple[Tensor, ...] | None:
        length = ids_BT.shape[1]
        if self.max_length is not None and length + step > self.max_length:
            return None
        tables = self.read_tables()
        if self.table is not None and tables is not None:
            with self.table.replace_rows(self.model, tables.positions_ND[step : step + length]):
                return self.forward(ids_BT, source_BS=source_BS)
        if "rotary" in self.mechanisms and "position_ids" in list_arguments(self.model):
            positions_BT = torch.arange(step, step + length, device=self.device).expand(len(ids_BT), -1)
            return self.forward(ids_BT, source_BS=source_BS, positions_BT=positions_BT)
        return None

    @contextmanager
    def average_positions(self, length: int) -> Iterator[None]:
        tables = self.read_tables()
        if self.table is None or tables is None:
            raise CheckpointError(f"{self.name} has no position table at its input")
        mean_D = tables.positions_ND[:length].mean(0)
        with self.table.replace_rows(self.model, mean_D.expand(length, -1)):
            yield

    def remove_residuals(self) -> AbstractContextManager[None] | None:
        return None

    def build_untrained(self, seed: int = 0) -> Subject:
        # A decoder needs its encoder; and the encoder of FSMT has no configuration of its own.
        builds_both_stacks = self.encoder_decoder is not None and (
            self.reads_source or not hasattr(self.model, "config")
        )
        trained: Any = self.encoder_decoder if builds_both_stacks else self.model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh: Any = type(trained)(copy.deepcopy(trained.config))
        fresh = fresh.to(device=self.device, dtype=next(self.model.parameters()).dtype).eval()
        encoder_decoder, stack = self.encoder_decoder, fresh
        if builds_both_stacks:
            encoder_decoder, stack = fresh, fresh.get_decoder() if self.reads_source else fresh.get_encoder()
        return replace(
            self, model=stack, encoder_decoder=encoder_decoder, language_model=None, name=f"{self.name} (untrained)"
        )


def _join_streams(state: Any, shape: torch.Size, model: Any) -> Float[Tensor, "B T D"]:
    """Return the hidden state of a layer as one vector per token, B × T × D, where a model keeps several.

    ``shape`` is that of the token ids, B × T.
    """
    if isinstance(state, tuple):  # Pegasus X keeps the states of its global tokens beside those of the text
        return _join_streams(state[0], shape, model)
    if state.ndim == 4 and state.shape[1:3] == shape:  # Gemma 3n keeps parallel streams, of which attention reads one
        return state[getattr(model.config, "altup_active_idx", 0)]
    return state.flatten(2) if state.ndim == 4 and state.shape[:2] == shape else state  # hyper-connections


def encode_source(encoder_decoder: Any, source_BS: Int[Tensor, "B S"]) -> dict[str, Tensor]:
    """Run the encoder over a source (-1 for padding), and return the arguments with which the decoder reads it."""
    mask_BS = (source_BS >= 0).long()
    output = encoder_decoder.get_encoder()(input_ids=source_BS.clamp_min(0), attention_mask=mask_BS, return_dict=True)
    return {"encoder_hidden_states": output.last_hidden_state, "encoder_attention_mask": mask_BS}


def _find_output_layer(model: Any) -> nn.Module | None:
    """Return the layer that predicts tokens; None where a model has none."""
    layer = getattr(model, "get_output_embeddings", lambda: None)()
    return layer if isinstance(layer, nn.Module) else None


@contextmanager
def _keep_attention_type(model: Any) -> Iterator[None]:
    """Set the attention of a model back after the block: BigBird gives up its sparse one for good on a short text."""
    before = getattr(model, "attention_type", None)
    try:
        yield
    finally:
        if hasattr(model, "set_attention_type") and model.attention_type != before:
            model.set_attention_type(before)


def _check_reads_tokens(subject: HuggingFaceSubject) -> None:
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
