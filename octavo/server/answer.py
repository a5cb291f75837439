"""The response to a request for text: one JSON object, or server-sent events."""

from __future__ import annotations

from contextlib import aclosing
from math import inf
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.outputs import CompletionOutput, RequestOutput
from octavo.server.admission import Ticket
from octavo.server.chunk_pipe import ChunkPipe, chunk_pipe, cut
from octavo.server.context import ServerContext
from octavo.server.errors import ApiError, as_api_error
from octavo.server.event_json import encode
from octavo.server.job import Job
from octavo.server.lifeline import ClientGone, ClientTooSlow, Lifeline
from octavo.server.request_log import note, note_failure

DONE = b"data: [DONE]\n\n"


class AnswerFormat(Protocol):
    """Makes the JSON of one kind of answer."""

    def opening(self) -> list[str]:
        """Chunks before the first text of a stream, as JSON."""

    def chunks(self, place: int, output: RequestOutput) -> list[str]:
        """Chunks for what is new of one prompt."""

    def closing(self, outputs: list[RequestOutput]) -> list[str]:
        """Chunks after the last text of a stream."""

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        """The answer in one piece."""


class Answer(Response):
    """Admits a job, runs it and sends its outputs; ends it when the client leaves, reads nothing, or time is up.

    A stream's status is decided by the first output: until then an error is an HTTP error, later an event. A
    slow reader gets what has come together since it last took something: one output is held for it, no more.
    """

    background = None

    def __init__(
        self, context: ServerContext, job: Job, form: AnswerFormat, stream: bool, headers: dict[str, str]
    ) -> None:
        self._context = context
        self._job = job
        self._form = form
        self._stream = stream
        self._extra_headers = headers
        self._started = False
        self._outputs: dict[int, RequestOutput] = {}
        self._pipe: ChunkPipe | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        job, context = self._job, self._context
        self._pipe = chunk_pipe(scope)
        try:
            ticket = context.admission.admit(job.params.num_sequences, job.prompt_tokens)
            try:
                async with Lifeline(receive, job.seconds, context.lifelines) as lifeline:
                    await self._run(ticket, lifeline, send)
            finally:
                ticket.close()
        except ClientGone:
            note(scope, outcome="client gone")
        except ClientTooSlow:
            note(scope, outcome="client too slow")
            cut(scope)
        except Exception as error:
            if isinstance(error, ValueError):  # the grammar was not good, or the prompt can never fit
                error = ValueError(job.explain(str(error)))
            await self._fail(as_api_error(error, self._started), scope, receive, send)
        finally:
            self._note(scope)

    async def _run(self, ticket: Ticket, lifeline: Lifeline, send: Send) -> None:
        interval = self._context.options.stream_interval if self._stream else inf
        async with aclosing(self._job.outputs(self._context.llm, interval)) as outputs:
            async for place, output in outputs:
                ticket.start(place)
                self._outputs[place] = output
                if any(completion.finish_reason == "abort" for completion in output.outputs):
                    raise ApiError(500, "the request was aborted on the server", code="aborted")
                if self._stream:
                    if not self._started:
                        await self._start_stream(lifeline, send)
                    await self._send(lifeline, send, self._form.chunks(place, output))
        finished = [self._outputs[place] for place in sorted(self._outputs)]
        if self._stream:
            await self._send(lifeline, send, self._form.closing(finished), last=True)
        else:
            body = encode(self._form.whole(finished)).encode()
            self._started = True
            await self._begin(send, {"content-type": "application/json", "content-length": str(len(body))})
            await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _start_stream(self, lifeline: Lifeline, send: Send) -> None:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
        }
        self._started = True
        lifeline.watch_sends(self._context.options.slow_client_seconds)
        await self._begin(send, headers)
        await self._send(lifeline, send, self._form.opening())

    async def _begin(self, send: Send, headers: dict[str, str]) -> None:
        raw = [(name.lower().encode(), value.encode()) for name, value in (headers | self._extra_headers).items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})

    async def _send(self, lifeline: Lifeline, send: Send, chunks: list[str], last: bool = False) -> None:
        body = "".join([f"data: {chunk}\n\n" for chunk in chunks]).encode()
        if last:
            body += DONE
        if body:
            lifeline.begin_send()
            if self._pipe is None or last:
                await send({"type": "http.response.body", "body": body, "more_body": not last})
            else:
                await self._pipe.send_chunk(body)
            lifeline.end_send()

    async def _fail(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        note(scope, outcome="error", error=error.message)
        if not self._started:
            await error.response()(scope, receive, send)
        elif self._stream:
            note_failure(scope, error.status)
            body = f"data: {encode(error.body)}\n\n".encode() + DONE
            await send({"type": "http.response.body", "body": body, "more_body": False})

    def _note(self, scope: Scope) -> None:
        outputs = list(self._outputs.values())
        note(
            scope,
            prompt_tokens=sum(self._job.prompt_tokens),
            completion_tokens=sum(output.metrics.num_output_tokens for output in outputs),
            cached_tokens=sum(output.num_cached_tokens for output in outputs),
            finish_reasons=[completion.finish_reason for output in outputs for completion in output.outputs],
        )
        if self._context.options.log_prompts:
            note(scope, prompts=[prompt.text or prompt.token_ids for prompt in self._job.prompts])


def ending_json(completion: CompletionOutput) -> dict[str, Any]:
    """Fields of a choice: how it ended, and a beam's score."""
    score = {} if completion.score is None else {"score": completion.score}
    return {"finish_reason": completion.finish_reason, "stop_reason": completion.stop_reason, **score}


def usage_json(outputs: list[RequestOutput], count_output: bool = True) -> dict[str, Any]:
    """The field usage. A prompt counts once, whatever n is; all answers that were generated count, of beams those
    that are given."""
    prompt = sum(len(output.prompt_token_ids) for output in outputs)
    completion = sum(output.metrics.num_output_tokens for output in outputs) if count_output else 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(output.num_cached_tokens for output in outputs)},
    }
