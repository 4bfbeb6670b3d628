"""The laws, run over every scheme of the catalogue under all the options of its oracle. An exception is data."""

from __future__ import annotations

import copy
import doctest
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from clockhands import positions
from clockhands.attention import attend, attend_reference
from clockhands.errors import PositionError
from clockhands.schemes import CATALOGUE
from tests.schemes import oracles
from tests.schemes.laws import (
    BATCH,
    CAUSAL,
    LENGTH,
    WIDTH,
    Inputs,
    between,
    decode,
    encoded,
    every,
    inputs,
    make,
    on_axes,
    place,
    run,
)
from tests.schemes.oracles import ORACLES, VARIANTS, Case, weights

# Thousands of small cells over code that the oracles' tests cover: tracing them would double what they take.
pytestmark = pytest.mark.no_cover

Options = dict[str, Any]
CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"
# Neighbours at 0 and at a million; 257 is the first integer that bfloat16 rounds, 65,537 is beyond float16.
FAR = torch.tensor([[0, 1, 257, 65_537, 999_999, 1_000_000]])


def close(
    got: torch.Tensor, wanted: torch.Tensor, atol: float = 2e-5, rtol: float = 1e-4, what: str = "two ways differ"
) -> None:
    torch.testing.assert_close(
        got.double(), wanted.double(), atol=atol, rtol=rtol, msg=lambda message: f"{what}\n{message}"
    )


def test_every_scheme_has_an_oracle() -> None:
    assert sorted(ORACLES) == sorted(CATALOGUE), "an oracle is missing, or one is left over"


def equals_oracle(name: str, options: Options, causal: bool, pos: torch.Tensor | None = None) -> None:
    scheme = make(name, options, causal)
    if pos is not None and scheme.declares.max_length is not None and scheme.declares.beyond == "raise":
        pos = pos.clamp(max=scheme.declares.max_length - 1)
    data = inputs(scheme) if pos is None else inputs(scheme, length=pos.shape[1], pos=pos.expand(BATCH, -1))
    q, k, v, x, p = (tensor[0] for tensor in (data.q.double(), data.k.double(), data.v.double(), data.x, data.pos))
    where = place(scheme, data)
    vectors, fast = encoded(scheme, data.pos), run(scheme, data, causal)
    slow = attend_reference(scheme, data.q, data.k, data.v, where, where, causal=causal).out_BHSK
    expected = ORACLES[name](Case(scheme, options, q, k, v, p, p, x.double(), causal, WIDTH))
    what = f"{name} with {options} is not what its oracle says, which reads learned parameters from case.scheme"
    if expected.encode_SP is not None:
        close(vectors[0], expected.encode_SP, expected.tolerance, 1e-6, what=what)
    if expected.logits_HST is None:
        return
    out = weights(expected.logits_HST, causal) @ v if expected.out_HSK is None else expected.out_HSK
    close(fast[0], out, expected.tolerance, what=what)
    close(slow[0], out, expected.tolerance, what=what)


@every("oracle")
def test_equals_its_oracle(name: str, options: Options, causal: bool) -> None:
    equals_oracle(name, options, causal)


def read_examples() -> list[Any]:
    """The examples of how to contribute: the name of a class, the module of its oracle, its file and its oracle."""
    section = CONTRIBUTING.read_text("utf8").split("## Adding a scheme")[1].split("\n## ")[0]
    others = (CONTRIBUTING.parent / "docs" / "contributing" / "scheme.md").read_text("utf8")
    text = re.sub("^   ", "", section, flags=re.M) + others
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    homes = (oracles.bias, oracles.absolute, oracles.rotary, oracles.content)
    named = zip(("Waltz", "Sawtooth", "OneHand", "Farsight"), homes, blocks[::2], blocks[1::2], strict=True)
    return [pytest.param(*example, id=example[0]) for example in named]


@pytest.mark.parametrize(("kind", "home", "file", "its_oracle"), read_examples())
def test_the_examples_of_contributing_are_schemes(
    kind: str, home: ModuleType, file: str, its_oracle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file, its catalogue line and its oracle, as they stand there."""
    names: dict[str, Any] = {}
    exec(file, names)
    (name,) = re.findall(r'@oracle\("([\w-]+)"', its_oracle)
    monkeypatch.setitem(CATALOGUE._entries, name, names[kind])
    monkeypatch.setattr(f"clockhands.schemes.{kind}", names[kind], raising=False)
    try:
        exec(its_oracle, vars(home) | {"__name__": "example"})
        for options in VARIANTS[name]:
            for causal in (True, False):
                equals_oracle(name, options, causal)
                equals_oracle(name, options, causal, FAR)
            if "encode" not in names[kind].__dict__:
                equals_oracle_between(name, options, False, [7, 0, 3, 8, 1], [2, 5, 6, 1, 0, 4, 8, 3])
        own = {"waltz": [{"depth": 0.3}], "one-hand": [{"period": 10.0, "layout": "half"}]}
        assert VARIANTS[name] == [{}, *own.get(name, [])]
    finally:
        del ORACLES[name], VARIANTS[name]
    if kind == "Waltz":
        (example,) = doctest.DocTestFinder(recurse=False).find(names[kind], kind, globs={})
        assert doctest.DocTestRunner().run(example) == (0, len(example.examples)) and example.examples


@every("far", in_turn=True)
def test_trap_03_equals_its_oracle_at_positions_up_to_a_million(name: str, options: Options, causal: bool) -> None:
    equals_oracle(name, options, causal, FAR)


@between("cross")
def test_between_a_target_and_its_source_it_equals_its_oracle(name: str, options: Options, causal: bool) -> None:
    """Queries and keys stand at other positions, and there are more keys; so in every row of the batch."""
    equals_oracle_between(name, options, causal, [7, 0, 3, 8, 1], [2, 5, 6, 1, 0, 4, 8, 3])


@between("cross", variants=False)
def test_between_a_target_and_a_shorter_source_it_equals_its_oracle(name: str, options: Options, causal: bool) -> None:
    equals_oracle_between(name, options, causal, [4, 8, 0, 2, 1], [6, 0, 3])


def equals_oracle_between(name: str, options: Options, causal: bool, target: list[int], source: list[int]) -> None:
    scheme = make(name, options, causal)
    qpos, kpos = (torch.tensor([stand, stand[::-1]]) for stand in (target, source))
    reading, read = (inputs(scheme, length=pos.shape[1], pos=pos) for pos in (qpos, kpos))
    # Both are drawn from one seed: what is asked must not be what is found.
    q, k, v = reading.q, read.k.roll(1, -1), read.v
    fast = attend(scheme, q, k, v, reading.pos, read.pos)
    slow = attend_reference(scheme, q, k, v, reading.pos, read.pos).out_BHSK
    for row in range(BATCH):
        data = (q[row].double(), k[row].double(), v[row].double(), reading.pos[row], read.pos[row])
        expected = ORACLES[name](Case(scheme, options, *data, reading.x[row].double(), False, WIDTH))
        out = weights(expected.logits_HST, False) @ data[2] if expected.out_HSK is None else expected.out_HSK
        for got in (fast, slow):
            close(got[row], out, expected.tolerance)


@every("cache", CAUSAL)
def test_trap_07_a_few_tokens_at_a_time_equals_all_at_once(name: str, options: Options, causal: bool) -> None:
    scheme = make(name, options, causal)
    data = inputs(scheme)
    if not scheme.declares.depends_on_length:
        one_by_one = torch.cat([encoded(scheme, data.pos[:, t : t + 1]) for t in range(LENGTH)], dim=1)
        close(one_by_one, encoded(scheme, data.pos))
    for steps in ([1] * LENGTH, [4, 1, 3, 1]):
        got, start = decode(scheme, data, steps), 0
        for stop in torch.tensor(steps).cumsum(0).tolist():
            seen = data.rows(0, stop) if scheme.declares.depends_on_length else data
            close(got[:, :, start:stop], run(scheme, seen, causal)[:, :, start:stop])
            start = stop


@every("padding", in_turn=True)
@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
def test_trap_06_padding_changes_nothing_real(name: str, options: Options, causal: bool, left: bool) -> None:
    scheme, pad = make(name, options, causal), 3
    data = inputs(scheme)
    real = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    real[0, :pad] = not left
    real[0, LENGTH - pad :] = left
    padded = inputs(scheme, pos=positions.count_from_mask(real))
    padded.x = padded.x * real[..., None]
    alone = inputs(scheme)
    alone.q, alone.k, alone.v, alone.x = (t[:1] for t in (data.q, data.k, data.v, data.x))
    alone = alone.rows(pad, LENGTH) if left else alone.rows(0, LENGTH - pad)
    alone.pos = on_axes(scheme, positions.count_up(1, LENGTH - pad))
    close(encoded(scheme, padded.pos)[:1, real[0]], encoded(scheme, alone.pos))
    out = run(scheme, padded, causal, real[:, None, None, :].expand(-1, -1, LENGTH, -1))
    close(out[:1, :, real[0]], run(scheme, alone, causal))


@every("packing", in_turn=True)
def test_trap_10_packing_changes_nothing_real(name: str, options: Options, causal: bool) -> None:
    scheme = make(name, options, causal)
    # The longer document is longer than the length from which some spectra change.
    documents = torch.tensor([[0] * 3 + [1] * (LENGTH - 3)] * BATCH)
    data = inputs(scheme, pos=positions.count_packed(documents))
    packed = run(scheme, data, causal, positions.make_document_mask(documents)[:, None])
    for start, stop in ((0, 3), (3, LENGTH)):
        alone = data.rows(start, stop)
        close(packed[:, :, start:stop], run(scheme, alone, causal))
        close(encoded(scheme, data.pos)[:, start:stop], encoded(scheme, alone.pos))


@every("shift")
def test_common_shift_changes_nothing_exactly_where_declared(name: str, options: Options, causal: bool) -> None:
    scheme = make(name, options, causal)
    data = inputs(scheme)
    here, vectors, start = run(scheme, data, causal), encoded(scheme, data.pos), data.pos

    def same(offset: int) -> bool:
        data.pos = positions.shift(start, offset)
        alike = torch.allclose(here, run(scheme, data, causal), atol=1e-5)
        return alike and torch.allclose(vectors, encoded(scheme, data.pos), atol=1e-6)

    # Some act far from the first token alone: temperature and chunks at 8,192, the normaliser of fire at its learned L.
    # The shifts have no factor in common, so that nothing periodic is taken for invariant.
    invariant = scheme.declares.translation_invariant
    offsets = (5, 7) if invariant else (5, 8_191, 10_001)
    changing = next((offset for offset in offsets if not same(offset)), None)
    assert (changing is None) == invariant, f"declared {invariant}, and of {offsets} the first that changes: {changing}"


@every("masked")
def test_what_is_masked_stays_masked(name: str, options: Options, causal: bool) -> None:
    scheme = make(name, options, causal)
    data = inputs(scheme)
    visible = torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool)
    visible[..., 2] = False
    visible[:, :, 2, 2] = True
    before = run(scheme, data, causal, visible)
    data.k[:, :, 2], data.v[:, :, 2] = 1e4, -1e4
    others = [s for s in range(LENGTH) if s != 2]
    close(run(scheme, data, causal, visible)[:, :, others], before[:, :, others])


@every("dtype", CAUSAL)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_trap_01_dtype_stays_and_angles_are_exact(
    name: str, options: Options, causal: bool, dtype: torch.dtype
) -> None:
    scheme = make(name, options, causal)
    last = scheme.declares.max_length or 5000
    pos = torch.arange(min(last, 5000) - LENGTH, min(last, 5000)).expand(BATCH, -1).clamp(min=0)
    rounded = inputs(scheme, pos=pos).to(dtype)
    out = run(scheme, rounded, causal)
    assert out.dtype == dtype
    error = {torch.bfloat16: 6e-2, torch.float16: 6e-3, torch.float64: 2e-5}[dtype]
    close(out, run(scheme, rounded.to(torch.float32), causal), error, error)


@every("cast", CAUSAL)
def test_trap_01_a_scheme_cast_to_bfloat16_keeps_its_angles(name: str, options: Options, causal: bool) -> None:
    scheme = make(name, options, causal)
    last = min(scheme.declares.max_length or 5000, 5000)
    data = inputs(scheme, pos=torch.arange(last - LENGTH, last).expand(BATCH, -1).clamp(min=0)).to(torch.bfloat16)
    cast = copy.deepcopy(scheme).bfloat16()
    rounded = copy.deepcopy(cast).float()
    close(run(cast, data, causal), run(rounded, data.to(torch.float32), causal), 6e-2, 6e-2)
    vectors = encoded(rounded, data.pos)
    loudest = float(vectors.detach().abs().max()) if vectors.numel() else 0.0
    close(encoded(cast, data.pos), vectors, 1e-2 * loudest, 1e-2)


@every("cast", CAUSAL)
def test_trap_01_autocast_lowers_queries_keys_and_values_alone(name: str, options: Options, causal: bool) -> None:
    scheme = make(name, options, causal)
    data = inputs(scheme)
    lowered = Inputs(*(tensor.bfloat16() for tensor in (data.q, data.k, data.v)), data.x, data.pos)
    wanted, vectors = run(scheme, lowered, causal), encoded(scheme, data.pos)
    with torch.autocast("cpu", torch.bfloat16):
        got, reference = (
            run(scheme, data, causal),
            attend_reference(
                scheme, data.q, data.k, data.v, place(scheme, data), place(scheme, data), causal=causal
            ).out_BHSK,
        )
        assert torch.equal(got, wanted) and torch.equal(encoded(scheme, data.pos), vectors)
    close(reference, wanted, 2e-2, 2e-2)


@every("save", CAUSAL)
def test_saved_and_loaded_is_exactly_the_same(name: str, options: Options, causal: bool) -> None:
    scheme, other = make(name, options, causal), make(name, options, causal)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    other.load_state_dict(scheme.state_dict(), strict=True)
    for twin in (other, copy.deepcopy(scheme)):
        data = inputs(scheme)
        assert torch.equal(run(twin, data, causal), run(scheme, data, causal))
        assert torch.equal(encoded(twin, data.pos), encoded(scheme, data.pos))


@every("meta", CAUSAL)
def test_trap_05_built_on_the_meta_device_it_holds_no_garbage(name: str, options: Options, causal: bool) -> None:
    scheme = make(name, options, causal)
    with torch.device("meta"):
        empty = make(name, options, causal)
    empty = empty.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*empty.parameters(), *empty.buffers()):
            tensor.fill_(float("nan") if tensor.is_floating_point() else -12_345)
    empty.reset_parameters()
    data = inputs(scheme)
    assert bool(run(empty, data, causal).isfinite().all())
    assert bool(encoded(empty, data.pos).isfinite().all())
    empty.load_state_dict(scheme.state_dict(), strict=True)
    assert torch.equal(run(empty, data, causal), run(scheme, data, causal))
    assert torch.equal(encoded(empty, data.pos), encoded(scheme, data.pos))


@every("gradient", CAUSAL)
def test_gradients_reach_every_parameter_and_input(name: str, options: Options, causal: bool) -> None:
    scheme = make(name, options, causal)
    data = inputs(scheme)
    for tensor in (data.q, data.k, data.v):
        tensor.requires_grad_()
    vectors = encoded(scheme, data.pos)
    goal = torch.randn(BATCH, *data.q.shape[1:]).mul(run(scheme, data, causal)).sum()
    (goal + (torch.randn_like(vectors) * vectors).sum()).backward()
    parameters = [(label, tensor) for label, tensor in scheme.named_parameters() if tensor.requires_grad]
    for label, tensor in (*parameters, ("q", data.q), ("k", data.k), ("v", data.v)):
        assert tensor.grad is not None, f"no gradient reaches {label}"
        assert tensor.grad.isfinite().all(), f"the gradient of {label} is not finite"
        assert tensor.grad.abs().max() > 0, f"the gradient of {label} is zero"


@every("beyond", CAUSAL)
def test_beyond_its_length_it_does_what_it_declares(name: str, options: Options, causal: bool) -> None:
    scheme = make(name, options, causal)
    largest = scheme.declares.max_length or 50
    last = inputs(scheme, pos=torch.full((BATCH, LENGTH), largest - 1))
    past = inputs(scheme, pos=torch.full((BATCH, LENGTH), 4 * largest))
    if scheme.declares.max_length is not None and scheme.declares.beyond == "raise":
        with pytest.raises(PositionError, match=f"position {4 * largest} is outside the {largest} positions"):
            run(scheme, past, causal), encoded(scheme, past.pos)
        return
    out, vectors = run(scheme, past, causal), encoded(scheme, past.pos)
    assert bool(out.isfinite().all() & vectors.isfinite().all())
    if scheme.declares.max_length is not None and scheme.declares.beyond == "clamp":
        assert torch.equal(vectors, encoded(scheme, last.pos))
