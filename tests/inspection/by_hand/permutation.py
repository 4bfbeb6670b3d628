"""How far permuting the words of a text moves the state of each word, beside the distance of two random words."""

from collections.abc import Callable

import torch


def compute(run: Callable[[torch.Tensor], torch.Tensor], ids_NT: torch.Tensor, order_NT: torch.Tensor) -> float:
    before, after = run(ids_NT), run(ids_NT.gather(1, order_NT))
    same_word = before.gather(1, order_NT[:, :, None].expand_as(before))  # each word at its new place
    change = (after - same_word).square().sum(-1).mean()
    states = same_word.flatten(0, 1).double()
    distance = 2 * (states - states.mean(0)).square().sum() / (len(states) - 1)  # of two random words, squared
    return float(change / distance)
