"""A server with OpenAI's completions, which scores a prompt by ``echo`` and ``logprobs``, as vLLM does."""

from __future__ import annotations

import http.client
import json
import urllib.request
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor

from clockhands.checking.runtimes.program import Program, count_real
from clockhands.errors import CheckpointError, UsageError
from clockhands.reading import fetch, parse_json

SECONDS = 120.0
"""For one whole answer."""
_MOST_TOKENS = 1 << 18
_NO_SCORES = (
    "gives no log-probabilities of a prompt: it must take a list of tokens with echo and logprobs, as vLLM does "
    "(transformers serve has neither)"
)


class Refused(CheckpointError):
    """The server answered that it does not read this; any other answer of the wrong kind is damage."""


class CompletionsServer(Program):
    """A model at a server, asked at ``ADDRESS/completions``. Nothing is sent anywhere else: redirects are refused."""

    scored = True

    def __init__(self, address: str, model: str | None = None) -> None:
        try:
            parts = urlsplit(address)
            _ = parts.port
        except ValueError as fault:
            raise UsageError(f"{address} is no address: {fault}; write http://HOST:PORT/v1") from fault
        self.name, self.engine = address, ("server", parts.netloc)
        self._address = address.rstrip("/")
        local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        proxies = urllib.request.ProxyHandler({}) if local else urllib.request.ProxyHandler()
        self._opener = urllib.request.build_opener(proxies, _NoRedirect)
        described = self._choose_model(model)
        self._model = str(described["id"])
        length = described.get("max_model_len")
        self.max_length = length if type(length) is int and length > 1 else None
        self._flags: dict[str, Any] = {}
        self._ask([[0, 0]])  # says why, if it cannot be scored at all
        # The first token that is refused, found by halving.
        self.vocabulary = 1 + bisect_left(range(1, _MOST_TOKENS), True, key=lambda n: not self._answers([[n, n]]))
        together = {"mask"} if self._answers([[1, 2], [3, 4, 5]]) else set()
        self._flags = {"cache_prompt": False}
        reuse = {"reuse"} if self._answers([[1, 2]]) else set()
        self._flags = self._flags if reuse else {}
        self.takes = frozenset(together | reuse)

    def logits(
        self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        """Return the log-probability [B, S, 1] of each token given those before it; 0 for the first and for pads."""
        counts = [ids.shape[1]] * len(ids) if mask is None else count_real(mask)
        texts = [row[:count] for row, count in zip(ids.tolist(), counts, strict=True)]
        if len(texts) > 1 and "mask" not in self.takes:
            raise NotImplementedError("the server takes one text at a time")
        scores = self._ask(texts)
        return torch.nn.functional.pad(scores, (0, 0, 0, ids.shape[1] - scores.shape[1]))

    def reuse(self, ids: Tensor) -> Tensor:
        """Return the same of one text, for which the server may use its prefix cache."""
        return self._ask(ids.tolist(), reuse=True)

    def _choose_model(self, model: str | None) -> dict[str, Any]:
        """Return what the server says of the model of that name, or of its only one.

        A named model need not be listed: transformers lists what its hub cache holds, and fails without one.
        """
        try:
            models = {str(entry["id"]): dict(entry) for entry in self._send("/models")["data"]}
        except CheckpointError:
            if model is None:
                raise
            return {"id": model}
        except (KeyError, TypeError, ValueError) as fault:
            raise CheckpointError(f"{self._address}/models does not list models: {fault}") from fault
        if model is None and len(models) == 1:
            return next(iter(models.values()))
        if model is None or (models and model not in models):
            names = ", ".join(sorted(models)) or "none that it lists"
            raise UsageError(f"{self.name} has the models {names}: choose with --model NAME")
        return models.get(model, {"id": model})

    def _answers(self, texts: Sequence[list[int]]) -> bool:
        try:
            self._ask(texts)
        except Refused:
            return False
        return True

    def _ask(self, texts: Sequence[list[int]], reuse: bool = False) -> Tensor:
        """Return the scores [B, S, 1] of each text behind its first token, else 0.

        Raises CheckpointError for any other answer.
        """
        asked_for = {"max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
        flags = dict.fromkeys(self._flags, reuse)
        answer = self._send("/completions", {"model": self._model, "prompt": texts, **asked_for, **flags})
        try:
            rows = {choice["index"]: choice["logprobs"]["token_logprobs"] for choice in answer["choices"]}
            indices = [choice["index"] for choice in answer["choices"]]
        except (KeyError, TypeError) as fault:
            raise CheckpointError(f"{self.name} {_NO_SCORES}") from fault
        if any(type(index) is not int for index in indices) or sorted(indices) != list(range(len(texts))):
            raise CheckpointError(f"{self.name} gave answers of the indices {indices[:8]} for {len(texts)} texts")
        scores = torch.zeros(len(texts), max(map(len, texts)), 1, dtype=torch.float64)
        for place, text in enumerate(texts):
            row = rows[place]
            if not isinstance(row, list):
                raise CheckpointError(f"{self.name} gave {str(row)[:40]!r} as token_logprobs, which is no list")
            # Behind the text stands what was generated; of the first token no log-probability is known.
            own = row[1 : len(text)]
            if len(row) - len(text) not in (0, 1) or None in own:
                raise CheckpointError(
                    f"{self.name} gave {len(row)} scores for a text of {len(text)} tokens and one that is generated: "
                    "turn off what adds tokens to a prompt, and see that echo covers all of it"
                )
            for score in own:
                number = type(score) is float or (type(score) is int and abs(score) < 1 << 53)
                if not number or score > 1e-3:
                    raise CheckpointError(
                        f"{self.name} gave {str(score)[:40]!r} as a score, which is no log-probability"
                    )
            scores[place, 1 : len(text), 0] = torch.tensor(own, dtype=torch.float64)
        return scores

    def _send(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the JSON that is answered. Raises CheckpointError for what is none, takes too long or never ends."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        request = urllib.request.Request(self._address + path, data, headers)
        try:
            status, answer = fetch(self._opener, request, SECONDS)
            if status < 300:
                return parse_json(answer)
        except (OSError, http.client.HTTPException) as fault:
            reason = getattr(fault, "reason", fault)
            unreachable = f"{self._address}{path} cannot be reached: {reason}; is the server running?"
            raise CheckpointError(unreachable) from fault
        except ValueError as fault:
            raise CheckpointError(f"{self._address}{path} answered what cannot be read: {fault}") from fault
        text = " ".join(answer[:400].decode("utf8", "replace").split())
        refused = f". It {_NO_SCORES}" if body is not None and status in (400, 422) else ""
        raise Refused(f"{self._address}{path} answered {status}: {text[:200]}{refused}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The user named one host, and no other gets the texts."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
