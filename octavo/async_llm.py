"""The same for asyncio: the engine runs in its own thread, the event loop only delivers."""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypeVar

from octavo.beam_search_params import BeamSearchParams
from octavo.config import EngineOptions
from octavo.engine_thread import EngineObserver, EngineThread, Progress
from octavo.loading import LoadedModel, load
from octavo.outputs import RequestOutput
from octavo.prompts import Conversation, Prompt, PromptReader, TokenizedPrompt
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.engine.engine import Engine
    from octavo.engine.stats import EngineStats
    from octavo.text.tokenizer import Tokenizer

_LONG_TEXT = 16_384
"""Characters from which on a prompt is tokenized off the event loop."""

_T = TypeVar("_T")


class AsyncLLM:
    """A model that many tasks, on any number of event loops, share.

        async with AsyncLLM("smollm2") as llm:
            async for output in llm.generate("Hello", SamplingParams(max_tokens=16)):
                print(output.outputs[0].delta, end="", flush=True)

    Outputs are cumulative. A slow reader misses intermediate ones, never text, and never slows the engine
    down. Leaving the loop, closing the generator or cancelling the task aborts the request. Takes the options
    of LLM.
    """

    def __init__(self, model: str, **options: Any) -> None:
        self._start(load(EngineOptions(model=model, **options)))

    @classmethod
    def from_loaded(cls, loaded: LoadedModel) -> Self:
        """Takes over a model that is loaded already."""
        llm = cls.__new__(cls)
        llm._start(loaded)
        return llm

    def _start(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self._ids = count()
        self._reader = PromptReader(loaded.tokenizer, loaded.vocab_size, loaded.max_model_len)
        self._thread = EngineThread(loaded)
        # Also at exit: before the interpreter goes down, a daemon thread must be out of native code.
        self._finalizer = weakref.finalize(self, self._thread.close)

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        interval: float = 0.0,
    ) -> AsyncIterator[RequestOutput]:
        """Streams the answer to one prompt. Tokens that come less than `interval` seconds after an output are given
        together with the first later one, or at the end; among more than 24 requests the interval is longer in
        proportion. Raises ValueError at the first `anext` for a bad prompt, or for an id that is in use."""
        read = functools.partial(self._reader.read, prompt)
        return self._generate(read, _size(prompt), sampling_params, request_id, interval)

    def beam_search(
        self, prompt: Prompt, params: BeamSearchParams | None = None, request_id: str | None = None
    ) -> AsyncIterator[RequestOutput]:
        """Searches the likeliest answers to one prompt. Beams are known only at the end: the first output, which is
        empty, says that the search has begun, and the last one has them, the best first, with their `score`."""
        return self._generate(
            lambda: self._reader.read(prompt), _size(prompt), params or BeamSearchParams(), request_id
        )

    def chat(
        self,
        messages: Conversation,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Streams the answer to a conversation, through the model's own chat template."""
        size = sum(_size(message.get("content")) for message in messages if isinstance(message, Mapping))
        return self._generate(lambda: self._reader.read_chat(messages, tools), size, sampling_params, request_id)

    async def abort(self, request_id: str) -> None:
        """Ends a request in any state; its stream ends with finish_reason "abort". Unknown ids are
        ignored."""
        self._thread.abort(request_id)

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer: encode, decode, apply_chat_template."""
        return self.loaded.tokenizer

    def stats(self) -> EngineStats:
        """What the KV memory and the scheduler held after a step: the last one where nothing runs or a request has just
        ended, else one of the last tenth of a second or so."""
        return self._thread.stats()

    async def reset_prefix_cache(self) -> None:
        """Forgets all cached prefixes that no request uses; their memory goes back when the engine is idle."""
        self._thread.reset_prefix_cache()

    def observe(self, observer: EngineObserver) -> None:
        """Tells one observer of every request and step from now on."""
        self._thread.observe(observer)

    async def between_steps(self, look: Callable[[Engine], _T]) -> _T:
        """Calls look(engine) in the engine's thread, between two steps, and returns what it returns.

        All requests wait meanwhile, so it must be quick. What it raises is raised here. Raises EngineError
        where the AsyncLLM is closed.
        """
        return await asyncio.wrap_future(self._thread.look(look))

    def progress(self) -> Progress:
        """Whether the engine gets on. Never waits for it, not even where it hangs in a step."""
        return self._thread.progress()

    def close(self) -> None:
        """Ends all requests with EngineError, the thread, and frees the memory. May be called twice."""
        self._finalizer()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.to_thread(self.close)

    async def _generate(
        self,
        read: Callable[[], TokenizedPrompt],
        size: int,
        params: SamplingParams | BeamSearchParams | None,
        request_id: str | None,
        interval: float = 0.0,
    ) -> AsyncGenerator[RequestOutput, None]:
        prompt = await asyncio.to_thread(read) if size >= _LONG_TEXT else read()
        if request_id is None:
            request_id = f"request-{next(self._ids)}"
        params = params or SamplingParams()
        constraint = await self.loaded.grammars.awaited(params)
        stream = self._thread.submit(request_id, prompt, params, constraint, interval)
        try:
            while True:
                await stream.ready.wait()
                output = self._thread.take(stream)
                yield output
                if output.finished:
                    return
        finally:
            self._thread.abandon(stream)


def _size(prompt: object) -> int:
    """Characters to tokenize."""
    if isinstance(prompt, Mapping):
        prompt = prompt.get("prompt")
    return len(prompt) if isinstance(prompt, str) else 0
