"""Models of this project as subjects: nothing about them is guessed, the model itself is asked."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn

from clockhands.errors import UsageError
from clockhands.inspection.subject.subject import Side, Subject, choose_side
from clockhands.inspection.subject.tables import Tables
from clockhands.model.block import ResidualConnection
from clockhands.model.stack import Stack
from clockhands.model.token_batch import TokenBatch
from clockhands.model.transformer import Transformer
from clockhands.schemes import Scheme
from clockhands.shapes import Tensor

MOST_POSITIONS = 512
"""Rows drawn up for a scheme that has no last position."""


@dataclass
class ClockhandsSubject(Subject):
    """A Transformer of this project. Of an encoder-decoder, ``side`` says which stack is looked at."""

    transformer: Transformer | None = None
    first: int | None = None

    @classmethod
    def takes(cls, model: nn.Module) -> bool:
        return isinstance(model, Transformer) or isinstance(getattr(model, "model", None), Transformer)

    @classmethod
    def wrap(
        cls, model: nn.Module, tokenizer: Any = None, name: str = "", side: Side | None = None
    ) -> ClockhandsSubject:
        """Take a Transformer, or the model of transformers around it."""
        transformer = model if isinstance(model, Transformer) else model.model
        assert isinstance(transformer, Transformer)
        both = transformer.encoder is not None and transformer.decoder is not None
        side = choose_side(side, both, name or transformer.config.kind)
        stack = transformer.decoder if side == "decoder" or transformer.encoder is None else transformer.encoder
        assert isinstance(stack, Stack)
        transformer.eval()
        config = transformer.config
        name = name or f"{config.get_position(side or config.sides[0]).scheme} {config.kind}"
        first = getattr(getattr(model, "config", None), "decoder_start_token_id", None)
        found = cls(stack, tokenizer, name, None, _mechanisms(stack), side=side, whole=transformer if both else None)
        return replace(found, transformer=transformer, first=first if found.reads_source else None)

    @property
    def class_name(self) -> str:
        assert self.transformer is not None
        whole = f"Clockhands {self.transformer.config.kind} Transformer"
        return whole if self.side is None else f"{whole}, its {self.side}"

    def find_positions(self) -> None:
        """Nothing is looked for: the model itself tells."""

    @property
    def unlisted(self) -> bool:
        return False

    @property
    def relative_only(self) -> bool:
        return self.scheme.declares.translation_invariant

    @property
    def start_token(self) -> int | None:
        return self.first

    @property
    def stack(self) -> Stack:
        """The layers looked at."""
        assert isinstance(self.model, Stack)
        return self.model

    @property
    def scheme(self) -> Scheme:
        """The scheme of the first layer."""
        first = self.stack.schemes[0]
        assert isinstance(first, Scheme)
        return first

    @property
    def mechanism_sentence(self) -> str:
        place = {"add": "added to", "concatenate": "concatenated with", "project": "joined by a projection with"}
        kind = type(self.scheme).__name__
        if "encode" in self.scheme.active_hooks():
            return f"{kind}: a vector per position is {place[self.stack.position.combine]} the token embedding."
        if not self.scheme.active_hooks():
            return "Nothing tells it position, except what a causal mask lets it infer."
        return f"{kind}: position enters the attention itself."

    @property
    def max_length(self) -> int | None:
        return last_position(self.scheme)

    @property
    def max_source_length(self) -> int | None:
        encoder = None if self.transformer is None or not self.reads_source else self.transformer.encoder
        return None if encoder is None else last_position(cast(Scheme, encoder.schemes[0]))

    @torch.no_grad()
    def forward(self, ids_BT: Tensor, *, source_BS: Tensor | None = None, **options: Any) -> tuple[Tensor, ...]:
        assert self.transformer is not None
        states: list[Tensor] = []
        text = TokenBatch(self.check_ids(ids_BT).to(self.device), positions_BS=options.get("position_ids"))
        if self.reads_source:
            source = self._source(ids_BT if source_BS is None else source_BS)
            self.transformer.decode(text, self.transformer.encode(source), layer_states=states)
        elif self.transformer.encoder is None:
            self.transformer.decode(text, layer_states=states)
        else:
            self.transformer.encode(text, states)
        return tuple(states)

    @torch.no_grad()
    def next_logits(self, ids_BT: Tensor) -> Tensor | None:
        if self.transformer is None or self.transformer.encoder is not None:
            return None
        return self.transformer.output(self.forward(ids_BT)[-1][:, -1])

    def _source(self, ids_BS: Tensor) -> TokenBatch:
        assert self.transformer is not None
        known, ids_BS = self.transformer.config.get_vocabulary_size("encoder"), ids_BS.to(self.device)
        if int(ids_BS.max()) >= known:
            raise UsageError(
                f"the encoder of {self.name} knows {known} words and is given number {int(ids_BS.max())}: its decoder "
                "has words of its own; inspect the run's folder, which knows what its encoder read"
            )
        return TokenBatch(ids_BS.clamp_min(0), mask_BT=ids_BS >= 0)

    @property
    def vocabulary_size(self) -> int:
        return len(self.stack.input.tokens.weight)

    @property
    def heads(self) -> int:
        assert self.transformer is not None
        return self.transformer.config.num_heads

    def read_token_table(self) -> Tensor:
        return self.stack.input.tokens.weight.detach().cpu()

    @property
    def interleaved(self) -> bool:
        return getattr(self.scheme, "layout", "half") == "interleaved"

    @torch.no_grad()
    def read_tables(self) -> Tables | None:
        """Token and position vectors in the width of the model, whether added, concatenated or projected."""
        if "encode" not in self.scheme.active_hooks():
            return None
        layer = self.stack.input
        count = min(self.max_length or MOST_POSITIONS, MOST_POSITIONS)
        places = torch.arange(count, device=self.device)[None]
        rows = self.scheme.encode(self.stack.transform_positions(places, None))
        assert rows is not None
        scale = float(layer.scale)
        words, positions = layer.tokens.weight.detach().float() * scale, rows[0].float()
        if layer.combine != "add":
            words, positions = _side_by_side(words, positions)
        if layer.project is not None:
            words, positions = words @ layer.project.weight.float().T, positions @ layer.project.weight.float().T
        return Tables(words.cpu(), positions.cpu(), torch.zeros(words.shape[1]), scale, layer.norm)

    @property
    def concatenates(self) -> bool:
        """Whether words and positions have dimensions of their own, so that they cannot share directions."""
        return self.stack.input.combine == "concatenate"

    @contextmanager
    def without_positions(self, length: int) -> Iterator[None]:
        """Inside, every position's vector at the input is the mean of the first ``length``."""

        def flatten(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            ids, encoding = args
            return ids, None if encoding is None else encoding.mean(-2, keepdim=True).expand_as(encoding)

        hook = self.stack.input.register_forward_pre_hook(flatten)
        try:
            yield
        finally:
            hook.remove()

    @contextmanager
    def without_residuals(self) -> Iterator[None]:
        sublayers = [
            module for module in self.stack.modules() if isinstance(module, ResidualConnection) and module.residual
        ]
        for sublayer in sublayers:
            sublayer.residual = False
        try:
            yield
        finally:
            for sublayer in sublayers:
                sublayer.residual = True

    def run_shifted(self, ids_BT: Tensor, step: int, **given: Tensor) -> tuple[Tensor, ...] | None:
        if "encode" not in self.scheme.active_hooks() and "rotate" not in self.scheme.active_hooks():
            return None
        if self.max_length is not None and ids_BT.shape[1] + step > self.max_length:
            return None
        places = torch.arange(step, step + ids_BT.shape[1], device=self.device).expand(len(ids_BT), -1)
        return self.forward(ids_BT, position_ids=places, **given)

    def build_untrained(self, seed: int = 0) -> Subject:
        assert self.transformer is not None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = Transformer(copy.deepcopy(self.transformer.config))
        fresh = fresh.to(next(self.transformer.parameters())).eval()
        stack = fresh.decoder if self.side == "decoder" or fresh.encoder is None else fresh.encoder
        assert stack is not None
        whole = None if self.whole is None else fresh
        return replace(self, model=stack, whole=whole, transformer=fresh, name=f"{self.name} (untrained)")


def _mechanisms(stack: Stack) -> tuple[str, ...]:
    """The names under which the measures know what this scheme does."""
    scheme = stack.schemes[0]
    assert isinstance(scheme, Scheme)
    hooks = scheme.active_hooks()
    found = []
    if "encode" in hooks:
        found.append("learned" if any(True for _ in scheme.parameters()) else "sinusoid")
    if "rotate" in hooks:
        found.append("rotary")
    if hooks & {"bias", "logits", "values", "weigh", "locate"}:
        found.append("buckets")
    return tuple(found) or ("none",)


def _side_by_side(tokens_VE: Tensor, positions_NP: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the joint width, each zero where the other stands."""
    words = torch.cat([tokens_VE, tokens_VE.new_zeros(len(tokens_VE), positions_NP.shape[1])], dim=-1)
    return words, torch.cat([positions_NP.new_zeros(len(positions_NP), tokens_VE.shape[1]), positions_NP], dim=-1)


def last_position(scheme: Scheme) -> int | None:
    """How many positions a scheme has before it refuses; None where it goes on."""
    declared = scheme.declares
    return declared.max_length if declared.beyond == "raise" else None
