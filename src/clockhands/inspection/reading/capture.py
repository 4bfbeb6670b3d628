"""Run a model over texts, and record hidden states and the input of every attention layer that can be run alone.

Each batch runs once. Before that the first batch runs twice, to find the attention layers, and its first text once, to
know the size of the states.

Attention itself is not stored: a layer is run again on its recorded input, batch by batch, whenever its queries, keys
and logits are needed. What is stored grows with layers × texts × length × width; only the masks among the recorded
arguments, those of one batch, grow with length².

Which texts repeat each other is told too: near duplicates, and templates with the same tokens at the same positions.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from clockhands.errors import CheckpointError, UsageError
from clockhands.inspection.reading.attention_hooks import ComputedAttention, listen
from clockhands.inspection.reading.layer import Layer, find_input
from clockhands.machine import format_bytes
from clockhands.model.attention import CrossAttention
from clockhands.models.input_table import Forward
from clockhands.pretrained import first_line
from clockhands.shapes import Bool, Float, Int, Tensor

MOST_IN_MEMORY = 2**30
"""The most bytes of recordings kept in memory; more go to temporary files, which the system pages in and out."""


def _make_allocator(total: int) -> Callable[[tuple[int, ...], torch.dtype], Tensor]:
    """Return what makes uninitialised tensors on the CPU: in memory, or for ``total`` bytes too many in files.

    A file has no name any more, and goes with its tensor. Raises UsageError if the disk has no room for all.
    """
    if total <= MOST_IN_MEMORY:
        return lambda shape, dtype: torch.empty(shape, dtype=dtype)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if total > free:
        raise UsageError(
            f"the states of these windows need {format_bytes(total)} in temporary files, and {format_bytes(free)} are "
            f"free in {tempfile.gettempdir()}; lower --texts (count=...) or --length (length=...), or set TMPDIR"
        )

    def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        with tempfile.NamedTemporaryFile(prefix="clockhands-") as file:
            size = torch.Size(shape).numel()
            return torch.from_file(file.name, shared=True, size=size, dtype=dtype).view(shape)

    return allocate


@contextlib.contextmanager
def _hook(modules: Iterable[nn.Module], hook: Callable[..., Any], **options: bool) -> Iterator[None]:
    """Inside the block, ``hook`` is called before each of the modules runs."""
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.callback(module.register_forward_pre_hook(hook, **options).remove)
        yield


def _record_layers(
    model: nn.Module, run: Callable[[], object], shape: tuple[int, int]
) -> tuple[list[Layer], list[nn.Module], str]:
    """Run the model, and return its layers of self-attention, on one batch, and the modules of cross-attention.

    It runs twice: to see which modules compute attention, and to record the arguments of their calls. Each layer is
    then replayed, to see whether it can be run alone. The third value says why the attention of some module, self- or
    cross-attention, could not be read; it is empty if all could. Raises CheckpointError if no attention was seen.
    """
    modules, unread_reason = _find_readable(model, run, shape)
    calls: list[tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = []

    def drop_cache(value: Any) -> Any:  # it would grow with every replay
        return None if type(value).__name__.endswith("Cache") else value

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append((module, tuple(map(drop_cache, args)), {name: drop_cache(kwargs[name]) for name in kwargs}))

    with _hook(modules, record, with_kwargs=True), listen(model, None):
        run()
    cross_modules = [module for module, _, kwargs in calls if _is_cross_attention(module, kwargs)]
    layers: list[Layer] = []
    for module, args, kwargs in calls:
        if module not in cross_modules:
            layer = _make_layer(len(layers), module, args, kwargs, model, shape)
            if isinstance(layer, Layer):
                layers.append(layer)
            else:
                unread_reason = unread_reason or layer
    return layers, cross_modules, unread_reason


def _find_readable(model: nn.Module, run: Callable[[], object], shape: tuple[int, int]) -> tuple[list[nn.Module], str]:
    """Return the modules whose attention is computed as logits of every query, and why others are left out.

    Raises CheckpointError if no attention was seen.
    """
    complete: dict[nn.Module, bool] = {}  # by module: are all its logits those of every text and of every query?
    strange: set[nn.Module] = set()  # whose weights, which they return, are others than their softmax gave
    last: list[ComputedAttention] = []
    entered: dict[str, None] = {}  # the classes that ran and have "attention" in their names, to name them in a message

    def note_shape(computed: ComputedAttention) -> None:
        # The keys of cross-attention are those of another text; ``_make_layer`` looks at those of self-attention.
        has_all_queries = computed.logits_BHST.shape[0] == shape[0] and computed.logits_BHST.shape[2] == shape[1]
        complete[computed.module] = complete.get(computed.module, True) and has_all_queries
        last[:] = [computed]

    def compare_weights(module: nn.Module, args: object, output: object) -> None:
        if not last or last[0].module is not module:
            return
        weights = last.pop().weights_BHST
        parts = [part for part in output if isinstance(part, Tensor)] if isinstance(output, tuple) else []
        gaps = [float((part.to(weights) - weights).abs().max()) for part in parts if part.shape == weights.shape]
        # Softmax in another precision moves a weight by less than a hundredth of the largest. T5 returns its bias too,
        # which has the shape of weights: it is enough that one part is the weights.
        if gaps and not min(gaps) <= 0.05 * weights.max():
            strange.add(module)

    named = [module for module in model.modules() if "attention" in type(module).__name__.lower()]
    note_class = _hook(named, lambda module, args: entered.setdefault(type(module).__name__))
    with note_class, listen(model, note_shape), register_module_forward_hook(compare_weights):
        run()
    if not complete and not entered:
        raise CheckpointError(
            f"no attention was seen in {type(model).__name__}: it has none, or computes it in a way that no softmax "
            "shows"
        )
    unread = {type(module).__name__ for module in complete if not complete[module]} if complete else set(entered)
    reason = _UNREAD.format(", ".join(sorted(unread))) if unread else ""
    if strange and not reason:
        reason = f"{', '.join(sorted({type(module).__name__ for module in strange}))} {_STRANGE}"
    return [module for module in complete if complete[module] and module not in strange], reason


_UNREAD = "the attention of {} is not computed as logits of every token for every token"
_STRANGE = "computes its attention in a way that inspect does not understand: its weights are no softmax of its logits"


def _make_layer(
    index: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], model: nn.Module,
    shape: tuple[int, int],
) -> Layer | str:  # fmt: skip
    """Return the layer of a call, with the input of that call, or the reason why it cannot be run again alone."""
    name, (count, length), hidden = type(module).__name__, shape, find_input(args, kwargs)
    if hidden is None or tuple(hidden.shape[:-1]) not in (shape, shape[::-1]):
        return f"the attention of {name} is not given one vector per token"
    # Where there are as many texts as tokens, the class decides which axis is time.
    time_first = hidden.shape[0] == length and (count != length or "xlnet" in type(model).__name__.lower())
    layer = Layer(index, module, hidden.transpose(0, 1) if time_first else hidden, model, args, kwargs, time_first)
    try:
        logits = layer.replay(layer.inputs_NTD).logits_BHST
    except Exception as fault:  # foreign code, run in a way that it was not written for
        return f"the attention of {name} cannot be run alone ({type(fault).__name__}: {first_line(fault)})"
    complete = logits.shape[0] == count and tuple(logits.shape[2:]) == (length, length)
    return layer if complete else _UNREAD.format(name)


def _is_cross_attention(module: nn.Module, kwargs: dict[str, Any]) -> bool:
    """Tell whether a call is one of cross-attention: the module reads the states of another text."""
    sources = ("key_value_states", "encoder_hidden_states")
    return isinstance(module, CrossAttention) or any(kwargs.get(name) is not None for name in sources)


FIRST_POSITION_NOTE = (
    " Position 0 and special tokens are left out: in most trained models the row of position 0 is an outlier, and the "
    "states there have one huge direction that has nothing to do with position."
)
"""The sentence on the first position, for the ``method`` of the measures that read ``Capture.measured_T``."""


NGRAM = 5
"""Tokens in an n-gram."""
LEAST_SHARED = 0.5
"""Two texts repeat each other if at least this share of the n-grams of one, the one with fewer, occurs in the other."""
DRAWS = 20
"""Permutations of the tokens of every text, for the range that chance gives."""


@dataclass(frozen=True)
class Repeats:
    """Groups of texts that repeat each other, and how much of the texts is fixed by the position.

    Texts with the same number in ``groups_N`` repeat each other. ``fixed`` is the share of tokens that are the same at
    one position of two texts, beyond those that are the same at any two positions: 0 in running text, 1 in one text
    many times. ``fixed_by_chance`` is its 95 % range when the tokens of every text are permuted.
    """

    groups_N: Int[Tensor, " N"]
    fixed: float
    fixed_by_chance: tuple[float, float]

    @property
    def share(self) -> float:
        """The share of the texts that repeat an earlier one."""
        return 1 - len(self.groups_N.unique()) / len(self.groups_N)

    @property
    def templated(self) -> bool:
        """Whether more tokens are fixed by their position than by chance, and more than one in a hundred."""
        return self.fixed > max(self.fixed_by_chance[1], 0.01)


def _group_repeats(ids_NT: Int[Tensor, "N T"]) -> Int[Tensor, " N"]:
    """Number the texts so that those which repeat each other, directly or through others, have that of the first."""
    ngrams_NGn = ids_NT.unfold(1, min(NGRAM, ids_NT.shape[1]), 1)
    texts, runs, _ = ngrams_NGn.shape
    number_n = ngrams_NGn.flatten(0, 1).unique(dim=0, return_inverse=True)[1]
    text_n = torch.arange(texts).repeat_interleave(runs)
    # A set of n-grams for each text, as a row of 0 and 1; products of two rows count what they share.
    pairs = torch.stack([text_n, number_n]).unique(dim=1).numpy()
    sets = csr_array((np.ones(pairs.shape[1], dtype=np.int64), pairs))
    shared, sizes = (sets @ sets.T).tocoo(), sets.sum(1)
    near = shared.data >= LEAST_SHARED * np.minimum(sizes[shared.row], sizes[shared.col])
    graph = coo_array((near[near], (shared.row[near], shared.col[near])), shape=(texts, texts))
    _, first, group_N = np.unique(
        connected_components(graph, directed=False)[1], return_index=True, return_inverse=True
    )
    return torch.from_numpy(first[group_N])


def _measure_fixed_share(ids_NT: Int[Tensor, "N T"]) -> float:
    """Return the share of tokens fixed by the position: (p − q) / (1 − q).

    p is the probability that two texts have the same token at the same position, q that they have it at two different
    positions.
    """
    texts, length = ids_NT.shape
    codes_NT = ids_NT.unique(return_inverse=True)[1]
    table_TV = torch.zeros(length, int(codes_NT.max()) + 1, dtype=torch.float64)
    table_TV.scatter_add_(1, codes_NT.T.contiguous(), torch.ones(length, texts, dtype=torch.float64))
    same = float((table_TV * (table_TV - 1)).sum()) / (length * texts * max(texts - 1, 1))
    # Pairs of tokens of two texts at two positions are all pairs, less those at one position and those within one text.
    by_text_NV = torch.zeros(texts, table_TV.shape[1], dtype=torch.float64)
    by_text_NV.scatter_add_(1, codes_NT, torch.ones(texts, length, dtype=torch.float64))
    within, at_one_position = float(by_text_NV.square().sum()), float(table_TV.square().sum()) - texts * length
    pairs = texts * (texts - 1) * length * (length - 1)
    everything = float(table_TV.sum(0).square().sum())
    elsewhere = (everything - within - at_one_position) / pairs if pairs else 1.0
    return (same - elsewhere) / (1 - elsewhere) if elsewhere < 1 else 0.0


BATCH = 8
"""Texts that are run at once, unless a caller says another number."""


@dataclass
class Capture:
    """A model's hidden states and attention inputs on windows of equal length.

    ``hidden`` holds the embedding output and the output of every block, each N × T × D; ``ordinary_T`` is False at the
    positions of special tokens, which are the same in every window. ``source_NS`` are the ids that the encoder read for
    a decoder (-1: padding), and ``cross_modules`` the modules of its cross-attention. ``unread_reason`` says why there
    are no ``layers``, or why one is missing; it is empty where all attention could be read. States, and the inputs of
    the layers, are on the CPU, in the dtype of the model.
    """

    ids_NT: Int[Tensor, "N T"]
    hidden: list[Float[Tensor, "N T D"]]
    layers: list[Layer]
    ordinary_T: Bool[Tensor, " T"]
    source_NS: Int[Tensor, "N S"] | None = None
    cross_modules: list[nn.Module] = field(default_factory=list)
    unread_reason: str = ""

    @property
    def num_texts(self) -> int:
        """The number of windows."""
        return len(self.ids_NT)

    @property
    def length(self) -> int:
        """The number of tokens of a window."""
        return self.ids_NT.shape[1]

    @property
    def measured_T(self) -> Bool[Tensor, " T"]:
        """The positions of ordinary tokens without position 0, at which rows and hidden states are measured.

        Measures that compare the output before and after a change count position 0 too.
        """
        measured_T = self.ordinary_T.clone()
        measured_T[0] = False
        return measured_T

    @cached_property
    def repeats(self) -> Repeats:
        """Which of the texts repeat each other, by their ordinary tokens."""
        ids_NT, generator = self.ids_NT[:, self.ordinary_T], torch.Generator().manual_seed(0)
        orders = (torch.rand(ids_NT.shape, generator=generator).argsort(1) for _ in range(DRAWS))
        permuted = [_measure_fixed_share(ids_NT.gather(1, order_NT)) for order_NT in orders]
        low, high = torch.quantile(torch.tensor(permuted), torch.tensor([0.025, 0.975])).tolist()
        return Repeats(_group_repeats(ids_NT), _measure_fixed_share(ids_NT), (low, high))

    def make_forward_options(self, rows: slice | Tensor) -> dict[str, Tensor]:
        """Return the keyword arguments of ``forward`` for the texts of these rows: a decoder's source."""
        return {} if self.source_NS is None else {"source_BS": self.source_NS[rows]}


@torch.no_grad()
def capture(
    model: nn.Module,
    forward: Forward,
    ids_NT: Int[Tensor, "N T"],
    *,
    ordinary_T: Bool[Tensor, " T"] | None = None,
    source_NS: Int[Tensor, "N S"] | None = None,
    batch: int = BATCH,
    progress: Callable[[int], object] = lambda done: None,
) -> Capture:
    """Run ``forward`` over all windows, ``batch`` at once, and record what a replay of its attention needs.

    ``ordinary_T`` marks the positions without special tokens (default: all). ``source_NS`` goes to ``forward`` as
    ``source_BS``, batch by batch. ``progress`` is called before each batch with the number of texts that are done.
    Attention that is not computed as logits of every token for every token is left out, and ``unread_reason`` says why.
    Raises CheckpointError if no attention was seen in the model, or if it gives NaN or infinite states, or not one
    state per token; UsageError if the disk has no room for the states.
    """
    ordinary = torch.ones(ids_NT.shape[1], dtype=torch.bool) if ordinary_T is None else ordinary_T
    result = Capture(ids_NT, [], [], ordinary, source_NS)
    batch = min(batch, len(ids_NT))
    run = partial(forward, ids_NT[:batch], **result.make_forward_options(slice(batch)))
    layers, result.cross_modules, result.unread_reason = _record_layers(model, run, (batch, ids_NT.shape[1]))
    states = forward(ids_NT[:1], **result.make_forward_options(slice(1)))
    other = next((state.shape[1] for state in states if state.shape[1] != result.length), None)
    if other is not None:
        raise CheckpointError(
            f"{type(model).__name__} gives {other} states for {result.length} tokens, so they do not belong to "
            "positions; try another --length (length=...)"
        )
    bytes_each = ids_NT.numel() * states[0].shape[-1] * states[0].element_size()
    allocate = _make_allocator((len(states) + len(layers)) * bytes_each)
    for layer in layers:
        layer.inputs_NTD = allocate((*ids_NT.shape, layer.inputs_NTD.shape[-1]), layer.inputs_NTD.dtype)
    result.hidden = [allocate((len(ids_NT), *state.shape[1:]), state.dtype) for state in states]
    for start in range(0, len(ids_NT), batch):
        progress(start)
        # The last text fills up the last batch: masks among the recorded arguments have the size of a batch.
        rows = torch.arange(start, start + batch).clamp(max=len(ids_NT) - 1)
        with listen(model, None), _store_inputs(layers, rows):
            states = forward(ids_NT[rows], **result.make_forward_options(rows))
        for index, (stored, state) in enumerate(zip(result.hidden, states, strict=True)):
            if not bool(torch.isfinite(state).all()):
                where = f"layer {index}" if index else "its embedding"
                raise CheckpointError(
                    f"{type(model).__name__} gives NaN or infinite hidden states after {where}; check its weights, "
                    "which may be damaged or too large for float32"
                )
            stored[rows] = state.to(stored.device)
    result.layers = layers
    return result


@contextlib.contextmanager
def _store_inputs(layers: list[Layer], rows: Tensor) -> Iterator[None]:
    """Inside the block, store the inputs of the attention layers of a forward pass over the texts ``rows``."""
    remaining = iter(layers)

    def store(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not _is_cross_attention(module, kwargs):
            layer = next(remaining)
            x = cast(Tensor, find_input(args, kwargs))
            layer.inputs_NTD[rows] = (x.transpose(0, 1) if layer.time_first else x).to(layer.inputs_NTD.device)

    with _hook(dict.fromkeys(layer.module for layer in layers), store, with_kwargs=True):
        yield
