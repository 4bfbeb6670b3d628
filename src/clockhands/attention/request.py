"""The request that every kernel is asked to serve: everything that one attention computes on, checked once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from numbers import Real
from typing import Any, NamedTuple, cast

import torch

from clockhands.errors import PositionError, UsageError, show_value
from clockhands.schemes.distance import Curve, DistanceBias
from clockhands.schemes.position_checks import can_read, check_position_tensor
from clockhands.schemes.scheme import AttentionInputs, KeyPositions, QueryPositions, Scheme
from clockhands.shapes import Bool, Float, Num, Tensor

GivenPositions = QueryPositions | Num[Tensor, " S"]
GivenKeyPositions = KeyPositions | Num[Tensor, " T"]
"""Positions as a caller may give them: [S] is taken as [1, S]."""
Mask = Bool[Tensor, "#B #H #S T"] | Float[Tensor, "#B #H #S T"] | Bool[Tensor, "S T"] | Float[Tensor, "S T"]
"""True where a query may attend to a key, or numbers that are added to the logits, as SDPA and transformers have them.

Sizes of 1 stand for all rows, heads or queries; [S, T] is taken as [1, 1, S, T].
"""

WHOLE_ROWS = frozenset({"logits", "weigh", "values"})
"""Hooks that need all logits or weights of a row, which no kernel but the reference has at once."""
LOW_PRECISION = (torch.bfloat16, torch.float16)
"""Types of 16 bits, in which a bias and a softmax would be too coarse."""
ELEMENTS, ELEMENTS_OF_A_GPU = 1 << 19, 1 << 24
"""About how many logits a block of queries has on a CPU, whose cache holds them, and on a GPU."""
FEW_QUERIES = 32
"""With no more queries than this a bias is made in one piece."""


def make_request(
    scheme: Scheme,
    q_BHSK: Float[Tensor, "B H S K"],
    k_BGTK: Float[Tensor, "B G T K"],
    v_BGTK: Float[Tensor, "B G2 T Kv"],
    qpos: GivenPositions,
    kpos: GivenKeyPositions,
    mask_BHST: Mask | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    rotated: bool = False,
    dropout: float = 0.0,
) -> AttentionRequest:
    """Check what ``attend`` was given, rotate queries, keys and values, and put all into one request.

    Arguments and errors are those of ``attend``. Nothing is checked while a model is compiled or traced.
    """
    usual = isinstance(qpos, Tensor) and isinstance(kpos, Tensor) and qpos.dim() == kpos.dim() == 2
    if not (usual and qpos.dtype == kpos.dtype == torch.int64):
        same = qpos is kpos
        qpos = check_position_tensor(qpos, "positions of queries")
        kpos = qpos if same else check_position_tensor(kpos, "positions of keys")
    if not (torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None):
        check_inputs(scheme, q_BHSK, k_BGTK, v_BGTK, qpos, kpos, rotated)
        if scale is not None or dropout or not isinstance(causal, bool):
            _check_numbers(causal, scale, dropout)
        if not causal and mask_BHST is None and q_BHSK.shape[2] > 1 and scheme.declares.causal_only:
            name = type(scheme).__name__
            made_so = "causal" in type(scheme).__init__.__code__.co_varnames
            advice = f"; for attention in both directions make it with {name}(..., causal=False)" if made_so else ""
            raise UsageError(
                f"{name} is defined for keys up to the query alone, and nothing hides the later ones: pass causal=True "
                f"or a mask{advice}"
            )
    added, mask = None, None if mask_BHST is None else _read_mask(mask_BHST, q_BHSK, k_BGTK)
    if mask is not None and mask.is_floating_point():
        added, mask = mask, None
    hooks, heads = scheme.active_hooks(), q_BHSK.shape[1]
    if ("encode" in hooks or "locate" in hooks) and not torch.compiler.is_compiling():
        _check_hooks_before(scheme, hooks, qpos, qpos if rotated else kpos)
    if added is not None and hooks & WHOLE_ROWS:
        # Such a hook computes with all logits of a row, and -inf among them would make all of them NaN.
        mask = ~(added <= torch.finfo(added.dtype).min / 2)  # NaN is not hidden
        added = added.masked_fill(~mask, 0.0)
    if scale is None:
        scale = scheme.scale(q_BHSK.shape[-1])
    k, v = k_BGTK, v_BGTK
    if heads != k.shape[1] and (scheme.rotates_by_head or kpos.dim() == 4):
        k = share_heads(heads, k)  # before they are rotated, each in its own way
    if not rotated:
        if "rotate" in hooks:
            q_BHSK, k = scheme.rotate(q_BHSK, k, qpos, kpos)
        if "rotate_values" in hooks:
            v = scheme.rotate_values(v, qpos, kpos)
    if heads != k.shape[1]:
        k = share_heads(heads, k)
    if heads != v.shape[1]:
        v = share_heads(heads, v)
    return AttentionRequest(scheme, q_BHSK, k, v, qpos, kpos, mask, causal, scale, dropout, hooks, added)


def lower(*heads: Any) -> tuple[Any, ...]:
    """Return queries, keys and values of the type to which autocast lowers float32; others stay."""
    return tuple(
        x.to(torch.get_autocast_dtype(x.device.type)) if isinstance(x, Tensor) and x.dtype == torch.float32 else x
        for x in heads
    )


def share_heads(heads: int, x_BGTK: Float[Tensor, "B G T K"]) -> Float[Tensor, "B H T K"]:
    """Repeat each head of keys or values for the query heads of its group: [B, H, T, K].

    Raises UsageError where the number of heads does not divide that of the query heads.
    """
    groups = x_BGTK.shape[1]
    if groups == 0 or heads % groups:
        raise UsageError(
            f"{heads} heads of queries cannot share {groups} heads of keys or values; their number must divide {heads}"
        )
    return x_BGTK.repeat_interleave(heads // groups, dim=1)


def check_inputs(scheme: Any, q: Any, k: Any, v: Any, qpos: Tensor, kpos: Tensor, rotated: bool) -> None:
    """Refuse what fits neither the scheme nor itself. Each refusal says the shapes that it got and what to do."""
    if not isinstance(scheme, Scheme):
        _refuse_scheme(scheme)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if isinstance(x, Tensor) and (x.is_nested or x.layout != torch.strided):
            raise UsageError(f"{name} is a nested or sparse tensor, but must be dense: pad it, and pass a mask")
        if not isinstance(x, Tensor) or x.dim() != 4:
            got = f"{name} is {list(x.shape)}" if isinstance(x, Tensor) else f"{name} is {show_value(x)}"
            raise UsageError(f"{got}, but has four axes: [batch, heads, tokens, width of a head]")
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    if heads and not (k.shape[1] and v.shape[1]):
        raise UsageError(f"q has {heads} heads, and k {k.shape[1]}, v {v.shape[1]}; project keys and values too")
    shapes = f"q is {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if (qpos.shape[-2] if qpos.dim() == 4 else qpos.shape[1]) != queries:
        hint = f"give one position for each of the {queries} queries"
        if qpos.dim() == 2 and qpos.shape[1] == heads:
            hint = "heads come before tokens: pass q.transpose(1, 2), and k and v so too"
        raise PositionError(f"positions of queries are {list(qpos.shape)}, and {shapes}; {hint}")
    if k.shape[0] != batch or v.shape[0] != batch or v.shape[2] != keys or k.shape[3] != width:
        raise UsageError(f"{shapes}; batch, number of keys, and width of queries and keys must agree")
    if (kpos.shape[-2] if kpos.dim() == 4 else kpos.shape[1]) != keys:
        raise PositionError(
            f"positions of keys are {list(kpos.shape)}, and {shapes}; give one position for each of the {keys} keys"
        )
    if qpos.shape[0] not in (1, batch) or kpos.shape[0] not in (1, batch):
        raise PositionError(
            f"positions are {list(qpos.shape)} and {list(kpos.shape)}, and {shapes}; "
            f"give one row for each of the {batch} texts, or one for all"
        )
    if q.dtype != k.dtype or q.dtype != v.dtype or q.device != k.device or q.device != v.device:
        kinds = ", ".join(f"{name} is {x.dtype} on {x.device}" for name, x in (("q", q), ("k", k), ("v", v)))
        raise UsageError(f"{kinds}; bring them to one type and device, as with k.to(q)")
    if q.dtype not in (*LOW_PRECISION, torch.float32, torch.float64):
        raise UsageError(f"q, k and v are {q.dtype}, but must be floats of at least 16 bits, as layers project them")
    own = next(chain(scheme.parameters(), scheme.buffers()), None)
    name = f"the scheme {type(scheme).__name__}"
    for what, x in (("positions of queries", qpos), ("positions of keys", kpos), (name, own)):
        if x is not None and x.device != q.device and not q.is_meta:  # of shapes alone no number is read
            raise UsageError(f"q is on {q.device}, and {what} on {x.device}; move it with .to(q.device)")
    made_heads, made_width = scheme.made_for
    if made_heads is not None and made_heads != heads:
        name = type(scheme).__name__
        raise UsageError(f"{name} was made for {made_heads} heads, and queries have {heads}; set num_heads={heads}")
    if made_width is not None and made_width != width and not rotated:
        raise UsageError(
            f"{type(scheme).__name__} was made for heads of {made_width} channels, and these have {width}; set "
            f"head_dim={width} (to rotate some channels alone, RoPE has fraction)"
        )


def _check_numbers(causal: Any, scale: Any, dropout: Any) -> None:
    """Refuse what is no yes or no, a factor that is no number, and a rate that is no share."""
    if not isinstance(causal, (bool, int)):
        raise UsageError(f"causal is {show_value(causal)}, but must be True or False; a mask is the argument before it")
    if scale is not None and not (isinstance(scale, Real) and math.isfinite(scale)):
        raise UsageError(f"scale is {show_value(scale)}, but must be a number; multiply q by what is learned")
    if isinstance(dropout, bool) or not (isinstance(dropout, Real) and 0 <= float(dropout) < 1):
        raise UsageError(f"dropout is {show_value(dropout)}, but must be a share: at least 0 and below 1")


def _check_hooks_before(scheme: Scheme, hooks: frozenset[str], qpos: Tensor, kpos: Tensor) -> None:
    """Refuse a scheme whose hooks before attention nobody has called."""
    name = type(scheme).__name__
    if "locate" in hooks and not qpos.dim() == kpos.dim() == 4:
        raise UsageError(
            f"with {name} tokens place themselves, from the input of the layer: pass pos = scheme.locate(x, pos, None) "
            f"as both positions, or let Positioning(scheme) call it"
        )
    if "encode" in hooks and not scheme.encoded:
        raise UsageError(
            f"{name} adds vectors at the embedding, and nobody has asked for them: write x = x + scheme.encode(pos) "
            f"before the first layer, or let Positioning(scheme).embed(x, pos) do it"
        )


def _refuse_scheme(scheme: Any) -> None:
    """Raise UsageError for what stands in the place of a scheme."""
    if isinstance(scheme, type) and issubclass(scheme, Scheme):
        raise UsageError(f"{scheme.__name__} is a class; make a scheme of it first, as in {scheme.__name__}(...)")
    if isinstance(scheme, str):
        raise UsageError(f"{scheme!r} is a name; schemes.build makes a scheme of it, or call its class")
    raise UsageError(f"attend takes a scheme first, then q, k, v and positions; it was given {type(scheme).__name__}")


def _read_mask(mask: Any, q: Tensor, k: Tensor) -> Tensor:
    """Return a mask of four axes. Raises UsageError for another form, and for numbers that are no logits."""
    dense = isinstance(mask, Tensor) and mask.layout == torch.strided
    if not dense or not (mask.dtype == torch.bool or mask.is_floating_point()):
        kind = show_value(mask)
        if isinstance(mask, Tensor):
            kind = str(mask.dtype if dense else mask.layout)
        raise UsageError(
            f"this mask is {kind}, but must be true where a query may attend to a key, as mask.bool(), "
            f"or floats that are added to the logits, and dense"
        )
    if mask.device != q.device:
        raise UsageError(f"this mask is on {mask.device}, and q on {q.device}; move it with .to(q.device)")
    expected = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if mask.dim() == 2 and mask.shape == expected[2:]:
        mask = mask[None, None]
    elif mask.dim() != 4 or any(size not in (1, most) for size, most in zip(mask.shape, expected, strict=True)):
        advice = "write mask[:, None, None, :] for one of tokens, and mask[:, None] for one of pairs"
        raise UsageError(
            f"this mask is {list(mask.shape)}, but must be [batch, heads, queries, keys], here {list(expected)}, "
            f"or 1 where all are alike; {advice}"
        )
    readable = mask.is_floating_point() and mask.device.type == "cpu" and not mask.requires_grad
    if (
        readable
        and can_read(mask)
        and mask.amin() == 0
        and mask.amax() == 1
        and bool(((mask == 0) | (mask == 1)).all())
    ):
        raise UsageError("this mask has zeros and ones as floats, which would be added to the logits; pass mask.bool()")
    return mask


def refuse_second_derivative() -> None:
    """Raise UsageError in a ``backward`` that is itself to be derived: ``autograd.grad`` would leave that out."""
    if torch.is_grad_enabled():
        raise UsageError(
            "the fast ways of attention have no second derivative, which create_graph=True asks for; compute it by "
            "the reference, inside `with clockhands.attention.record(lambda computed: None):`"
        )


@dataclass(frozen=True)
class AttentionRequest:
    """Queries, keys and values of one attention, where they stand, and who may attend to whom.

    Queries and keys have been rotated, and values where the scheme rotates them.
    """

    scheme: Scheme
    q_BHSK: Float[Tensor, "B H S Kr"]
    k_BHTK: Float[Tensor, "B H T Kr"]
    v_BHTK: Float[Tensor, "B H T Kv"]
    qpos: QueryPositions
    kpos: KeyPositions
    mask_BHST: Bool[Tensor, "#B #H #S T"] | None
    """True where a query may attend to a key; None: everywhere."""
    causal: bool
    """Whether the mask of the last S of T tokens is added: query s attends to keys up to T - S + s."""
    scale: float
    """The factor on q·k."""
    dropout: float
    """The rate on the weights."""
    hooks: frozenset[str]
    """The hooks that the scheme needs under its options."""
    added_BHST: Float[Tensor, "#B #H #S T"] | None = None
    """A float mask, which is added to the logits as a bias is."""
    sink_H: Float[Tensor, " H"] | None = None
    """The logits of sinks, float32 at least: one more key of each head, whose value is 0. The scheme has none then."""

    @property
    def at(self) -> AttentionInputs:
        """What the scheme's hooks read."""
        return AttentionInputs(self.q_BHSK, self.k_BHTK, self.qpos, self.kpos, self.scale)

    @property
    def num_queries(self) -> int:
        """The number of queries, S."""
        return self.q_BHSK.shape[2]

    @property
    def num_keys(self) -> int:
        """The number of keys, T."""
        return self.k_BHTK.shape[2]

    @property
    def low_precision(self) -> bool:
        """Whether queries are in bfloat16 or float16."""
        return self.q_BHSK.dtype in LOW_PRECISION

    def compute_bias(self) -> Float[Tensor, "#B #H S T"] | None:
        """Compute what is added to the logits, [B, H, S, T] or sizes of 1 for what is the same; None if nothing is."""
        bias = self.scheme.bias(self.at) if "bias" in self.hooks else None
        if bias is None or self.added_BHST is None:
            return self.added_BHST if bias is None else bias
        return bias + self.added_BHST

    def compute_mask(self) -> Bool[Tensor, "#B #H S T"]:
        """Join ``mask_BHST`` and the causal mask to one of all queries and keys: [B, H, S, T], sizes of 1 allowed."""
        mask, device = self.mask_BHST, self.q_BHSK.device
        if self.causal:
            lower = torch.ones(self.num_queries, self.num_keys, dtype=torch.bool, device=device)
            lower = lower.tril(self.num_keys - self.num_queries)[None, None]
            mask = lower if mask is None else mask & lower
        if mask is None:
            mask = torch.ones(1, 1, self.num_queries, self.num_keys, dtype=torch.bool, device=device)
        return mask.expand(-1, -1, self.num_queries, -1)

    def list_blocks(self, most: int) -> Iterator[tuple[int, int]]:
        """Yield the first query of each block and how many it has: ``most`` at most, and about ``ELEMENTS`` logits."""
        room = ELEMENTS if self.q_BHSK.device.type == "cpu" else ELEMENTS_OF_A_GPU
        rows = min(most, max(16, room // max(1, self.q_BHSK.shape[0] * self.q_BHSK.shape[1] * self.num_keys)))
        for start in range(0, self.num_queries, rows):
            yield start, min(rows, self.num_queries - start)

    def count_keys(self, stop: int) -> int:
        """Return how many keys the queries before ``stop`` may attend to: under a causal mask not the later ones."""
        return self.num_keys - self.num_queries + stop if self.causal else self.num_keys

    def take_queries(self, start: int, count: int) -> AttentionRequest:
        """Return the request of some queries, with the keys up to the last that any of them may attend to."""
        stop, last, axis = start + count, self.count_keys(start + count), 2 if self.qpos.dim() == 4 else 1
        mask = self.mask_BHST
        if mask is not None:
            mask = (mask[:, :, start:stop] if mask.shape[2] > 1 else mask)[..., :last]
        return replace(
            self, q_BHSK=self.q_BHSK[:, :, start:stop], k_BHTK=self.k_BHTK[:, :, :last],
            v_BHTK=self.v_BHTK[:, :, :last], qpos=self.qpos.narrow(axis, start, count),
            kpos=self.kpos.narrow(axis, 0, last), mask_BHST=mask,
        )  # fmt: skip

    # Cached, since a kernel reads them to decide whether it serves, and again to compute. The compiler cannot trace a
    # cached property, so a kernel that reads one serves no request while a model is compiled.

    @cached_property
    def line(self) -> Runs | None:
        """How the tokens stand on a line, or None if they do not; only with a ``DistanceBias``."""
        if not cast(DistanceBias, self.scheme).is_on_line(self.qpos, self.kpos):
            return None
        return find_line(*self._whole_positions_and_curve[:2])

    @property
    def first_distance(self) -> int:
        """How far the first query stands from the first key, at whole positions; only where ``line`` is not None."""
        q_BS, k_BT, _ = self._whole_positions_and_curve
        return int(q_BS[0, 0] - k_BT[0, 0])

    @cached_property
    def curve_HN(self) -> Float[Tensor, "H N"]:
        """The bias at every distance that occurs, smallest first; only where ``line`` is not None."""
        q_BS, k_BT, curve = self._whole_positions_and_curve
        low, high = int(q_BS[0, 0] - k_BT[0, -1]), int(q_BS[0, -1] - k_BT[0, 0])
        return curve(torch.arange(low, high + 1, device=q_BS.device))

    @cached_property
    def middle_row_BHT(self) -> Float[Tensor, "#B H T"]:
        """The bias of a query at the middle key, which stands for all rows; only with a bias in ``hooks``."""
        axis, middle = (2 if self.kpos.dim() == 4 else 1), self.num_keys // 2
        at = self.at._replace(q=self.q_BHSK[:, :, :1], qpos=self.kpos.narrow(axis, middle, 1))
        bias_BH1T = cast(Tensor, self.scheme.bias(at))
        return bias_BH1T[:, :, 0]

    @cached_property
    def _whole_positions_and_curve(self) -> tuple[Tensor, Tensor, Curve]:
        """Whole positions of queries and of keys on a line, and the bias as a function of their distance."""
        return cast(DistanceBias, self.scheme).place_on_line(self.qpos, self.kpos)


class Runs(NamedTuple):
    """Runs of ``run`` neighbours that begin ``step`` apart. A text is one run; a grid has one for each of its rows."""

    run: int
    step: int

    def get_offset(self, token: int) -> int:
        """Return how far a token, counted from 0, stands from the first."""
        return token // self.run * self.step + token % self.run

    def count_runs(self, tokens: int) -> tuple[int, int]:
        """Return the number of runs that so many tokens fill, and the tokens in each."""
        return (1, tokens) if tokens < self.run else (tokens // self.run, self.run)


def find_line(q_BS: QueryPositions, k_BT: KeyPositions) -> Runs | None:
    """Find how tokens at these positions stand, if all rows of the batch stand alike; None otherwise.

    Either all keys are in one run, and the queries may be some of them, or queries and keys both stand in runs of one
    length and distance.
    """
    if q_BS.dim() != 2:
        return None
    # A batch with stride 0 is one row expanded to all, so that one row is compared instead of all.
    q_BS = q_BS[:1] if q_BS.stride(0) == 0 else q_BS
    k_BT = k_BT[:1] if k_BT.stride(0) == 0 else k_BT
    first_B, queries, keys = q_BS[:, 0] - k_BT[:, 0], q_BS.shape[1], k_BT.shape[1]
    # The first jump in the positions of the keys ends the first run, and the next position begins the second.
    jumps = (k_BT[0].diff() != 1).nonzero()
    run = int(jumps[0]) + 1 if len(jumps) else keys
    line = Runs(run, int(k_BT[0, run] - k_BT[0, 0])) if run < keys else Runs(max(queries, keys), 1)
    if run < keys and (queries != keys or keys % run or line.step < run):
        return None
    token_N = torch.arange(max(queries, keys), device=q_BS.device)
    offset_N = token_N // line.run * line.step + token_N % line.run
    alike = all(bool((x - x[:, :1] == offset_N[: x.shape[1]]).all()) for x in (q_BS, k_BT))
    return line if alike and bool((first_B == first_B[0]).all()) else None
