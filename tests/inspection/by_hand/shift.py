"""How well one rotation predicts the row k positions later, on stretches of rows that it was not fitted on."""

import torch


def compute(rows_ND: torch.Tensor, k: int) -> float:
    rows, errors = rows_ND - rows_ND.mean(0), []
    for judged in torch.arange(len(rows) - k).tensor_split(8):
        left_out = torch.zeros(len(rows), dtype=torch.bool)
        left_out[judged[0] : judged[-1] + k + 1] = True
        fitted, kept = ~(left_out[:-k] | left_out[k:]), rows[~left_out]
        mean = kept.mean(0)
        _, s, vt = torch.linalg.svd(kept - mean, full_matrices=False)
        most = int((s.square().cumsum(0) < 0.99 * s.square().sum()).sum()) + 1  # 99 % of the variance
        points = (rows - mean) @ vt[: min(most, 64, len(kept) // 4)].T
        now, later = points[:-k], points[k:]
        centre, centre_later = now[fitted].mean(0), later[fitted].mean(0)
        # The best orthogonal map is u vᵀ of the singular value decomposition (Procrustes).
        u, _, v = torch.linalg.svd((now[fitted] - centre).T @ (later[fitted] - centre_later))
        guess = centre_later + (now[judged] - centre) @ u @ v
        errors.append((guess - later[judged]).square().sum(1).mean() / points.square().sum(1).mean())
    return float(torch.stack(errors).mean())
