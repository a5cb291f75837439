"""A model without weights, which answers at once with what a test tells it to say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from octavo.config import EngineOptions
from octavo.engine.request import Request
from octavo.engine.sequence_update import SequenceUpdate, TokenLogprob
from octavo.engine.stats import EngineStats
from octavo.guidance import GrammarCompiler
from octavo.loading import LoadedModel

EOS = 256
VOCAB_SIZE = 257
"""A token is a byte of UTF-8; one more ends the sequence."""

Answer = Callable[[Request], str]


class FakeDetokenizer:
    """Complete characters only; what is left over is flushed at the end."""

    def __init__(self) -> None:
        self._bytes = b""

    def append(self, token_id: int) -> str:
        if token_id != EOS:
            self._bytes += bytes([token_id])
        try:
            text = self._bytes.decode()
        except UnicodeDecodeError:
            return ""
        self._bytes = b""
        return text

    def extend(self, token_ids: Iterable[int]) -> str:
        return "".join([self.append(token_id) for token_id in token_ids])

    def finish(self) -> str:
        text, self._bytes = self._bytes.decode(errors="replace"), b""
        return text


class FakeTokenizer:
    """Bytes are ids; a conversation is "role: content" lines."""

    vocab_size = VOCAB_SIZE
    bos_token_id = None
    eos_token_ids = frozenset({EOS})
    control_ids = frozenset({EOS})
    chat_template: str | None = "fake"
    tool_template: str | None = "fake"
    control_tokens: dict[str, int] = {}  # noqa: RUF012 - nobody changes it

    def __init__(self) -> None:
        self.decoded = 0

    @property
    def verbatim(self) -> FakeTokenizer:
        return self

    def encode(self, text: str, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token_id: int) -> bytes:
        return b"<end>" if token_id == EOS else bytes([token_id])

    def decode(self, ids: list[int], skip_special_tokens: bool = True, after: object = ()) -> str:
        self.decoded += 1
        return bytes(token for token in ids if token != EOS).decode(errors="replace")

    def apply_chat_template(
        self, messages: list[dict[str, Any]], add_generation_prompt: bool = True, tools: Any = None
    ) -> list[int]:
        text = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return self.encode(text + ("assistant: " if add_generation_prompt else ""))

    def detokenizer(self, skip_special_tokens: bool = True, after: object = ()) -> FakeDetokenizer:
        return FakeDetokenizer()


class FakeEngine:
    """Says `answer(request)` byte by byte, one token of every running sequence a step, then the end of
    sequence.
    """

    def __init__(self, answer: Answer, max_num_seqs: int = 256) -> None:
        self.answer = answer
        self.max_num_seqs = max_num_seqs
        self.running: dict[str, Request] = {}
        self.progress: dict[tuple[str, int], int] = {}
        self.kept: dict[tuple[str, int], list[int]] = {}
        """Tokens of requests that are told late, of which no update has told yet"""
        self.aborted: list[str] = []
        self.finished: list[tuple[str, int, str]] = []
        self.steps = 0
        self.released = 0
        self.committed = 0
        self.kept_blocks = 0
        self.dropped = 0
        self.generated = 0
        self.computed_tokens = 0
        self.most_running = 0
        self.capacity = 10_000
        self.gate = threading.Event()
        """Cleared, it holds every step up"""
        self.gate.set()
        self.before_step: Callable[[], None] = lambda: None
        self.executor = SimpleNamespace(execute=lambda step: None)
        self.sampler = SimpleNamespace(
            sample=lambda logits, states: None, continuations=lambda logits, states, top: None
        )
        self.scheduler = SimpleNamespace(running=())
        self.manager = SimpleNamespace(windows=(None,))
        self.config = SimpleNamespace(max_model_len=4096)

    @property
    def has_unfinished(self) -> bool:
        return bool(self.running)

    def add_request(self, request: Request) -> None:
        if len(request.prompt_token_ids) > self.capacity:
            raise ValueError(f"prompt needs {len(request.prompt_token_ids)} slots of {self.capacity}")
        self.running[request.request_id] = request
        for index in range(request.params.n):
            self.progress[request.request_id, index] = 0
        self.most_running = max(self.most_running, len(self.running))

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)
        self._drop(request_id)

    def finish(self, request_id: str, index: int, reason: str) -> None:
        self.finished.append((request_id, index, reason))
        self._end(request_id, index)

    def step(self) -> list[SequenceUpdate]:
        self.gate.wait()
        self.before_step()
        self.steps += 1
        self.executor.execute(None)
        self.sampler.sample(None, [])
        keys = list(self.progress)[: self.max_num_seqs]
        return [update for key in keys if (update := self._told(self.running[key[0]], key)) is not None]

    def untold(self, request_id: str) -> list[tuple[int, list[int]]]:
        return [(key[1], self.kept.pop(key)) for key in list(self.kept) if key[0] == request_id]

    def close(self) -> None:
        pass

    def commit_ahead(self, num_blocks: int) -> Iterator[None]:
        for _ in range(min(num_blocks, 3)):
            self.committed += 1
            yield

    def release_idle_memory(self, keep_blocks: int = 0) -> int:
        self.released += 1
        self.kept_blocks = keep_blocks
        return 0

    def drop_prefix_cache(self) -> None:
        self.dropped += 1

    def stats(self) -> EngineStats:
        running = len(self.running)
        fields = dict.fromkeys(EngineStats.__dataclass_fields__, 0)
        fields.update(
            total_blocks=100,
            free_blocks=100 - running,
            referenced_blocks=running,
            block_size=64,
            running=running,
            generated_tokens=self.generated,
            steps=self.steps,
        )
        return EngineStats(**fields)

    def _told(self, request: Request, key: tuple[str, int]) -> SequenceUpdate | None:
        """A sequence's next token, or None where it is kept for later."""
        first = not self.progress[key]
        update = self._next(request, key[1])
        if request.told_late and not first and update.finish_reason is None:
            self.kept.setdefault(key, []).append(update.token_id)
            return None
        update.earlier = self.kept.pop(key, [])
        return update

    def _next(self, request: Request, index: int) -> SequenceUpdate:
        params, key = request.params, (request.request_id, index)
        answer = [*self.answer(request).encode(), EOS]
        place = self.progress[key]
        self.progress[key] += 1
        self.generated += 1
        token = answer[place % len(answer)] if params.ignore_eos else answer[place]
        reason = None
        if token == EOS and not params.ignore_eos:
            reason = "stop"
        elif params.max_tokens is not None and place + 1 >= params.max_tokens:
            reason = "length"
        if reason is not None:
            self._end(*key)
        return SequenceUpdate(
            request_id=request.request_id,
            index=index,
            token_id=token,
            logprobs=None if params.logprobs is None else self._logprob(params.logprobs),
            finish_reason=reason,
            stop_reason=None,
            num_cached_tokens=3,
            prompt_logprobs=self._prompt_logprobs(request) if place == 0 else None,
        )

    def _logprob(self, top: int) -> TokenLogprob:
        return TokenLogprob(-0.5, 1, list(range(top)), [-0.5 - place for place in range(top)])

    def _prompt_logprobs(self, request: Request) -> list[TokenLogprob | None] | None:
        if request.params.prompt_logprobs is None:
            return None
        rest = [self._logprob(request.params.prompt_logprobs) for _ in request.prompt_token_ids[1:]]
        return [None, *rest]

    def _end(self, request_id: str, index: int) -> None:
        self.progress.pop((request_id, index), None)
        if not any(key[0] == request_id for key in self.progress):
            self.running.pop(request_id, None)

    def _drop(self, request_id: str) -> None:
        self.running.pop(request_id, None)
        for key in [key for key in self.progress if key[0] == request_id]:
            del self.progress[key]
            self.kept.pop(key, None)


def echo(request: Request) -> str:
    """The default answer: the prompt in capitals."""
    return bytes(request.prompt_token_ids).decode(errors="replace").upper()


def make_fake_model(answer: Answer = echo, max_model_len: int = 4096, **engine: Any) -> LoadedModel:
    """A LoadedModel around a FakeEngine; `loaded.executor.closed` says whether it was closed."""
    executor = SimpleNamespace(name="fake", closed=False)
    executor.close = lambda: setattr(executor, "closed", True)
    fields: dict[str, Any] = {
        "options": EngineOptions(model="fake"),
        "path": Path("fake.gguf"),
        "config": None,
        "fingerprint": "fake",
        "program": SimpleNamespace(vocab_size=VOCAB_SIZE),
        "executor": executor,
        "tokenizer": FakeTokenizer(),
        "engine": FakeEngine(answer, **engine),
        "threads": 1,
        "max_model_len": max_model_len,
        "num_blocks": 100,
        "block_bytes": 1024,
        "weight_bytes": 0,
        "kv_cache_dtype": "float32",
    }
    fields["grammars"] = GrammarCompiler(fields["tokenizer"], VOCAB_SIZE, {EOS})
    return LoadedModel(**fields)
