"""Every kernel gives what the reference gives, forward and gradient, under every mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from clockhands import positions
from clockhands.attention import (
    attend,
    attend_reference,
    by_distance,
    far_blocks,
    query_blocks,
    record,
    request,
    tiles,
    window_blocks,
)
from clockhands.errors import UsageError
from clockhands.scheme_pages.variants import complete_options
from clockhands.schemes import CATALOGUE, Alibi, AttentionInputs, Scheme, Sizes, build

HEADS, WIDTH = 4, 8
D = HEADS * WIDTH


@pytest.fixture(autouse=True)
def _many_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles and blocks so small that every edge between them occurs at the lengths tested here."""
    monkeypatch.setattr(tiles, "ROWS", 16)
    monkeypatch.setattr(tiles, "ELEMENTS", 16 * 40 * 2)
    monkeypatch.setattr(query_blocks, "ROWS", 24)
    monkeypatch.setattr(far_blocks, "ROWS", 9)
    monkeypatch.setattr(by_distance, "SHORT", 8)
    monkeypatch.setattr(by_distance, "NEAR", 0)
    monkeypatch.setattr(window_blocks, "ROWS", 6)
    monkeypatch.setattr(query_blocks, "MANY_PAIRS", 64)


def make(name: str, causal: bool, **options: Any) -> Scheme:
    scheme = build(CATALOGUE, name, Sizes(D, D, HEADS, WIDTH, 1, causal), complete_options(name, options))
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.3)
    return scheme


SCHEMES: list[tuple[str, dict[str, Any]]] = [
    ("none", {}),
    ("rope", {}),
    ("pope", {}),
    ("alibi", {}),
    ("alibi", {"form": "asymmetric"}),
    ("alibi", {"learned": True}),
    ("t5", {"num_buckets": 8, "max_distance": 20}),
    ("kerple", {"form": "power"}),
    ("window", {"left": 5, "right": 2}),
    ("sandwich", {}),
    ("dynamic", {}),
    ("fire", {"length": 10.0}),
    ("forgetting", {}),
    ("shaw", {"clip": 3, "values": False}),
    ("deberta", {"span": 6}),
    ("transformer-xl", {}),
    ("inkling", {"extent": 7}),
    ("tupe", {}),
    ("path", {}),
    ("grape", {}),
    ("carope", {}),
    ("chunks", {"size": 7}),
    ("rerope", {"window": 5}),
    ("rerope", {"window": 5, "factor": 2.0}),
    ("self-extend", {"window": 6, "group": 3}),
    ("dual-chunk", {"original_length": 16}),
    ("sinks", {}),
    ("rope", {"values": True, "layout": "interleaved", "fraction": 0.5}),
    ("composition", {"schemes": ("rope", {"scheme": "window", "left": 5})}),
    ("composition", {"schemes": ("rope", "alibi", {"scheme": "window", "left": 9})}),
    ("composition", {"schemes": ("rope", "sinks", {"scheme": "window", "left": 5})}),
    ("composition", {"schemes": ({"scheme": "rope", "values": True}, "alibi", {"scheme": "window", "left": 9})}),
    ("composition", {"schemes": ({"scheme": "rope", "values": True}, "sinks", {"scheme": "window", "left": 5})}),
    ("composition", {"schemes": ("forgetting", "rope", {"scheme": "window", "left": 5})}),
    ("composition", {"schemes": ("rope", "sinks")}),
    ("composition", {"schemes": ("sinks", "alibi", {"scheme": "window", "left": 9})}),
    ("composition", {"schemes": ({"scheme": "t5", "num_buckets": 8, "max_distance": 20}, "sinks")}),
    ("composition", {"schemes": ("fire", "sinks")}),
    ("composition", {"schemes": ("forgetting", "rope", "sinks", {"scheme": "window", "left": 5})}),
]
MASKS = ["none", "left padding", "right padding", "any", "nothing to see"]


def mask(kind: str, batch: int, queries: int, keys: int) -> Tensor | None:
    seen = torch.ones(batch, 1, 1, keys, dtype=torch.bool)
    if kind == "left padding":
        seen[0, ..., : keys - queries + 3] = False
    elif kind == "right padding":
        seen[0, ..., -4:] = False
    elif kind == "any":
        seen = torch.rand(batch, HEADS, queries, keys) > 0.3
    elif kind == "nothing to see":
        seen = seen.expand(-1, -1, queries, -1).clone()
        seen[:, :, 1] = False
    return None if kind == "none" else seen


def both(
    scheme: Scheme, leaves: list[Tensor], kind: str, causal: bool, queries: int, dtype: torch.dtype
) -> list[list[Tensor]]:
    """Output and gradients by ``attend`` and by the reference."""
    batch, keys = leaves[1].shape[0], leaves[1].shape[2]
    visible, results = mask(kind, batch, queries, keys), []
    goal = torch.randn(batch, HEADS, queries, WIDTH)
    parameters = [p for p in scheme.parameters() if p.requires_grad]
    for kernel in (attend, lambda *a, **kw: attend_reference(*a, **kw).out_BHSK):
        q, k, v, x = (leaf.to(dtype) for leaf in leaves)
        qpos, kpos = (positions.count_up(batch, keys)[:, part] for part in (slice(keys - queries, None), slice(None)))
        own = scheme.locate(x, kpos, None)
        if own is not None:
            qpos, kpos = own[:, :, keys - queries :], own
        out = kernel(scheme, q, k, v, qpos, kpos, visible, causal=causal)
        grads = torch.autograd.grad((out.float() * goal).sum(), leaves[:3] + parameters, allow_unused=True)
        results.append([out.float(), *(g if g is not None else torch.zeros(()) for g in grads)])
    return results


@pytest.mark.parametrize(
    ("queries", "keys", "kind"), [*((40, 40, kind) for kind in MASKS), (33, 40, "none"), (33, 40, "any")]
)
@pytest.mark.parametrize(("name", "options"), SCHEMES, ids=lambda value: value if isinstance(value, str) else "")
def test_output_and_gradients_are_the_reference_s(
    name: str, options: dict[str, Any], queries: int, keys: int, kind: str
) -> None:
    for causal in (True, False):
        scheme = make(name, causal, **options)
        if not causal and scheme.declares.causal_only:
            continue
        shapes = [(2, HEADS, queries, WIDTH), *[(2, HEADS, keys, WIDTH)] * 2, (2, keys, D)]
        leaves = [torch.randn(shape).requires_grad_() for shape in shapes]
        fast, slow = both(scheme, leaves, kind, causal, queries, torch.float32)
        for got, wanted in zip(fast, slow, strict=True):
            size = max(1.0, float(wanted.abs().max()))
            torch.testing.assert_close(got, wanted, atol=5e-5 * size, rtol=1e-4)


@pytest.mark.parametrize("queries", [40, 33])
@pytest.mark.parametrize(
    ("name", "options"), [("alibi", {}), ("t5", {}), ("kerple", {}), ("sandwich", {}), ("alibi", {"form": "broken"})]
)
def test_a_curve_that_is_read_in_place_is_the_reference(
    name: str, options: dict[str, Any], queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_distance, "NEAR", 40)
    monkeypatch.setattr(by_distance, "attend_by_tiles", None)  # nobody else may serve
    monkeypatch.setattr(by_distance, "_attend_with_row", None)
    for causal in (True, False):
        scheme = make(name, causal, **options).requires_grad_(False)
        leaves = [torch.randn(2, HEADS, n, WIDTH).requires_grad_() for n in (queries, 40, 40)]
        fast, slow = both(scheme, [*leaves, torch.randn(2, 40, D)], "none", causal, queries, torch.float32)
        torch.testing.assert_close(fast, slow, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("queries", [1, 2, 3])
def test_a_few_queries_of_many_keys_are_those_of_the_reference(queries: int) -> None:
    """As when a cache is read: the rows of a bias are few, and any of them may stand for all."""
    scheme = make("alibi", True)
    leaves = [torch.randn(2, HEADS, n, WIDTH).requires_grad_() for n in (queries, 40, 40)]
    fast, slow = both(scheme, [*leaves, torch.randn(2, 40, D)], "none", True, queries, torch.float32)
    torch.testing.assert_close(fast, slow, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["none", "alibi", "t5", "fire", "forgetting", "sinks"])
def test_bfloat16_is_the_reference_to_its_precision(name: str) -> None:
    for causal, length in ((True, 40), (True, 520), (False, 40)):
        scheme = make(name, causal)
        if not causal and scheme.declares.causal_only:
            continue
        leaves = [torch.randn(1, HEADS, length, WIDTH).requires_grad_() for _ in range(3)]
        leaves.append(torch.randn(1, length, D))
        fast, _ = both(scheme, leaves, "none", causal, length, torch.bfloat16)
        _, exact = both(scheme, leaves, "none", causal, length, torch.float32)
        torch.testing.assert_close(fast[0], exact[0], atol=4e-2, rtol=4e-2)


def test_dropout_keeps_the_mean() -> None:
    scheme, pos = make("kerple", True), positions.count_up(1, 40)
    q, k, v = (torch.randn(1, HEADS, 40, WIDTH) for _ in range(3))
    mean = sum(attend(scheme, q, k, v, pos, pos, causal=True, dropout=0.3) for _ in range(200)) / 200
    torch.testing.assert_close(mean, attend(scheme, q, k, v, pos, pos, causal=True), atol=0.25, rtol=0.1)


class Largest(TorchDispatchMode):
    """Remembers the most elements that any tensor had."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


# TUPE is none of them: it compares the vectors of any two absolute positions.
BY_BLOCKS = [
    name
    for name, kind in CATALOGUE.items()
    if kind.rowwise and name != "tupe" and not kind.hooks() & {"locate", "logits", "weigh", "values"}
]
ROWS, COLUMNS = 32, 40
OPTIONS: dict[str, dict[str, Any]] = {
    "dynamic": {"hidden": 4}, "log-cpb": {"hidden": 4}, "swin": {"rows": ROWS, "columns": COLUMNS},
    "learned": {"max_length": ROWS * COLUMNS}, "diet": {"max_length": ROWS * COLUMNS}, "deberta": {"span": 16},
}  # fmt: skip


@pytest.mark.parametrize("name", BY_BLOCKS)
def test_no_function_of_positions_makes_a_tensor_of_all_pairs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward, at 1280 tokens: every function of i - j, of offsets on a grid, and of single rows."""
    monkeypatch.undo()
    length = ROWS * COLUMNS
    scheme = make(name, True, **OPTIONS.get(name, {}))
    scheme.encoded = True
    axes = scheme.declares.axes or 1
    pos = positions.make_grid(1, ROWS, COLUMNS) if axes == 2 else positions.count_up(1, length)
    pos = positions.repeat_on_axes(pos, axes) if axes > 2 else pos
    qkv = [torch.randn(1, HEADS, length, WIDTH).requires_grad_() for _ in range(3)]
    with Largest() as largest:
        attend(scheme, *qkv, pos, pos, causal=True).sum().backward()
    assert largest.elements < length * length
    with Largest() as largest:
        attend_reference(scheme, *qkv, pos, pos, causal=True)
    assert largest.elements >= HEADS * length * length, "the meter must see what the reference makes"


WITH_SINKS: dict[str, tuple[Any, ...]] = {
    "sinks": ("sinks",),
    "in a window": ("rope", {"scheme": "window", "left": 127}, "sinks"),
    "sharpened": ("temperature", "sinks"),
    "beside a learned bias": ({"scheme": "t5"}, "sinks"),
    "beside a gate": ("forgetting", "sinks"),
}


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", WITH_SINKS)
def test_no_sinks_make_a_tensor_of_all_pairs(name: str, dropout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    length = ROWS * COLUMNS
    scheme, pos = make("composition", True, schemes=WITH_SINKS[name]), positions.count_up(1, length)
    qkv = [torch.randn(1, HEADS, length, WIDTH).requires_grad_() for _ in range(3)]
    own = scheme.locate(torch.randn(1, length, D), pos, None)
    pos = pos if own is None else own
    with Largest() as largest:
        attend(scheme, *qkv, pos, pos, causal=True, dropout=dropout).sum().backward()
    assert largest.elements < length * length


def test_tiles_skip_what_can_have_no_weight_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, pos = make("alibi", True, learned=True), positions.count_up(1, 600)
    scheme.slopes_OH.data.mul_(8)
    monkeypatch.setattr(by_distance, "fits_channel", lambda row_BHT, dtype: torch.zeros(HEADS, dtype=torch.bool))
    leaves = [torch.randn(1, HEADS, 600, WIDTH).requires_grad_() for _ in range(3)]
    pairs: list[int] = []
    logits = tiles.TileWork.compute_logits

    def counted(self: Any, tile: Any) -> Tensor:
        pairs.append(logits(self, tile).numel())
        return logits(self, tile)

    monkeypatch.setattr(tiles.TileWork, "compute_logits", counted)
    fast = attend(scheme, *leaves, pos, pos, causal=True)
    slow = attend_reference(scheme, *leaves, pos, pos, causal=True).out_BHSK
    assert sum(pairs) < 0.75 * HEADS * 600 * 616 / 2, "a slope of 2 reaches some 60 tokens, one of 1/32 all"
    torch.testing.assert_close(fast, slow, atol=2e-5, rtol=1e-4)
    goal = torch.randn(fast.shape)
    gradients = [torch.autograd.grad((out * goal).sum(), leaves) for out in (fast, slow)]
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["none", "right padding", "any"])
@pytest.mark.parametrize(("rows", "columns"), [(8, 5), (2, 20), (5, 8), (1, 40)])
@pytest.mark.parametrize("name", ["swin", "log-cpb"])
def test_tiles_of_a_grid_are_the_reference(name: str, rows: int, columns: int, kind: str) -> None:
    """Runs shorter and longer than a tile; the window of the scheme is larger than the grid."""
    pos = positions.make_grid(2, rows, columns) + 3
    visible = mask(kind, 2, 40, 40)
    for causal in (True, False):
        scheme = make(name, causal, rows=rows + 1, columns=columns + 2)
        assert request.find_line(*scheme.place_on_line(pos, pos)[:2]) is not None
        qkv = [torch.randn(2, HEADS, 40, WIDTH).requires_grad_() for _ in range(3)]
        fast = attend(scheme, *qkv, pos, pos, visible, causal=causal)
        slow = attend_reference(scheme, *qkv, pos, pos, visible, causal=causal).out_BHSK
        leaves, goal = [*qkv, *scheme.parameters()], torch.randn(slow.shape)
        grads = (torch.autograd.grad((out * goal).sum(), leaves) for out in (fast, slow))
        for got, wanted in zip([fast, *next(grads)], [slow, *next(grads)], strict=True):
            torch.testing.assert_close(got, wanted, atol=5e-5 * max(1.0, float(wanted.detach().abs().max())), rtol=1e-4)


def test_cells_that_are_no_whole_grid_take_another_path_to_the_same_answer() -> None:
    scheme, cells = make("swin", False, rows=8, columns=8), positions.make_grid(1, 6, 7)
    for pos in (cells[:, torch.randperm(42)], cells[:, :40], torch.cat([cells[:, :20], cells[:, 22:]], dim=1)):
        q, k, v = torch.randn(3, 1, HEADS, pos.shape[1], WIDTH).unbind(0)
        assert request.find_line(*scheme.place_on_line(pos, pos)[:2]) is None
        expected = attend_reference(scheme, q, k, v, pos, pos).out_BHSK
        torch.testing.assert_close(attend(scheme, q, k, v, pos, pos), expected, atol=1e-5, rtol=1e-5)


T5 = {"scheme": "t5", "num_buckets": 8, "max_distance": 12}


@pytest.mark.parametrize("length", [20, 40])
@pytest.mark.parametrize("schemes", [("fire",), ("fire", "sinks"), ("none", "sinks"), (T5,), (T5, "sinks")])
def test_the_same_weights_are_dropped_in_both_passes(schemes: tuple[Any, ...], length: int) -> None:
    scheme, pos = make("composition", True, schemes=schemes).double(), positions.count_up(1, length)

    def run(*leaves: Tensor) -> Tensor:
        torch.manual_seed(5)
        return attend(scheme, *leaves[:3], pos, pos, causal=True, dropout=0.4)

    qkv = [torch.randn(1, HEADS, length, 3, dtype=torch.float64).requires_grad_() for _ in range(3)]
    # Sinks are changed in place by gradcheck; tables of other schemes are read in float32.
    sinks = [parameter for name, parameter in scheme.named_parameters() if name.endswith("sink_H")]
    assert torch.autograd.gradcheck(run, [*qkv, *sinks], atol=1e-5, fast_mode=True)
    found = []
    for drawn_between in (1, 2):
        out = run(*qkv)
        torch.manual_seed(drawn_between)
        found.append(torch.autograd.grad(out.square().sum(), qkv))
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
    assert not torch.equal(run(*qkv), attend(scheme, *qkv, pos, pos, causal=True))


def test_every_block_drops_weights_of_its_own() -> None:
    """With one-hot values the output is the weights. Two blocks of queries agree on what they drop by chance alone."""
    scheme, length, rate = make("fire", False), 48, 0.4
    pos, v = positions.count_up(1, length), torch.eye(length).expand(1, HEADS, -1, -1)
    q, k = torch.randn(2, 1, HEADS, length, WIDTH).unbind(0)
    dropped = attend(scheme, q, k, v, pos, pos, dropout=rate) == 0
    first, second = dropped.split(query_blocks.ROWS, dim=2)
    assert first.shape == second.shape == (1, HEADS, 24, length)
    # 4,608 pairs: .02 is three standard errors.
    assert float(dropped.float().mean()) == pytest.approx(rate, abs=0.02)
    assert float((first == second).float().mean()) == pytest.approx(rate**2 + (1 - rate) ** 2, abs=0.03)


PARALLEL = [("alibi", {}), ("alibi", {"learned": True}), ("forgetting", {}), ("forgetting", {"gate": "cable"})]


@pytest.mark.parametrize(("name", "options"), PARALLEL, ids=lambda value: value if isinstance(value, str) else "")
def test_parallel_rows_differ_by_a_constant_at_any_positions(name: str, options: dict[str, Any]) -> None:
    scheme, pos = make(name, True, **options), torch.randint(90, (2, 12))
    own = scheme.locate(torch.randn(2, 12, D), pos, None)
    where = pos if own is None else own
    bias = scheme.bias(AttentionInputs(*torch.randn(2, 2, HEADS, 12, WIDTH).unbind(0), where, where))
    less = bias - bias[:, :, 5:6]
    assert scheme.queries_share_bias_row
    torch.testing.assert_close(less, less[..., :1].expand_as(less), atol=1e-5, rtol=1e-5)


def test_what_is_not_parallel_does_not_say_so() -> None:
    """Symmetric ALiBi under a causal mask would be, and only there."""
    said = {name for name, kind in CATALOGUE.items() if kind.queries_share_bias_row and name != "alibi"}
    assert said == {"forgetting"}
    for form in ("symmetric", "asymmetric", "two-sided", "broken"):
        assert not make("alibi", True, form=form).queries_share_bias_row


@pytest.mark.parametrize("scale", [0.0, 1e-39, -0.5, 1.0])
@pytest.mark.parametrize("kind", ["none", "right padding"])
@pytest.mark.parametrize(("name", "options"), SCHEMES, ids=lambda value: value if isinstance(value, str) else "")
def test_any_factor_on_the_products_gives_what_the_reference_gives(
    name: str, options: dict[str, Any], kind: str, scale: float
) -> None:
    """With 0 the contents decide nothing, and below 0 the most alike attend the least; a mask hides as before."""
    scheme, pos = make(name, True, **options), positions.count_up(2, 40)
    own = scheme.locate(torch.randn(2, 40, D), pos, None)
    pos = pos if own is None else own
    q, k, v = torch.randn(3, 2, HEADS, 40, WIDTH).unbind(0)
    arguments = (scheme, q, k, v, pos, pos, mask(kind, 2, 40, 40))
    got = attend(*arguments, causal=True, scale=scale)
    expected = attend_reference(*arguments, causal=True, scale=scale).out_BHSK
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("widest", [4.0, 25.0, 1e9])
def test_channels_and_tiles_are_the_reference(
    widest: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No head, some and all of 6 (whose slopes do not fall in order) fit into a channel; positions far away,
    restarting, and in two runs as of a grid; a mask of its own for each head."""
    monkeypatch.setattr(by_distance, "WIDEST", widest)
    monkeypatch.setattr(by_distance, "WIDEST_LOW", widest)
    monkeypatch.setattr(by_distance, "has_fast_low_precision", lambda: True)
    scheme, far = Alibi(6), positions.count_up(2, 40, start=1_000_000)
    restarting = torch.cat([torch.arange(25), torch.arange(15)])[None].expand(2, -1)
    q, k, v = (x.to(dtype) for x in torch.randn(3, 2, 6, 40, WIDTH).unbind(0))
    in_two_runs = torch.cat([torch.arange(20), torch.arange(50, 70)])[None].expand(2, -1)
    limit = {torch.bfloat16: 2e-2, torch.float16: 3e-3}.get(dtype, 1e-5)
    for pos in (far, restarting, in_two_runs):
        for visible in (None, mask("left padding", 2, 40, 40), torch.rand(2, 6, 1, 40) > 0.3):
            got = attend(scheme, q, k, v, pos, pos, visible, causal=True)
            wanted = attend_reference(scheme, *(x.double() for x in (q, k, v)), pos, pos, visible, causal=True)
            assert got.dtype == dtype
            torch.testing.assert_close(got.double(), wanted.out_BHSK, atol=limit, rtol=limit)


def test_a_channel_stays_exact_where_a_text_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    scheme, pos = Alibi(8), positions.count_up(1, 4096, start=100_000)
    q, k, v = torch.randn(3, 1, 8, 4096, 16).unbind(0)
    part = slice(3900, 4096)
    got = attend(scheme, q, k, v, pos, pos, causal=True)[:, :, part]
    precise = (q[:, :, part].double(), k.double(), v.double())
    exact = attend_reference(scheme, *precise, pos[:, part], pos, causal=True).out_BHSK
    assert float((got - exact).abs().max()) < 1e-5


def test_trap_34_queries_of_a_step_see_the_keys_up_to_their_own() -> None:
    scheme, pos = make("none", True), positions.count_up(1, 9)
    q, k, v = torch.randn(3, 1, HEADS, 9, WIDTH).unbind(0)
    full = attend(scheme, q, k, v, pos, pos, causal=True)
    for step in (1, 3):
        part = attend(scheme, q[:, :, -step:], k, v, pos[:, -step:], pos, causal=True)
        torch.testing.assert_close(part, full[:, :, -step:])
        top_left = torch.nn.functional.scaled_dot_product_attention(q[:, :, -step:], k, v, is_causal=True)
        assert not torch.allclose(top_left, full[:, :, -step:], atol=1e-2), "SDPA aligns at the top left"


def test_trap_33_a_learned_bias_gets_its_gradient_from_every_kernel() -> None:
    for length in (8, 40):
        scheme, pos = make("t5", True), positions.count_up(1, length)
        q, k, v = torch.randn(3, 1, HEADS, length, WIDTH).unbind(0)
        (attend(scheme, q, k, v, pos, pos, causal=True) * torch.randn(length, WIDTH)).sum().backward()
        (gradient,) = (p.grad for p in scheme.parameters())
        assert gradient.abs().max() > 0


def test_trap_41_the_scale_is_that_of_the_width_before_the_scheme_changed_it() -> None:
    scheme, pos = make("t5", True, logit_scale="none"), positions.count_up(1, 20)
    q, k, v = torch.randn(3, 1, HEADS, 20, WIDTH).unbind(0)
    unscaled = attend(scheme, q, k, v, pos, pos, causal=True)
    torch.testing.assert_close(unscaled, attend(scheme, q, k, v, pos, pos, causal=True, scale=1.0))


def test_positions_that_are_no_run_take_another_path_to_the_same_answer() -> None:
    scheme = make("t5", False, num_buckets=8, max_distance=20)
    q, k, v = torch.randn(3, 2, HEADS, 40, WIDTH).unbind(0)
    pos = torch.stack([torch.arange(40) * 2, torch.arange(40).clamp(min=5)])
    expected = attend_reference(scheme, q, k, v, pos, pos).out_BHSK
    torch.testing.assert_close(attend(scheme, q, k, v, pos, pos), expected, atol=1e-5, rtol=1e-5)


def test_many_rows_of_one_query_agree_with_the_reference() -> None:
    for name in ("none", "alibi"):
        scheme, kpos = make(name, True), positions.count_up(64, 12)
        q, k, v = torch.randn(64, HEADS, 1, WIDTH), *torch.randn(2, 64, HEADS, 12, WIDTH).unbind(0)
        got = attend(scheme, q, k, v, kpos[:, -1:], kpos, causal=True)
        expected = attend_reference(scheme, q, k, v, kpos[:, -1:], kpos, causal=True).out_BHSK
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_a_recorder_hears_the_whole_weights_of_every_scheme() -> None:
    scheme, pos, heard = make("alibi", True), positions.count_up(1, 40), []
    q, k, v = torch.randn(3, 1, HEADS, 40, WIDTH).unbind(0)
    with record(heard.append):
        out = attend(scheme, q, k, v, pos, pos, causal=True, dropout=0.5)
    torch.testing.assert_close(heard[0].weights_BHST @ v, out)
    torch.testing.assert_close(out, attend(scheme, q, k, v, pos, pos, causal=True), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["rope", "alibi", "forgetting", "cope", "grape", "sinks"])
def test_fewer_heads_of_keys_serve_groups_of_query_heads(name: str) -> None:
    heads, groups, length = 6, 2, 12
    scheme = build(CATALOGUE, name, Sizes(heads * 8, heads * 8, heads, 8), {})
    q, k, v = torch.randn(2, heads, length, 8), torch.randn(2, groups, length, 8), torch.randn(2, groups, length, 8)
    pos = positions.count_up(2, length)
    own = scheme.locate(torch.randn(2, length, heads * 8), pos, None)
    where = pos if own is None else own
    whole = [torch.stack([x[:, h // 3] for h in range(heads)], dim=1) for x in (k, v)]
    wanted = attend(scheme, q, *whole, where, where, causal=True)
    torch.testing.assert_close(attend(scheme, q, k, v, where, where, causal=True), wanted)
    with pytest.raises(UsageError, match="6 heads of queries cannot share 4 heads of keys or values"):
        attend(scheme, q, torch.randn(2, 4, length, 8), v, where, where, causal=True)
