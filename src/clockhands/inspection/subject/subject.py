"""The model under inspection: what is run, what it is called, and where position enters."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import nn

from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.inspection.subject.families import FAMILIES, Family, describe_mechanisms, guess_mechanisms
from clockhands.inspection.subject.foreign_forward import arguments_of, attention_kept, one_stream, output_layer
from clockhands.inspection.subject.input_table import (
    PLACES,
    InputTable,
    capture_input,
    edit_rows,
    find_input_table,
    position_enters,
)
from clockhands.inspection.subject.requirements import check_reads_tokens, read_configuration
from clockhands.inspection.subject.tables import Tables
from clockhands.shapes import Float, Int, Tensor

Side: TypeAlias = Literal["encoder", "decoder"]


@dataclass
class Subject:
    """An opened model. ``model`` is the stack of layers that is looked at: of an encoder-decoder, one ``side`` of it.

    ``whole`` is the encoder-decoder that the stack is a part of, None for a single stack. ``texts`` are what it was
    trained on, where that is known: the default to measure it on; ``pairs`` the same for a decoder, with what the
    encoder read, and ``source_tokenizer`` reads that. ``language_model`` is the model with its output layer, where one
    was given that predicts tokens. ``table`` is what is added at the input, if a table is.
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

    _kinds: ClassVar[list[type[Subject]]] = []

    def __init_subclass__(cls) -> None:
        """Let ``of`` know of a kind of model that is asked in a way of its own."""
        super().__init_subclass__()
        Subject._kinds.append(cls)

    @classmethod
    def takes(cls, model: nn.Module) -> bool:
        """Whether this class, and no other, wraps such a model."""
        raise NotImplementedError

    @classmethod
    def wrap(cls, model: nn.Module, tokenizer: Any = None, name: str = "", side: Side | None = None) -> Subject:
        """Take a model that this class ``takes``; see ``of``."""
        raise NotImplementedError

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any = None, name: str = "", side: Side | None = None) -> Subject:
        """Take a model object of ``transformers``, or of this project; its head, if it has one, only predicts tokens.

        It is set to evaluate, for dropout would be measured with it, and stays so; ``inspect`` puts it back.
        ``side`` of an encoder-decoder (default: the encoder). Raises UsageError if another model is asked for a side.
        """
        for kind in cls._kinds:
            if kind.takes(model):
                return kind.wrap(model, tokenizer, name, side)
        config = read_configuration(model)
        stack: Any = getattr(model, "base_model", model)
        name = name or getattr(config, "name_or_path", "") or type(model).__name__
        whole = stack.eval() if getattr(config, "is_encoder_decoder", False) else None
        side = choose_side(side, whole is not None, name)
        if whole is not None:
            stack = whole.get_decoder() if side == "decoder" else whole.get_encoder()
        elif type(stack).__name__.endswith("DecoderWrapper"):  # of BartForCausalLM and its kin: nothing but a name
            stack = stack.decoder
        family = FAMILIES.get(getattr(config, "model_type", ""))
        subject = cls(stack.eval(), tokenizer, name, family, (), side=side, whole=whole)
        if whole is None and stack is not model and output_layer(model) is not None:
            subject.language_model = model.eval()
        check_reads_tokens(subject)
        subject.find_positions()
        return subject

    def find_positions(self) -> None:
        """Find the table at the input, and name how position enters."""
        self.table = find_input_table(self.model, self.forward, self.make_probe_ids(), self.find_token_table())
        rows = None if self.table is None else self.table.rows_ND(self.model)
        config = getattr(self.whole or self.model, "config", None)
        self.mechanisms = self.family.mechanisms(config) if self.family else guess_mechanisms(self.model, rows)

    @property
    def label(self) -> str:
        """What to call it on a page: its name, with the side that is looked at."""
        return self.name if self.side is None else f"{self.name} ({self.side})"

    @property
    def class_name(self) -> str:
        """The class of the model, as its users know it."""
        if self.whole is None:
            return type(self.model).__name__
        return f"{type(self.whole).__name__}, its {self.side}"

    @property
    def reads_source(self) -> bool:
        """Whether this is a decoder that looks at what an encoder read."""
        return self.whole is not None and self.side == "decoder"

    @property
    def start_token(self) -> int | None:
        """The token that a decoder is given first."""
        first = getattr(getattr(self.whole, "config", None), "decoder_start_token_id", None)
        return int(first) if self.reads_source and first is not None else None

    @property
    def mechanism_sentence(self) -> str:
        """How position enters, in one sentence."""
        return describe_mechanisms(self.mechanisms)

    @property
    def unlisted(self) -> bool:
        """Whether nothing is recorded of this architecture, so that only what its model shows is known."""
        return self.family is None

    @property
    def relative_only(self) -> bool:
        """Whether it is known that a shift of all positions changes nothing, so that none needs to be tried."""
        return bool(self.mechanisms) and not {"learned", "sinusoid", "rotary"} & set(self.mechanisms)

    def explain_absence(self, why: str) -> str:
        """Why a measure of something that this model lacks at its input is left out."""
        if self.table is not None and self.table.words == "mixed":
            return (
                f"A {self.class_name} mixes neighbouring tokens before it adds positions, so no token has its own "
                "vector."
            )
        if self.mechanisms:
            return f"{why} {self.mechanism_sentence}"
        if position_enters(self.forward, int(self.make_probe_ids()[0, 0])):
            return f"Position enters the input of a {self.class_name}, but not as the rows of one table that are added."
        return f"{why} What a {self.class_name} adds at its input is the same at every position."

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device

    @property
    def max_length(self) -> int | None:
        """The longest input it is built for; None where nothing bounds it."""
        if self.table is not None:
            return len(self.table.rows_ND(self.model))
        for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
            known = getattr(getattr(self.model, "config", None), name, None)
            if isinstance(known, int) and known > 0:
                return known
        return None

    @property
    def max_source_length(self) -> int | None:
        """The longest source that a decoder's encoder is built for, where that is known."""
        return None

    def find_token_table(self) -> Tensor | None:
        """The token table as the model keeps it; None where it has none."""
        stack: Any = self.model
        table = getattr(stack, "embed_tokens", None)  # of encoders that are no models of their own (FSMT)
        with suppress(AttributeError, NotImplementedError):
            table = stack.get_input_embeddings()
        rows = getattr(table, "weight", None)
        return rows if isinstance(rows, Tensor) and rows.ndim == 2 else None

    @property
    def vocabulary_size(self) -> int | None:
        """How many token ids the model knows; None where it tells no number."""
        rows = self.find_token_table()
        return None if rows is None else len(rows)

    @property
    def heads(self) -> int:
        """How many heads a layer has, as its configuration says; 1 where it says nothing."""
        count = getattr(getattr(self.model, "config", None), "num_attention_heads", None)
        return count if isinstance(count, int) and count > 0 else 1

    def make_probe_ids(self) -> Int[Tensor, "two T"]:
        """Two texts of ordinary tokens, no token at the same place in both: what effects are tried on."""
        config: Any = getattr(self.whole or self.model, "config", None)
        told = config.to_dict() if hasattr(config, "to_dict") else {}
        ends = ("token_id", "token_index", "_idx")
        special = {value for name, value in told.items() if name.endswith(ends) and isinstance(value, int)}
        known = min(self.vocabulary_size or 1000, 1000)
        ids = torch.tensor([token for token in range(known) if token not in special][-PLACES:])
        return torch.stack([ids, ids.roll(1)])

    def check_ids(self, ids_BT: Tensor) -> Tensor:
        """The same ids. Raises DataError if the model does not know one of them."""
        known = self.vocabulary_size
        if known is not None and ids_BT.numel() and int(ids_BT.max()) >= known:
            raise DataError(
                f"{self.name} has {known} rows of tokens (ids 0 to {known - 1}) and was given the id "
                f"{int(ids_BT.max())}: the ids, or the tokenizer that gave them, belong to another model; give the "
                "model's own tokenizer (--tokenizer NAME, tokenizer=...)"
            )
        return ids_BT

    @torch.no_grad()
    def forward(self, ids_BT: Tensor, *, source_BS: Tensor | None = None, **options: Any) -> tuple[Tensor, ...]:
        """Hidden states, B × T × D each: the embedding output, then every block's. Every token is attended.

        ``source_BS`` is what the encoder reads for a decoder, -1 where nothing stands (default: the same tokens).
        """
        ids_BT = self.check_ids(ids_BT).to(self.device)
        if self.reads_source:
            options |= self._read(ids_BT if source_BS is None else source_BS.to(self.device))
        with attention_kept(self.model):
            output = self.model(
                input_ids=ids_BT,
                attention_mask=torch.ones_like(ids_BT),
                output_hidden_states=True,
                return_dict=True,
                **({"use_cache": False} if "use_cache" in arguments_of(self.model) else {}),
                **options,
            )
        return tuple(one_stream(state, ids_BT.shape, self.model) for state in output.hidden_states)

    @torch.no_grad()
    def next_logits(self, ids_BT: Tensor) -> Float[Tensor, "B V"] | None:
        """Compute the logits of the token after the last; None without an output layer that predicts tokens."""
        if self.language_model is None:
            return None
        ids_BT = ids_BT.to(self.device)
        known = arguments_of(self.language_model)
        options: dict[str, Any] = {"use_cache": False} if "use_cache" in known else {}
        if "logits_to_keep" in known:
            options["logits_to_keep"] = 1
        mask = torch.ones_like(ids_BT)
        with attention_kept(self.model):
            return self.language_model(input_ids=ids_BT, attention_mask=mask, return_dict=True, **options).logits[:, -1]

    def to_float32(self) -> Subject:
        """Return this subject, or a copy of it in float32 if its weights are narrower: measures would overflow."""
        root = self.whole or self.language_model or self.model
        if all(torch.finfo(w.dtype).bits >= 32 for w in root.parameters() if w.is_floating_point()):
            return self
        names = [
            name
            for name in ("whole", "language_model", "model", "transformer")
            if getattr(self, name, None) is not None
        ]
        # One copy of all together, so that what they share stays shared.
        copies = copy.deepcopy([getattr(self, name) for name in names])
        found = replace(self, **{name: each.float() for name, each in zip(names, copies, strict=True)})
        found.find_positions()  # factors that were read in half precision are rough
        return found

    def _read(self, source_BS: Tensor) -> dict[str, Tensor]:
        """What the decoder is given of a source."""
        assert self.whole is not None
        mask = (source_BS >= 0).long()
        read = self.whole.get_encoder()(input_ids=source_BS.clamp_min(0), attention_mask=mask, return_dict=True)  # type: ignore[operator]
        return {"encoder_hidden_states": read.last_hidden_state, "encoder_attention_mask": mask}

    def read_tables(self) -> Tables | None:
        """The input tables in float32 on the CPU, or None where positions are not added to tokens at the input."""
        table = self.table
        if table is None or table.words == "mixed":
            return None
        ids = self.make_probe_ids()
        positions = table.rows_ND(self.model).float().cpu() * table.factor
        total = capture_input(self.model, table.enters, self.forward, ids).float().cpu()
        words = self._word_vectors(table, positions)
        segment = (total - words[ids] - positions[: ids.shape[1]]).mean((0, 1))
        norm = self.model.get_submodule(table.norm) if table.norm else None
        return Tables(words, positions, segment, table.scale, norm)

    def _word_vectors(self, table: InputTable, positions_ND: Tensor) -> Float[Tensor, "V D"]:
        """What each token gives to the sum: its row, or what is left of the sum without the position."""
        rows = self.find_token_table()
        if table.words == "rows":
            assert rows is not None
            return rows.detach().float().cpu() * table.scale
        count = self.vocabulary_size
        assert count is not None
        found = []
        for ids in torch.arange(count).split(PLACES):
            total = capture_input(self.model, table.enters, self.forward, ids[None])
            found.append(total[0].float().cpu() - positions_ND[: len(ids)])
        return torch.cat(found)

    @property
    def interleaved(self) -> bool:
        """Whether a rotation turns neighbouring dimensions, not those half a head apart."""
        return self.family is not None and self.family.interleaved

    @property
    def concatenates(self) -> bool:
        """Whether words and positions have dimensions of their own, so that they cannot share directions."""
        return False

    def read_token_table(self) -> Float[Tensor, "V D"]:
        """The token table as it is stored, on the CPU."""
        rows = self.find_token_table()
        if rows is None:
            raise CheckpointError(
                f"{self.name} has no table of token vectors, so tokens cannot be told from its states"
            )
        return rows.detach().cpu()

    def run_shifted(self, ids_BT: Tensor, step: int, **given: Tensor) -> tuple[Tensor, ...] | None:
        """Hidden states with every position ``step`` later; None where positions cannot be shifted so far."""
        length = ids_BT.shape[1]
        if self.max_length is not None and length + step > self.max_length:
            return None
        tables = self.read_tables()
        if tables is not None:
            with self._reading(tables.positions_ND[step : step + length]):
                return self.forward(ids_BT, **given)
        if "rotary" in self.mechanisms and "position_ids" in arguments_of(self.model):
            places = torch.arange(step, step + length, device=self.device).expand(len(ids_BT), -1)
            return self.forward(ids_BT, position_ids=places, **given)
        return None

    @contextmanager
    def without_positions(self, length: int) -> Iterator[None]:
        """Inside, every position row is the mean of the first ``length``. Raises CheckpointError without a table."""
        tables = self.read_tables()
        if tables is None:
            raise CheckpointError(f"{self.name} has no position table at its input")
        with self._reading(tables.positions_ND[:length].mean(0).expand(length, -1)):
            yield

    def without_residuals(self) -> AbstractContextManager[None] | None:
        """Inside, no layer adds its input to its output; None where the model offers no such switch."""
        return None

    @contextmanager
    def _reading(self, rows_ND: Tensor) -> Iterator[None]:
        """Inside, the model reads these rows from its position table."""
        assert self.table is not None
        tensor: Tensor = operator.attrgetter(self.table.path)(self.model)
        first, factor = self.table.first, self.table.factor

        def write(data: Tensor) -> None:
            data[first : first + len(rows_ND)] = (rows_ND / factor).to(data)

        with edit_rows(tensor, write):
            yield

    def build_untrained(self, seed: int = 0) -> Subject:
        """The same architecture with its weights drawn anew, as its class initialises them: the usual control."""
        # Of a pair, the decoder needs its encoder; and some encoders keep no configuration of their own (FSMT).
        both = self.whole is not None and (self.reads_source or not hasattr(self.model, "config"))
        old: Any = self.whole if both else self.model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh: Any = type(old)(copy.deepcopy(old.config))
        fresh = fresh.to(device=self.device, dtype=next(self.model.parameters()).dtype).eval()
        whole = fresh if both else self.whole
        stack = fresh if not both else fresh.get_decoder() if self.reads_source else fresh.get_encoder()
        return replace(self, model=stack, whole=whole, language_model=None, name=f"{self.name} (untrained)")


def choose_side(asked: Side | None, both: bool, name: str) -> Side | None:
    """The side of a model to look at. Raises UsageError where one is asked for that it has not."""
    if asked is not None and not both:
        raise UsageError(f"{name} is no encoder-decoder, so it has no {asked} side to choose; leave the side out")
    return (asked or "encoder") if both else None
