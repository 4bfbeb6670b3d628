"""How far words and positions lie in the same directions: the cosine between their covariances."""

import torch


def compute(words_ND: torch.Tensor, positions_TD: torch.Tensor) -> float:
    of_words, of_positions = (torch.cov(rows.T, correction=0) for rows in (words_ND, positions_TD))
    return float((of_words * of_positions).sum() / (of_words.norm() * of_positions.norm()))
