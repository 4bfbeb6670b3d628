"""What enters at the embedding, against the libraries people use, to float32 precision. Their faults are shown."""

from __future__ import annotations

import math

import pytest
import torch
from positional_encodings.torch_encodings import PositionalEncoding1D, PositionalEncoding2D, PositionalEncoding3D
from torch import Tensor
from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding
from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding as FairseqSinusoidal
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.speecht5.modeling_speecht5 import SpeechT5ScaledPositionalEncoding
from transformers.models.whisper.modeling_whisper import sinusoids
from x_transformers.x_transformers import AbsolutePositionalEmbedding, ScaledSinusoidalEmbedding

from clockhands import positions
from clockhands.schemes import FourierBands, Learned, Sinusoidal, SinusoidalAxes

LENGTH, WIDTH = 50, 32


def line(length: int = LENGTH) -> Tensor:
    return positions.count_up(1, length)


def same(got: Tensor, wanted: Tensor, atol: float = 2e-6) -> None:
    torch.testing.assert_close(got.double(), wanted.double(), atol=atol, rtol=0)


def test_positional_encodings_is_the_paper() -> None:
    peer = PositionalEncoding1D(WIDTH)(torch.zeros(1, LENGTH, WIDTH))
    same(Sinusoidal(WIDTH).encode(line()), peer, 4e-6)


def test_marian_is_the_half_layout() -> None:
    peer = MarianSinusoidalPositionalEmbedding(LENGTH, WIDTH).create_weight()
    same(Sinusoidal(WIDTH, layout="half").encode(line())[0], peer, 1e-7)


def test_whisper_and_fairseq_have_tensor2tensors_exponent() -> None:
    ours = Sinusoidal(WIDTH, layout="half", exponent="tensor2tensor")
    same(ours.encode(line())[0], sinusoids(LENGTH, WIDTH), 4e-6)
    padding = 1
    peer = FairseqSinusoidal.get_embedding(LENGTH, WIDTH, padding)
    same(ours.encode(line())[0, padding + 1 :], peer[padding + 1 :], 4e-6)
    assert not peer[padding].any()


def test_tensor2tensors_exponent_is_no_permutation_of_the_papers() -> None:
    """The matrix of inner products does not depend on the order of channels, and differs."""
    paper, half, other = (
        Sinusoidal(16, layout=layout, exponent=exponent).encode(line())[0]  # type: ignore[arg-type]
        for layout, exponent in (("interleaved", "paper"), ("half", "paper"), ("half", "tensor2tensor"))
    )
    same(paper @ paper.T, half @ half.T, 1e-5)
    assert (paper @ paper.T - other @ other.T).abs().max() > 1.5


def test_speecht5_scales_by_a_learned_amplitude() -> None:
    peer = SpeechT5ScaledPositionalEncoding(0.0, WIDTH, LENGTH).eval()
    ours = Sinusoidal(WIDTH, learned_amplitude=True)
    with torch.no_grad():
        peer.alpha.fill_(0.7)
        ours.load_state_dict({"amplitude": peer.alpha.detach()})
    theirs = peer(torch.zeros(1, LENGTH, WIDTH))
    same(ours.encode(line()), theirs, 4e-6)
    weight = torch.randn(1, LENGTH, WIDTH)
    for value in (ours.encode(line()), theirs):
        (value * weight).sum().backward()
    torch.testing.assert_close(ours.amplitude.grad, peer.alpha.grad, rtol=1e-4, atol=1e-4)


def test_x_transformers_scaled_sinusoid_is_half_with_a_learned_amplitude() -> None:
    peer = ScaledSinusoidalEmbedding(WIDTH)
    ours = Sinusoidal(WIDTH, layout="half", amplitude=WIDTH**-0.5, learned_amplitude=True)
    same(ours.encode(line())[0], peer(torch.zeros(1, LENGTH, WIDTH)), 4e-6)


def test_trap_17_left_padded_positions_are_taken_where_x_transformers_raises() -> None:
    pos = positions.count_from_mask(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]))
    assert torch.equal(Sinusoidal(WIDTH).encode(pos)[0, 2:], Sinusoidal(WIDTH).encode(pos)[1, :2])
    with pytest.raises(Exception, match=r"(?i)einsum|dimension|rank"):
        ScaledSinusoidalEmbedding(WIDTH)(torch.zeros(2, 4, WIDTH), pos=pos)


def test_x_transformers_learned_table_is_scaled_by_the_root_of_its_width() -> None:
    peer, ours = AbsolutePositionalEmbedding(WIDTH, LENGTH), Learned(WIDTH, max_length=LENGTH)
    ours.load_state_dict({"table_LP": peer.emb.weight.detach() * WIDTH**-0.5})
    theirs, mine = peer(torch.zeros(1, 20, WIDTH)), ours.encode(line(20))[0]
    same(mine, theirs)
    goal = torch.randn_like(mine)
    (theirs * goal).sum().backward()
    (mine * goal).sum().backward()
    assert ours.table_LP.grad is not None
    same(ours.table_LP.grad * WIDTH**-0.5, peer.emb.weight.grad)


def test_trap_09_opt_positions_start_two_rows_late() -> None:
    from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding

    peer, ours = OPTLearnedPositionalEmbedding(20, 8), Learned(8, max_length=20, offset=2)
    ours.load_state_dict({"table_LP": peer.weight.detach()})
    mask = torch.tensor([[0, 1, 1], [1, 1, 1]])
    real = mask.bool()
    same(ours.encode(positions.count_from_mask(mask))[real], peer(mask)[real])


@pytest.mark.parametrize(
    ("peer", "lengths", "width"), [(PositionalEncoding2D, (5, 4), 16), (PositionalEncoding3D, (3, 4, 2), 24)]
)
def test_several_axes_equal_positional_encodings(peer: type, lengths: tuple[int, ...], width: int) -> None:
    wanted = peer(width)(torch.zeros(1, *lengths, width)).reshape(1, -1, width)
    same(SinusoidalAxes(width, axes=len(lengths)).encode(positions.make_grid(1, *lengths)), wanted, 4e-6)


@pytest.mark.parametrize("normalise", [False, True])
def test_trap_25_detr_counts_rows_then_columns_from_one(normalise: bool) -> None:
    rows, columns = 4, 6
    mask = torch.ones(1, rows, columns, dtype=torch.bool)
    mask[:, 3:], mask[:, :, 5:] = False, False
    scale = 2 * math.pi
    peer = DetrSinePositionEmbedding(8, normalize=normalise, scale=scale if normalise else None)
    wanted = peer(torch.Size((1, 16, rows, columns)), torch.device("cpu"), torch.float32, mask)
    wanted = wanted if wanted.dim() == 3 else wanted.flatten(2).transpose(1, 2)
    pos = positions.make_grid(1, rows, columns)
    if normalise:
        ours = SinusoidalAxes(16).encode(positions.normalise(pos, mask.flatten(1), scale))
    else:
        ours = SinusoidalAxes(16, start=1.0).encode(pos)
    real = mask.flatten(1)
    same(ours[real], wanted[real], 4e-6)


def test_trap_16_sines_and_cosines_side_by_side_or_interleaved_are_the_same_hands_in_another_order() -> None:
    pairs, halves = (Sinusoidal(WIDTH, layout=layout).encode(line())[0] for layout in ("interleaved", "half"))
    same(torch.cat([pairs[:, 0::2], pairs[:, 1::2]], dim=1), halves, 1e-7)
    same(halves[:, 1], (line()[0] * 10_000.0 ** (-2 / WIDTH)).sin())
    same(pairs[:, 1], line()[0].double().cos())


def test_trap_15_the_exponent_counts_pairs_once() -> None:
    """A known slip is 2·(2c)/d for 2c/d: then the second pair would turn at base^(-4/d)."""
    got = Sinusoidal(8).encode(torch.tensor([[1]]))[0, 0]
    same(got[2], torch.tensor(math.sin(10_000 ** (-2 / 8))))


def test_trap_11_the_second_axis_is_the_sequence() -> None:
    got = Sinusoidal(8).encode(positions.count_up(3, 5))
    assert got.shape == (3, 5, 8)
    assert torch.equal(got[0], got[2])
    assert not torch.equal(got[0, 0], got[0, 1])


def test_mtans_fixed_time_embedding_is_a_sinusoid_of_base_ten_and_times_by_48() -> None:
    times, width = torch.rand(1, 7, dtype=torch.float64), 12
    div = torch.exp(torch.arange(0, width, 2) * -(math.log(10.0) / width))
    wanted = torch.zeros(1, 7, width)
    wanted[..., 0::2], wanted[..., 1::2] = (48.0 * times[..., None] * div).sin(), (48.0 * times[..., None] * div).cos()
    same(Sinusoidal(width, base=10.0).encode(positions.interpolate(times, 1 / 48)), wanted, 1e-5)


@pytest.mark.parametrize("start", [0, 1_000_000])
def test_trap_03_a_long_table_is_exact_wherever_it_begins(start: int) -> None:
    pos = positions.count_up(1, 512, start=start)
    omega = 10_000.0 ** (-torch.arange(0, 512, 2, dtype=torch.float64) / 512)
    angle = pos[0, :, None] * omega
    wanted = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
    got = Sinusoidal(512).encode(pos)[0].double()
    assert float((got - wanted).abs().max()) <= 2e-7
    if start:
        naive = (pos[0, :, None].float() * omega.float()).sin().double()
        assert float((naive - angle.sin()).abs().max()) > 1e-2, "float32 angles are off by this much"


@pytest.mark.parametrize("shape", [(7,), (4, 5)])
def test_linear_bands_are_perceivers(shape: tuple[int, ...]) -> None:
    from transformers.models.perceiver.modeling_perceiver import generate_fourier_features

    axes, bands = len(shape), 3
    lines = [torch.linspace(-1, 1, size) for size in (shape if axes == 1 else (6, 6))]
    grid = torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).reshape(1, -1, axes)
    wanted = generate_fourier_features(grid, bands, [len(lines[0])] * axes)
    scheme = FourierBands(axes * (1 + 2 * bands) + 3, axes=axes, resolution=len(lines[0]), bands=bands)
    got = scheme.encode(positions.make_grid(1, *(len(line) for line in lines)))
    torch.testing.assert_close(got[..., :-3], wanted, atol=2e-6, rtol=0)
    assert not got[..., -3:].any(), "what the bands leave of the width stays empty"
