"""Rotary position embedding: queries and keys are rotated, and only the difference of the angles matters.

The paper's lines (Su et al. 2021, equation 34) are ``rotate_as_written``; ``RoPE`` computes the same, faster, and with
everything that has been built on them since: spectra for longer texts, partial and learned rotation, rotated values.
"""

from __future__ import annotations

from typing import Annotated, Any, final

import torch
from torch import nn

from clockhands.errors import UsageError, describe_unknown, refuse_faults
from clockhands.options import Positive, Range, options_of
from clockhands.schemes.frequencies import (
    compute_angles,
    compute_cos_sin,
    compute_frequencies,
    take_axis,
    take_shared_row,
)
from clockhands.schemes.rotary.rotation import (
    CosSin,
    Layout,
    Memo,
    Rotary,
    RotationTable,
    apply_rotation,
    check_pairs,
    make_table,
)
from clockhands.schemes.rotary.spectra import Frequencies, Plain, Spectrum, make_spectrum
from clockhands.schemes.scheme import Declares, HeadValues, KeyPositions, QueryPositions
from clockhands.shapes import Float, Num, Tensor

FEW_POSITIONS = 256
"""Below so many positions the cases of ``RoPE._compute_waves`` are left out: at 4 positions they cost more than the
sines, at 256 about a fifth."""


def rotate_as_written(
    x_BHSK: Float[Tensor, "B H S K"], pos_BS: Num[Tensor, "B S"], base: float = 10_000.0
) -> Float[Tensor, "B H S K"]:
    """Rotate heads to their positions as the paper writes it: what ``RoPE(K, layout="interleaved").rotate`` does.

    Channels 2c and 2c + 1 of a head, (a, b), turn by the angle p·ω_c with ω_c = base^(-2c/K). The product of a query at
    i with a key at j then depends on i - j alone: R(iω)ᵀ·R(jω) = R((j - i)ω).
    """
    width = x_BHSK.shape[-1]
    omega_F = base ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)
    angle_BSF = pos_BS[..., None] * omega_F
    cos, sin = angle_BSF.cos()[:, None], angle_BSF.sin()[:, None]  # an axis for the heads, which rotate alike
    a, b = x_BHSK[..., ::2], x_BHSK[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2).to(x_BHSK.dtype)


@final
class RoPE(Rotary):
    """Rotary position embedding (Su et al. 2021, equation 34): q and k of position p are rotated by p·θ_c.

    Values are not rotated, unless ``values`` says so. Positions may be real numbers: over measured times this is
    RoTHP's encoding of events (Gao and Dai 2024, 2405.06985). The spectrum changes θ so that texts longer than the
    trained ones fit.

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
        spectrum: the rule that makes the frequencies: ``Plain()``; ``Linear`` (position interpolation); ``NTK``;
            ``Dynamic`` (NTK by the row's length); ``YaRN``; ``LongRoPE``; ``Llama3``; ``Proportional`` (p-RoPE);
            ``HoPE`` (high frequencies alone). Recipes write their names in small letters, and their options beside it.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import RoPE, YaRN
        >>> q, pos = torch.ones(1, 1, 2, 2), torch.tensor([[0, 1]])
        >>> RoPE(head_dim=2).rotate(q, q, pos, pos)[0][0, 0]
        tensor([[ 1.0000,  1.0000],
                [-0.3012,  1.3818]])
        >>> round(RoPE(64, spectrum=YaRN(factor=4.0, original_length=2048)).spectrum.amplitude(), 4)
        1.1386
    """

    elementwise = ("compute_cos_sin", "angles")
    equation = r"q_p \mapsto R(p\theta) q_p, \; k_p \mapsto R(p\theta) k_p, \quad \theta_c = b^{-2c/r}"
    source = "Su et al. 2021, section 3.2; the spectra name their own"
    peers = ("transformers Llama", "rotary-embedding-torch", "x-transformers rotary_pos_emb")
    models = ("RoFormer", "GPT-J", "GPT-NeoX", "Llama", "Mistral", "Gemma", "Qwen2", "ModernBERT")

    def __init__(
        self,
        head_dim: int,
        *,
        base: Positive = 10_000.0,
        layout: Layout = "half",
        fraction: Annotated[float, Range(above=0, most=1)] = 1.0,
        learned: bool = False,
        values: bool = False,
        spectrum: Spectrum = Plain(),  # noqa: B008, a frozen value
    ) -> None:
        # Before the base makes its memo. Learned frequencies change with every step: no table of theirs is kept.
        self.memoised, self.reads_both_sides = not learned, learned or spectrum.depends_on_length
        super().__init__(layout)
        self.channels = int(head_dim * fraction)
        check_pairs("rope", self.channels, f"head_dim {head_dim} x fraction {fraction}")
        self.base, self.fraction = base, fraction
        self.spectrum = spectrum.check(self.channels)
        self._amplitude, self._logit_factor = spectrum.amplitude(), spectrum.logit_factor()
        self.alpha_F = nn.Parameter(torch.zeros(self.channels // 2)) if learned else None
        self.rotates_values = values
        self._hooks = frozenset({"rotate", "rotate_values", "rotate_back"} if values else {"rotate"})
        self._value_memo = Memo(2 if self.memoised and not spectrum.depends_on_length else 0)
        # The frequencies where nothing changes them. No buffer: a model cast to bfloat16 cannot spoil them (trap 1).
        fixed = not self.reads_both_sides and not spectrum.unscaled_first
        self._fixed_F = spectrum.frequencies(self.channels, base) if fixed else None

    @classmethod
    def from_options(cls, head_dim: int, *, spectrum: str = "default", **options: Any) -> RoPE:
        """Return the scheme of flat options, as recipes have them: the options of the spectrum beside its name.

        Examples:
            >>> RoPE.from_options(64, base=5e5, spectrum="yarn", factor=4.0, original_length=2048)
            RoPE(64, base=500000.0, spectrum=YaRN(factor=4.0, original_length=2048))

        Raises ConfigError for options that RoPE or the spectrum does not have, or that it needs, and for values that it
        cannot take.
        """
        known, kept = options_of(cls), ("base", "layout", "fraction", "learned", "values")
        refuse_faults(*((name not in known, describe_unknown("option of rope", name, known)) for name in options))
        own = {name: options.pop(name) for name in kept if name in options}
        return cls(head_dim, **own, spectrum=make_spectrum(spectrum, None, options))

    @property
    def declares(self) -> Declares:
        by_length = self.spectrum.depends_on_length
        return Declares(
            translation_invariant=not by_length,
            real_valued=True,
            depends_on_length=by_length,
            steady_length=getattr(self.spectrum, "original_length", 0) if by_length else 0,
            cache="raw" if by_length else "rotated",
        )

    def active_hooks(self) -> frozenset[str]:
        return self._hooks

    def scale(self, head_dim: int) -> float:
        """Return 1/√d_head, times DeepSeek's factor of all logits where ``mscale_all_dim`` is given."""
        return head_dim**-0.5 * self._logit_factor

    def frequencies(
        self, length_B: Num[Tensor, " B"] | None = None, device: torch.device | str | None = None
    ) -> Frequencies:
        """Return the radians per position of each pair, in float64: [F], or [B, 1, F] for rows of these lengths."""
        omega_F = self.spectrum.frequencies(self.channels, self.base, length_B, device)
        return omega_F if self.alpha_F is None else omega_F * self.alpha_F.to(omega_F.device, omega_F.dtype).exp()

    def compute_cos_sin(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype) -> CosSin:
        few = (
            pos.dim() == 2
            and pos.device.type == "cpu"
            and not torch.compiler.is_compiling()
            and pos.numel() < FEW_POSITIONS
        )
        if self._fixed_F is not None and few:
            # The same as ``_compute_waves``, without its cases.
            angle_BSF = pos.to(torch.float64)[..., None] * self._fixed_F
            cos, sin = angle_BSF.cos()[:, None].to(dtype), angle_BSF.sin()[:, None].to(dtype)
        else:
            cos, sin = self._compute_waves(pos, None, dtype)
        factor = self._amplitude
        return (cos, sin) if factor == 1.0 else (cos * factor, sin * factor)

    def compute_cos_sin_beside(self, pos: QueryPositions, other: KeyPositions, dtype: torch.dtype) -> CosSin:
        """Return the same where both sides decide: how long a row is, or from where learned angles count."""
        cos, sin = self._compute_waves(pos, other, dtype)
        return cos * self._amplitude, sin * self._amplitude

    def _compute_waves(self, pos: Tensor, other: Tensor | None, dtype: torch.dtype) -> CosSin:
        """Return cosine and sine of the angles, without the spectrum's factor, which is for logits alone."""
        own = take_shared_row(take_axis(pos, "rope"))
        both = (own,) if other is None else (own, take_shared_row(take_axis(other, "rope")))
        omega = self.frequencies(self._find_lengths(*both), own.device)
        if omega.dim() == 1 and self.alpha_F is None and not self.spectrum.unscaled_first:
            cos, sin = compute_cos_sin(own, omega, dtype)
        else:
            if omega.requires_grad:
                angle = self._compute_learned_angles(own, omega, _find_origin(*both))
            else:
                angle = self._compute_angles_by_row(own, omega)
            cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
        # Positions [B, H, S] have their heads already.
        return (cos, sin) if own.dim() == 3 else (cos[:, None], sin[:, None])

    def _compute_angles_by_row(self, own: Tensor, omega: Tensor) -> Tensor:
        """Compute angles where rows have frequencies of their own, and the first positions perhaps the trained ones."""
        pos = own.to(omega.dtype)[..., None]
        angle = pos * (omega[:, None] if own.dim() == 3 and omega.dim() == 3 else omega)
        first = self.spectrum.unscaled_first
        if not first:
            return angle
        trained_F = compute_frequencies(self.channels, self.base, device=own.device)
        return torch.where(pos < first, compute_angles(own, trained_F), angle)

    def _compute_learned_angles(self, own: Tensor, omega: Tensor, origin_B: Tensor) -> Tensor:
        """Compute p·ω with a gradient in ω that is exact at every position: that of (p - origin)·ω.

        Only differences of angles matter, so that queries and keys may count from any place that they share. Counted
        from 0, the gradients of both are p times a number in float32 and nearly cancel: at p = 99,000 their sum was
        wrong by 6e-3.
        """
        shape_of_row = (-1, *[1] * (own.dim() - 1))  # [B, 1], or [B, 1, 1] where heads have positions of their own
        from_origin = own.detach() - origin_B.view(shape_of_row)
        # The second term is 0, and has the gradient.
        return self._compute_angles_by_row(own, omega.detach()) + self._compute_angles_by_row(
            from_origin, omega - omega.detach()
        )

    def _find_lengths(self, *rows: Tensor) -> Tensor | None:
        """Return one more than the largest position of each row, [B], where the spectrum needs it; else None."""
        if not self.spectrum.depends_on_length:
            return None
        lengths = [row.flatten(1).amax(-1) + 1 for row in rows if row.shape[-1]]
        return torch.stack(torch.broadcast_tensors(*lengths)).amax(0)

    def rotate_values(self, v_BHTK: HeadValues, qpos: QueryPositions, kpos: KeyPositions) -> HeadValues:
        """Rotate values [B, H, T, Kv] to their positions, if they are to be rotated; [B, H, T, Kv]."""
        # R(t_j) here and R(-t_i) on the output: what arrives of a value is R(t_j - t_i)·v_j, by the distance alone.
        return self._rotate_values(v_BHTK, kpos, qpos, back=False) if self.rotates_values else v_BHTK

    def rotate_back(self, out_BHSK: HeadValues, qpos: QueryPositions, kpos: KeyPositions) -> HeadValues:
        return self._rotate_values(out_BHSK, qpos, kpos, back=True) if self.rotates_values else out_BHSK

    def _rotate_values(self, x_BHNK: Tensor, own: QueryPositions, other: KeyPositions, back: bool) -> Tensor:
        """Rotate values or outputs by the angles of their positions, or back by them."""

        def compute_both(pos: Tensor, dtype: torch.dtype, width: int) -> tuple[RotationTable, RotationTable]:
            if self.channels > width:
                raise UsageError(
                    f"values have {width} channels and {self.channels} are to be rotated; lower fraction, or leave "
                    f"values = true out"
                )
            cos, sin = self._compute_waves(pos, other, torch.promote_types(dtype, torch.float32))
            rotating = make_table(cos, sin, self.layout, width, dtype)
            rotating_back = make_table(cos, -sin, self.layout, width, dtype)
            return rotating, rotating_back

        rotating, rotating_back = self._value_memo(own, (x_BHNK.dtype, x_BHNK.shape[-1]), compute_both)
        return apply_rotation(rotating_back if back else rotating, x_BHNK)[0]

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return ``rope_parameters``; None with learned frequencies or rotated values."""
        # A checkpoint with interleaved pairs has to pass through ``schemes.convert`` besides.
        if self.alpha_F is not None or self.rotates_values:
            return None
        parameters = self.spectrum.to_hf_config(self.base, self.channels)
        if self.fraction != 1.0:
            parameters["partial_rotary_factor"] = self.fraction
        return {"rope_parameters": parameters}

    def reset_parameters(self) -> None:
        if self.alpha_F is not None:
            self.alpha_F.zero_()


def _find_origin(*rows: Tensor) -> Tensor:
    """Return the least position of each row, [B] or [1], over the positions of both sides."""
    least = [row.detach().flatten(1).amin(-1) for row in rows if row.shape[0] and row.shape[-1]]
    return torch.stack(torch.broadcast_tensors(*least)).amin(0) if least else torch.zeros(1, device=rows[0].device)
