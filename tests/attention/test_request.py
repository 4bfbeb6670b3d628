"""The first mistakes: each is one sentence with what was given and what to do; float masks are those of SDPA."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import clockhands
from clockhands import schemes
from clockhands.attention import Positioning, attend, attend_reference
from clockhands.attention.request import find_line
from clockhands.errors import ClockhandsError, PositionError, UsageError
from clockhands.schemes import CATALOGUE, Alibi, Composition, RoPE, Scheme, Sinusoidal, T5Bias, Window, YaRN
from tests.schemes.laws import HEAD_DIM, HEADS, LENGTH, Inputs, attending, inputs, make, place

POS = torch.arange(10).expand(2, -1)


def heads(batch: int = 2, count: int = 4, tokens: int = 10, width: int = 16) -> Tensor:
    return torch.randn(batch, count, tokens, width)


def tried(scheme: Any, q: Tensor | None = None, pos: Any = POS, mask: Any = None, k: Tensor | None = None) -> Any:
    """Attention with one thing as somebody gives it at the first try."""
    q = heads() if q is None else q
    k = q if k is None else k
    return lambda: attend(scheme, q, k, k, pos, pos, mask)


MISTAKES: list[tuple[Any, str]] = [
    (tried(RoPE(64)), "RoPE was made for heads of 64 channels, and these have 16; set head_dim=16"),
    (lambda: RoPE(64).rotate(heads(), heads(), POS, POS), "64 channels of each head are to be rotated, .* have 16"),
    (tried(RoPE(16), heads(2, 10, 4, 16)), r"positions of queries are \[2, 10\].*pass q.transpose\(1, 2\)"),
    (
        tried(RoPE(16), pos=POS[:, :9]),
        r"positions of queries are \[2, 9\], and q is \[2, 4, 10, 16\].*for each of the 10",
    ),
    (tried(RoPE(16), pos=POS[:1].expand(3, -1)), r"positions are \[3, 10\].*one row for each of the 2 texts, or one"),
    (
        tried(RoPE(16), pos=10),
        r"queries must be a tensor \[batch, tokens\], and this is 10; make them with",
    ),
    (tried(Alibi(8)), "Alibi was made for 8 heads, and queries have 4; set num_heads=4"),
    (tried(Composition(RoPE(16), Window(8))), "Composition was made for 8 heads, and queries have 4"),
    (tried(RoPE(16), mask=torch.ones(2, 1, 10, 10, dtype=torch.long)), r"mask is torch.int64, .* as mask.bool\(\)"),
    (
        tried(RoPE(16), mask=torch.ones(2, 10).bool()),
        r"mask is \[2, 10\], .* here \[2, 4, 10, 10\].*\[:, None, None",
    ),
    (tried(RoPE(16), mask=torch.ones(2, 10, 10).bool()), r"mask is \[2, 10, 10\].* mask\[:, None\] for one of pairs"),
    (tried(RoPE(16), heads()[0]), r"q is \[4, 10, 16\], but has four axes: \[batch, heads, tokens, width of a head\]"),
    (tried(RoPE(16), k=heads(width=8)), r"k \[2, 4, 10, 8\].*width of queries and keys must agree"),
    (tried(RoPE(16), k=heads().bfloat16()), "k is torch.bfloat16 on cpu.*bring them to one type and device"),
    (tried(RoPE(16), k=heads(count=3)), "4 heads of queries cannot share 3 heads of keys or values"),
    (tried(RoPE), r"RoPE is a class; make a scheme of it first"),
    (tried("rope"), "'rope' is a name"),
    (lambda: Positioning("rope"), r"takes a scheme, such as RoPE\(64\)"),  # type: ignore[arg-type]
    (lambda: attend(heads(), heads(), heads(), RoPE(16), POS, POS), "takes a scheme first"),  # type: ignore[arg-type]
    (lambda: RoPE(16, base="1e4"), "RoPE: base is '1e4', but must be a number"),  # type: ignore[arg-type]
    (lambda: RoPE(dim=16), "RoPE has no parameter 'dim'; it is called 'head_dim' here"),  # type: ignore[call-arg]
    (lambda: RoPE(16, theta=5e5), "RoPE has no parameter 'theta'; it is called 'base' here"),  # type: ignore[call-arg]
    (lambda: Window(4, size=3), "Window has no parameter 'size'; it is called 'left' here"),  # type: ignore[call-arg]
    (lambda: Alibi(4, slope="paper"), "Alibi has no parameter 'slope'; did you mean 'slopes'"),  # type: ignore[call-arg]
    (lambda: RoPE(16, factor=2.0), r"no parameter 'factor'; it is one of a spectrum, as in spectrum=YaRN"),  # type: ignore[call-arg]
    (lambda: RoPE(16, spectrum="yarn"), r"spectrum is 'yarn', but must be a Spectrum such as YaRN"),  # type: ignore[arg-type]
    (lambda: RoPE(16, 5e5), "RoPE takes head_dim by position, and 2 values were given; write options with"),  # type: ignore[misc]
    (lambda: RoPE(), r"RoPE needs head_dim, as in RoPE\(head_dim=64\)"),  # type: ignore[call-arg]
    (lambda: Sinusoidal(64).encode(10), r"Sinusoidal.encode must be a tensor \[batch, tokens\], and this is 10"),  # type: ignore[arg-type]
    (
        lambda: Sinusoidal(64).encode(torch.randn(2, 10, 64)),
        r"takes positions .*\[2, 10, 64\] looks like embeddings",
    ),
    (lambda: RoPE(16)(heads()), r"RoPE is no layer that is called; write attend\(rope, q, k, v, qpos, kpos\)"),
    (lambda: attend(Sinusoidal(64), heads(), heads(), heads(), POS, POS), "adds vectors at the embedding, and nobody"),
]


@pytest.mark.parametrize(("call", "sentence"), MISTAKES, ids=[sentence[:40] for _, sentence in MISTAKES])
def test_a_first_mistake_is_one_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(ClockhandsError, match=sentence) as told:
        call()
    assert "\n" not in str(told.value) and len(str(told.value)) < 400


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
        ("rotary", "'rope'"),
        ("RoFormer", "'rope'"),
        ("NoPE", "'none'"),
        ("sliding_window", "'window'"),
        ("relative", "'t5' or 'shaw'"),
        ("BLOOM", "'alibi'"),
        ("Longformer", "'window'"),
        ("Whisper", "'sinusoidal'"),
        ("Mistral", "'rope'"),
        ("InklingRelativeLogits", "'inkling'"),
        ("ropee", "'rope'"),
    ],
)
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
