"""POST /v1/completions"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.outputs import CompletionOutput, RequestOutput
from octavo.prompts import TokenizedPrompt
from octavo.server.answer import Answer, ending_json, usage_json
from octavo.server.context import ServerContext
from octavo.server.errors import bad_request
from octavo.server.event_json import TEXT, TextEvent, encode
from octavo.server.fields import (
    COMPLETION_UNSUPPORTED,
    CompletionFields,
    parse_fields,
    stream_usage,
)
from octavo.server.generation import deadline_seconds, ignored_header, salt_fields
from octavo.server.job import Job
from octavo.server.logprobs import (
    CompletionLogprobs,
    TokenOffsets,
    TokenSpelling,
    prompt_logprobs_json,
    prompt_text_and_offsets,
)
from octavo.server.params import make_params
from octavo.server.structured import in_words_of, read_structured


async def complete(request: Request, context: ServerContext) -> Response:
    """Continues prompts."""
    context.admission.check()
    body = await context.read_body(request)
    fields, ignored = parse_fields(CompletionFields, body, COMPLETION_UNSUPPORTED)
    context.check_model(fields.model)
    usage = stream_usage(fields, ignored)
    if fields.max_tokens == 0 and not fields.echo:
        raise bad_request("max_tokens is 0, must be at least 1 without echo")
    if fields.stream and fields.prompt_logprobs is not None:
        raise bad_request("prompt_logprobs: may not be given with stream=true")
    scored = [
        count for count in (fields.prompt_logprobs, fields.logprobs if fields.echo else None) if count is not None
    ]
    # The engine always makes a token. With max_tokens=0 the prompt's logits are wanted, and that token is dropped.
    form_wanted, asked_by = read_structured(fields, ignored)
    params = make_params(
        fields,
        max_tokens=fields.max_tokens or 1,
        logprobs=fields.logprobs,
        prompt_logprobs=max(scored) if scored else None,
        structured_outputs=form_wanted,
    )
    params.check_vocab(context.llm.loaded.vocab_size)
    wanted = split_prompt_field(fields.prompt, context.options.max_prompts)
    salt = salt_fields(fields)

    def read() -> list[TokenizedPrompt]:
        return [context.reader.read({name: prompt, **salt}) for name, prompt in wanted]

    prompts = await context.tokenize(request, read, sum(len(prompt) for _, prompt in wanted))
    job = Job(prompts, params, deadline_seconds(request, fields, context), partial(in_words_of, asked_by))
    form = CompletionFormat(context, job, fields, usage)
    return Answer(context, job, form, fields.stream, ignored_header(ignored))


def split_prompt_field(prompt: Any, most: int) -> list[tuple[str, Any]]:
    """Text, ids, or a list of either -> (prompt or prompt_token_ids, value) for each."""
    if isinstance(prompt, str):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise bad_request("prompt: must be text, token ids, or a list of these that is not empty")
    if all(type(entry) is int for entry in prompt):
        return [("prompt_token_ids", prompt)]
    if len(prompt) > most:
        raise bad_request(f"prompt: has {len(prompt)} prompts, must be at most {most}")
    for place, entry in enumerate(prompt):
        if not isinstance(entry, str | list):
            raise bad_request(f"prompt[{place}]: must be text or token ids")
    return [("prompt" if isinstance(entry, str) else "prompt_token_ids", entry) for entry in prompt]


class CompletionFormat:
    """Completions as OpenAI's clients read them. Choices count on over prompts: prompt * n + sequence."""

    def __init__(self, context: ServerContext, job: Job, fields: CompletionFields, usage: bool) -> None:
        self._tokenizer = context.tokenizer
        self._spelling = TokenSpelling(context.tokenizer)
        self._job = job
        self._fields = fields
        self._usage = usage
        self._base = {
            "id": f"cmpl-{job.id}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": context.name,
        }
        self._offsets: dict[int, TokenOffsets] = {}
        self._sent_tokens: dict[int, int] = {}
        self._ended: set[int] = set()
        self._text_events: dict[int, TextEvent] = {}

    def opening(self) -> list[str]:
        """Nothing."""
        return []

    def chunks(self, place: int, output: RequestOutput) -> list[str]:
        """A chunk for each sequence with something new."""
        chunks = []
        for completion in output.outputs:
            index = place * self._job.params.n + completion.index
            if index in self._ended:
                continue
            if index in self._sent_tokens and completion.logprobs is None and not completion.finished:
                if completion.delta:
                    chunks.append(self._text_event(index, completion).json(completion.delta))
                continue
            choice = self._choice(index, place, output, completion, completion.delta)
            if choice["text"] or choice["logprobs"] or completion.finished:
                chunks.append(encode(self._chunk(choice)))
            if completion.finished:
                self._ended.add(index)
        return chunks

    def closing(self, outputs: list[RequestOutput]) -> list[str]:
        """Usage, if it was asked for."""
        return [encode({**self._base, "choices": [], "usage": self._usage_json(outputs)})] if self._usage else []

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        """All choices."""
        choices = [
            self._choice(place * self._job.params.n + completion.index, place, output, completion, completion.text)
            for place, output in enumerate(outputs)
            for completion in output.outputs
        ]
        if self._fields.prompt_logprobs is not None:
            for choice in choices:
                output = outputs[choice["index"] // self._job.params.n]
                choice["prompt_logprobs"] = prompt_logprobs_json(output.prompt_logprobs)
        return {**self._base, "choices": choices, "usage": self._usage_json(outputs)}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        more = {"usage": None} if self._usage else {}
        return {**self._base, "choices": [choice], **more}

    def _text_event(self, index: int, completion: CompletionOutput) -> TextEvent:
        """The chunk of a choice that goes on, with nothing new but text."""
        event = self._text_events.get(index)
        if event is None:
            choice = {"index": index, "text": TEXT, "logprobs": None, **ending_json(completion)}
            event = self._text_events[index] = TextEvent(self._chunk(choice))
        return event

    def _usage_json(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        return usage_json(outputs, count_output=self._fields.max_tokens > 0)

    def _choice(
        self, index: int, place: int, output: RequestOutput, completion: CompletionOutput, text: str
    ) -> dict[str, Any]:
        """Text and the logprobs of the tokens that were not sent before, the prompt's first where it is echoed."""
        if self._fields.max_tokens == 0:
            completion = replace(completion, token_ids=[], finish_reason="length", stop_reason=None, score=None)
            if completion.logprobs is not None:
                completion.logprobs = []
            text = ""
        first = index not in self._sent_tokens
        logprobs = None if completion.logprobs is None else CompletionLogprobs()
        if first:
            self._sent_tokens[index] = 0
            text = self._begin(index, place, output, logprobs) + text
        if logprobs is not None and completion.logprobs is not None:
            sent = self._sent_tokens[index]
            self._sent_tokens[index] = len(completion.token_ids)
            new = completion.token_ids[sent:]
            logprobs.add(new, completion.logprobs[sent:], self._offsets[index].add(new), self._spelling)
        return {
            "index": index,
            "text": text,
            "logprobs": logprobs.as_dict() if logprobs is not None and logprobs.tokens else None,
            **ending_json(completion),
        }

    def _begin(self, index: int, place: int, output: RequestOutput, logprobs: CompletionLogprobs | None) -> str:
        """The echoed prompt, or nothing; the offsets of what follows begin after it."""
        text = ""
        skip = self._job.params.skip_special_tokens
        if self._fields.echo:
            prompt = self._job.prompts[place]
            text, offsets = prompt_text_and_offsets(prompt.text, prompt.token_ids, self._tokenizer, skip)
            if logprobs is not None and output.prompt_logprobs is not None:
                logprobs.add(prompt.token_ids, output.prompt_logprobs, offsets, self._spelling)
        tokenizer = self._tokenizer if self._job.params.structured_outputs is None else self._tokenizer.verbatim
        before = self._job.prompts[place].token_ids
        self._offsets[index] = TokenOffsets(tokenizer, skip, len(text), before)
        return text
