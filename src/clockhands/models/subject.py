"""The model that is inspected: what every measure may ask of it. ``Subject.of`` makes one of any model.

``Subject`` itself has the models of transformers: the input table is found by editing it, and the rest is recorded or
guessed. ``clockhands_subject.py`` has those of this project.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from clockhands.attention import is_installed, list_installed
from clockhands.errors import CheckpointError, ClockhandsError, DataError, UsageError
from clockhands.model.position_config import StackSide
from clockhands.model.transformer import Transformer
from clockhands.models.facts import (
    CONTENTS,
    FAMILIES,
    Family,
    add_installed,
    describe_mechanisms,
    find_claimed_length,
    guess_mechanisms,
    list_arguments,
    list_special_ids,
)
from clockhands.models.input_table import PROBE_LENGTH, InputTable, Tables, find_input_table, is_position_at_input
from clockhands.pretrained import first_line
from clockhands.shapes import Float, Int, Tensor


def choose_side(side: StackSide | None, is_encoder_decoder: bool, name: str) -> StackSide | None:
    """Return the side of the model ``name`` to inspect. Raises UsageError for a side that it does not have."""
    if side is not None and not is_encoder_decoder:
        raise UsageError(f"{name} is no encoder-decoder, so it has no {side} side to choose; leave the side out")
    return (side or "encoder") if is_encoder_decoder else None


@dataclass
class Subject:
    """A model that is inspected, ours or anybody's.

    Attributes:
        model: the stack of layers that is run; of an encoder-decoder, the stack of one ``side``.
        tokenizer: turns text into the ids that ``model`` reads; None if there is none.
        name: what the model is called on a page.
        mechanisms: how position enters, by the names in ``facts.MECHANISM_CLAUSES``; empty where that is not known.
        training_texts: what the model was trained on, where that is known; it is then measured on that by default.
        side: which stack of an encoder-decoder ``model`` is; None for a model of one stack.
        encoder_decoder: the encoder-decoder; None for a model of one stack.
        training_pairs: source and target texts that a decoder with cross-attention was trained on, in place of
            ``training_texts``.
        source_tokenizer: turns the sources of ``training_pairs`` into the ids that the encoder reads.
        tokenizer_fault: why the checkpoint's tokenizer could not be opened; empty if it was, or if none was looked for.
        start_token: the id that the decoder of an encoder-decoder reads first; None for other models.
        max_source_length: the number of tokens in the longest source that the encoder can read, where that is known.
        family: what is recorded of its architecture in ``facts.FAMILIES``; None if nothing is.
        table: the table of position vectors of a model of transformers; None if it adds none at its input.
        installed: what is installed in which layers (``attention.install``), as a sentence; empty where nothing is.
        language_model: the model with its output layer, if it has one stack and came with a layer that predicts tokens.
    """

    model: nn.Module
    tokenizer: Any
    name: str
    mechanisms: tuple[str, ...] = ()
    training_texts: Sequence[str] | None = None
    side: StackSide | None = None
    encoder_decoder: nn.Module | None = field(default=None, repr=False)
    training_pairs: Sequence[tuple[str, str]] | None = None
    source_tokenizer: Any = None
    tokenizer_fault: str = field(default="", repr=False)
    start_token: int | None = None
    max_source_length: int | None = None
    family: Family | None = None
    table: InputTable | None = None
    installed: str = ""
    language_model: nn.Module | None = field(default=None, repr=False)

    @staticmethod
    def of(model: nn.Module, tokenizer: Any = None, name: str = "", side: StackSide | None = None) -> Subject:
        """Make a subject of a model object of ``transformers`` or of this project, with or without an output layer.

        The model is put into evaluation mode, without dropout, and stays in it; ``inspect`` restores its mode.
        ``side`` of an encoder-decoder (default: the encoder). Raises UsageError for a model of neither, and for a
        ``side`` of a model that is no encoder-decoder; CheckpointError for a model that does not turn token ids into
        one state per token.
        """
        if isinstance(model, Transformer) or isinstance(getattr(model, "transformer", None), Transformer):
            ours: Any = importlib.import_module("clockhands.models.clockhands_subject")  # it imports this module
            return ours.wrap_transformer(model, tokenizer, name, side)
        config: Any = getattr(model, "config", None)
        if config is None or not hasattr(model, "get_input_embeddings"):
            raise UsageError(
                f"inspect cannot read a {type(model).__name__}: it takes a model of transformers or of Clockhands. "
                "Make your own module a transformers.PreTrainedModel: with a config, get_input_embeddings(), and "
                "forward(input_ids, attention_mask=None, output_hidden_states=None, **kwargs) that returns "
                "hidden_states, the embedding output first and then every layer's (examples/inspect_custom_model.py)"
            )
        stack: Any = getattr(model, "base_model", model)
        name = name or getattr(config, "name_or_path", "") or type(model).__name__
        encoder_decoder = stack.eval() if getattr(config, "is_encoder_decoder", False) else None
        side = choose_side(side, encoder_decoder is not None, name)
        if encoder_decoder is not None:
            stack = encoder_decoder.get_decoder() if side == "decoder" else encoder_decoder.get_encoder()
        elif type(stack).__name__.endswith("DecoderWrapper"):  # BartForCausalLM and others wrap a decoder once more
            stack = stack.decoder
        family = FAMILIES.get(getattr(config, "model_type", ""))
        subject = Subject(stack.eval(), tokenizer, name, side=side, encoder_decoder=encoder_decoder, family=family)
        start = getattr(getattr(encoder_decoder, "config", None), "decoder_start_token_id", None)
        if subject.reads_source and start is not None:
            subject.start_token = int(start)
        output_layer = getattr(model, "get_output_embeddings", lambda: None)()
        if encoder_decoder is None and stack is not model and isinstance(output_layer, nn.Module):
            subject.language_model = model.eval()
        _check_reads_tokens(subject)
        subject.find_mechanisms()
        return subject

    def find_mechanisms(self) -> None:
        """Set ``table`` by what the model shows, ``mechanisms`` by ``FAMILIES``, or by what it shows if not listed."""
        self.table = find_input_table(self.model, self.forward, self._make_probe_ids(), self.find_token_table())
        rows = None if self.table is None else self.table.view_rows(self.model)
        config = getattr(self.encoder_decoder or self.model, "config", None)
        own = self.family.mechanisms(config) if self.family else guess_mechanisms(self.model, rows)
        self.mechanisms, self.installed = add_installed(own, list_installed(self.model))

    @property
    def label(self) -> str:
        """The name on a page, with the side of an encoder-decoder."""
        return self.name if self.side is None else f"{self.name} ({self.side})"

    @property
    def class_name(self) -> str:
        """The class of the model, with the side of an encoder-decoder."""
        name = type(self.encoder_decoder or self.model).__name__
        return name if self.encoder_decoder is None else f"{name}, its {self.side}"

    @property
    def reads_source(self) -> bool:
        """Whether this is the decoder of an encoder-decoder, whose cross-attention reads a source."""
        return self.encoder_decoder is not None and self.side == "decoder"

    @property
    def mechanism_sentence(self) -> str:
        """How position enters, in one sentence, and what is installed, in another."""
        return describe_mechanisms(self.mechanisms) + self.installed

    @property
    def has_unlisted_architecture(self) -> bool:
        """Whether this is a model of transformers that ``FAMILIES`` does not have: only what it shows is then known."""
        return self.family is None

    @property
    def has_no_absolute_positions(self) -> bool:
        """Whether it is known that the model has no positions, or that only differences of them matter.

        It is asked where ``run_shifted`` returns None, and a reader is then told so. Models of this project declare it,
        those with RoPE too, though their positions can be shifted; for other models with RoPE it is False.
        """
        return bool(self.mechanisms) and not {"learned", "sinusoid", "rotary"} & set(self.mechanisms)

    def explain_missing_table(self, why: str) -> str:
        """Return the sentence of a measure that is left out because ``read_tables`` returns None.

        ``why`` is the measure's own first sentence, that there are no position vectors; what the model does instead
        follows. Where position does enter at the input, in another way, the sentence says how in place of both.
        """
        if self.table is not None and self.table.token_vectors == "mixed":
            return (
                f"A {self.class_name} mixes neighbouring tokens before it adds positions: no token has its own vector."
            )
        if self.mechanisms:
            return f"{why} {self.mechanism_sentence}"
        if is_position_at_input(self.forward, int(self._make_probe_ids()[0, 0])):
            return f"Position enters the input of a {self.class_name}, but not as the rows of one table that are added."
        return f"{why} What a {self.class_name} adds at its input is the same at every position."

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device

    @property
    def max_length(self) -> int | None:
        """The number of tokens in the longest text that the model can read; None if none is known."""
        if self.table is not None:
            return len(self.table.view_rows(self.model))
        return find_claimed_length(getattr(self.model, "config", None), source=self.side == "encoder")

    def find_token_table(self) -> Float[Tensor, "V E"] | None:
        """Return the token table as the model stores it; None where it has none."""
        table: Any = getattr(self.model, "embed_tokens", None)  # the encoder of FSMT has no get_input_embeddings
        with suppress(AttributeError, NotImplementedError):
            table = self.model.get_input_embeddings()  # type: ignore[operator]
        rows = getattr(table, "weight", None)
        return rows if isinstance(rows, Tensor) and rows.ndim == 2 else None

    def read_token_table(self) -> Float[Tensor, "V E"]:
        """Return the token table on the CPU. Raises CheckpointError where there is none."""
        rows = self.find_token_table()
        if rows is None:
            raise CheckpointError(f"{self.name} has no table of token vectors: tokens cannot be told from its states")
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

    def check_ids(self, ids_BT: Tensor) -> None:
        """Raise DataError if the model does not know one of these token ids."""
        size = self.vocabulary_size
        if size is not None and ids_BT.numel() and int(ids_BT.max()) >= size:
            raise DataError(
                f"{self.name} has {size} rows of tokens (ids 0 to {size - 1}) and was given the id "
                f"{int(ids_BT.max())}: the ids, or the tokenizer that gave them, belong to another model; give the "
                "model's own tokenizer (--tokenizer NAME, tokenizer=...)"
            )

    def _make_probe_ids(self) -> Int[Tensor, "two T"]:
        """Return two texts of ordinary tokens with different tokens at every position, to try the model on."""
        special = list_special_ids(getattr(self.encoder_decoder or self.model, "config", None))
        count = min(self.vocabulary_size or 1000, 1000)
        ids = torch.tensor([token for token in range(count) if token not in special][-PROBE_LENGTH:])
        return torch.stack([ids, ids.roll(1)])

    @torch.no_grad()
    def forward(
        self, ids_BT: Tensor, *, source_BS: Tensor | None = None, positions_BT: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the hidden states, B × T × D each: the embedding output, then the output of every block.

        No token is masked as padding. ``source_BS`` are the ids that the encoder reads for a decoder, -1 for padding
        (default: the same ids). ``positions_BT`` are the positions of the tokens, for a model that takes them (default:
        0, 1, 2 …). Raises DataError for ids that the model does not know, and UsageError for source ids that the
        encoder of a model of this project does not know.
        """
        self.check_ids(ids_BT)
        ids_BT = ids_BT.to(self.device)
        options: dict[str, Any] = {} if positions_BT is None else {"position_ids": positions_BT}
        if "use_cache" in list_arguments(self.model):
            options["use_cache"] = False
        if self.reads_source:
            whole: Any = self.encoder_decoder
            source_BS = ids_BT if source_BS is None else source_BS.to(self.device)
            encoder, mask_BS = whole.get_encoder(), (source_BS >= 0).long()
            read = encoder(input_ids=source_BS.clamp_min(0), attention_mask=mask_BS, return_dict=True)
            options |= {"encoder_hidden_states": read.last_hidden_state, "encoder_attention_mask": mask_BS}
        mask_BT = torch.ones_like(ids_BT)
        with _keep_attention_type(self.model):
            output = self.model(
                input_ids=ids_BT, attention_mask=mask_BT, output_hidden_states=True, return_dict=True, **options
            )
        return tuple(_join_streams(state, ids_BT.shape, self.model) for state in output.hidden_states)

    @torch.no_grad()
    def compute_next_logits(self, ids_BT: Tensor) -> Float[Tensor, "B V"] | None:
        """Return what the output layer predicts at the last token; None without a layer that predicts tokens.

        Of a causal language model these are the logits of the token after the last; of a masked one, of the last.
        """
        if self.language_model is None:
            return None
        ids_BT = ids_BT.to(self.device)
        wanted = {"use_cache": False, "logits_to_keep": 1}
        options: Any = {name: wanted[name] for name in wanted.keys() & list_arguments(self.language_model)}
        mask = torch.ones_like(ids_BT)
        with _keep_attention_type(self.model):
            return self.language_model(input_ids=ids_BT, attention_mask=mask, return_dict=True, **options).logits[:, -1]

    def list_modules(self) -> dict[str, nn.Module]:
        """Return the modules that a subject holds, by the names of its attributes; one may be a part of another."""
        modules = {name: getattr(self, name) for name in ("language_model", "encoder_decoder", "model")}
        return {name: module for name, module in modules.items() if module is not None}

    def count_parameters(self) -> int:
        """Count the parameters of all modules that it holds, each once: both sides, and the output layer if opened."""
        # A parameter that several modules share comes once out of a list of modules.
        return sum(weight.numel() for weight in nn.ModuleList(self.list_modules().values()).parameters())

    def to_float32(self) -> Subject:
        """Return this subject, or a copy in float32 if its weights are narrower.

        Squares and sums of states would overflow in float16, and keep two digits in bfloat16.
        """
        modules = self.list_modules()
        weights = (weight for module in modules.values() for weight in module.parameters())
        if all(torch.finfo(weight.dtype).bits >= 32 for weight in weights if weight.is_floating_point()):
            return self
        copies: dict[str, Any] = copy.deepcopy(modules)  # all at once, so that what they share stays shared
        wide = replace(self, **{name: module.float() for name, module in copies.items()})
        wide.find_mechanisms()  # the factors of the table were read in half precision
        return wide

    def read_tables(self, length: int = 0) -> Tables | None:
        """Return the input tables in float32 on the CPU; None where the model has none.

        It has none where no position vectors enter at the input, where they are not the rows of one table, and where
        no token has a vector of its own because neighbours are mixed.
        ``length``: the fewest position vectors that are needed, of a scheme that computes them. Raises CheckpointError
        for tables with NaN or infinite values.
        """
        if self.table is None:
            return None
        stored = self.find_token_table()
        return self.table.read(self.model, self.forward, self._make_probe_ids(), stored, self.vocabulary_size or 0)

    @property
    def interleaved(self) -> bool:
        """Whether RoPE rotates neighbouring channels (0, 1), not those half a head apart."""
        return self.family is not None and self.family.interleaved

    @property
    def concatenated(self) -> bool:
        """Whether tokens and positions have channels of their own, so that they cannot share directions."""
        return False

    def _takes_positions(self) -> bool:
        """Tell whether ``forward`` can be given other positions than 0, 1, 2 …, and they change what is computed."""
        reads = "rotary" in self.mechanisms or is_installed(self.model)
        return reads and "position_ids" in list_arguments(self.model)

    def run_shifted(self, ids_BT: Tensor, step: int, *, source_BS: Tensor | None = None) -> tuple[Tensor, ...] | None:
        """Return the hidden states with all positions ``step`` later; None where positions cannot be shifted so far.

        ``source_BS`` is that of ``forward``.
        """
        length = ids_BT.shape[1]
        if self.max_length is not None and length + step > self.max_length:
            return None
        tables = None if self.table is None else self.read_tables()
        if self.table is not None and tables is not None:
            with self.table.replace_rows(self.model, tables.positions_ND[step : step + length]):
                return self.forward(ids_BT, source_BS=source_BS)
        if not self._takes_positions():
            return None
        positions_BT = torch.arange(step, step + length, device=self.device).expand(len(ids_BT), -1)
        return self.forward(ids_BT, source_BS=source_BS, positions_BT=positions_BT)

    @contextmanager
    def average_positions(self, length: int) -> Iterator[None]:
        """Inside the block, every position row is the mean of the first ``length``, for texts of that length.

        Only for a model whose ``read_tables`` returns tables; raises CheckpointError for another.
        """
        tables = self.read_tables()
        if self.table is None or tables is None:
            raise CheckpointError(f"{self.name} has no position table at its input")
        mean_D = tables.positions_ND[:length].mean(0)
        with self.table.replace_rows(self.model, mean_D.expand(length, -1)):
            yield

    def remove_residuals(self) -> AbstractContextManager[None] | None:
        """Inside the block, no layer adds its input to its output; None where the model has no switch for that."""
        return None

    def build_untrained(self, seed: int = 0) -> Subject:
        """Return the same architecture with weights initialised again, as its class does it: the usual control."""
        # A decoder needs its encoder; and the encoder of FSMT has no configuration of its own.
        builds_both_stacks = self.encoder_decoder is not None and (
            self.reads_source or not hasattr(self.model, "config")
        )
        trained: Any = self.encoder_decoder if builds_both_stacks else self.model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh: Any = type(trained)(copy.deepcopy(trained.config))
        if is_installed(trained):  # a copy has the schemes too
            weights = fresh.state_dict()
            fresh = copy.deepcopy(trained)
            fresh.load_state_dict(weights)
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


@contextmanager
def _keep_attention_type(model: Any) -> Iterator[None]:
    """Set the attention of a model back after the block: BigBird gives up its sparse one for good on a short text."""
    before = getattr(model, "attention_type", None)
    try:
        yield
    finally:
        if hasattr(model, "set_attention_type") and model.attention_type != before:
            model.set_attention_type(before)


def _check_reads_tokens(subject: Subject) -> None:
    """Raise CheckpointError, saying why, if the model does not turn token ids alone into one state per token."""
    encoder_decoder: Any = subject.encoder_decoder
    for stack in (subject.model, *([encoder_decoder.get_encoder()] if subject.reads_source else [])):
        main_input = getattr(stack, "main_input_name", "input_ids")
        if main_input != "input_ids":
            raise CheckpointError(
                f"{subject.name} reads {CONTENTS.get(main_input, main_input)}, not text: its "
                f"{type(stack).__name__} is given {main_input}, and inspect measures models that are given token ids"
            )
    ids, kind = subject._make_probe_ids(), type(subject.model).__name__
    count = ids.shape[1]
    if subject.max_length is not None and subject.max_length < count:
        raise CheckpointError(
            f"{subject.name} reads no more than {subject.max_length} tokens at a time; inspect needs {count} or more"
        )
    try:
        states = subject.forward(ids)
    except ClockhandsError:
        raise
    except Exception as fault:  # foreign code may need more than token ids, and raise anything without it
        raise CheckpointError(
            f"{subject.name} cannot be inspected: a {kind} does not run on the ids of {count} tokens and "
            f"nothing else ({type(fault).__name__}: {first_line(fault)})"
        ) from fault
    if {tuple(state.shape[:-1]) for state in states if isinstance(state, Tensor)} != {tuple(ids.shape)}:
        shapes = dict.fromkeys(str(list(state.shape)) if isinstance(state, Tensor) else "nothing" for state in states)
        raise CheckpointError(
            f"{subject.name} cannot be inspected: the layers of a {kind} do not give one state per token (of 2 texts "
            f"of {count} tokens, they give {', '.join(shapes) or 'no hidden states'})"
        )
