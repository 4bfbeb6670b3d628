"""The model under inspection: what is run, what it is called, and where position enters."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.inspection.families import FAMILIES, Family, seen, sentence
from clockhands.shapes import Float, Tensor

Side: TypeAlias = Literal["encoder", "decoder"]


@dataclass(frozen=True)
class Tables:
    """What is added at the input: token rows (already scaled), position rows from the first token on, and the rest."""

    words_VD: Float[Tensor, "V D"]
    positions_PD: Float[Tensor, "P D"]
    segment_D: Float[Tensor, " D"]
    scale: float
    norm: nn.Module | None


@dataclass
class Subject:
    """An opened model. ``model`` is the stack of layers that is looked at: of an encoder-decoder, one ``side`` of it.

    ``whole`` is the encoder-decoder that the stack is a part of, None for a single stack. ``texts`` are what it was
    trained on, where that is known: the default to measure it on; ``pairs`` the same for a decoder, with what the
    encoder read, and ``source_tokenizer`` reads that.
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

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any = None, name: str = "", side: Side | None = None) -> Subject:
        """Take a model object of ``transformers``, or of this project; its head, if it has one, is left aside.

        It is set to evaluate, for dropout would be measured with it, and stays so; ``inspect`` puts it back.
        ``side`` of an encoder-decoder (default: the encoder). Raises UsageError if another model is asked for a side.
        """
        if _is_own(model):
            from clockhands.inspection.own import OwnSubject

            return OwnSubject.wrap(model, tokenizer, name, side)
        config: Any = model.config
        stack: Any = getattr(model, "base_model", model)
        whole = stack.eval() if getattr(config, "is_encoder_decoder", False) else None
        side = chosen_side(side, whole is not None, name or type(model).__name__)
        if whole is not None:
            stack = whole.get_decoder() if side == "decoder" else whole.get_encoder()
        family = FAMILIES.get(config.model_type)
        mechanisms = family.mechanisms(config) if family else seen(stack)
        name = name or getattr(config, "name_or_path", "") or type(model).__name__
        return cls(stack.eval(), tokenizer, name, family, mechanisms, side=side, whole=whole)

    @property
    def label(self) -> str:
        """What to call it on a page: its name, with the side that is looked at."""
        return self.name if self.side is None else f"{self.name} ({self.side})"

    @property
    def kind(self) -> str:
        """The class of the model, as its users know it."""
        if self.whole is None:
            return type(self.model).__name__
        return f"{type(self.whole).__name__}, its {self.side}"

    @property
    def looks_across(self) -> bool:
        """Whether this is a decoder that looks at what an encoder read."""
        return self.whole is not None and self.side == "decoder"

    @property
    def start(self) -> int | None:
        """The token that a decoder is given first."""
        first = getattr(getattr(self.whole, "config", None), "decoder_start_token_id", None)
        return int(first) if self.looks_across and first is not None else None

    @property
    def mechanism(self) -> str:
        """How position enters, in one sentence."""
        return sentence(self.mechanisms)

    @property
    def unknown(self) -> bool:
        """Whether nothing is recorded of where this architecture keeps its tables, so that none can be ruled out."""
        return self.family is None

    def absent(self, why: str) -> str:
        """Why a measure of something that this model lacks is left out; of an unknown one nothing is denied."""
        if self.unknown:
            return f"Where a {self.kind} keeps its position tables, and how it turns, is not recorded here."
        return f"{why} {self.mechanism}"

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device

    @property
    def longest(self) -> int | None:
        """The longest input it is built for; None where nothing bounds it."""
        if self.positions is not None and self.family is not None:
            return len(self.positions.weight) - self.family.offset
        config = self.model.config
        for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
            if isinstance(getattr(config, name, None), int) and getattr(config, name) > 0:
                return int(getattr(config, name))
        return None

    @property
    def source_longest(self) -> int | None:
        """The longest source that a decoder's encoder is built for, where that is known."""
        return None

    @cached_property
    def causal(self) -> bool:
        """Whether no token sees those after it; found by asking the model."""
        ids = torch.full((1, 6), 5, device=self.device)
        changed = ids.clone()
        changed[0, -1] = 6
        before, after = (self.forward(row, source_BS=ids)[-1] for row in (ids, changed))
        return bool(torch.allclose(before[0, :-1], after[0, :-1], atol=1e-5))

    @property
    def vocabulary(self) -> int | None:
        """How many token ids the model knows; None where it tells no number."""
        try:
            rows = getattr(self.model.get_input_embeddings(), "weight", None)  # type: ignore[operator]
        except (AttributeError, NotImplementedError):
            return None
        return len(rows) if isinstance(rows, Tensor) else None

    def checked(self, ids_BT: Tensor) -> Tensor:
        """The same ids. Raises DataError if the model does not know one of them."""
        known = self.vocabulary
        if known is not None and ids_BT.numel() and int(ids_BT.max()) >= known:
            raise DataError(
                f"{self.name} knows the token ids 0 to {known - 1} and was given {int(ids_BT.max())}; the ids, or the "
                "tokenizer that gave them, belong to another model"
            )
        return ids_BT

    @torch.no_grad()
    def forward(self, ids_BT: Tensor, *, source_BS: Tensor | None = None, **options: Any) -> tuple[Tensor, ...]:
        """Hidden states, B × T × D each: the embedding output, then every block's. Every token is attended.

        ``source_BS`` is what the encoder reads for a decoder, -1 where nothing stands (default: the same tokens).
        """
        ids_BT = self.checked(ids_BT).to(self.device)
        if self.looks_across:
            options |= self._read(ids_BT if source_BS is None else source_BS.to(self.device))
        output = self.model(
            input_ids=ids_BT,
            attention_mask=torch.ones_like(ids_BT),
            output_hidden_states=True,
            return_dict=True,
            **({"use_cache": False} if "use_cache" in _arguments(self.model) else {}),
            **options,
        )
        return tuple(output.hidden_states)

    def _read(self, source_BS: Tensor) -> dict[str, Tensor]:
        """What the decoder is given of a source."""
        assert self.whole is not None
        mask = (source_BS >= 0).long()
        read = self.whole.get_encoder()(input_ids=source_BS.clamp_min(0), attention_mask=mask, return_dict=True)  # type: ignore[operator]
        return {"encoder_hidden_states": read.last_hidden_state, "encoder_attention_mask": mask}

    @property
    def positions(self) -> nn.Embedding | None:
        """The position table as a module, where the input has one."""
        if self.family is None or not self.family.positions or not {"learned", "sinusoid"} & set(self.mechanisms):
            return None
        found = operator.attrgetter(self.family.positions)(self.model)
        return found if isinstance(getattr(found, "weight", None), Tensor) else None

    def tables(self) -> Tables | None:
        """The input tables in float32 on the CPU, or None where position does not enter at the input."""
        if self.positions is None or self.family is None:
            return None
        family = self.family
        words = operator.attrgetter(family.words)(self.model).weight.detach().float().cpu()
        scale = float(operator.attrgetter(family.scale)(self.model)) if family.scale else 1.0
        positions = self.positions.weight.detach().float().cpu()[family.offset :]
        segment = torch.zeros(words.shape[1])
        segments = operator.attrgetter(family.segments)(self.model) if family.segments else None
        if segments is not None:
            segment = segments.weight.detach().float().cpu()[0]
        norm = operator.attrgetter(family.norm)(self.model) if family.norm else None
        return Tables(words * scale, positions, segment, scale, norm)

    @property
    def interleaved(self) -> bool:
        """Whether a rotation turns neighbouring dimensions, not those half a head apart."""
        return self.family is not None and self.family.interleaved

    @property
    def concatenates(self) -> bool:
        """Whether words and positions have dimensions of their own, so that they cannot share directions."""
        return False

    def embeddings(self) -> Float[Tensor, "V D"]:
        """The token table as it is stored, on the CPU."""
        return self.model.get_input_embeddings().weight.detach().cpu()  # type: ignore[operator]

    def shifted(self, ids_BT: Tensor, step: int, **given: Tensor) -> tuple[Tensor, ...] | None:
        """Hidden states with every position ``step`` later; None where positions cannot be shifted so far."""
        length = ids_BT.shape[1]
        if self.longest is not None and length + step > self.longest:
            return None
        tables = self.tables()
        if tables is not None:
            with self._reading(tables.positions_PD[step : step + length]):
                return self.forward(ids_BT, **given)
        if "rotary" in self.mechanisms and "position_ids" in _arguments(self.model):
            places = torch.arange(step, step + length, device=self.device).expand(len(ids_BT), -1)
            return self.forward(ids_BT, position_ids=places, **given)
        return None

    @contextmanager
    def without_positions(self, length: int) -> Iterator[None]:
        """Inside, every position row is the mean of the first ``length``. Raises CheckpointError without a table."""
        tables = self.tables()
        if tables is None:
            raise CheckpointError(f"{self.name} has no position table at its input")
        with self._reading(tables.positions_PD[:length].mean(0).expand(length, -1)):
            yield

    def without_residuals(self) -> AbstractContextManager[None] | None:
        """Inside, no layer adds its input to its output; None where the model offers no such switch."""
        return None

    @contextmanager
    def _reading(self, rows_PD: Tensor) -> Iterator[None]:
        """Inside, the model reads these rows from its position table."""
        table = self.positions
        assert table is not None and self.family is not None
        kept = table.weight.data
        changed = kept.clone()
        changed[self.family.offset : self.family.offset + len(rows_PD)] = rows_PD.to(changed)
        table.weight.data = changed
        try:
            yield
        finally:
            table.weight.data = kept

    def untrained(self, seed: int = 0) -> Subject:
        """The same architecture with its weights drawn anew, as its class initialises them: the usual control."""
        old = self.whole if self.looks_across else self.model
        assert old is not None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh: Any = type(old)(copy.deepcopy(old.config))
        fresh = fresh.to(device=self.device, dtype=next(self.model.parameters()).dtype).eval()
        stack, whole = (fresh.get_decoder(), fresh) if self.looks_across else (fresh, self.whole)
        return replace(self, model=stack, whole=whole, name=f"{self.name} (untrained)")


def chosen_side(asked: Side | None, both: bool, name: str) -> Side | None:
    """The side of a model to look at. Raises UsageError where one is asked for that it has not."""
    if asked is not None and not both:
        raise UsageError(f"{name} is no encoder-decoder, so it has no {asked} side to choose; leave the side out")
    return (asked or "encoder") if both else None


def _is_own(model: nn.Module) -> bool:
    from clockhands.model.transformer import Transformer

    return isinstance(model, Transformer) or isinstance(getattr(model, "model", None), Transformer)


def _arguments(model: nn.Module) -> frozenset[str]:
    import inspect

    return frozenset(inspect.signature(model.forward).parameters)
