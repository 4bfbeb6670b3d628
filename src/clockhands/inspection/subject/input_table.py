"""Find the table of position vectors that a model adds at its input: by shape, and by what editing its rows does.

Nothing is known here of any architecture. A tensor is the table if row ``first + t`` changes what enters the layers at
place t, for every place of two texts that have different tokens there, and at no other place.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from clockhands.shapes import Bool, Float, Int, Tensor

PLACES = 8
"""Tokens in the texts that are tried: as many different ones are needed."""
_ALONE = (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.modules.conv._ConvNd)
"""Layers whose weights are no tables, whatever their shape."""

Forward = Callable[[Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True)
class InputTable:
    """Where the rows stand, and how they reach the layers, as paths from the stack of layers.

    Row ``first`` of the tensor at ``path`` is multiplied by ``factor`` and added to the first token's vector; the sum
    is the input of the module at ``enters``, and goes through ``norm`` if there is one. Token rows are multiplied by
    ``scale``; ``words`` says whether that is all ("rows"), or whether token vectors must be read from the model because
    something else happens to them ("read"), or neighbours are mixed into them, so that a token has none ("mixed").
    """

    path: str
    first: int
    factor: float
    enters: str
    norm: str = ""
    scale: float = 1.0
    words: Literal["rows", "read", "mixed"] = "rows"

    def rows_ND(self, model: nn.Module) -> Float[Tensor, "N D"]:
        """The stored rows from the first token on, as a view into the model."""
        tensor: Tensor = operator.attrgetter(self.path)(model)
        return tensor.data.reshape(tensor.shape[-2:])[self.first :]


def find_input_table(
    model: nn.Module, forward: Forward, ids_2T: Int[Tensor, "two T"], tokens_VE: Tensor | None
) -> InputTable | None:
    """The table that a model adds at its input, or None if there is no tensor of which that is true.

    ``forward`` gives the hidden states, the embedding output first; ``ids_2T`` are two texts of ordinary tokens, no
    token at the same place in both; ``tokens_VE`` is the token table where the model has one.
    """
    before = forward(ids_2T)[0]

    def run() -> Tensor:
        return forward(ids_2T)[0]

    found = {path: tensor for path, tensor in _candidates(model, before.shape[1]) if tensor is not tokens_VE}
    with ExitStack() as stack:
        for tensor in found.values():
            stack.enter_context(edit_rows(tensor, lambda data: data.add_(_noise(data))))
        if torch.equal(run(), before):
            return None  # one run for the many tensors of a model that has no table
    for path, tensor in found.items():
        first = _first_row(tensor, run, before)
        if first is not None:
            return _traced(model, forward, ids_2T, tokens_VE, path, first, before)
    return None


def position_enters(forward: Forward, token: int, places: int = PLACES) -> bool:
    """Whether one and the same token is another vector at another place, where the layers begin."""
    states = forward(torch.full((1, places), token))[0][0]
    return not torch.allclose(states, states[:1].expand_as(states), rtol=1e-4, atol=1e-5)


def round_to_power_of_two(x: Tensor) -> float:
    """Return a power of two as large as the largest number: a quotient by it keeps every digit, and its square exists.

    The squares of numbers of 1e19 and more, and sums of many that are smaller, leave the range of float32.
    """
    return 2.0 ** math.frexp(float(x.abs().max()))[1]


def _candidates(model: nn.Module, places: int) -> Iterator[tuple[str, Tensor]]:
    """Matrices of at least one row a place that are no weights of a layer: rows of embeddings, parameters, buffers."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        if isinstance(module, _ALONE):
            continue
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for label, tensor in own:
            matrix = tensor.ndim >= 2 and tensor.shape[-2:].numel() == tensor.numel() and tensor.is_floating_point()
            if matrix and tensor.shape[-2] >= places and id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"{name}.{label}".lstrip("."), tensor


@contextmanager
def edit_rows(tensor: Tensor, change: Callable[[Tensor], object]) -> Iterator[None]:
    """Inside, the rows of a tensor are changed in place; afterwards they are as they were, to the bit."""
    kept = tensor.data.clone()
    try:
        change(tensor.data.reshape(tensor.shape[-2:]))
        yield
    finally:
        tensor.data.copy_(kept)


def _noise(rows_ND: Tensor) -> Tensor:
    """Another vector for every row, as long as the rows are."""
    generator = torch.Generator().manual_seed(0)
    unit = round_to_power_of_two(rows_ND)
    size = ((rows_ND.float() / unit).square().mean().sqrt() * unit).clamp_min(1e-2)
    return (torch.randn(rows_ND.shape, generator=generator) * size.cpu()).to(rows_ND)


def _first_row(tensor: Tensor, run: Callable[[], Tensor], before_BTD: Tensor) -> int | None:
    """The row that the first place reads, if every place t of every text reads row first + t and no other.

    Each place spells its row in binary: one run for each digit, in which the rows whose number has it are changed.
    """
    rows = tensor.shape[-2]
    noise = _noise(tensor.data.reshape(tensor.shape[-2:]))
    numbers = torch.arange(rows, device=tensor.device)

    def changed(chosen_N: Bool[Tensor, " N"]) -> Bool[Tensor, "B T"]:
        with edit_rows(tensor, lambda data: data.add_(noise * chosen_N[:, None])):
            after = run()
        return ((after - before_BTD).abs().amax(-1) > 1e-6 * before_BTD.abs().amax()).cpu()

    if not bool(changed(numbers >= 0).all()):
        return None
    read = torch.zeros(before_BTD.shape[:2], dtype=torch.long)
    for digit in range(rows.bit_length()):
        read += changed((numbers >> digit) % 2 == 1).long() << digit
    first = int(read[0, 0])
    places = torch.arange(before_BTD.shape[1])
    middle = len(places) // 2
    if not bool((read == first + places).all()) or first + len(places) > rows:
        return None
    alone = changed(numbers == first + middle)
    return first if bool((alone == (places == middle)).all()) else None


def _traced(
    model: nn.Module,
    forward: Forward,
    ids_2T: Tensor,
    tokens_VE: Tensor | None,
    path: str,
    first: int,
    before: Tensor,
) -> InputTable | None:
    """Follow a table's rows to the first module that is given token and position together."""
    tensor: Tensor = operator.attrgetter(path)(model)
    noise = _noise(tensor.data.reshape(tensor.shape[-2:]))
    added = noise[first : first + ids_2T.shape[1]].float()
    unit = round_to_power_of_two(added)
    plain = _inputs(model, lambda: forward(ids_2T), ids_2T.shape)
    with edit_rows(tensor, lambda data: data.add_(noise)):
        moved = _inputs(model, lambda: forward(ids_2T), ids_2T.shape)
    for (name, x), (other, y) in zip(plain, moved, strict=True):
        if name != other or x.shape[-1] != added.shape[-1]:
            continue
        change = y.float() - x.float()
        factor = float((change / unit * (added / unit)).sum() / ((added / unit).square().sum() * len(ids_2T)))
        carries_tokens = not torch.allclose(x[0], x[1], rtol=1e-4, atol=1e-6)
        if carries_tokens and factor and _near(change, factor * added, y):
            norm = "" if before.shape == x.shape and _near(before, x) else _norm(model, plain, x)
            scale, words = _words(model, forward, ids_2T, tokens_VE, name, x)
            return InputTable(path, first, factor, name, norm, scale, words)
    return None


def _near(x: Tensor, y: Tensor, rounded: Tensor | None = None) -> bool:
    """Whether x and y are the same but for rounding, also to the precision in which ``rounded`` was computed."""
    error = 1e-4 * y.abs().max()
    if rounded is not None:
        error = error + 4 * torch.finfo(rounded.dtype).eps * rounded.abs().max()
    return bool((x - y).abs().max() <= error)


def _inputs(model: nn.Module, run: Callable[[], object], shape: torch.Size) -> list[tuple[str, Tensor]]:
    """The token vectors that every module is given, in the order of the computation, as copies; without padding."""
    found: list[tuple[str, Tensor]] = []

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = next((x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)), None)
            vectors = None if given is None else _by_token(given, shape)
            if vectors is not None:
                found.append((name, vectors))

        return hook

    hooks = [
        module.register_forward_pre_hook(note(name), with_kwargs=True) for name, module in model.named_modules() if name
    ]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _by_token(x: Tensor, shape: torch.Size) -> Tensor | None:
    """A copy of token vectors as texts × tokens × width, without what pads a text; None if they are none."""
    texts, length = shape
    if x.ndim != 3 or not x.is_floating_point():
        return None
    if x.shape[1] == texts and len(x) >= length > texts:
        x = x.transpose(0, 1)
    return x[:, :length].detach().clone() if len(x) == texts and x.shape[1] >= length else None


def _norm(model: nn.Module, inputs: list[tuple[str, Tensor]], entering: Tensor) -> str:
    """The first norm that is given the sum."""
    for name, x in inputs:
        kind = type(model.get_submodule(name)).__name__.lower()
        if "norm" in kind and x.shape == entering.shape and torch.equal(x, entering):
            return name
    return ""


class _Enough(Exception):
    """Leaves a model once what enters its layers is known."""


def capture_input(model: nn.Module, path: str, forward: Forward, ids_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    """What the module at ``path`` is given for these texts; the run ends there."""
    caught: list[Tensor] = []

    def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = next(x for x in (*args, *kwargs.values()) if isinstance(x, Tensor))
        vectors = _by_token(given, ids_BT.shape)
        assert vectors is not None, "it was given token vectors when the table was found"
        caught.append(vectors)
        raise _Enough

    hook = model.get_submodule(path).register_forward_pre_hook(stop, with_kwargs=True)
    try:
        forward(ids_BT)
    except _Enough:
        pass
    finally:
        hook.remove()
    return caught[0]


def _words(
    model: nn.Module, forward: Forward, ids_2T: Tensor, tokens_VE: Tensor | None, path: str, x_2TD: Tensor
) -> tuple[float, Literal["rows", "read", "mixed"]]:
    """What multiplies the token rows in the sum, if nothing else happens to them."""
    if tokens_VE is not None and tokens_VE.shape[-1] == x_2TD.shape[-1]:
        rows = tokens_VE.detach()[ids_2T.to(tokens_VE.device)].to(x_2TD)
        here, there = x_2TD[0] - x_2TD[1], rows[0] - rows[1]
        unit = round_to_power_of_two(there)
        scale = float((here / unit * (there / unit)).sum() / (there / unit).square().sum())
        if _near(here, scale * there):
            return scale, "rows"
    other = ids_2T.clone()
    other[:, 1::2] = ids_2T[:, 1::2].flip(0)
    again = capture_input(model, path, forward, other)
    return 1.0, "read" if _near(again[:, ::2], x_2TD[:, ::2]) else "mixed"
