"""PaTH: between a query and a key lies a path, and every token on it reflects what passes."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.options import Count
from clockhands.schemes.content.running_sum import accumulate, subtract_sums
from clockhands.schemes.content.selective import convolve_causally
from clockhands.schemes.frequencies import take_axis
from clockhands.schemes.scheme import AttentionInputs, Bias, Declares, Located, Places, QueryPositions, Scheme, States


@final
class PaTH(Scheme):
    """Position encoding by accumulated Householder transformations (Yang et al. 2025, equations 3 to 6).

    The logit is k_jᵀ (Π_{s=j+1..i} H_s) q_i/√d_head with H_s = I - β_s w_s w_sᵀ. β = 2σ(a·x + b) and w, of length 1, is
    a low-rank map of the input through a causal convolution of three taps and SiLU. The product over any stretch is a
    block of one triangular inverse, M = (I + B·low(WWᵀ))⁻¹·B, so that what the path takes away from q_i·k_j is
    low(QWᵀ)·M·low(WKᵀ): no key is ever rewritten, and the cache holds each token's β and w beside its key.

    With ``forget`` (PaTH-FoX) the logit gains Σ_{s=j+1..i} ln f_s besides, as in ``forgetting``.

    A token's coordinates are its position, β, w, w before the convolution, and the gates' sums. Keys must be in the
    order of the text and the queries its last tokens, as for every causal mask here.

    Args:
        d_model: width of the layer's input.
        num_heads: H.
        head_dim: width of a head.
        rank: of the map to w.
        taps: width of the convolution.
        forget: whether gates f = σ(v·x + c) let what lies further back be forgotten. Their sum is added as in
            ``forgetting``; flash-linear-attention divides it by √d_head too.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import PaTH
        >>> x, pos = torch.randn(1, 3, 8), torch.tensor([[0, 1, 2]])
        >>> PaTH(d_model=8, num_heads=2, head_dim=4).locate(x, pos, None).shape
        torch.Size([1, 2, 3, 10])
    """

    equation = r"\ell_{ij} = k_j^\top \Big(\prod_{s=j+1}^{i} (I - \beta_s w_s w_s^\top)\Big) q_i / \sqrt{d_h}"
    source = "Yang et al. 2025, section 3"
    peers = ("flash-linear-attention path_attn",)
    per_layer = True
    reads_heads = True
    rowwise = False

    def __init__(
        self, d_model: int, num_heads: int, head_dim: int, *, rank: Count = 32, taps: Count = 3, forget: bool = False
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.beta = nn.Linear(d_model, num_heads)
        self.down = nn.Linear(d_model, rank, bias=False)
        self.up = nn.Linear(rank, num_heads * head_dim, bias=False)
        self.taps_HKW = nn.Parameter(torch.empty(num_heads, head_dim, taps))
        self.gate = nn.Linear(d_model, num_heads) if forget else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        # 1/√taps, as PyTorch draws a convolution whose outputs read one channel.
        nn.init.uniform_(self.taps_HKW, -(self.taps_HKW.shape[-1] ** -0.5), self.taps_HKW.shape[-1] ** -0.5)

    declares = Declares(translation_invariant=True, causal_only=True, real_valued=True)

    def locate(self, x_BSD: States, pos: QueryPositions, past_BHTA: Places | None) -> Located:
        """Return position, β, w, w before the convolution, and the gates' sums: [B, H, S, 2 + 2K], or + 2, float32."""
        x, width = x_BSD.float(), self.head_dim
        raw_BSD = F.linear(F.linear(x, self.down.weight.float()), self.up.weight.float())
        raw_BHSK = raw_BSD.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        # β between 0 and 2: a reflection multiplies w by 1 - β, which lies between -1 and 1.
        beta_BSH = 2 * torch.sigmoid(F.linear(x, self.beta.weight.float(), self.beta.bias.float()))
        pos_BHS1 = take_axis(pos, "path").float()[:, None, :, None].expand(-1, self.num_heads, -1, -1)
        sums = 0 if self.gate is None else 2
        past = (None,) * 5 if past_BHTA is None else past_BHTA.split([1, 1, width, width, sums], dim=-1)
        smooth_BHSK = convolve_causally(raw_BHSK, self.taps_HKW.float(), pos_BHS1, past[3], past[0])
        # A Householder reflection needs a direction of length 1.
        w_BHSK = F.normalize(F.silu(smooth_BHSK), dim=-1)
        parts = [pos_BHS1, beta_BSH.transpose(1, 2)[..., None], w_BHSK, raw_BHSK]
        if self.gate is not None:
            open_BSH = F.linear(x, self.gate.weight.float(), self.gate.bias.float())
            parts.append(accumulate(F.logsigmoid(open_BSH).transpose(1, 2)[..., None], past[4]))
        return torch.cat(parts, dim=-1)

    def bias(self, at: AttentionInputs) -> Bias:
        """Return what the path takes away from q·k, scaled: [B, H, S, T], at least in float32."""
        wide = torch.promote_types(at.q.dtype, torch.float32)
        beta_BHT1, w_BHTK = at.kpos[..., 1:2].to(wide), at.kpos[..., 2 : 2 + self.head_dim].to(wide)
        queries, keys = at.q.shape[2], at.k.shape[2]
        # Σ of all paths at once (equation 6): (I + B·low(WWᵀ)) X = B·low(WKᵀ), solved by substitution.
        eye = torch.eye(keys, device=w_BHTK.device, dtype=wide)
        lower_BHTT = eye + beta_BHT1 * (w_BHTK @ w_BHTK.transpose(-1, -2)).tril(-1)
        meets_key_BHTT = beta_BHT1 * (w_BHTK @ at.k.to(wide).transpose(-1, -2)).tril(-1)
        gathered_BHTT = torch.linalg.solve_triangular(lower_BHTT, meets_key_BHTT, upper=False, unitriangular=True)
        # A query meets the reflections up to its own token.
        meets_query_BHST = (at.q.to(wide) @ w_BHTK.transpose(-1, -2)).tril(keys - queries)
        scale = self.scale(self.head_dim) if at.scale is None else at.scale
        taken_BHST = -scale * (meets_query_BHST @ gathered_BHTT)
        return taken_BHST if self.gate is None else taken_BHST + subtract_sums(at.qpos[..., -2:], at.kpos[..., -2:])
