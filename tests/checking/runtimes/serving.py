"""A completions server on this host, with echo and logprobs: a tiny model, sound or with a fault that servers have."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import DynamicCache

Lie = Callable[[list[dict[str, Any]], list[list[int]]], Any]


class Engine:
    """Scores prompts with a KV cache whose beginning is reused; ``fault``: "stale", "counted", "silent" or none."""

    def __init__(self, model: Any, fault: str) -> None:
        self.model, self.fault = model, fault
        self.kept: list[int] = []
        self.cache = DynamicCache(config=model.config)
        self.logits = torch.empty(0, model.config.vocab_size)
        self.lock = threading.Lock()

    @torch.no_grad()
    def score(self, prompts: list[list[int]], reuse: bool) -> list[list[float | None]]:
        with self.lock:
            width = max(map(len, prompts))
            return [self._score(prompt, width - len(prompt), reuse) for prompt in prompts]

    def _score(self, prompt: list[int], pads: int, reuse: bool) -> list[float | None]:
        common = 0
        while reuse and common < min(len(prompt) - 1, len(self.kept)):
            # "stale": blocks of the cache are found by their number alone, as where a hash leaves the tokens out.
            if self.fault != "stale" and prompt[common] != self.kept[common]:
                break
            common += 1
        if common:
            for layer in self.cache.layers:
                layer.keys, layer.values = layer.keys[:, :, :common], layer.values[:, :, :common]
        else:
            self.cache = DynamicCache(config=self.model.config)
        first = common + (pads if self.fault == "counted" else 0)
        ids = torch.tensor([prompt[common:]])
        places = torch.arange(first, first + ids.shape[1])[None]
        mask = torch.ones(1, len(prompt), dtype=torch.long)
        output = self.model(ids, attention_mask=mask, position_ids=places, past_key_values=self.cache, use_cache=True)
        self.logits = torch.cat([self.logits[:common], output.logits[0]])
        self.kept = list(prompt)
        logs = self.logits.double().log_softmax(-1)
        following = [*prompt[1:], int(logs[-1].argmax())]
        return [None, *logs[range(len(prompt)), following].tolist()]


@contextlib.contextmanager
def serve(model: Any, fault: str = "sound", lie: Lie | None = None) -> Iterator[str]:
    """Serve on a free port of 127.0.0.1 inside the block; gives the address. ``lie`` changes what is answered."""
    engine, vocabulary = Engine(model, fault), model.config.vocab_size

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

        def answer(self, code: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            entries = [{"id": "tiny", "max_model_len": model.config.max_position_embeddings}]
            if fault == "unlisted":
                self.answer(500, {"error": "nothing is listed"})
            elif self.path == "/v1/models":
                self.answer(200, {"data": entries})
            else:
                self.send_response(302)
                self.send_header("Location", "/v1/models")
                self.end_headers()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompts = body["prompt"]
            if any(token >= vocabulary for prompt in prompts for token in prompt):
                self.answer(400, {"error": "a token is not in the vocabulary"})
                return
            rows = engine.score(prompts, body.get("cache_prompt", True))
            choices = [
                {"index": n, "text": "", "logprobs": None if fault == "silent" else {"token_logprobs": row}}
                for n, row in enumerate(rows)
            ]
            if fault == "endless":
                self.send_response(200)
                self.end_headers()
                with contextlib.suppress(OSError):
                    while not ended.is_set():
                        self.wfile.write(b"[" * 65536)
                return
            if fault == "slow" and len(prompts[0]) > 2:
                self.send_response(200)
                self.end_headers()
                with contextlib.suppress(OSError):
                    while not ended.wait(0.05):
                        self.wfile.write(b" ")
                        self.wfile.flush()
                return
            self.answer(200, {"choices": lie(choices, prompts) if lie else choices})

    ended = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
