"""What the routes of one server share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request

from octavo.async_llm import AsyncLLM
from octavo.prompts import PromptReader
from octavo.server.admission import Admission
from octavo.server.body import read_json_object
from octavo.server.errors import ApiError
from octavo.server.lifeline import ClientGone, Lifeline
from octavo.server.options import ServerOptions
from octavo.server.request_counts import RequestCounts

LONG_TEXT = 16_384
"""Characters from which on a text is tokenized off the event loop"""
T = TypeVar("T")


class ServerContext:
    """The model, the queue and the limits."""

    def __init__(self, llm: AsyncLLM, options: ServerOptions) -> None:
        loaded = llm.loaded
        self.llm = llm
        self.options = options
        self.names = options.model_names or (loaded.options.model,)
        self.tokenizer = loaded.tokenizer
        self.reader = PromptReader(loaded.tokenizer, loaded.vocab_size, loaded.max_model_len, options.tool_format)
        self.admission = Admission(options.max_queued_requests, options.max_queued_tokens)
        self.lifelines: set[Lifeline] = set()
        self.counts = RequestCounts()
        self.at_drain: set[Callable[[], None]] = set()
        """Called when draining begins, to wake what would sleep through it"""
        self._long_texts = ThreadPoolExecutor(1, "octavo-text")

    @property
    def name(self) -> str:
        """The model's name in answers."""
        return self.names[0]

    def check_model(self, name: str | None) -> None:
        """ApiError 404 for a model that is not this one."""
        if name is not None and name not in self.names:
            message = f"model {name[:200]!r} is not here; this server has {', '.join(self.names)}"
            raise ApiError(404, message, "model", "model_not_found")

    async def read_body(self, request: Request) -> dict[str, Any]:
        """The request's JSON object; see read_json_object."""
        return await read_json_object(request, self.options.max_body_bytes, self.options.body_seconds)

    async def tokenize(self, request: Request, read: Callable[[], T], size: int) -> T:
        """Calls `read`, in another thread where there is much to tokenize: one such text at a time, so that they do
        not take the interpreter from the engine together. None is read for a client that has left."""
        if size < LONG_TEXT:
            return read()
        try:
            async with Lifeline(request.receive, self.options.request_seconds, self.lifelines):
                return await asyncio.get_running_loop().run_in_executor(self._long_texts, read)
        except ClientGone:
            raise ApiError(400, "the client left before its text was read") from None

    def drain(self) -> None:
        """No new requests from now on."""
        self.admission.draining = True
        for wake in list(self.at_drain):
            wake()

    def cut_all(self) -> None:
        """Ends every running request with an error."""
        for lifeline in list(self.lifelines):
            lifeline.cut(ApiError(503, "the server is shutting down", code="shutting_down"))
