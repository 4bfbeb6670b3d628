"""The first mistakes: each is one sentence with what was given and what to do; float masks are those of SDPA."""

from __future__ import annotations

import inspect
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import clockhands
from clockhands import positions, schemes
from clockhands.attention import Cache, Positioning, attend, attend_reference, record
from clockhands.attention.request import find_line
from clockhands.errors import ClockhandsError, ConfigError, PositionError, UsageError
from clockhands.schemes import (
    CATALOGUE,
    Alibi,
    Composition,
    CoPE,
    Fire,
    RePo,
    RoPE,
    Scheme,
    Shaw,
    Sinusoidal,
    SSMax,
    StickBreaking,
    T5Bias,
    Temperature,
    Window,
    XPos,
    YaRN,
)  # fmt: skip
from tests.schemes.laws import HEAD_DIM, HEADS, LENGTH, Inputs, attending, inputs, make, on_axes, place

POS = torch.arange(10).expand(2, -1)


def heads(batch: int = 2, count: int = 4, tokens: int = 10, width: int = 16) -> Tensor:
    return torch.randn(batch, count, tokens, width)


def tried(
    scheme: Any, q: Tensor | None = None, pos: Any = POS, mask: Any = None, k: Tensor | None = None, **options: Any
) -> Any:
    """Attention with one thing as somebody gives it at the first try."""
    q = heads() if q is None else q
    k = q if k is None else k
    return lambda: attend(scheme, q, k, k, pos, pos, mask, **options)


def cached(pos: Any, *steps: Tensor, schemes: tuple[Scheme, ...] = (RoPE(16),)) -> Any:
    """Attention with one cache for tokens that come one text after the other, to one stack or to several."""

    def run() -> None:
        stacks, cache = [Positioning(scheme) for scheme in schemes], Cache()
        for q, position in zip(steps or (heads(),), itertools.cycle(stacks)):
            rows = pos if len(steps) < 2 else pos[: len(q)]
            position.attend(0, q, q, q, rows, cache=cache, causal=True, x=torch.zeros(len(q), 10, 64))

    return run


MISTAKES: list[tuple[Any, str]] = [
    (tried(RoPE(16), is_causal=True), "attend has no argument 'is_causal'; it is called 'causal' here"),
    (tried(RoPE(16), attn_mask=None), "attend has no argument 'attn_mask'; it is called 'mask_BHST' here"),
    (lambda: attend(RoPE(16), heads(), heads(), heads(), POS), r"attend lacks kpos; call it as attend\(scheme, q_BHSK"),  # type: ignore[call-arg]
    (lambda: attend(RoPE(16), *[heads()] * 3, POS, POS, None, True), "with their names: causal, scale, rotated, drop"),  # type: ignore[misc,arg-type]
    (lambda: attend_reference(RoPE(16), dropout_p=0.1), "attend_reference has no argument 'dropout_p'; it is called"),  # type: ignore[call-arg]
    (lambda: Positioning(RoPE(16)).attend(0, heads()), "attend lacks k_BGSK and v_BGSK and pos; call it as"),  # type: ignore[call-arg]
    (tried(RoPE(16), mask=torch.ones(10, 10).tril()), r"zeros and ones as floats, which would be added.*mask.bool\(\)"),
    (tried(RoPE(16), mask=torch.ones(10, 10).bool().to_sparse()), "mask is torch.sparse_coo, .* and dense"),
    (tried(RoPE(16), heads().to_sparse()), "q is a nested or sparse tensor, but must be dense"),
    (tried(RoPE(16), k=heads(count=0)), "q has 4 heads, and k 0, v 0; project keys and values too"),
    (tried(RoPE(64), heads(0), POS[:0]), "RoPE was made for heads of 64 channels, and these have 16"),
    (tried("rope", heads(0), POS[:0]), "'rope' is a name"),
    (tried(Alibi(4)), r"keys up to the query alone.*pass causal=True or a mask; .*Alibi\(..., causal=False\)"),
    (tried(T5Bias(4, 64)), "T5Bias is defined for keys up to the query alone"),
    (tried(StickBreaking()), "StickBreaking is defined for keys up to the query alone, .* pass causal=True or a mask$"),
    (lambda: Positioning(RoPE(16))(heads()), r"not called itself: write position.embed\(x, pos\)"),
    (lambda: Positioning([RoPE(8), RoPE(8)], layers=3), "2 schemes were given for 3 layers"),
    (lambda: Positioning(None), r"takes a scheme, such as RoPE\(64\)"),  # type: ignore[arg-type]
    (lambda: Positioning(RoPE(16), layers=2).attend(5, *[heads()] * 3, POS), "is 5, but must be .*, from 0 to 1"),
    (lambda: Positioning(RoPE(16)).get_scheme("enc"), "layer is 'enc', but must be the number of a layer, from 0$"),  # type: ignore[arg-type]
    (lambda: Positioning(RoPE(16)).attend(0, *[heads()] * 3, POS, cache=True), r"cache is True, but must be a Cache"),  # type: ignore[misc,arg-type]
    (cached(POS, heads(), heads(), schemes=(RoPE(16), RoPE(16, base=5e5))),
     r"filled under RoPE\(16\), and this layer has RoPE\(16, ba"),
    (cached(POS, heads(), heads()), "layer 0 holds tokens up to position 9, and the new ones begin at 0; give"),
    (lambda: Positioning(Sinusoidal(6)).embed(torch.zeros(1, 3, 8), torch.arange(3)),
     r"Sinusoidal makes vectors \[1, 3, 6\], and embeddings are \[1, 3, 8\]"),
    (lambda: Positioning(Sinusoidal(64)).embed(torch.zeros(2, 10, 64), POS[:1].expand(3, -1)),
     r"makes vectors \[3, 10, 64\], and embeddings are \[2, 10, 64\]"),
    (lambda: Positioning(Sinusoidal(64)).embed(torch.zeros(2, 10).long(), POS),
     r"embeddings are \[2, 10\] of torch.int64, but must be floats \[batch, tokens, width\]"),
    (lambda: Positioning(RePo(64, 4, 16)).attend(0, heads(), heads(), heads(), POS, x=torch.zeros(1, 10, 64)),
     r"x is \[1, 10, 64\], and q \[2, 4, 10, 16\]; x is the input from which q was projected"),
    (lambda: Alibi(4).score_mod(POS[0], POS[0]), r"these are \[10\] and \[10\]: pass pos\[None\] for one row"),
    (lambda: RePo(64, 4, 16).locate(torch.zeros(2, 10, 64), POS, POS), "past is tensor.*must be what locate returned"),
    (lambda: positions.count_packed([[0, 0, 1]]), r"numbers of documents are \[\[0, 0, 1\]\], but must be a tensor"),  # type: ignore[arg-type]
    (lambda: positions.shift(POS, "1"), "offset is '1', but must be a whole number, or a tensor"),  # type: ignore[arg-type]
    (lambda: positions.count_up(2, -3), "takes the number of texts and of tokens, and was given 2 and -3"),
    (lambda: positions.count_up(2.0, 3), "was given 2.0 and 3"),  # type: ignore[arg-type]
    (lambda: positions.count_from_mask(torch.tensor([[-1e9, 0.0]])), r"mask of tokens is \[1, 2\] of torch.float32"),
    (lambda: positions.count_from_mask(torch.ones(2, 1, 3, 3).bool()), r"is \[2, 1, 3, 3\].*at tokens: \[batch, tok"),
    (lambda: positions.count_from_mask([[1, 0]]), r"mask of tokens is \[\[1, 0\]\], but must be true or 1"),  # type: ignore[arg-type]
    (tried(RoPE(64)), "RoPE was made for heads of 64 channels, and these have 16; set head_dim=16"),
    (lambda: Alibi(4).bias(POS, POS), r"Alibi.bias reads queries, .* write scheme.bias\(AttentionInputs\(q, k, qpos"),  # type: ignore[call-arg, arg-type]
    (lambda: Positioning(RoPE(16)).embed(heads()), r"embed lacks pos; call it as embed\(x_BSD, pos\)"),  # type: ignore[call-arg]
    (lambda: schemes.build("rope"), "build: catalogue is 'rope', but must be Catalogue; name is missing .*; sizes is"),  # type: ignore[call-arg, arg-type]
    (lambda: RoPE(64).rotate(heads(), heads(), POS, POS), "64 channels of each head are to be rotated, .* have 16"),
    (tried(RoPE(16), heads(2, 10, 4, 16)), r"positions of queries are \[2, 10\].*pass q.transpose\(1, 2\)"),
    (tried(RoPE(16), pos=POS[:, :9]), r"positions of queries are \[2, 9\], and q is \[2, 4, 10, 16\].*of the 10"),
    (tried(RoPE(16), pos=POS[:1].expand(3, -1)), r"positions are \[3, 10\].*one row for each of the 2 texts, or one"),
    (tried(RoPE(16), pos=10), r"queries must be a tensor \[batch, tokens\], and this is 10; make them with"),
    (tried(Alibi(8)), "Alibi was made for 8 heads, and queries have 4; set num_heads=4"),
    (tried(Composition(RoPE(16), Window(8))), "Composition was made for 8 heads, and queries have 4"),
    (tried(RoPE(16), mask=torch.ones(2, 1, 10, 10, dtype=torch.long)), r"mask is torch.int64, .* as mask.bool\(\)"),
    (tried(RoPE(16), mask=torch.ones(2, 10).bool()), r"mask is \[2, 10\], .* here \[2, 4, 10, 10\].*\[:, None, None"),
    (tried(RoPE(16), mask=torch.ones(2, 10, 10).bool()), r"mask is \[2, 10, 10\].* mask\[:, None\] for one of pairs"),
    (tried(RoPE(16), heads()[0]), r"q is \[4, 10, 16\], but has four axes: \[batch, heads, tokens, width of a head\]"),
    (tried(RoPE(16), k=heads(width=8)), r"k \[2, 4, 10, 8\].*width of queries and keys must agree"),
    (tried(RoPE(16), k=heads().bfloat16()), "k is torch.bfloat16 on cpu.*bring them to one type and device"),
    (tried(RoPE(16), k=heads(count=3)), "4 heads of queries cannot share 3 heads of keys or values"),
    (tried(RoPE), r"RoPE is a class; make a scheme of it first"),
    (lambda: Positioning("rope"), r"takes a scheme, such as RoPE\(64\)"),  # type: ignore[arg-type]
    (lambda: attend(heads(), heads(), heads(), RoPE(16), POS, POS), "takes a scheme first"),  # type: ignore[arg-type]
    (lambda: RoPE(16, base="1e4"), "RoPE: base is '1e4', but must be a number"),  # type: ignore[arg-type]
    (lambda: RoPE(dim=16), "RoPE has no parameter 'dim'; it is called 'head_dim' here"),  # type: ignore[call-arg]
    (lambda: RoPE(16, theta=5e5), "RoPE has no parameter 'theta'; it is called 'base' here"),  # type: ignore[call-arg]
    (lambda: Window(4, size=3), "no parameter 'size'; it is called 'left' here, and does not count the query's own"),  # type: ignore[call-arg]
    (lambda: RoPE(16, rotary_percent=0.5), "no parameter 'rotary_percent'; it is called 'fraction' here$"),  # type: ignore[call-arg]
    (
        lambda: RoPE(16, scaling_factor=2.0),
        r"no parameter 'scaling_factor'; it is one of a spectrum, as in spectrum=YaRN\(",
    ),  # type: ignore[call-arg]
    (lambda: Alibi(4, bidirectional=True), "it is called 'causal' here, and says the opposite"),  # type: ignore[call-arg]
    (lambda: YaRN(factor=4.0), r"YaRN lacks original_length; call it as YaRN\(factor, original_length\)"),  # type: ignore[call-arg]
    (lambda: XPos(16, gamma=0.0), "gamma is 0.0, but must be above 0"),
    (lambda: Fire(4, length=-1.0), "length is -1.0, but must be above 0"),
    (lambda: Alibi(4, slope="paper"), "Alibi has no parameter 'slope'; did you mean 'slopes'"),  # type: ignore[call-arg]
    (lambda: RoPE(16, factor=2.0), r"no parameter 'factor'; it is one of a spectrum, as in spectrum=YaRN"),  # type: ignore[call-arg]
    (lambda: RoPE(16, spectrum="yarn"), r"spectrum is 'yarn', but must be a Spectrum such as YaRN"),  # type: ignore[arg-type]
    (lambda: RoPE(16, 5e5), "RoPE takes head_dim by position, and 2 values were given; write options with"),  # type: ignore[misc]
    (lambda: RoPE(), r"RoPE needs head_dim, as in RoPE\(head_dim=64\)"),  # type: ignore[call-arg]
    (lambda: Sinusoidal(64).encode(10), r"Sinusoidal.encode must be a tensor \[batch, tokens\], and this is 10"),  # type: ignore[arg-type]
    (lambda: Sinusoidal(64).encode(torch.randn(2, 10, 64)), r"takes positions .*\[2, 10, 64\] looks like embeddings"),
    (lambda: RoPE(16)(heads()), r"RoPE is no layer that is called; write attend\(rope, q, k, v, qpos, kpos\)"),
    (tried(RoPE(16), pos=POS.bfloat16()), "are torch.bfloat16, which has not every whole number above 256; give int64"),
    (tried(RoPE(16), pos=POS / 0), "positions of queries hold NaN or infinity; every token needs a finite one"),
    (tried(RoPE(16), pos=POS.numpy()), r"must be a tensor \[batch, tokens\], and this is array"),
    (tried(RoPE(16), pos=POS.to("meta")), "q is on cpu, and positions of queries on meta; move it with .to"),
    (tried(T5Bias(4, 64).to("meta")), "q is on cpu, and the scheme T5Bias on meta"),
    (tried(RoPE(16), mask=torch.ones(10, 10, device="meta").bool()), "this mask is on meta, and q on cpu"),
    (tried(Temperature(), pos=POS - 5), "temperature counts tokens by their positions, and position -5 is below 0"),
    (tried(SSMax(4), pos=POS - 1.5), "ssmax counts tokens by their positions, and position -1.5 is below 0"),
    (tried(Shaw(16), heads().long()), "q, k and v are torch.int64, but must be floats of at least 16 bits"),
    (tried(RoPE(16), heads().to(torch.float8_e4m3fn)), "torch.float8_e4m3fn, but must be floats of at least 16 bits"),
    (tried(RoPE(16), heads().to(torch.complex64)), "q, k and v are torch.complex64, but must be floats"),
    (tried(RoPE(16), causal="yes"), "causal is 'yes', but must be True or False; a mask is the argument before"),
    (tried(RoPE(16), scale=torch.tensor(0.25)), "scale is tensor.*must be a number; multiply q by what is learned"),
    (tried(RoPE(16), scale=math.nan), "scale is nan, but must be a number"),
    (tried(RoPE(16), dropout=1.5), "dropout is 1.5, but must be a share: at least 0 and below 1"),
    (tried(RoPE(16), dropout=True), "dropout is True, but must be a share"),
    (lambda: RoPE(torch.tensor(16)), r"head_dim is tensor\(16\), but must be a whole number"),  # type: ignore[arg-type]
    (lambda: Alibi(0), "Alibi: num_heads is 0, but must be at least 1"),
    (lambda: RoPE(16, spectrum=YaRN("4", 64)), "rope.factor is '4', but must be a number"),  # type: ignore[arg-type]
    (lambda: Positioning(RoPE(16), layers=0), "layers is 0, but must be the number of layers"),
    (cached(10), r"positions must be a tensor \[batch, tokens\], and this is 10"),
    (cached(POS[:, :9]), r"positions of queries are \[2, 9\].* for each of the 10 queries"),
    (cached(POS, heads()[0]), "q is .4, 10, 16., but has four axes"),
    (cached(POS, heads(), heads(1)), r"keys \[2, 4, 10, 16\], and the new ones are \[1, 4, 10, 16\]; begin each text"),
    (lambda: Positioning(RePo(64, 4, 16)).attend(0, heads(), heads(), heads(), POS, x=torch.zeros(2, 10, 32)),
     r"places tokens by the input of the layer, \[batch, tokens, 64\], and x is \[2, 10, 32\]"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "sentence"), MISTAKES, ids=[sentence[:40] for _, sentence in MISTAKES])
def test_a_first_mistake_is_one_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(ClockhandsError, match=sentence) as told:
        call()
    assert len(str(told.value)) < 400 and ("\n" not in str(told.value) or isinstance(told.value, ConfigError))


@pytest.mark.parametrize(
    ("name", "meant"), [("ALiBi", "Alibi"), ("Rope", "RoPE"), ("NoPE", "NoPosition"), ("SlidingWindow", "Window")]
)
def test_another_name_of_a_class_leads_to_it(name: str, meant: str) -> None:
    with pytest.raises(ImportError, match=f"did you mean {meant}"):
        getattr(schemes, name)
    assert not hasattr(schemes, "no_such_thing")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("rotary", "'rope'"), ("RoFormer", "'rope'"), ("NoPE", "'none'"), ("sliding_window", "'window'"),
        ("relative", "'t5' or 'shaw'"), ("BLOOM", "'alibi'"), ("Longformer", "'window'"), ("Whisper", "'sinusoidal'"),
        ("Mistral", "'rope'"), ("InklingRelativeLogits", "'inkling'"), ("ropee", "'rope'"),
    ],
)  # fmt: skip
def test_names_that_people_use_lead_to_the_scheme(name: str, meant: str) -> None:
    assert f"did you mean {meant}" in CATALOGUE.describe_unknown_name(name)


def test_every_model_and_peer_of_the_catalogue_leads_to_its_scheme() -> None:
    for key, kind in CATALOGUE.items():
        for name in kind.models:
            said = schemes.list_meant(name, CATALOGUE)
            assert key in said, f"{name} leads to {said}, and not to {key}"


def test_the_package_says_where_a_scheme_is() -> None:
    with pytest.raises(AttributeError, match=r"write from clockhands\.schemes import RoPE"):
        clockhands.RoPE  # noqa: B018
    assert not hasattr(clockhands, "Rope")


def test_what_is_printed_is_what_was_given() -> None:
    assert repr(RoPE(16, base=5e5)) == "RoPE(16, base=500000.0)"
    assert repr(RoPE(16, spectrum=YaRN(4.0, 64))) == "RoPE(16, spectrum=YaRN(factor=4.0, original_length=64))"
    assert repr(Alibi(4)) == "Alibi(4)"
    assert list(inspect.signature(Alibi).parameters)[:2] == ["num_heads", "causal"]  # what help and notebooks show
    assert "Window(4, left=3)" in repr(Composition(RoPE(16), Window(4, left=3)))
    for name in CATALOGUE:
        made = make(name, {})
        assert repr(made).startswith(f"{type(made).__name__}("), name


def float_mask(data: Inputs) -> Tensor:
    """A mask of floats: nothing to the right, a little less of the second key, nothing of the third, as people add."""
    bias = torch.zeros(LENGTH, LENGTH).masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -torch.inf)
    bias[:, 1] -= 0.5
    bias[3:, 2] = torch.finfo(torch.float32).min
    return bias.expand(len(data.q), 1, -1, -1)


@attending("masked", (True,))
@torch.no_grad()
def test_a_float_mask_is_added_to_the_logits_of_every_scheme(name: str, options: dict[str, Any], causal: bool) -> None:
    scheme = make(name, options, causal)
    data = inputs(scheme)
    pos = place(scheme, data)
    scheme.encoded = True
    q, mask = (data.q, data.k, data.v), float_mask(data)
    got, steps = (f(scheme, *q, pos, pos, mask) for f in (attend, attend_reference))
    torch.testing.assert_close(got, steps.out_BHSK, atol=2e-5, rtol=1e-4)
    if "weigh" not in scheme.active_hooks() and "logits" not in scheme.active_hooks():
        hidden = mask < -1e30
        at = steps.logits_BHST.masked_fill(hidden, -torch.inf).softmax(-1)
        plain = attend_reference(scheme, *q, pos, pos, ~hidden)
        halved = (plain.logits_BHST + torch.where(hidden, 0.0, mask)).masked_fill(hidden, -torch.inf).softmax(-1)
        torch.testing.assert_close(at, halved, atol=1e-5, rtol=1e-4)


def test_a_float_mask_with_rope_is_that_of_sdpa() -> None:
    q, k, v = (heads(width=HEAD_DIM, count=HEADS, tokens=LENGTH) for _ in "qkv")
    pos, mask = torch.arange(LENGTH)[None], torch.randn(2, 1, LENGTH, LENGTH)
    rope = RoPE(HEAD_DIM)
    wanted = scaled_dot_product_attention(*rope.rotate(q, k, pos, pos), v, attn_mask=mask)
    torch.testing.assert_close(attend(rope, q, k, v, pos, pos, mask), wanted)
    square = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    torch.testing.assert_close(
        attend(Alibi(HEADS), q, k, v, pos, pos, square), attend(Alibi(HEADS), q, k, v, pos, pos, causal=True)
    )


@pytest.mark.parametrize("scheme", [RoPE(16), Alibi(4), T5Bias(4, 64), Window(4), Composition(RoPE(16), Window(4))])
def test_no_text_at_all_gives_nothing(scheme: Scheme) -> None:
    empty, pos = heads(0), POS[:0]
    assert attend(scheme, empty, empty, empty, pos, pos, causal=True).shape == (0, 4, 10, 16)
    with pytest.raises(PositionError):
        attend(scheme, heads(), heads(), heads(), POS[:, :3], POS)


READERS = ["rope", "alibi", "t5", "window", "shaw", "xpos", "deberta", "tupe", "diet", "rerope", "pope", "dape", "fire"]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32], ids=str)
@pytest.mark.parametrize("name", READERS)
def test_small_integers_are_positions_like_others(name: str, dtype: torch.dtype) -> None:
    """Differences of uint8 would wrap around, and tables take no int16."""
    scheme = make(name, {})
    q, pos = heads(count=HEADS, tokens=LENGTH, width=HEAD_DIM), torch.arange(LENGTH)[None]
    small = pos.to(dtype)
    torch.testing.assert_close(
        attend(scheme, q, q, q, small, small, causal=True), attend(scheme, q, q, q, pos, pos, causal=True)
    )


@pytest.mark.parametrize("name", [name for name in CATALOGUE if not {"encode", "locate"} & CATALOGUE[name].hooks()])
def test_no_key_gives_zeros_shapes_alone_a_shape_and_torch_func_the_gradient(name: str) -> None:
    scheme = make(name, {})
    q, pos = heads(count=HEADS, tokens=LENGTH, width=HEAD_DIM), on_axes(scheme, positions.count_up(2, LENGTH))
    assert not attend(scheme, q, q[:, :, :0], q[:, :, :0], pos, pos[:, :0]).any()
    assert attend(scheme, *[q.to("meta")] * 3, pos.to("meta"), pos.to("meta"), causal=True).shape == q.shape

    def run(q: Tensor) -> Tensor:
        return attend(scheme, q, q, q, pos, pos, causal=True)

    leaf = q.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(run(leaf).square().sum(), leaf)
    torch.testing.assert_close(torch.func.grad(lambda q: run(q).square().sum())(q), wanted, atol=1e-4, rtol=1e-4)
    one = pos[:1]
    rows = torch.func.vmap(lambda q: attend(scheme, q[None], q[None], q[None], one, one, causal=True)[0])(q)
    torch.testing.assert_close(rows, run(q), atol=2e-5, rtol=1e-4)


def test_a_logit_that_is_no_number_comes_out_where_it_belongs() -> None:
    """CoPE looks its counts up, and NaN has no index; an accelerator would stop at it."""
    q = heads()
    q[0, 0, 3, 0] = math.nan
    out = attend(CoPE(16), q, heads(), heads(), POS, POS, causal=True)
    assert out.isnan().any(-1).nonzero().tolist() == [[0, 0, 3]]


@pytest.mark.parametrize(("batch", "tokens"), [(2, 160), (40, 10)], ids=["tiles", "short rows"])
def test_a_gradient_of_the_gradient_is_refused_and_the_reference_has_it(batch: int, tokens: int) -> None:
    q, pos, scheme = heads(batch, tokens=tokens).requires_grad_(), torch.arange(tokens), T5Bias(4, 64)

    def run(q: Tensor) -> Tensor:
        return attend(scheme, q, q, q, pos, pos, causal=True).square().sum()

    with pytest.raises(UsageError, match="create_graph=True asks for"):
        torch.autograd.grad(run(q), q, create_graph=True)
    with record(lambda computed: None):
        (grad,) = torch.autograd.grad(run(q), q, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), q)
    assert second.abs().max() > 0


def test_what_was_computed_may_be_written_into() -> None:
    q, pos = heads(40).requires_grad_(), torch.arange(10)
    out = attend(T5Bias(4, 64), q, q, q, pos, pos, causal=True)
    out += 1
    out.sum().backward()


def test_a_compiled_model_is_not_checked() -> None:
    rope, q = RoPE(16), heads()
    compiled = torch.compile(lambda q, pos: attend(rope, q, q, q, pos, pos), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(q, POS), attend(rope, q, q, q, POS, POS))
    with pytest.raises(UsageError):
        attend(RoPE(8), q, q, q, POS, POS)


@pytest.mark.parametrize(
    ("queries", "keys", "expected"),
    [
        ([[0, 1, 2]], [[0, 1, 2]], (1, 3)),
        ([[4, 5]], [[2, 3, 4, 5]], (1, 4)),
        ([[4, 5], [5, 6]], [[2, 3, 4, 5], [2, 3, 4, 5]], None),  # the second row's queries stand elsewhere
        ([[4, 5], [14, 15]], [[2, 3, 4, 5], [12, 13, 14, 15]], (1, 4)),  # both rows alike, ten apart
        ([[4, 5], [4, 5]], [[2, 3, 4, 5], [1, 2, 3, 4]], None),
        ([[0, 1, 8, 9]], [[0, 1, 8, 9]], (2, 2)),
        ([[0, 2, 3]], [[0, 2, 3]], None),
    ],
)
def test_rows_that_stand_alike_are_one_line(
    queries: list[list[int]], keys: list[list[int]], expected: tuple[int, int] | None
) -> None:
    line = find_line(torch.tensor(queries), torch.tensor(keys))
    assert (None if line is None else line.count_runs(len(keys[0]))) == expected


def test_one_key_stands_in_a_line_too() -> None:
    line = find_line(torch.tensor([[7]]), torch.tensor([[7]]))
    assert line is not None and line.count_runs(1) == (1, 1)
