"""Rotary position embedding: queries and keys are rotated, and only the difference of the angles matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

import torch
from torch import nn

from clockhands.schemes.frequencies import (
    check_above_zero,
    choose_working_dtype,
    compute_angles,
    compute_cos_sin,
    drop_axis,
    take_shared_row,
)
from clockhands.schemes.rotary.base import CosSin, add_head_axis, check_pairs, rotate_pairs
from clockhands.schemes.rotary.rotated_values import RotatedValues
from clockhands.schemes.rotary.rotation import Layout
from clockhands.schemes.rotary.spectra import SpectrumName, make_spectrum
from clockhands.schemes.rotary.spectrum import Frequencies
from clockhands.schemes.scheme import Declares, KeyPositions, Positions
from clockhands.shapes import Float, Num, Tensor

__all__ = ["RoPE"]


@final
class RoPE(RotatedValues):
    """Rotary position embedding (Su et al. 2021, equation 34): q and k of position p are rotated by p·θ_c.

    Values are not rotated, unless ``values`` says so. Positions may be real numbers: over measured times this is
    RoTHP's encoding of events (Gao and Dai 2024, 2405.06985). The spectrum changes θ so that texts longer than the
    trained ones fit; options that a spectrum has no use for are refused, and those left at None take the spectrum's own
    default (``rotary.spectra``).

    Args:
        head_dim: width of a head, d_head.
        base: θ_c = base^(-2c/r) with r the number of channels that rotate.
        layout: pairs ``half`` (c, c + r/2), as in GPT-NeoX and Llama checkpoints of transformers, or ``interleaved``
            (2c, 2c + 1), as in the paper and GPT-J.
        fraction: share of the head's channels that rotate (partial rotary); the rest carries no position.
        learned: multiply every θ_c by e^(α_c) with α learned, beginning at 0: learned frequencies, LeRoPE (2607.10134),
            which Mistral Large 4 has.
        values: rotate values by the angles of their positions too, and the output back by that of the query, so that
            each value arrives rotated by the distance (DeepSeek-V4, which rotates the last channels of a head).
        spectrum: ``default``; ``linear`` (position interpolation); ``ntk``; ``dynamic`` (NTK by the row's length);
            ``yarn``; ``longrope``; ``llama3``; ``proportional`` (p-RoPE); ``hope`` (high frequencies alone).
        factor: how many times longer than trained; for all spectra but ``default`` and ``hope``. ``linear``, ``ntk``,
            ``dynamic``, ``yarn`` and ``longrope`` need it.
        original_length: the trained length L; ``dynamic``, ``yarn``, ``longrope``, ``llama3`` and ``hope`` need it.
            In a new training it is the length of its texts; where a run is opened or trained further with another
            spectrum, it is the run's own.
        share: of the frequencies, the highest, that rotate; for ``proportional``.
        beta_fast: hands that come round this often within L are kept; for ``yarn``.
        beta_slow: hands that come round less often than this within L are interpolated; for ``yarn``.
        ramp: what runs linearly between the two, the ``channel`` (code) or the ``rotations`` (paper); for ``yarn``.
        truncate: whether the bounds are rounded outwards to whole channels; for ``yarn``.
        attention_factor: of cosines and sines, so that logits gain its square; for ``yarn`` and ``longrope``, whose own
            formula is the default.
        mscale: DeepSeek's slope of the factor of cosines and sines, in place of ``attention_factor``; with
            ``mscale_all_dim``, for ``yarn``.
        mscale_all_dim: DeepSeek's slope of the factor of all logits, of channels that do not rotate too; for ``yarn``.
        short_factor: divisors λ_c of θ_c up to the trained length; for ``longrope``.
        long_factor: the same for longer rows.
        unscaled_first: how many first positions rotate as trained; for ``longrope``.
        low_frequency_factor: wavelengths above L over this are divided by ``factor``; for ``llama3``.
        high_frequency_factor: wavelengths below L over this are kept; for ``llama3``.

    Example:
        >>> import torch
        >>> from clockhands.schemes import RoPE
        >>> q, pos = torch.ones(1, 1, 2, 2), torch.tensor([[0, 1]])
        >>> RoPE(head_dim=2).rotate(q, q, pos, pos)[0][0, 0]
        tensor([[ 1.0000,  1.0000],
                [-0.3012,  1.3818]])
    """

    equation = r"q_p \mapsto R(p\theta) q_p, \; k_p \mapsto R(p\theta) k_p, \quad \theta_c = b^{-2c/r}"
    source = "Su et al. 2021, section 3.2; the spectra name their own"
    peers = ("transformers Llama", "rotary-embedding-torch", "x-transformers rotary_pos_emb")
    models = ("RoFormer", "GPT-J", "GPT-NeoX", "Llama", "Mistral", "Gemma", "Qwen2", "ModernBERT")

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        layout: Layout = "half",
        fraction: float = 1.0,
        learned: bool = False,
        values: bool = False,
        spectrum: SpectrumName = "default",
        factor: float | None = None,
        original_length: int | None = None,
        share: float | None = None,
        beta_fast: float | None = None,
        beta_slow: float | None = None,
        ramp: Literal["channel", "rotations"] | None = None,
        truncate: bool | None = None,
        attention_factor: float | None = None,
        mscale: float | None = None,
        mscale_all_dim: float | None = None,
        short_factor: Sequence[float] | None = None,
        long_factor: Sequence[float] | None = None,
        unscaled_first: int | None = None,
        low_frequency_factor: float | None = None,
        high_frequency_factor: float | None = None,
    ) -> None:
        super().__init__(layout, rotates_values=values)
        self.channels = int(head_dim * fraction) if 0 < fraction <= 1 else 0
        check_pairs("rope", self.channels, f"head_dim {head_dim} x fraction {fraction}")
        self.base, self.fraction = check_above_zero("rope.base", base), fraction
        options = {
            "factor": factor, "original_length": original_length, "share": share, "beta_fast": beta_fast,
            "beta_slow": beta_slow, "ramp": ramp, "truncate": truncate, "attention_factor": attention_factor,
            "mscale": mscale, "mscale_all_dim": mscale_all_dim, "short_factor": short_factor,
            "long_factor": long_factor, "unscaled_first": unscaled_first,
            "low_frequency_factor": low_frequency_factor, "high_frequency_factor": high_frequency_factor,
        }  # fmt: skip
        self.spectrum = make_spectrum(spectrum, self.channels, options)
        self.alpha_F = nn.Parameter(torch.zeros(self.channels // 2)) if learned else None

    @property
    def memoised(self) -> bool:  # type: ignore[override]
        """Whether tables are kept: those of learned frequencies change with every step, and never are."""
        return self.alpha_F is None

    @property
    def declares(self) -> Declares:
        """The promises of this instance; under ``dynamic`` and ``longrope`` angles depend on the length of the row."""
        by_length = self.spectrum.depends_on_length
        return Declares(
            translation_invariant=not by_length,
            real_valued=True,
            depends_on_length=by_length,
            steady_length=getattr(self.spectrum, "original_length", 0) if by_length else 0,
            cache="raw" if by_length else "rotated",
        )

    def scale(self, head_dim: int) -> float:
        """Return 1/√d_head, times DeepSeek's factor of all logits where ``mscale_all_dim`` is given."""
        return super().scale(head_dim) * self.spectrum.logit_factor()

    def frequencies(
        self, length_B: Num[Tensor, " B"] | None = None, device: torch.device | str | None = None
    ) -> Frequencies:
        """Return the radians per position of each pair, in float64: [F], or [B, 1, F] for rows of these lengths."""
        omega_F = self.spectrum.frequencies(self.channels, self.base, length_B, device)
        return omega_F if self.alpha_F is None else omega_F * self.alpha_F.to(omega_F.device, omega_F.dtype).exp()

    def compute_cos_sin(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype) -> CosSin:
        """Return cosine and sine of every pair's angle, [#B, #H, S, F], from angles in float64.

        Raises PositionError for positions of several coordinates.
        """
        own = take_shared_row(drop_axis(pos, "rope"))
        return self._amplify(self._compute_cos_sin(own, self._lengths(own), dtype))

    def compute_value_cos_sin(self, own: Positions, other: KeyPositions, dtype: torch.dtype) -> CosSin:
        """Return cosine and sine of the angles of values, without the spectrum's factor, which is for logits alone.

        Shapes and errors are those of ``compute_cos_sin``; ``other``: the positions of the other side.
        """
        own, other = (take_shared_row(drop_axis(pos, "rope")) for pos in (own, other))
        return self._compute_cos_sin(own, self._lengths(own, other), dtype, _find_origin(own, other))

    def _compute_cos_sin(
        self, own: Tensor, length_B: Tensor | None, dtype: torch.dtype, origin_B: Tensor | None = None
    ) -> CosSin:
        omega = self.frequencies(length_B, own.device)
        if self.alpha_F is not None:
            angle = self._compute_learned_angles(own, omega, _find_origin(own) if origin_B is None else origin_B)
            return add_head_axis(angle.cos().to(dtype), angle.sin().to(dtype))
        if omega.dim() == 1 and not self.spectrum.unscaled_first:
            cos, sin = compute_cos_sin(own, omega, dtype)
        else:
            angle = self._angles_by_row(own, omega)
            cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
        return add_head_axis(cos, sin)

    def _compute_learned_angles(self, own: Tensor, omega: Tensor, origin_B: Tensor) -> Tensor:
        """Compute p·θ with a gradient in θ that is exact at every position: that of (p - origin)·θ.

        Only differences of angles matter, so queries and keys may count from any origin they share. Else each adds
        its gradient, p times what arrives in float32, and of two large numbers little is left: at p = 99,000 the
        gradient was off by 6e-3.
        """
        angle = self._angles_by_row(own, omega.detach())
        if not omega.requires_grad:
            return angle
        from_origin = own.detach() - origin_B.view(-1, *[1] * (own.dim() - 1))
        return angle + self._angles_by_row(from_origin, omega - omega.detach())

    def _amplify(self, waves: CosSin) -> CosSin:
        """Multiply cosine and sine by the spectrum's factor."""
        factor = self.spectrum.amplitude()
        return waves if factor == 1.0 else (waves[0] * factor, waves[1] * factor)

    def _angles_by_row(self, own: Tensor, omega: Tensor) -> Tensor:
        """Compute angles where rows have frequencies of their own, and the first positions perhaps the trained ones."""
        heads = own.dim() == 3
        pos = own.to(omega.dtype)[..., None]
        angle = pos * (omega[:, None] if heads and omega.dim() == 3 else omega)
        first = self.spectrum.unscaled_first
        if not first:
            return angle
        trained_F = make_spectrum("default", self.channels, {}).frequencies(self.channels, self.base, device=own.device)
        return torch.where(pos < first, compute_angles(own, trained_F), angle)

    def _lengths(self, *rows: Tensor) -> Tensor | None:
        """Return one more than the largest position of each row, [B], where the spectrum needs it; else None."""
        if not self.spectrum.depends_on_length:
            return None
        most = [row.flatten(1).amax(-1) + 1 for row in rows if row.shape[-1]]
        return torch.stack(torch.broadcast_tensors(*most)).amax(0)

    def rotate(
        self,
        q_BHSK: Float[Tensor, "B H S K"],
        k_BHTK: Float[Tensor, "B H T K"],
        qpos_BS: Positions,
        kpos_BT: KeyPositions,
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H T K"]]:
        """Rotate queries [B, H, S, K] and keys [B, H, T, K] to their positions.

        Where the spectrum depends on the length, a row is as long as the largest position of its queries and keys says.
        Raises PositionError for positions of several coordinates.
        """
        if qpos_BS is kpos_BT or not (self.spectrum.depends_on_length or self.alpha_F is not None):
            return super().rotate(q_BHSK, k_BHTK, qpos_BS, kpos_BT)
        dtype = choose_working_dtype(q_BHSK.dtype)
        qpos, kpos = (take_shared_row(drop_axis(pos, "rope")) for pos in (qpos_BS, kpos_BT))
        length_B, origin_B = self._lengths(qpos, kpos), _find_origin(qpos, kpos)
        return (
            rotate_pairs(q_BHSK, *self._amplify(self._compute_cos_sin(qpos, length_B, dtype, origin_B)), self.layout),
            rotate_pairs(k_BHTK, *self._amplify(self._compute_cos_sin(kpos, length_B, dtype, origin_B)), self.layout),
        )

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return ``rope_parameters``; None with learned frequencies or rotated values.

        A checkpoint with interleaved pairs has to pass through ``schemes.convert`` besides.
        """
        if self.alpha_F is not None or self.rotates_values:
            return None
        parameters = self.spectrum.to_hf_config(self.base, self.channels)
        if self.fraction != 1.0:
            parameters["partial_rotary_factor"] = self.fraction
        return {"rope_parameters": parameters}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set learned factors of the frequencies back to 1."""
        if self.alpha_F is not None:
            self.alpha_F.zero_()


def _find_origin(*rows: Tensor) -> Tensor:
    """Return the least position of each row, [B] or [1], over the positions of both sides."""
    least = [row.detach().flatten(1).amin(-1) for row in rows if row.shape[0] and row.shape[-1]]
    return torch.stack(torch.broadcast_tensors(*least)).amin(0) if least else torch.zeros(1, device=rows[0].device)
