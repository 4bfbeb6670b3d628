"""Several schemes side by side: each hook is called of every part that has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast, final

import torch
from torch import nn

from clockhands.errors import ConfigError
from clockhands.schemes.composition_rules import (
    combine_declarations,
    find_conflicts,
    find_scheme_after_rotation,
    list_schemes_of_fewer_axes,
)
from clockhands.schemes.frequencies import check_axes, take_axis
from clockhands.schemes.position_checks import check_integer
from clockhands.schemes.scheme import (
    AttentionInputs,
    Bias,
    Declares,
    HeadValues,
    KeyPositions,
    Keys,
    Located,
    Logits,
    MaskedPairs,
    Places,
    Queries,
    QueryPositions,
    Rotated,
    Scheme,
    ScoreMod,
    States,
    Vectors,
)
from clockhands.shapes import Float, Tensor

PartLike: TypeAlias = str | Mapping[str, Any] | Scheme
"""The name of a scheme, a table with its name under ``scheme`` and its options beside it, or a scheme that is built."""


@final
class Composition(Scheme):
    """Several schemes side by side, as layers of present models have them: RoPE, a window and sinks.

    Every hook calls that of each part: encodings and biases are summed, queries are rotated by the one part that
    rotates and scaled by those that only scale, and ``logits`` and ``values`` pass from part to part in their order.
    What a window hides stays hidden whatever other parts make of the logits. Where one part places tokens by
    ``locate``, the others read the positions that the tokens had. What two schemes cannot share is refused. Windows and
    chunks go with positions of any number of coordinates, and so do a temperature and SSMax with ``axis``.

    Args:
        schemes: the parts: names of schemes, or tables of a name and options as ``{scheme = "rope", base = 5e5}``,
            which ``schemes.build`` makes schemes of. The class itself takes schemes that are built, and needs them.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AttentionInputs, Composition, RoPE, Window
        >>> both = Composition(RoPE(2), Window(num_heads=1, left=1))
        >>> q, pos = torch.ones(1, 1, 3, 2), torch.tensor([[0, 1, 2]])
        >>> both.bias(AttentionInputs(q, q, pos, pos))[0, 0, 2]
        tensor([-inf, 0., 0.])
    """

    equation = r"\ell_{ij} = \tau(i)\, R(i) q_i \cdot R(j) k_j / \sqrt{d_h} + \textstyle\sum_s b_s(i, j)"
    source = "the sources of its parts"
    peers = ("transformers: layer_types with sliding_window, rope_parameters by layer type, sinks",)
    models = ("Mistral", "gpt-oss", "Gemma 3", "ModernBERT", "Llama 4", "Cohere2", "OLMo 3", "MPNet")

    def __init__(self, *parts: Scheme, schemes: Sequence[PartLike] = ("rope", "window")) -> None:
        super().__init__()
        schemes = parts or schemes
        if not all(isinstance(part, Scheme) for part in schemes):
            names = ", ".join(repr(part) for part in schemes if not isinstance(part, Scheme))
            raise ConfigError(
                [
                    f"composition was given {names}, but takes schemes that are built, as in "
                    f"Composition(RoPE(64), Window(8)); schemes.build takes names"
                ],
                "the scheme",
            )
        built = cast(Sequence[Scheme], schemes)
        faults = find_conflicts(built)
        if faults:
            raise ConfigError(faults, "the scheme")
        self._set_parts(built, set())

    def _set_parts(self, parts: Sequence[Scheme], borrowed: set[int]) -> None:
        """Keep the parts; those that are borrowed are another module's, which saves and initialises them."""
        self._all_parts = tuple(parts)
        self.own = nn.ModuleDict({str(index): part for index, part in enumerate(parts) if index not in borrowed})
        self.rotates_by_head = any(part.rotates_by_head for part in parts)
        self.widening = max((part.widening for part in parts), default=1)
        self.per_layer = any(part.per_layer for part in parts)
        self.rowwise = all(part.rowwise for part in parts)
        biases = [part for part in parts if "bias" in part.active_hooks()]
        self.queries_share_bias_row = all(part.queries_share_bias_row for part in biases)
        self.lean_score_mod = all(part.lean_score_mod for part in biases)
        # Neither in a tuple nor in _PartPositions does nn.Module register a scheme.
        self._after_rotation = (find_scheme_after_rotation(parts),)
        self._sinks = tuple(part for part in parts if part.split_sinks() is not None)
        others = [part for part in parts if part not in self._sinks]
        # All other parts as one scheme, for kernels, which get the logits of sinks apart.
        beside = find_scheme_after_rotation(others) or Composition(schemes=others) if self._sinks and others else None
        self._beside_sinks = (beside,)
        self._positions = _PartPositions(parts)
        self.arguments = {}
        # The parts agree (``find_conflicts``), but for those that go with any heads.
        heads = next((part.made_for[0] for part in parts if part.made_for[0] is not None), None)
        width = next((part.made_for[1] for part in parts if part.made_for[1] is not None), None)
        self.made_for = (heads, width)
        self._rotating_values = next(((part,) for part in parts if "rotate_values" in part.active_hooks()), ())

    @property
    def parts(self) -> tuple[Scheme, ...]:
        """The schemes that stand side by side, in their order."""
        return self._all_parts

    @property
    def encoded(self) -> bool:
        """Whether ``encode`` of every part that adds vectors has been called."""
        return all(part.encoded for part in self.parts if "encode" in part.active_hooks())

    @encoded.setter
    def encoded(self, value: bool) -> None:
        for part in self.parts:
            part.encoded = value

    def borrow(self, shared: Mapping[int, Scheme]) -> None:
        """Replace the parts at these indices by those of another composition, so that layers share them."""
        parts = [shared.get(index, part) for index, part in enumerate(self.parts)]
        self._set_parts(parts, set(shared) | {index for index in range(len(parts)) if str(index) not in self.own})

    @property
    def declares(self) -> Declares:
        return combine_declarations(self.parts)

    def active_hooks(self) -> frozenset[str]:
        return frozenset().union(*(part.active_hooks() for part in self.parts))

    def scale(self, head_dim: int) -> float:
        """Return the factor of the part that has one of its own, or else 1/√d_head."""
        usual = super().scale(head_dim)
        return next((own for part in self.parts if (own := part.scale(head_dim)) != usual), usual)

    def after_rotation(self) -> Scheme:
        return self if self._after_rotation[0] is None else self._after_rotation[0]

    def split_sinks(self) -> tuple[Scheme, Float[Tensor, " H"]] | None:
        """Return the other parts as one scheme, and the logits of the sinks, [H]; None if no part has sinks."""
        for part in self._sinks:
            if (split := part.split_sinks()) is not None:
                return self._beside_sinks[0] or split[0], split[1]
        return None

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return the keys of all parts; None where transformers has no equal of one of them."""
        # transformers counts places in the row, and has no window over several coordinates.
        if self._positions.axes > 1 and any(part.masks for part in self.parts):
            return None
        tables = [part.to_hf_config() for part in self.parts if part.active_hooks()]
        if any(table is None for table in tables):
            return None
        return {key: value for table in tables for key, value in cast(dict[str, Any], table).items()}

    def reset_parameters(self) -> None:
        for part in self.own.values():
            cast(Scheme, part).reset_parameters()

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors | None:
        total = None
        for part in self.parts:
            vectors = part.encode(self._positions.select(part, pos)[0], layer)
            if vectors is not None:
                total = vectors if total is None else total + vectors
        return total

    def locate(self, x_BSD: States, pos: QueryPositions, past_BHTA: Places | None) -> Located | None:
        return self._positions.locate(x_BSD, pos, past_BHTA)

    def rotate(self, q_BHSK: Queries, k_BHTK: Keys, qpos: QueryPositions, kpos: KeyPositions) -> Rotated:
        """Rotate queries and keys by the part that rotates, then scale queries by those that scale."""
        q, k = q_BHSK, k_BHTK
        rotating = [part for part in self.parts if "rotate" in part.active_hooks()]
        for part in sorted(rotating, key=lambda part: part.scales_queries):
            at_q, at_k = self._select_both(part, qpos, kpos)
            q, k = part.rotate(q, k, at_q, at_k)
        return q, k

    def _select_both(self, part: Scheme, qpos: QueryPositions, kpos: KeyPositions) -> tuple[Tensor, Tensor]:
        """Return the positions that a part reads; one tensor where both sides are one, which a part rotates at once."""
        if qpos is kpos:
            (both,) = self._positions.select(part, qpos)
            return both, both
        at_q, at_k = self._positions.select(part, qpos, kpos)
        return at_q, at_k

    def rotate_values(self, v_BHTK: HeadValues, qpos: QueryPositions, kpos: KeyPositions) -> HeadValues:
        for part in self._rotating_values:
            v_BHTK = part.rotate_values(v_BHTK, *self._positions.select(part, qpos, kpos))
        return v_BHTK

    def rotate_back(self, out_BHSK: HeadValues, qpos: QueryPositions, kpos: KeyPositions) -> HeadValues:
        for part in self._rotating_values:
            out_BHSK = part.rotate_back(out_BHSK, *self._positions.select(part, qpos, kpos))
        return out_BHSK

    def bias(self, at: AttentionInputs) -> Bias | None:
        """Return the sum of the biases, [B, H, S, T]; without windows where a part reads whole rows of logits."""
        # Windows wait for the parts that read whole rows: those are told by the mask, and -inf would spoil their sums.
        late = "logits" in self.active_hooks()
        return self._sum_biases([part for part in self.parts if not (late and part.masks)], at)

    def _sum_biases(self, parts: Sequence[Scheme], at: AttentionInputs) -> Float[Tensor, "#B #H S T"] | None:
        """Return the sum of the biases of some parts, [B, H, S, T]; None where none of them has one."""
        total = None
        for part in parts:
            if "bias" in part.active_hooks():
                bias = part.bias(self._select(part, at))
                total = bias if total is None or bias is None else total + bias
        return total

    def _select(self, part: Scheme, at: AttentionInputs) -> AttentionInputs:
        """Return the inputs of a part: at the positions that it reads."""
        qpos, kpos = self._positions.select(part, at.qpos, at.kpos)
        return at._replace(qpos=qpos, kpos=kpos)

    def logits(self, logits_BHST: Logits, mask_BHST: MaskedPairs, at: AttentionInputs) -> Logits:
        """Return what the parts that read whole rows make of the logits, one after the other."""
        readers = [part for part in self.parts if "logits" in part.active_hooks()]
        if not readers:
            return logits_BHST
        # What windows hide is masked for every reader, and hidden again whatever the readers make of it.
        hidden = self._sum_biases([part for part in self.parts if part.masks], at)
        mask = mask_BHST if hidden is None else mask_BHST & (hidden == 0)
        for part in readers:
            logits_BHST = part.logits(logits_BHST, mask, self._select(part, at))
        return logits_BHST if hidden is None else logits_BHST + hidden

    def weigh(self, logits_BHST: Logits, at: AttentionInputs) -> Logits:
        """Return the weights that the part with a normaliser of its own gives, or those of softmax."""
        part = next((part for part in self.parts if "weigh" in part.active_hooks()), None)
        return super().weigh(logits_BHST, at) if part is None else part.weigh(logits_BHST, self._select(part, at))

    def values(self, out_BHSK: HeadValues, weights_BHST: Logits, at: AttentionInputs) -> HeadValues:
        for part in self.parts:
            if "values" in part.active_hooks():
                out_BHSK = part.values(out_BHSK, weights_BHST, self._select(part, at))
        return out_BHSK

    def score_mod(
        self, qpos: QueryPositions, kpos: KeyPositions, q_BHSK: Queries | None = None, k_BHTK: Keys | None = None
    ) -> ScoreMod:
        changes = []
        for part in self.parts:
            if "bias" in part.active_hooks():
                at_q, at_k = self._select_both(part, qpos, kpos)
                changes.append(part.score_mod(at_q, at_k, q_BHSK, k_BHTK))

        def change(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            for change_by_part in changes:
                score = change_by_part(score, b, h, i, j)
            return score

        return change


class _PartPositions:
    """The positions that the parts of a composition read.

    Attention has one tensor of positions. If a part places tokens and another one reads where the model placed them,
    that tensor holds both: the coordinates of the part that places tokens, and behind them the model's own. If a part
    reads a coordinate behind those of the others (the option ``axis`` of a window), the others read those before it.

    Args:
        parts: the parts of the composition, of which at most one places tokens.
    """

    def __init__(self, parts: Sequence[Scheme]) -> None:
        self.parts = tuple(parts)
        self.axes = combine_declarations(parts).axes or 1
        """The number of coordinates that the parts read."""
        self._reading_fewer = list_schemes_of_fewer_axes(parts)
        self.locating = tuple(part for part in parts if "locate" in part.active_hooks())
        self.holds_both = bool(self.locating) and any(
            part.declares.axes is not None for part in parts if part not in self.locating
        )

    def locate(self, x_BSD: States, pos: QueryPositions, past_BHTA: Places | None) -> Located | None:
        """Return the coordinates that the arguments of ``Scheme.locate`` give, with the model's own behind them.

        None if no part places tokens. Raises PositionError for real-valued positions where a part takes whole ones, and
        for several coordinates where they are read as one.
        """
        if not self.locating:
            return None
        (part,) = self.locating
        for other in self.parts:
            if not other.declares.real_valued and other.active_hooks() != {"encode"}:
                check_integer(pos, type(other).__name__.lower())
        axes = self.axes
        if self.holds_both and axes == 1:
            pos = take_axis(pos, "composition")
        past = past_BHTA[..., :-axes] if self.holds_both and past_BHTA is not None else past_BHTA
        located = part.locate(x_BSD, pos, past)
        if located is None or not self.holds_both:
            return located
        pos_BSA = pos[..., None] if pos.dim() == 2 else pos
        counted_BHSA = pos_BSA[:, None].to(located.dtype).expand(*located.shape[:3], axes)
        return torch.cat([located, counted_BHSA], dim=-1)

    def select(self, part: Scheme, *pos: Tensor) -> list[Tensor]:
        """Return, for each tensor of positions, those that a part reads: its own coordinates, or the model's.

        Raises PositionError for another number of coordinates than a part that reads fewer needs beside the others.
        """
        if not self.holds_both or pos[0].dim() < 4:
            return [self._drop_axes_of_others(part, place) for place in pos]
        axes = self.axes
        if part in self.locating:
            return [located[..., :-axes] for located in pos]
        counted = [located[:, 0, :, -axes:] for located in pos]
        counted = [place if part.declares.real_valued else place.round().long() for place in counted]
        counted = [place[..., 0] for place in counted] if axes == 1 else counted
        return [self._drop_axes_of_others(part, place) for place in counted]

    def _drop_axes_of_others(self, part: Scheme, pos: QueryPositions) -> Tensor:
        if part not in self._reading_fewer:
            return pos
        own = part.declares.axes or 1
        pos_BSA = check_axes(pos, self.axes, "composition")
        return pos_BSA[..., 0] if own == 1 else pos_BSA[..., :own]
