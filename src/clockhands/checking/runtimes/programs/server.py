"""A server with OpenAI's completions, which scores a prompt by ``echo`` and ``logprobs``, as vLLM does."""

from __future__ import annotations

import http.client
import json
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from clockhands.checking.runtimes.runtime import RUNTIMES, WHOLE, Offer, Texts, Way
from clockhands.errors import CheckpointError, UsageError
from clockhands.reading import fetch, parse_json

_SECONDS = 120
_MOST_TOKENS = 1 << 18
_NO_SCORES = (
    "gives no log-probabilities of a prompt: it must take a list of tokens with echo and logprobs, as vLLM does "
    "(transformers serve has neither)"
)


class CompletionsServer:
    """A model at a server, asked at ``ADDRESS/completions``. Nothing is sent anywhere else: redirects are refused."""

    def __init__(self, address: str, model: str | None = None) -> None:
        self.name, self.engine = address, ("server", urlsplit(address).netloc)
        self._address = address.rstrip("/")
        local = urlsplit(address).hostname in ("127.0.0.1", "localhost", "::1")
        proxies = urllib.request.ProxyHandler({}) if local else urllib.request.ProxyHandler()
        self._opener = urllib.request.build_opener(proxies, _NoRedirect)
        described = self._choose(model)
        self._model = str(described["id"])
        length = described.get("max_model_len")
        self.limit = length if isinstance(length, int) else None
        self._flags: dict[str, Any] = {}
        self._ask([[0, 0]])  # says why, if it cannot be scored at all
        self.vocabulary = self._count_tokens()
        self.offers = frozenset(self._list_offers())

    def _choose(self, model: str | None) -> dict[str, Any]:
        """Return what the server says of the model of that name, or of its only one.

        A named model need not be listed: transformers lists what its hub cache holds, and fails without one.
        """
        try:
            models = {str(entry["id"]): entry for entry in self._send("/models")["data"]}
        except CheckpointError:
            if model is None:
                raise
            return {"id": model}
        except (KeyError, TypeError) as fault:
            raise CheckpointError(f"{self._address}/models does not list models: {fault}") from fault
        if model is None and len(models) == 1:
            return next(iter(models.values()))
        if model is None or (models and model not in models):
            names = ", ".join(sorted(models)) or "none that it lists"
            raise UsageError(f"{self.name} has the models {names}: choose with --model NAME")
        return models.get(model, {"id": model})

    def _count_tokens(self) -> int:
        """Return how many tokens there are: the first that is refused, which is found by halving."""
        low, high = 0, _MOST_TOKENS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._takes([[middle, middle]]) else (low, middle)
        return high

    def _list_offers(self) -> list[Offer]:
        offers: list[Offer] = ["together", "right"] if self._takes([[1, 2], [3, 4, 5]]) else []
        self._flags = {"cache_prompt": False}
        if self._takes([[1, 2]]):
            offers.append("reuse")
        else:
            self._flags = {}
        return offers

    def _takes(self, texts: Texts) -> bool:
        try:
            self._ask(texts)
        except CheckpointError:
            return False
        return True

    def score(self, texts: Texts, way: Way = WHOLE) -> list[list[float]]:
        """Return the log-probability of every token but the first of each text."""
        if way.together:
            return self._ask(texts, way.reuse)
        return [scores for text in texts for scores in self._ask([text], way.reuse)]

    def _ask(self, texts: Texts, reuse: bool = False) -> list[list[float]]:
        prompt = [list(text) for text in texts]
        asked_for = {"max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
        flags = dict.fromkeys(self._flags, reuse)
        answer = self._send("/completions", {"model": self._model, "prompt": prompt, **asked_for, **flags})
        try:
            choices = sorted(answer["choices"], key=lambda choice: choice["index"])
            rows = [choice["logprobs"]["token_logprobs"] for choice in choices]
        except (KeyError, TypeError) as fault:
            raise CheckpointError(f"{self.name} {_NO_SCORES}") from fault
        if len(rows) != len(prompt):
            raise CheckpointError(f"{self.name} gave {len(rows)} answers for {len(prompt)} texts")
        return [self._cut(row, len(text)) for row, text in zip(rows, prompt, strict=True)]

    def _cut(self, row: list[float | None], length: int) -> list[float]:
        """Leave out what was generated, and the first token, of which no log-probability is known."""
        if len(row) - length not in (0, 1) or any(score is None for score in row[1:length]):
            raise CheckpointError(
                f"{self.name} gave {len(row)} scores for a text of {length} tokens and one that is generated: "
                "turn off what adds tokens to a prompt, and see that echo covers all of it"
            )
        return [float(score or 0.0) for score in row[1:length]]

    def _send(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json", "Accept": "application/json"}
        )
        try:
            status, answer = fetch(self._opener, request, _SECONDS)
            if status < 300:
                return parse_json(answer)
        except (OSError, http.client.HTTPException) as fault:
            reason = getattr(fault, "reason", fault)
            raise CheckpointError(
                f"{self._address}{path} cannot be reached: {reason}; is the server running?"
            ) from fault
        except ValueError as fault:
            raise CheckpointError(f"{self._address}{path} answered what cannot be read: {fault}") from fault
        text = " ".join(answer[:400].decode("utf8", "replace").split())
        refused = f". It {_NO_SCORES}" if body is not None and status in (400, 422) else ""
        raise CheckpointError(f"{self._address}{path} answered {status}: {text[:200]}{refused}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The user named one host, and no other gets the texts."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _Opener:
    """An address that begins with http:// or https://."""

    def recognises(self, name: str) -> bool:
        """Return whether it is an address."""
        return name.startswith(("http://", "https://"))

    def open(self, name: str, model: str | None = None) -> CompletionsServer:
        """Ask for its models. Raises UsageError where one must be chosen, CheckpointError where nothing answers."""
        return CompletionsServer(name, model)


RUNTIMES["server"] = _Opener()
