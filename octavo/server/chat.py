"""POST /v1/chat/completions"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.outputs import CompletionOutput, RequestOutput
from octavo.prompts import TokenizedPrompt, text_size
from octavo.server.answer import Answer, ending_json, usage_json
from octavo.server.context import ServerContext
from octavo.server.errors import bad_request
from octavo.server.event_json import TEXT, TextEvent, encode
from octavo.server.fields import CHAT_UNSUPPORTED, ChatFields, parse_fields, stream_usage
from octavo.server.generation import deadline_seconds, ignored_header
from octavo.server.job import Job
from octavo.server.logprobs import TokenSpelling, chat_logprobs, prompt_logprobs_json
from octavo.server.messages import read_messages
from octavo.server.params import make_params
from octavo.server.structured import in_words_of, read_structured
from octavo.server.tool_calls import CallReader
from octavo.server.tool_fields import ToolUse, read_tool_use
from octavo.server.tool_form import call_params, explain_tools


async def chat(request: Request, context: ServerContext) -> Response:
    """Answers a conversation."""
    context.admission.check()
    body = await context.read_body(request)
    fields, ignored = parse_fields(ChatFields, body, CHAT_UNSUPPORTED)
    context.check_model(fields.model)
    usage = stream_usage(fields, ignored)
    messages = read_messages(fields.messages, ignored)
    if fields.stream and fields.prompt_logprobs is not None:
        raise bad_request("prompt_logprobs: may not be given with stream=true")
    wanted, asked_by = read_structured(fields, ignored)
    explain = partial(in_words_of, asked_by)
    more: dict[str, Any] = {"structured_outputs": wanted}
    use = read_tool_use(fields, ignored)
    if use is not None:
        more = call_params(use, fields, context, wanted, asked_by)
        explain = partial(explain_tools, use, more["structured_outputs"])
    params = make_params(fields, max_tokens=_max_tokens(fields), logprobs=_logprobs(fields), **more)
    params.check_vocab(context.llm.loaded.vocab_size)

    def read() -> TokenizedPrompt:
        tools = None if use is None else use.for_template
        prompt = context.reader.read_chat(messages, tools, fields.add_generation_prompt)
        return TokenizedPrompt(prompt.text, prompt.token_ids, fields.cache_salt)

    if fields.cache_salt == "":
        raise bad_request("cache_salt: must not be empty")
    prompt = await context.tokenize(request, read, text_size([messages, fields.tools]))
    job = Job([prompt], params, deadline_seconds(request, fields, context), explain)
    return Answer(context, job, ChatFormat(context, job, fields, usage, use), fields.stream, ignored_header(ignored))


def _max_tokens(fields: ChatFields) -> int | None:
    old, new = fields.max_tokens, fields.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise bad_request(f"max_completion_tokens is {new} and max_tokens is {old}, must be the same or one alone")
    return old if new is None else new


def _logprobs(fields: ChatFields) -> int | None:
    if fields.top_logprobs is not None and not fields.logprobs:
        raise bad_request("top_logprobs: may only be given with logprobs=true")
    return (fields.top_logprobs or 0) if fields.logprobs else None


class ChatFormat:
    """Chat completions as OpenAI's clients read them."""

    def __init__(self, context: ServerContext, job: Job, fields: ChatFields, usage: bool, use: ToolUse | None) -> None:
        self._spelling = TokenSpelling(context.tokenizer)
        self._n = job.params.n
        self._top = fields.top_logprobs or 0
        self._usage = usage
        self._base = {"id": f"chatcmpl-{job.id}", "created": int(time.time()), "model": context.name}
        self._sent_tokens = [0] * self._n
        self._ended: set[int] = set()
        self._text_events: dict[int, TextEvent] = {}
        self._readers: list[CallReader] | None = None
        if use is not None:
            form, drop = context.reader.tool_style.format, context.tokenizer.verbatim is not context.tokenizer
            self._readers = [CallReader(form, use, drop) for _ in range(self._n)]

    def opening(self) -> list[str]:
        """The role of each choice."""
        content = "" if self._readers is None else None
        return [encode(self._chunk(index, {"role": "assistant", "content": content})) for index in range(self._n)]

    def chunks(self, place: int, output: RequestOutput) -> list[str]:
        """Chunks for each choice with something new."""
        chunks = []
        for completion in output.outputs:
            index = completion.index
            if index in self._ended:
                continue
            if self._readers is None and completion.logprobs is None and not completion.finished:
                if completion.delta:
                    chunks.append(self._text_event(index).json(completion.delta))
                continue
            logprobs = self._new_logprobs(completion)
            deltas = self._deltas(completion)
            if deltas or logprobs or completion.finished:
                *first, last = deltas or [{}]
                chunks += [encode(self._chunk(index, delta)) for delta in first]
                chunks.append(encode(self._chunk(index, last, logprobs, completion)))
            if completion.finished:
                self._ended.add(index)
        return chunks

    def closing(self, outputs: list[RequestOutput]) -> list[str]:
        """Usage, if it was asked for."""
        if not self._usage:
            return []
        return [encode({**self._base, "object": "chat.completion.chunk", "choices": [], "usage": usage_json(outputs)})]

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        """All choices."""
        (output,) = outputs
        choices = [
            {
                "index": completion.index,
                "message": self._message(completion),
                "logprobs": self._new_logprobs(completion),
                **self._ending(completion),
            }
            for completion in output.outputs
        ]
        more = {}
        if output.prompt_logprobs is not None:
            more["prompt_logprobs"] = prompt_logprobs_json(output.prompt_logprobs)
        return {**self._base, "object": "chat.completion", "choices": choices, "usage": usage_json(outputs), **more}

    def _text_event(self, index: int) -> TextEvent:
        """The chunk of a choice that goes on, with nothing new but text."""
        if index not in self._text_events:
            self._text_events[index] = TextEvent(self._chunk(index, {"content": TEXT}))
        return self._text_events[index]

    def _deltas(self, completion: CompletionOutput) -> list[dict[str, Any]]:
        if self._readers is not None:
            return self._readers[completion.index].deltas(completion.delta, completion)
        return [{"content": completion.delta}] if completion.delta else []

    def _message(self, completion: CompletionOutput) -> dict[str, Any]:
        if self._readers is not None:
            return self._readers[completion.index].message(completion)
        return {"role": "assistant", "content": completion.text, "refusal": None}

    def _ending(self, completion: CompletionOutput) -> dict[str, Any]:
        ending = ending_json(completion)
        if self._readers is not None:
            ending["finish_reason"] = self._readers[completion.index].finish_reason(completion)
        return ending

    def _new_logprobs(self, completion: CompletionOutput) -> dict[str, Any] | None:
        """Of the tokens that were not sent before; None where there are none."""
        if completion.logprobs is None:
            return None
        sent = self._sent_tokens[completion.index]
        self._sent_tokens[completion.index] = len(completion.logprobs)
        new = completion.logprobs[sent:]
        return chat_logprobs(new, self._top, self._spelling) if new else None

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        completion: CompletionOutput | None = None,
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        if completion is not None and completion.finished:
            choice |= self._ending(completion)
        more = {"usage": None} if self._usage else {}
        return {**self._base, "object": "chat.completion.chunk", "choices": [choice], **more}
