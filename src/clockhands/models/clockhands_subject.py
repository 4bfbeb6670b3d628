"""Models of this project as subjects: nothing about them is guessed, for their schemes declare it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import nn

from clockhands.errors import UsageError
from clockhands.model.block import ResidualConnection
from clockhands.model.masks import TokenBatch
from clockhands.model.position_config import StackSide
from clockhands.model.stack import Stack
from clockhands.model.transformer import Transformer
from clockhands.models.facts import describe_mechanisms, name_mechanisms
from clockhands.models.input_table import Tables
from clockhands.models.subject import Subject, choose_side
from clockhands.schemes import Declares, Scheme
from clockhands.shapes import Tensor

_COMPUTED_ROWS = 512
"""Position vectors that are computed of a scheme: more where windows are longer, fewer where it has fewer positions."""
_COMBINED = {"add": "added to", "concatenate": "concatenated with", "project": "joined by a projection with"}


@dataclass
class ClockhandsSubject(Subject):
    """A Transformer of this project that is inspected; of an encoder-decoder, the stack of one ``side``.

    ``transformer`` is the model with all of its stacks.
    """

    transformer: Transformer = field(kw_only=True, repr=False)

    def find_mechanisms(self) -> None:
        """Leave them: the schemes have told them."""

    @property
    def class_name(self) -> str:
        name = f"Clockhands {self.transformer.config.architecture} Transformer"
        return name if self.side is None else f"{name}, its {self.side}"

    @property
    def has_unlisted_architecture(self) -> bool:
        return False

    @property
    def has_no_absolute_positions(self) -> bool:
        return self.stack.schemes.declares.translation_invariant

    @property
    def stack(self) -> Stack:
        """The stack of layers that is inspected: the same object as ``model``, with its type."""
        return cast(Stack, self.model)

    @property
    def scheme(self) -> Scheme:
        """The scheme that acts at the token embedding, and in every layer that has none of its own."""
        return self.stack.schemes.at_input

    @property
    def mechanism_sentence(self) -> str:
        hooks, position = self.stack.schemes.active_hooks(), self.stack.position_config
        if not hooks:
            return describe_mechanisms(("none",))
        name = type(self.scheme).__name__ if position.has_single_scheme else position.name
        if "encode" not in self.scheme.active_hooks():
            return f"{name}: position enters the attention itself."
        too = ", and position enters the attention too" if hooks - {"encode"} else ""
        return f"{name}: a vector per position is {_COMBINED[position.combine]} the token embedding{too}."

    @property
    def max_length(self) -> int | None:
        return _find_position_limit(self.stack.schemes.declares)

    @torch.no_grad()
    def forward(
        self, ids_BT: Tensor, *, source_BS: Tensor | None = None, positions_BT: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        states: list[Tensor] = []
        self.check_ids(ids_BT)
        text = TokenBatch(ids_BT.to(self.device), pos=positions_BT)
        if self.reads_source:
            source = self._make_source(ids_BT if source_BS is None else source_BS)
            self.transformer.decode(text, self.transformer.encode(source), layer_states=states)
        elif self.transformer.encoder is None:
            self.transformer.decode(text, layer_states=states)
        else:
            self.transformer.encode(text, states)
        return tuple(states)

    @torch.no_grad()
    def compute_next_logits(self, ids_BT: Tensor) -> Tensor | None:
        if self.transformer.encoder is not None:
            return None
        return self.transformer.output(self.forward(ids_BT)[-1][:, -1])

    def _make_source(self, ids_BS: Tensor) -> TokenBatch:
        """Return the source as the encoder reads it (-1: padding). Raises UsageError for ids that it does not know."""
        size, ids_BS = self.transformer.config.get_vocabulary_size("encoder"), ids_BS.to(self.device)
        if int(ids_BS.max()) >= size:
            raise UsageError(
                f"the encoder of {self.name} knows {size} tokens and was given the id {int(ids_BS.max())}: its decoder "
                "has another vocabulary; inspect the run's folder, which knows what its encoder read"
            )
        return TokenBatch(ids_BS.clamp_min(0), mask_BT=ids_BS >= 0)

    def find_token_table(self) -> Tensor:
        return self.stack.input.tokens.weight

    @property
    def num_heads(self) -> int:
        return self.transformer.config.num_heads

    @property
    def interleaved(self) -> bool:
        return any(getattr(part, "layout", "half") == "interleaved" for part in self.stack.schemes.modules())

    @torch.no_grad()
    def read_tables(self, length: int = 0) -> Tables | None:
        """Return token and position vectors in the width of the model, whether added, concatenated or projected."""
        if "encode" not in self.scheme.active_hooks():
            return None
        layer = self.stack.input
        count = max(_COMPUTED_ROWS, length)
        if self.max_length is not None:
            count = min(count, self.max_length)
        positions_BT = torch.arange(count, device=self.device)[None]
        encoding_BTP = cast(Tensor, self.scheme.encode(self.stack.transform_positions(positions_BT, mask_BS=None)))
        scale = float(layer.scale)
        tokens, positions = layer.tokens.weight.detach().float() * scale, encoding_BTP[0].float()
        if layer.combine != "add":  # each has zeros in the channels of the other
            width = tokens.shape[1]
            tokens = nn.functional.pad(tokens, (0, positions.shape[1]))
            positions = nn.functional.pad(positions, (width, 0))
        if layer.project is not None:
            tokens, positions = (rows @ layer.project.weight.float().T for rows in (tokens, positions))
        return Tables(tokens.cpu(), positions.cpu(), torch.zeros(tokens.shape[1]), scale, layer.norm)

    @property
    def concatenated(self) -> bool:
        return self.stack.input.combine == "concatenate"

    @contextmanager
    def average_positions(self, length: int) -> Iterator[None]:
        """Inside the block, every position vector at the input is the mean over the text, whatever ``length`` says."""

        def average(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            ids, encoding = args
            return ids, None if encoding is None else encoding.mean(-2, keepdim=True).expand_as(encoding)

        hook = self.stack.input.register_forward_pre_hook(average)
        try:
            yield
        finally:
            hook.remove()

    @contextmanager
    def remove_residuals(self) -> Iterator[None]:
        """Inside the block, no layer adds its input to its output."""
        modules = self.stack.modules()
        sublayers = [module for module in modules if isinstance(module, ResidualConnection) and module.adds_input]
        for sublayer in sublayers:
            sublayer.adds_input = False
        try:
            yield
        finally:
            for sublayer in sublayers:
                sublayer.adds_input = True

    def _takes_positions(self) -> bool:
        return bool(self.stack.schemes.active_hooks() & {"encode", "rotate"})

    def list_modules(self) -> dict[str, nn.Module]:
        return {**super().list_modules(), "transformer": self.transformer}

    def build_untrained(self, seed: int = 0) -> Subject:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = Transformer(copy.deepcopy(self.transformer.config))
        fresh = fresh.to(next(self.transformer.parameters())).eval()
        return replace(
            self,
            model=_select_stack(fresh, self.side),
            encoder_decoder=None if self.encoder_decoder is None else fresh,
            transformer=fresh,
            name=f"{self.name} (untrained)",
        )


def wrap_transformer(model: nn.Module, tokenizer: Any, name: str, side: StackSide | None) -> ClockhandsSubject:
    """Make a subject of a Transformer, or of the model of transformers around it; arguments as ``Subject.of``."""
    transformer = cast(Transformer, model if isinstance(model, Transformer) else model.transformer).eval()
    config = transformer.config
    is_encoder_decoder = transformer.encoder is not None and transformer.decoder is not None
    side = choose_side(side, is_encoder_decoder, name or config.architecture)
    stack = _select_stack(transformer, side)
    subject = ClockhandsSubject(
        stack,
        tokenizer,
        name or f"{config.get_position_config(side or config.sides[0]).name} {config.architecture}",
        name_mechanisms(stack.schemes.active_hooks(), any(True for _ in stack.schemes.at_input.parameters())),
        side=side,
        encoder_decoder=transformer if is_encoder_decoder else None,
        transformer=transformer,
    )
    if subject.reads_source and transformer.encoder is not None:
        subject.start_token = getattr(getattr(model, "config", None), "decoder_start_token_id", None)
        subject.max_source_length = _find_position_limit(transformer.encoder.schemes.declares)
    return subject


def _select_stack(transformer: Transformer, side: StackSide | None) -> Stack:
    """Return the stack of a side; of a model of one stack, that one."""
    stacks = (transformer.decoder,) if side == "decoder" else (transformer.encoder, transformer.decoder)
    return next(stack for stack in stacks if stack is not None)


def _find_position_limit(declared: Declares) -> int | None:
    """Return how many positions there are before one is refused, as schemes declare; None where there is no end."""
    return declared.max_length if declared.beyond == "raise" else None
