"""Four small Transformers as people write them from scratch. ``faults.py`` plants one mistake at a time in this text.

``SCHEME`` is "learned", "rope", "alibi" or "t5"; the last is an encoder-decoder, seen from its decoder over one source
that stays, or from its source side (``Source``) under one target that stays.
"""

import math

import torch
from torch import nn

SCHEME = "rope"
WIDTH, HEADS, HEAD, WORDS, LONGEST, LAYERS = 64, 4, 16, 60, 128, 2


class Cache:
    """Keys and values of every layer, and the position of every key."""

    def __init__(self):
        self.k, self.v = {}, {}
        self.at = None

    @property
    def length(self):
        return 0 if self.at is None else self.at.shape[1]

    def place(self, positions):
        self.at = positions if self.at is None else torch.cat([self.at, positions], 1)
        return self.at

    def extend(self, index, k, v):
        if index in self.k:
            k, v = torch.cat([self.k[index], k], 2), torch.cat([self.v[index], v], 2)
        self.k[index], self.v[index] = k, v
        return k, v

    def crop(self, tokens):
        self.at = self.at[:, :-tokens]
        self.k = {i: k[:, :, :-tokens] for i, k in self.k.items()}
        self.v = {i: v[:, :, :-tokens] for i, v in self.v.items()}

    def select(self, rows):
        self.at = self.at[rows]
        self.k = {i: k[rows] for i, k in self.k.items()}
        self.v = {i: v[rows] for i, v in self.v.items()}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        if SCHEME == "rope":
            self.inv_freq = 10000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD)
        if SCHEME == "alibi":
            self.slopes = 2.0 ** (-8.0 * torch.arange(1, HEADS + 1).float() / HEADS)

    def forward(self, index, x, read, at, keys_at, allowed, cache, bias):
        q, k, v = self.split(self.q(x)), self.split(self.k(read)), self.split(self.v(read))
        if SCHEME == "rope":
            q, k = self.rotate(q, at), self.rotate(k, at)
        if cache is not None:
            k, v = cache.extend(index, k, v)
        scores = q @ k.transpose(-1, -2) / math.sqrt(HEAD)
        if SCHEME == "alibi":
            distance = (at[:, None, :, None] - keys_at[:, None, None, :]).float()
            scores = scores - (self.slopes.to(x.device)[:, None, None] * distance).to(scores.dtype)
        if bias is not None:
            scores = scores + bias
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        mixed = scores.softmax(-1) @ v
        return self.o(mixed.transpose(1, 2).flatten(2))

    def split(self, x):
        return x.unflatten(-1, (HEADS, HEAD)).transpose(1, 2)

    def rotate(self, x, at):
        angles = at[:, None, :, None].float() * self.inv_freq.to(x.device)
        cos, sin = angles.cos().repeat(1, 1, 1, 2), angles.sin().repeat(1, 1, 1, 2)
        first, second = x.chunk(2, -1)
        turned = torch.cat([-second, first], -1)
        return (x.float() * cos + turned.float() * sin).to(x.dtype)


class Block(nn.Module):
    def __init__(self, crosses):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.attention = Attention()
        self.cross = Attention() if crosses else None
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, index, x, at, keys_at, allowed, cache, bias, source, source_allowed):
        normed = self.norms[0](x)
        x = x + self.attention(index, normed, normed, at, keys_at, allowed, cache, bias)
        if self.cross is not None:
            x = x + self.cross(index, self.norms[2](x), source, at, None, source_allowed, None, None)
        return x + self.mlp(self.norms[1](x))


class Model(nn.Module):
    causal, max_length, grown = True, LONGEST if SCHEME == "learned" else None, 0

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        if SCHEME == "learned":
            self.pos_emb = nn.Embedding(LONGEST, WIDTH)
        if SCHEME == "t5":
            self.rel_bias = nn.Embedding(16, HEADS)
            self.source_bias = nn.Embedding(16, HEADS)
            self.encoder = nn.ModuleList(Block(False) for _ in range(LAYERS))
            self.source_norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Block(SCHEME == "t5") for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def new_cache(self):
        return Cache()

    def roll_back(self, cache, tokens):
        cache.crop(tokens)

    def reorder(self, cache, rows):
        cache.select(rows)

    def forward(self, ids, mask=None, positions=None, cache=None):
        return self.decode(ids, mask, positions, cache, *self.encode(*self.fixed(ids)))

    def fixed(self, ids):
        return torch.arange(5, 17, device=ids.device).repeat(ids.shape[0], 1), None

    def decode(self, ids, mask, positions, cache, source, source_allowed):
        rows, new = ids.shape
        past = 0 if cache is None else cache.length
        if positions is None and mask is not None and mask.dim() == 2:
            positions = (mask.long().cumsum(-1) - 1).clamp(min=0)[:, past : past + new]
        if positions is None:
            positions = torch.arange(past, past + new, device=ids.device).expand(rows, -1)
        keys_at = positions if cache is None else cache.place(positions)
        total = past + new
        allowed = torch.ones(new, total, dtype=torch.bool, device=ids.device).tril(total - new)[None, None]
        if mask is not None:
            allowed = allowed & (mask if mask.dim() == 4 else mask[:, None, None, :].bool())
        x = self.embed(ids)
        if SCHEME == "learned":
            if int(positions.max()) >= LONGEST:
                raise ValueError(f"a text longer than the maximum of {LONGEST} positions")
            x = x + self.pos_emb(positions)
        bias = self.make_bias(self.rel_bias, positions, keys_at, False) if SCHEME == "t5" else None
        for index, layer in enumerate(self.layers):
            x = layer(index, x, positions, keys_at, allowed, cache, bias, source, source_allowed)
        return self.head(self.norm(x))

    def encode(self, ids, mask):
        if SCHEME != "t5":
            return None, None
        rows, length = ids.shape
        at = torch.arange(length, device=ids.device).expand(rows, -1)
        seen = torch.ones(rows, length, dtype=torch.bool, device=ids.device) if mask is None else mask.bool()
        source_allowed = seen[:, None, None, :]
        x = self.embed(ids)
        bias = self.make_bias(self.source_bias, at, at, True)
        for index, layer in enumerate(self.encoder):
            x = layer(index, x, at, at, source_allowed, None, bias, None, None)
        return self.source_norm(x), source_allowed

    def make_bias(self, table, at, keys_at, both_ways):
        buckets = self.bucket(keys_at[:, None, :] - at[:, :, None], both_ways)
        return table(buckets).permute(0, 3, 1, 2)

    def bucket(self, distance, both_ways):
        count, base = (8, (distance > 0).long() * 8) if both_ways else (16, 0)
        back = distance.abs() if both_ways else (-distance).clamp(min=0)
        exact = count // 2
        far = exact + (torch.log(back.clamp(min=1).float() / exact) / math.log(64 / exact) * (count - exact)).long()
        return base + torch.where(back < exact, back, far.clamp(max=count - 1))


class Source(nn.Module):
    """The source side: what a fixed target is answered as the source changes."""

    causal, max_length = False, LONGEST

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask=None):
        target = torch.arange(20, 28, device=ids.device).repeat(ids.shape[0], 1)
        return self.model.decode(target, None, None, None, *self.model.encode(ids, mask))
