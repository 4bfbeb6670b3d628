"""The model that is inspected: what is run, what it is called, and where position enters."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import nn

from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.inspection.subject.families import FAMILIES, Family, describe_mechanisms, guess_mechanisms
from clockhands.inspection.subject.foreign_forward import (
    find_output_layer,
    join_streams,
    keep_attention_type,
    list_arguments,
)
from clockhands.inspection.subject.input_table import InputTable
from clockhands.inspection.subject.requirements import check_reads_tokens, read_configuration
from clockhands.inspection.subject.table_search import PROBE_LENGTH, find_input_table, is_position_at_input
from clockhands.inspection.subject.tables import Tables
from clockhands.shapes import Float, Int, Tensor

Side: TypeAlias = Literal["encoder", "decoder"]


@dataclass
class Subject:
    """A model of transformers that is inspected; ``ClockhandsSubject`` is one of this project.

    Attributes:
        model: the stack of layers that is run; of an encoder-decoder, the stack of one ``side``.
        tokenizer: turns text into the ids that ``model`` reads; None if there is none.
        name: what the model is called on a page.
        family: what is recorded of its architecture; None if nothing is.
        mechanisms: how position enters, by the names in ``families.SENTENCES``; empty where that is not known.
        texts: what the model was trained on, where that is known; it is then measured on that by default.
        side: which stack of an encoder-decoder ``model`` is; None for a model of one stack.
        whole: the encoder-decoder; None for a model of one stack.
        pairs: source and target texts that a decoder with cross-attention was trained on, in place of ``texts``.
        source_tokenizer: turns the sources of ``pairs`` into the ids that the encoder reads.
        table: the table of position vectors that is added at the input; None if there is none.
        language_model: the model with its output layer, if it was given with one that predicts the next token.
    """

    model: nn.Module
    tokenizer: Any
    name: str
    family: Family | None
    mechanisms: tuple[str, ...]
    texts: Sequence[str] | None = None
    side: Side | None = None
    whole: nn.Module | None = field(default=None, repr=False)
    pairs: Sequence[tuple[str, str]] | None = None
    source_tokenizer: Any = None
    table: InputTable | None = None
    language_model: nn.Module | None = field(default=None, repr=False)

    _subclasses: ClassVar[list[type[Subject]]] = []

    def __init_subclass__(cls) -> None:
        """Register a subclass, so that ``of`` offers it every model first."""
        super().__init_subclass__()
        Subject._subclasses.append(cls)

    @classmethod
    def accepts(cls, model: nn.Module) -> bool:
        """Tell whether this subclass, and no other, wraps such a model."""
        raise NotImplementedError

    @classmethod
    def wrap(cls, model: nn.Module, tokenizer: Any = None, name: str = "", side: Side | None = None) -> Subject:
        """Make a subject of a model that this subclass ``accepts``; arguments and errors as ``of``."""
        raise NotImplementedError

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any = None, name: str = "", side: Side | None = None) -> Subject:
        """Make a subject of a model object of ``transformers`` or of this project, with or without an output layer.

        The model is put into evaluation mode, without dropout, and stays in it; ``inspect`` restores its mode.
        ``side`` of an encoder-decoder (default: the encoder). Raises UsageError for a ``side`` of a model that is no
        encoder-decoder, CheckpointError for a model that does not turn token ids into one state per token.
        """
        for subclass in cls._subclasses:
            if subclass.accepts(model):
                return subclass.wrap(model, tokenizer, name, side)
        config = read_configuration(model)
        stack: Any = getattr(model, "base_model", model)
        name = name or getattr(config, "name_or_path", "") or type(model).__name__
        whole = stack.eval() if getattr(config, "is_encoder_decoder", False) else None
        side = choose_side(side, whole is not None, name)
        if whole is not None:
            stack = whole.get_decoder() if side == "decoder" else whole.get_encoder()
        elif type(stack).__name__.endswith("DecoderWrapper"):  # BartForCausalLM and others wrap a decoder once more
            stack = stack.decoder
        family = FAMILIES.get(getattr(config, "model_type", ""))
        subject = cls(stack.eval(), tokenizer, name, family, (), side=side, whole=whole)
        if whole is None and stack is not model and find_output_layer(model) is not None:
            subject.language_model = model.eval()
        check_reads_tokens(subject)
        subject.find_positions()
        return subject

    def find_positions(self) -> None:
        """Set ``table`` and ``mechanisms`` by what the model shows."""
        self.table = find_input_table(self.model, self.forward, self.make_probe_ids(), self.find_token_table())
        rows = None if self.table is None else self.table.view_rows(self.model)
        config = getattr(self.whole or self.model, "config", None)
        self.mechanisms = self.family.mechanisms(config) if self.family else guess_mechanisms(self.model, rows)

    @property
    def label(self) -> str:
        """The name on a page, with the side of an encoder-decoder."""
        return self.name if self.side is None else f"{self.name} ({self.side})"

    @property
    def class_name(self) -> str:
        """The class of the model, with the side of an encoder-decoder."""
        if self.whole is None:
            return type(self.model).__name__
        return f"{type(self.whole).__name__}, its {self.side}"

    @property
    def reads_source(self) -> bool:
        """Whether this is the decoder of an encoder-decoder, whose cross-attention reads a source."""
        return self.whole is not None and self.side == "decoder"

    @property
    def start_token(self) -> int | None:
        """The id that the decoder of an encoder-decoder reads first; None for other models."""
        token = getattr(getattr(self.whole, "config", None), "decoder_start_token_id", None)
        return int(token) if self.reads_source and token is not None else None

    @property
    def mechanism_sentence(self) -> str:
        """How position enters, in one sentence."""
        return describe_mechanisms(self.mechanisms)

    @property
    def unlisted(self) -> bool:
        """Whether the architecture is not in ``families.FAMILIES``: only what the model shows is then known."""
        return self.family is None

    @property
    def relative_only(self) -> bool:
        """Whether its mechanisms are known to depend on differences of positions alone, and to let none be passed."""
        return bool(self.mechanisms) and not {"learned", "sinusoid", "rotary"} & set(self.mechanisms)

    def explain_absence(self, why: str) -> str:
        """Return the sentence of a measure that is left out because there are no position vectors at the input.

        ``why`` is the measure's own first sentence; what the model does in place of adding a table follows.
        """
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
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device

    @property
    def max_length(self) -> int | None:
        """The number of tokens in the longest text that the model can read; None if it has no limit."""
        if self.table is not None:
            return len(self.table.view_rows(self.model))
        for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
            limit = getattr(getattr(self.model, "config", None), name, None)
            if isinstance(limit, int) and limit > 0:
                return limit
        return None

    @property
    def max_source_length(self) -> int | None:
        """The number of tokens in the longest source that the encoder can read, where that is known."""
        return None

    def find_token_table(self) -> Float[Tensor, "V E"] | None:
        """Return the token table as the model stores it; None where it has none."""
        stack: Any = self.model
        table = getattr(stack, "embed_tokens", None)  # the encoder of FSMT is no model with get_input_embeddings
        with suppress(AttributeError, NotImplementedError):
            table = stack.get_input_embeddings()
        rows = getattr(table, "weight", None)
        return rows if isinstance(rows, Tensor) and rows.ndim == 2 else None

    def read_token_table(self) -> Float[Tensor, "V E"]:
        """Return the token table on the CPU. Raises CheckpointError where there is none."""
        rows = self.find_token_table()
        if rows is None:
            raise CheckpointError(
                f"{self.name} has no table of token vectors, so tokens cannot be told from its states"
            )
        return rows.detach().cpu()

    @property
    def vocabulary_size(self) -> int | None:
        """The number of token ids; None where the model has no token table."""
        rows = self.find_token_table()
        return None if rows is None else len(rows)

    @property
    def num_heads(self) -> int:
        """The number of heads of a layer, by the configuration; 1 where it names none."""
        count = getattr(getattr(self.model, "config", None), "num_attention_heads", None)
        return count if isinstance(count, int) and count > 0 else 1

    def make_probe_ids(self) -> Int[Tensor, "two T"]:
        """Return two texts of ordinary tokens with different tokens at every position, to try the model on."""
        config: Any = getattr(self.whole or self.model, "config", None)
        settings = config.to_dict() if hasattr(config, "to_dict") else {}
        ends = ("token_id", "token_index", "_idx")
        special = {value for name, value in settings.items() if name.endswith(ends) and isinstance(value, int)}
        count = min(self.vocabulary_size or 1000, 1000)
        ids = torch.tensor([token for token in range(count) if token not in special][-PROBE_LENGTH:])
        return torch.stack([ids, ids.roll(1)])

    def check_ids(self, ids_BT: Tensor) -> None:
        """Raise DataError if the model does not know one of these token ids."""
        size = self.vocabulary_size
        if size is not None and ids_BT.numel() and int(ids_BT.max()) >= size:
            raise DataError(
                f"{self.name} has {size} rows of tokens (ids 0 to {size - 1}) and was given the id "
                f"{int(ids_BT.max())}: the ids, or the tokenizer that gave them, belong to another model; give the "
                "model's own tokenizer (--tokenizer NAME, tokenizer=...)"
            )

    @torch.no_grad()
    def forward(self, ids_BT: Tensor, *, source_BS: Tensor | None = None, **options: Any) -> tuple[Tensor, ...]:
        """Return the hidden states, B × T × D each: the embedding output, then the output of every block.

        No token is masked as padding. ``source_BS`` are the ids that the encoder reads for a decoder, -1 for padding
        (default: the same ids). Other ``options`` go to the model. Raises DataError for ids that it does not know.
        """
        self.check_ids(ids_BT)
        ids_BT = ids_BT.to(self.device)
        if self.whole is not None and self.reads_source:
            options |= _encode_source(self.whole, ids_BT if source_BS is None else source_BS.to(self.device))
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
        """Return the logits of the token after the last; None without an output layer that predicts tokens."""
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
        """Return the modules that a subject holds, by the names of its attributes; one may be a part of another."""
        modules = {"whole": self.whole, "language_model": self.language_model, "model": self.model}
        return {name: module for name, module in modules.items() if module is not None}

    def to_float32(self) -> Subject:
        """Return this subject, or a copy in float32 if its weights are narrower: what is measured would overflow."""
        modules = self.list_modules()
        weights = (weight for module in modules.values() for weight in module.parameters())
        if all(torch.finfo(weight.dtype).bits >= 32 for weight in weights if weight.is_floating_point()):
            return self
        copies: dict[str, Any] = copy.deepcopy(modules)  # all at once, so that what they share stays shared
        wide = replace(self, **{name: module.float() for name, module in copies.items()})
        wide.find_positions()  # the factors of the table were read in half precision
        return wide

    def read_tables(self) -> Tables | None:
        """Return the input tables in float32 on the CPU; None where positions are not added to tokens at the input."""
        if self.table is None:
            return None
        stored = self.find_token_table()
        return self.table.read(self.model, self.forward, self.make_probe_ids(), stored, self.vocabulary_size or 0)

    @property
    def interleaved(self) -> bool:
        """Whether RoPE rotates neighbouring channels (0, 1), not those half a head apart."""
        return self.family is not None and self.family.interleaved

    @property
    def concatenated(self) -> bool:
        """Whether tokens and positions have channels of their own, so that they cannot share directions."""
        return False

    def run_shifted(self, ids_BT: Tensor, step: int, **source: Tensor) -> tuple[Tensor, ...] | None:
        """Return the hidden states with all positions ``step`` later; None where positions cannot be shifted so far.

        ``source`` is the ``source_BS`` of ``forward``, if any.
        """
        length = ids_BT.shape[1]
        if self.max_length is not None and length + step > self.max_length:
            return None
        tables = self.read_tables()
        if self.table is not None and tables is not None:
            with self.table.replace_rows(self.model, tables.positions_ND[step : step + length]):
                return self.forward(ids_BT, **source)
        if "rotary" in self.mechanisms and "position_ids" in list_arguments(self.model):
            positions_BT = torch.arange(step, step + length, device=self.device).expand(len(ids_BT), -1)
            return self.forward(ids_BT, position_ids=positions_BT, **source)
        return None

    @contextmanager
    def without_positions(self, length: int) -> Iterator[None]:
        """Inside the block, every position row is the mean of the first ``length``.

        Raises CheckpointError for a model without a position table.
        """
        tables = self.read_tables()
        if self.table is None or tables is None:
            raise CheckpointError(f"{self.name} has no position table at its input")
        mean_D = tables.positions_ND[:length].mean(0)
        with self.table.replace_rows(self.model, mean_D.expand(length, -1)):
            yield

    def without_residuals(self) -> AbstractContextManager[None] | None:
        """Inside the block, no layer adds its input to its output; None where the model has no switch for that."""
        return None

    def build_untrained(self, seed: int = 0) -> Subject:
        """Return the same architecture with weights initialised again, as its class does it: the usual control."""
        # A decoder needs its encoder; and the encoder of FSMT has no configuration of its own.
        builds_whole = self.whole is not None and (self.reads_source or not hasattr(self.model, "config"))
        trained: Any = self.whole if builds_whole else self.model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh: Any = type(trained)(copy.deepcopy(trained.config))
        fresh = fresh.to(device=self.device, dtype=next(self.model.parameters()).dtype).eval()
        whole, stack = self.whole, fresh
        if builds_whole:
            whole, stack = fresh, fresh.get_decoder() if self.reads_source else fresh.get_encoder()
        return replace(self, model=stack, whole=whole, language_model=None, name=f"{self.name} (untrained)")


def _encode_source(whole: Any, source_BS: Tensor) -> dict[str, Tensor]:
    """Return the arguments with which a decoder reads a source (-1 for padding)."""
    mask_BS = (source_BS >= 0).long()
    output = whole.get_encoder()(input_ids=source_BS.clamp_min(0), attention_mask=mask_BS, return_dict=True)
    return {"encoder_hidden_states": output.last_hidden_state, "encoder_attention_mask": mask_BS}


def choose_side(side: Side | None, is_encoder_decoder: bool, name: str) -> Side | None:
    """Return the side of the model ``name`` to inspect. Raises UsageError for a side that it does not have."""
    if side is not None and not is_encoder_decoder:
        raise UsageError(f"{name} is no encoder-decoder, so it has no {side} side to choose; leave the side out")
    return (side or "encoder") if is_encoder_decoder else None
