"""The interface of every positional encoding: a few hooks at the true seams, each doing nothing by default.

A model calls the hooks in this order: ``model.stack`` the first, ``model.attention`` the second, and ``attention`` the
others (``rotate`` and ``rotate_values`` are called by ``model.attention`` where rotated keys are cached);
``attention.Positioning`` calls all of them, in anybody's stack::

    x_BSD    = combine(tokens, encode(pos))              # at the token embedding; the input layer adds or concatenates
    pos      = locate(x, pos, past) or pos               # tokens that place themselves, from the layer's input
    q, k     = rotate(q, k, qpos, kpos)                  # rotate queries and keys
    v        = rotate_values(v, qpos, kpos)              # rotate values; of all schemes, rope(values=True) alone does
    at       = AttentionInputs(q, k, qpos, kpos, scale)  # what the hooks that follow read
    logits   = scale * q·k + bias(at)                    # added to the logits
    logits   = logits(logits, mask, at)                  # whole rows and all heads at once
    weights  = weigh(logits, at)                         # softmax, unless the scheme brings its own normaliser
    out      = values(weights @ v, weights, at)          # what the weights alone add to the values
    out      = rotate_back(out, qpos, kpos)              # undo the rotation of values, but for the distance

Positions arrive as data (``positions``): ``[B, S]``, ``[B, S, A]``, or, made by ``locate``, ``[B, H, S, A]``; hence
they are called ``qpos`` and ``kpos``, without axes.

The constructor's signature is the configuration: positional parameters are *sizes*, which the model fills in (any of
``SIZES``); keyword-only parameters are the *options*, which the user sets.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch
from torch import nn

from clockhands.errors import ArgumentError, PositionError, UsageError, show_value
from clockhands.schemes.arguments import SIZES as SIZES
from clockhands.schemes.arguments import check_arguments, describe_arguments, explain_call
from clockhands.schemes.position_checks import check_encoded_positions, check_position_tensor
from clockhands.shapes import Bool, Float, Num, Tensor

HOOKS = ("encode", "locate", "rotate", "rotate_values", "bias", "logits", "weigh", "values", "rotate_back")
"""Names of the methods that a model calls, in the order of its computation."""

QueryPositions = Num[Tensor, " S"] | Num[Tensor, "#B S"] | Num[Tensor, "#B S A"] | Num[Tensor, "B H S A"]
KeyPositions = Num[Tensor, " T"] | Num[Tensor, "#B T"] | Num[Tensor, "#B T A"] | Num[Tensor, "B H T A"]
"""One row serves all texts of a batch."""
Vectors = Float[Tensor, "#B S P"]
"""What the input layer adds to the tokens, or sets beside them."""
States = Float[Tensor, "B S D"]
"""The input of a layer, from which queries, keys and values are projected."""
Queries = Float[Tensor, "B H S K"]
Keys = Float[Tensor, "B G T K"]
"""G heads of keys serve H heads of queries, H/G each (grouped-query attention); G is H where they are as many."""
Rotated = tuple[Float[Tensor, "B H S Kr"], Float[Tensor, "B G T Kr"]]
"""Queries and keys after ``rotate``, as wide as each other."""
HeadValues = Float[Tensor, "B H N Kv"]
"""Values, or what is attended of them."""
Located = Float[Tensor, "B H S A"]
Places = Float[Tensor, "B H T A"]
"""The coordinates that tokens gave themselves: those of the layer's input, and those that are cached."""
Bias = Float[Tensor, "#B #H S T"]
"""What is added to the logits; one row, or one head, serves all."""
Logits = Float[Tensor, "B H S T"]
"""Logits, or weights, of every query and key."""
MaskedPairs = Bool[Tensor, "#B #H S T"]
"""True where a query may attend to a key."""
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Declares:
    """What a user may rely on; the laws, the catalogue page and ``check`` read it."""

    translation_invariant: bool = False
    """A common shift of all positions changes no logit and no output."""
    causal_only: bool = False
    """The scheme is undefined for keys to the right of the query."""
    max_length: int | None = None
    """The largest number of positions; None: there is none."""
    beyond: Literal["raise", "clamp", "extrapolate"] = "extrapolate"
    """What happens past ``max_length``."""
    depends_on_length: bool = False
    """What a token gets changes with the total length, once that is above ``steady_length``."""
    steady_length: int = 0
    """Up to this length, what a token gets does not change with it."""
    cache: Literal["rotated", "raw"] = "rotated"
    """How keys are cached, and values where a scheme rotates them: as rotated, each once, or raw, all again a step."""
    axes: int | None = 1
    """Coordinates of a position; None: no position is read."""
    more_axes: bool = False
    """Positions may have more coordinates than ``axes``."""
    real_valued: bool = False
    """Positions between the integers are meaningful."""
    stochastic: bool = False
    """The scheme draws while training."""


class AttentionInputs(NamedTuple):
    """What hooks between the rotation and the output read: queries and keys as they are rotated, and where they stand.

    ``q`` [B, H, S, Kr], ``k`` [B, H, T, Kr]; ``qpos`` and ``kpos`` are their positions. ``scale`` is the factor that
    q·k was multiplied by; None: ``Scheme.scale`` of the width of a head. Only a scheme that puts another product of
    queries and keys in the place of q·k reads it: that product has to have the same factor.
    """

    q: Float[Tensor, "B H S Kr"]
    k: Float[Tensor, "B H T Kr"]
    qpos: QueryPositions
    kpos: KeyPositions
    scale: float | None = None


class _SchemeType(type):
    """Checks what a scheme is made with, and keeps it: ``RoPE(16, theta=5e5)`` is told that base is meant."""

    if not TYPE_CHECKING:  # what a type checker knows of the constructors stays

        def __call__(cls, *sizes, **options):
            arguments = check_arguments(cls, sizes, options)
            scheme = super().__call__(*sizes, **options)
            if "arguments" not in vars(scheme):
                scheme.arguments = arguments
                scheme.made_for = (arguments.get("num_heads"), arguments.get("head_dim"))
            return scheme

        @property
        def __signature__(cls):
            """The constructor's, which ``help`` and notebooks show."""
            own = inspect.signature(cls.__init__)
            return own.replace(parameters=list(own.parameters.values())[1:])


AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps")


def is_autocast_on(x: Any) -> bool:
    """Return whether autocast would lower what is computed on the device of a tensor."""
    kind = x.device.type if isinstance(x, Tensor) else ""
    return kind in AUTOCAST_DEVICES and torch.is_autocast_enabled(kind)


def _keep_precision(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook in which autocast lowers nothing: angles, places and biases of 16 bits would be other ones."""

    called = explain_call(hook)

    @functools.wraps(hook)
    def precise(self: Scheme, *inputs: Any, **named: Any) -> Any:
        first: Any = inputs[0] if inputs else next(iter(named.values()), None)
        if hook.__name__ == "bias" and not isinstance(first, AttentionInputs):
            name = type(self).__name__
            raise ArgumentError(
                f"{name}.bias reads queries, keys and positions at once: write "
                f"scheme.bias(AttentionInputs(q, k, qpos, kpos)), with AttentionInputs of clockhands.schemes"
            )
        tensor = first[0] if isinstance(first, tuple) else first
        if not is_autocast_on(tensor):
            return called(self, *inputs, **named)
        with torch.autocast(tensor.device.type, enabled=False):
            return called(self, *inputs, **named)

    return precise


def _checked(encode: Callable[..., Any]) -> Callable[..., Any]:
    """Return a scheme's ``encode`` that takes [S] as [1, S], refuses what no positions are, and notes its call."""

    @functools.wraps(encode)
    def checked(self: Scheme, pos: Any, layer: int = 0) -> Any:
        vectors = encode(self, check_encoded_positions(self, pos), layer)
        if not self.encoded:
            self.encoded = True
        return vectors

    return checked


def _checked_places(locate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a scheme's ``locate`` that takes one row of positions, and refuses another input than its layer's."""

    @functools.wraps(locate)
    def checked(self: Scheme, x: Tensor, pos: Tensor, past: Tensor | None) -> Any:
        width = self.arguments.get("d_model", getattr(x, "shape", (0,))[-1])
        if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != width:
            raise UsageError(
                f"{type(self).__name__} places tokens by the input of the layer, [batch, tokens, {width}], and x is "
                f"{list(x.shape) if isinstance(x, Tensor) else show_value(x)}"
            )
        pos = check_position_tensor(pos, f"the positions of {type(self).__name__}.locate")
        if past is not None and (not isinstance(past, Tensor) or past.dim() != 4):
            raise UsageError(f"past is {show_value(past)}, but must be what locate returned of cached tokens, or None")
        return locate(self, x, pos.expand(len(x), *pos.shape[1:]) if len(pos) == 1 else pos, past)

    return checked


class Scheme(nn.Module, metaclass=_SchemeType):
    """Base of all schemes. A subclass overrides the hooks it needs and ``declares``; leaves are final.

    What a user may rely on is in ``declares``; what a kernel may do is in the attributes here.
    """

    equation: ClassVar[str] = ""
    """The formula, in LaTeX."""
    source: ClassVar[str] = ""
    """The paper or code that it comes from."""
    peers: ClassVar[tuple[str, ...]] = ()
    """Callables elsewhere that do the same."""
    models: ClassVar[tuple[str, ...]] = ()
    """Known models whose position comes from it."""
    axes_advice: ClassVar[str] = ""
    """What to do where positions have more coordinates than the scheme reads; it ends the refusal."""
    per_layer: bool = False
    """Whether every layer holds an instance of its own (learned tables of a layer) instead of sharing the stack's."""
    rowwise: bool = True
    """Whether a row of the bias needs its own query alone, so that kernels may take queries a block at a time."""
    fixed_curve: bool = False
    """Whether, without parameters, the bias depends on nothing but positions and the numbers and words that are its
    attributes: then that of a short text is kept for all layers. A class says it of itself; no subclass inherits it."""
    lean_score_mod: bool = False
    """Whether ``score_mod`` captures less than the whole bias."""
    queries_share_bias_row: bool = False
    """Whether the bias of one query is that of any other plus one number, at any positions.

    The softmax ignores that number, so that kernels may give all queries the row of one.
    """
    rotates_by_head: bool = False
    """Whether ``rotate`` rotates equal keys of two heads differently, so that grouped heads cannot share them."""
    widening: int = 1
    """By which factor ``rotate`` widens queries and keys."""
    scales_queries: bool = False
    """Whether all that ``rotate`` does is to multiply queries by numbers."""
    masks: bool = False
    """Whether the bias is 0 or -inf."""
    reads_heads: bool = False
    """Whether a hook compares the channels of queries or keys with vectors of the scheme."""
    encoded: bool = False
    """Whether ``encode`` has been called. ``attend`` refuses a scheme whose vectors nobody has asked for.

    Set it to True where another process adds them.
    """
    elementwise: ClassVar[tuple[str, ...]] = ()
    """Methods that a class itself defines without a product of matrices: autocast leaves them as they are."""
    _class_hooks: ClassVar[frozenset[str]] = frozenset()
    arguments: dict[str, Any]
    """The sizes and options that the scheme was made with, by name."""
    made_for: tuple[int | None, int | None] = (None, None)
    """The number of heads, and the width of one, for which it was made; None: any."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        wraps: dict[str, Callable[[Any], Any]]
        wraps = {"encode": _checked, "locate": _checked_places, "reset_parameters": torch.no_grad()}
        for name in wraps.keys() & vars(cls).keys():
            setattr(cls, name, wraps[name](vars(cls)[name]))
        own = vars(cls)
        for name in ({*HOOKS, "compute_curve", "compute_cos_sin", "angles"} & own.keys()) - {
            *own.get("elementwise", ())
        }:
            setattr(cls, name, _keep_precision(own[name]))
        # Compared once: kernels are chosen by them at every step.
        cls._class_hooks = frozenset(name for name in HOOKS if getattr(cls, name) is not getattr(Scheme, name))

    @property
    def declares(self) -> Declares:
        """The promises of this instance; they may depend on its options."""
        raise NotImplementedError(f"{type(self).__name__} must say what it declares")

    @classmethod
    def from_options(cls, *sizes: Any, **options: Any) -> Scheme:
        """Return the scheme of these sizes and options, as recipes and configurations have them (``options_of``)."""
        return cls(*sizes, **options)

    @classmethod
    def hooks(cls) -> frozenset[str]:
        """Return the names of the hooks that this class overrides: where it enters."""
        return cls._class_hooks

    def active_hooks(self) -> frozenset[str]:
        """Return the hooks that this instance needs under its options; kernels are chosen by them."""
        return type(self).hooks()

    def after_rotation(self) -> Scheme:
        """Return a scheme that does all that is left to do after ``rotate``: the scheme itself, or a simpler one."""
        return self

    def split_sinks(self) -> tuple[Scheme, Float[Tensor, " H"]] | None:
        """Return a scheme that does the same without sinks, and the logits of its sinks, [H]; None if it has none.

        Its ``weigh`` is then the softmax over the keys and one sink of each head, whose value is 0.
        """
        return None

    def scale(self, head_dim: int) -> float:
        """Return the factor on q·k from the width of a head before ``rotate``; a caller of ``attend`` may set another.

        Products of queries or keys with learned vectors, in a bias, have this factor whatever the caller sets.
        """
        return 1 / math.sqrt(head_dim)

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors | None:
        """Return vectors for the input layer to add or concatenate, [B, S, P]; None where the scheme adds nothing.

        ``layer`` is the layer before which they are added: 0, or any where a model adds them again at every layer.
        Raises PositionError for positions that the scheme does not read: real-valued ones where it looks them up, those
        outside its table, and another number of coordinates. So do the other hooks that read positions.
        """
        return None

    def locate(self, x_BSD: States, pos: QueryPositions, past_BHTA: Places | None) -> Located | None:
        """Return the coordinates that tokens compute for themselves, [B, H, S, A], which are used as positions.

        ``x_BSD`` is the layer's input, ``past_BHTA`` the coordinates of the cached tokens, which are cached with the
        keys in float32. None where the scheme reads the positions that it is given.
        """
        return None

    def rotate(self, q_BHSK: Queries, k_BHTK: Keys, qpos: QueryPositions, kpos: KeyPositions) -> Rotated:
        """Return rotated queries and keys. Their width Kr may be another than K; it is the same for both.

        A scheme that scales the logits of a query multiplies the query here.
        """
        return q_BHSK, k_BHTK

    def rotate_values(self, v_BHTK: HeadValues, qpos: QueryPositions, kpos: KeyPositions) -> HeadValues:
        """Return values [B, H, T, Kv] as they are multiplied by the weights: rotated to their positions.

        They are cached as keys are (``Declares.cache``). A scheme with this hook has ``rotate_back`` too.
        """
        return v_BHTK

    def bias(self, at: AttentionInputs) -> Bias | None:
        """Return what is added to the scaled logits, [B, H, S, T], from positions alone or with queries and keys."""
        return None

    def logits(self, logits_BHST: Logits, mask_BHST: MaskedPairs, at: AttentionInputs) -> Logits:
        """Return new logits, [B, H, S, T], where that needs whole rows or all heads; the mask is applied afterwards."""
        return logits_BHST

    def weigh(self, logits_BHST: Logits, at: AttentionInputs) -> Logits:
        """Return attention weights of masked logits (-inf where masked). A row that is masked whole becomes zeros."""
        return softmax(logits_BHST)

    def values(self, out_BHSK: HeadValues, weights_BHST: Logits, at: AttentionInputs) -> HeadValues:
        """Return the attended values, [B, H, S, K], with whatever the weights add to them."""
        return out_BHSK

    def rotate_back(self, out_BHSK: HeadValues, qpos: QueryPositions, kpos: KeyPositions) -> HeadValues:
        """Return attended values [B, H, S, Kv] rotated back by the positions of the queries; the weights are not read.

        Unless keys are cached raw, ``kpos`` is not to be read: with a cache, zeros stand there.
        """
        return out_BHSK

    def score_mod(
        self, qpos: QueryPositions, kpos: KeyPositions, q_BHSK: Queries | None = None, k_BHTK: Keys | None = None
    ) -> ScoreMod:
        """Return the bias as a FlexAttention ``score_mod``: here, a lookup in the whole bias.

        Schemes that read contents need q and k. Raises PositionError without them.
        """
        if q_BHSK is None or k_BHTK is None:
            raise PositionError(f"the score_mod of {type(self).__name__} looks at q and k; pass both")
        bias_BHST = self.bias(AttentionInputs(q_BHSK, k_BHTK, qpos, kpos))
        if bias_BHST is None:
            return lambda score, b, h, i, j: score
        whole_BHST = bias_BHST.expand(q_BHSK.shape[0], q_BHSK.shape[1], -1, -1)
        return lambda score, b, h, i, j: score + whole_BHST[b, h, i, j]

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Raise UsageError: a scheme is no layer, whose output would be one tensor."""
        name = type(self).__name__
        raise UsageError(
            f"{name} is no layer that is called; write attend({name.lower()}, q, k, v, qpos, kpos) with "
            f"clockhands.attention.attend, or let clockhands.attention.Positioning call all its hooks"
        )

    def extra_repr(self) -> str:
        """Show the sizes and the options that are not defaults: ``RoPE(64, base=500000.0)``."""
        return describe_arguments(type(self), self.arguments)

    def list_numbers(self) -> dict[str, tuple[float, ...]]:
        """Return the few numbers that people compute by hand and compare, such as ALiBi's slopes, by their name."""
        return {}

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return the keys of a transformers configuration that mean the same; None where transformers has no equal."""
        return None

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise what is learned: at construction, and when a model initialises all that it has.

        Here, the modules that the scheme is made of. Overrides record no gradient either.
        """
        for module in self.children():
            reset: Callable[[], None] | None = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()


def softmax(logits_BHST: Float[Tensor, "B H S T"]) -> Float[Tensor, "B H S T"]:
    """Return the softmax over the keys.

    A row of -inf, which is masked whole, becomes zeros, and so do its gradients.
    """
    # -inf less the largest, -inf too, would be NaN: such rows get other logits, and then zeros.
    if not logits_BHST.shape[-1]:
        return logits_BHST  # no key, of which there would be no largest
    masked_BHS1 = logits_BHST.amax(dim=-1, keepdim=True) == -torch.inf
    return torch.softmax(logits_BHST.masked_fill(masked_BHS1, 0.0), dim=-1).masked_fill(masked_BHS1, 0.0)
