"""How many times as long a word is as a position where both enter, and how many times as much words vary."""

import torch


def compute(words_ND: torch.Tensor, positions_TD: torch.Tensor, centres: bool) -> tuple[float, float]:
    length = words_ND.norm(dim=-1).mean() / positions_TD.norm(dim=-1).mean()
    if centres:  # a layer norm follows, which takes the mean over the channels away
        words_ND = words_ND - words_ND.mean(-1, keepdim=True)
        positions_TD = positions_TD - positions_TD.mean(-1, keepdim=True)
    words, positions = (rows - rows.mean(0) for rows in (words_ND, positions_TD))
    variation = (words.square().sum(-1).mean() / positions.square().sum(-1).mean()).sqrt()
    return float(length), float(variation)
