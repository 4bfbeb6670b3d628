"""Models of transformers as subjects: the input table is found by editing it; the rest is recorded or guessed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from clockhands.errors import CheckpointError
from clockhands.inspection.subject.families import FAMILIES, Family, describe_mechanisms, guess_mechanisms
from clockhands.inspection.subject.foreign_forward import (
    encode_source,
    find_output_layer,
    join_streams,
    keep_attention_type,
    list_arguments,
)
from clockhands.inspection.subject.input_table import InputTable
from clockhands.inspection.subject.requirements import check_reads_tokens, read_configuration
from clockhands.inspection.subject.side import Side, choose_side
from clockhands.inspection.subject.subject import Subject
from clockhands.inspection.subject.table_search import PROBE_LENGTH, find_input_table, is_position_at_input
from clockhands.inspection.subject.tables import Tables
from clockhands.shapes import Float, Int, Tensor


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
        if encoder_decoder is None and stack is not model and find_output_layer(model) is not None:
            subject.language_model = model.eval()
        check_reads_tokens(subject)
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
        for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
            limit = getattr(getattr(self.model, "config", None), name, None)
            if isinstance(limit, int) and limit > 0:
                return limit
        return None

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
        settings = config.to_dict() if hasattr(config, "to_dict") else {}
        ends = ("token_id", "token_index", "_idx")
        special = {value for name, value in settings.items() if name.endswith(ends) and isinstance(value, int)}
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
        with keep_attention_type(self.model):
            output = self.model(
                input_ids=ids_BT,
                attention_mask=torch.ones_like(ids_BT),
                output_hidden_states=True,
                return_dict=True,
                **({"use_cache": False} if "use_cache" in list_arguments(self.model) else {}),
                **options,
            )
        return tuple(join_streams(state, ids_BT.shape, self.model) for state in output.hidden_states)

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
        with keep_attention_type(self.model):
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
