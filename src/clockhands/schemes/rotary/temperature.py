"""No position, but sharper attention in longer texts: what layers without a rotation are given."""

from __future__ import annotations

import math
from typing import Any, Literal, final

import torch

from clockhands.errors import refuse_faults
from clockhands.options import AtLeastOne, Count, FromZero
from clockhands.schemes.frequencies import take_axis
from clockhands.schemes.position_checks import check_counts
from clockhands.schemes.scheme import Declares, KeyPositions, Keys, Queries, QueryPositions, Rotated, Scheme


@final
class Temperature(Scheme):
    """Multiply queries by a factor that grows with the length of the text; nothing is rotated.

    Two published uses. In iRoPE (Llama 4) every fourth layer has this, with ``form`` floor, in place of a rotation (the
    option ``skip_every`` gives such layers no scheme at all). In DroPE (Gelberg et al. 2025, 2512.12167) a model
    trained with RoPE drops it in all layers, is trained on briefly, and reads texts s times longer with ``form``
    constant: RoPE has no parameters, so a model with this scheme takes over the weights of one with RoPE as they are.

    Args:
        form: factor of q: ``floor``, 1 + c·ln(1 + ⌊(p + 1)/length⌋), by the query's position; ``log``, 1 + c·ln(1 +
            p/length), without the steps; ``constant``, 1 + c·ln(factor).
        coefficient: c (Llama 4: 0.1; DroPE: .412 from scratch, .103 for SmolLM).
        length: tokens after which the factor begins to rise.
        factor: s, how many times longer than trained the texts are; for ``constant`` alone.
        axis: the coordinate that p is, counted from 0, where positions have several; None: they have one. One behind
            the coordinates of the other schemes is one more, which this scheme alone reads, as under ``window``.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Temperature
        >>> q, pos = torch.ones(1, 1, 4, 1), torch.tensor([[0, 1, 2, 3]])
        >>> Temperature(length=2).rotate(q, q, pos, pos)[0].flatten()
        tensor([1.0000, 1.0693, 1.0693, 1.1099])
    """

    equation = (
        r"\ell_{ij} = \tau(i)\, q_i \cdot k_j / \sqrt{d_h}, \quad \tau(i) = 1 + c \ln(1 + \lfloor (i+1)/L \rfloor)"
    )
    source = "Llama 4 (Meta 2025), model code; Gelberg et al. 2025, section 4"
    peers = ("transformers Llama4TextAttention", "SakanaAI/DroPE")
    models = ("Llama 4",)
    axes_advice = "set temperature.axis to the coordinate that it reads, counted from 0"
    scales_queries = True

    def __init__(
        self,
        *,
        form: Literal["floor", "log", "constant"] = "floor",
        coefficient: float = 0.1,
        length: Count = 8192,
        factor: AtLeastOne | None = None,
        axis: FromZero | None = None,
    ) -> None:
        super().__init__()
        refuse_faults(
            (
                (factor is not None) != (form == "constant"),
                f"temperature.factor is {factor}; form 'constant' needs it, and no other takes it",
            ),
            (
                axis is not None and form == "constant",
                f"temperature.axis is {axis}, but form 'constant' reads no position; leave axis out",
            ),
        )
        self.form, self.coefficient, self.length, self.factor, self.axis = form, coefficient, length, factor, axis

    @property
    def declares(self) -> Declares:
        if self.form == "constant":
            return Declares(translation_invariant=True, axes=None, real_valued=True)
        return Declares(axes=(self.axis or 0) + 1, more_axes=self.axis is not None, real_valued=True)

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return the keys of Llama 4, whose layers without rotation do this; None for other forms and with ``axis``."""
        if self.form != "floor" or self.axis is not None:
            return None
        return {"attn_temperature_tuning": True, "attn_scale": self.coefficient, "floor_scale": self.length}

    def rotate(self, q_BHSK: Queries, k_BHTK: Keys, qpos: QueryPositions, kpos: KeyPositions) -> Rotated:
        if self.factor is not None:
            # One factor for all queries: as if the softmax had the temperature 1/(1 + c·ln s).
            return q_BHSK * (1 + self.coefficient * math.log(self.factor)), k_BHTK
        pos = take_axis(qpos, "temperature", self.axis, self.axes_advice)
        check_counts(pos, "temperature")
        # Llama 4 raises it in steps, once every ``length`` tokens.
        steps = torch.floor((pos + 1) / self.length) if self.form == "floor" else pos / self.length
        factor = 1 + self.coefficient * torch.log1p(steps.float())
        factor_BHS1 = (factor if factor.dim() == 3 else factor[:, None])[..., None]
        return (q_BHSK * factor_BHS1).to(q_BHSK.dtype), k_BHTK
