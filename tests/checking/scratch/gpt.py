"""A GPT as people write it today: fused attention, a cache of tensors, packing, a window. ``planted.py`` breaks it.

``SCHEME`` is "learned", "sinusoidal", "rope" or "alibi"; ``WINDOW`` is 0 for none.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

SCHEME = "rope"
WINDOW = 0
WIDTH, HEADS, HEAD, WORDS, LONGEST, LAYERS = 48, 4, 12, 64, 160, 2


class Cache:
    def __init__(self):
        self.layers = [None] * LAYERS
        self.places = None
        self.seen = 0

    def add(self, layer, k, v):
        old = self.layers[layer]
        if old is not None:
            k, v = torch.cat([old[0], k], 2), torch.cat([old[1], v], 2)
        self.layers[layer] = (k, v)
        return k, v

    def add_places(self, places):
        self.places = places if self.places is None else torch.cat([self.places, places], 1)
        return self.places

    def crop(self, tokens):
        self.layers = [(k[:, :, :-tokens], v[:, :, :-tokens]) for k, v in self.layers]
        self.places = self.places[:, :-tokens]
        self.seen -= tokens

    def select(self, rows):
        self.layers = [(k[rows], v[rows]) for k, v in self.layers]
        self.places = self.places[rows]


def make_sinusoids(length):
    speeds = 10000.0 ** (-torch.arange(0, WIDTH, 2).float() / WIDTH)
    angles = torch.arange(length).float()[:, None] * speeds
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def rotate(x, places):
    speeds = 10000.0 ** (-torch.arange(0, HEAD, 2, device=x.device).float() / HEAD)
    angles = places[:, None, :, None].float() * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, places, key_places, keep, cache):
        rows, new, _ = x.shape
        q, k, v = (part.view(rows, new, HEADS, HEAD).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if SCHEME == "rope":
            q = rotate(q, places)
            k = rotate(k, places)
        if cache is not None:
            k, v = cache.add(self.number, k, v)
        bias = torch.zeros(keep.shape, dtype=x.dtype, device=x.device).masked_fill(~keep, float("-inf"))
        if SCHEME == "alibi":
            slopes = 2.0 ** (-8.0 * torch.arange(1, HEADS + 1, device=x.device) / HEADS)
            distance = places[:, None, :, None] - key_places[:, None, None, :]
            bias = bias - (slopes[:, None, None] * distance).to(x.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(mixed.transpose(1, 2).reshape(rows, new, WIDTH))


class Block(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(number)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 96), nn.GELU(), nn.Linear(96, WIDTH))

    def forward(self, x, *rest):
        x = x + self.attention(self.first(x), *rest)
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    causal, packs = True, True
    max_length = LONGEST if SCHEME in ("learned", "sinusoidal") else None

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(WORDS, WIDTH)
        if SCHEME == "learned":
            self.table = nn.Embedding(LONGEST, WIDTH)
        if SCHEME == "sinusoidal":
            self.register_buffer("waves", make_sinusoids(LONGEST))
        self.blocks = nn.ModuleList(Block(number) for number in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def new_cache(self):
        return Cache()

    def roll_back(self, cache, tokens):
        cache.crop(tokens)

    def reorder(self, cache, rows):
        cache.select(rows)

    def forward(self, ids, mask=None, positions=None, cache=None):
        new = ids.shape[1]
        past = 0 if cache is None else cache.seen
        total = past + new
        packed = positions is not None and cache is None and mask is None and bool((positions.diff() < 0).any())
        places = self.find_places(ids, mask, positions, past)
        key_places = places if cache is None else cache.add_places(places)
        keep = self.find_keys(places, mask, past, total, packed)
        x = self.tokens(ids) * math.sqrt(WIDTH)
        x = self.add_position(x, places)
        for block in self.blocks:
            x = block(x, places, key_places, keep, cache)
        if cache is not None:
            cache.seen += new
        return self.head(self.norm(x))

    def find_places(self, ids, mask, positions, past):
        rows, new = ids.shape
        if positions is not None:
            return positions
        if mask is not None and mask.dim() == 2:
            counted = (mask.long().cumsum(1) - 1).clamp(min=0)
            return counted[:, -new:]
        return torch.arange(past, past + new, device=ids.device).expand(rows, new)

    def find_keys(self, places, mask, past, total, packed):
        queries = torch.arange(past, total, device=places.device)[:, None]
        keys = torch.arange(total, device=places.device)[None, :]
        keep = (keys <= queries)[None, None]
        if WINDOW:
            keep = keep & (queries - keys < WINDOW)[None, None]
        if mask is not None:
            keep = keep & (mask[:, None, None, :] if mask.dim() == 2 else mask).bool()
        if packed:
            document = (places.diff(prepend=places[:, :1]) < 0).cumsum(1)
            keep = keep & (document[:, None, :, None] == document[:, None, None, :])
        keep = keep.expand(places.shape[0], 1, total - past, total)
        return keep | ~keep.any(-1, keepdim=True)

    def add_position(self, x, places):
        if SCHEME == "learned":
            if int(places.max()) >= LONGEST:
                raise ValueError(f"position {int(places.max())} is beyond the maximum length {LONGEST}")
            x = x + self.table(places)
        if SCHEME == "sinusoidal":
            if int(places.max()) >= LONGEST:
                raise ValueError(f"position {int(places.max())} is beyond the maximum length {LONGEST}")
            x = x + self.waves[places].to(x.dtype)
        return x
