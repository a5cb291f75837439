"""The lines of `octavo generate`: a JSON object a request in, a JSON object a result out."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn

from octavo.outputs import CompletionOutput, RequestOutput, TokenLogprobs
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.prompts import PromptReader, TokenizedPrompt
    from octavo.request_state import Params

PROMPT_KEYS = ("prompt", "messages")
OTHER_KEYS = ("id", "cache_salt", "tools")
SAMPLING_KEYS = tuple(each.name for each in fields(SamplingParams))


def parse_line(
    line: bytes, reader: PromptReader, defaults: dict[str, Any]
) -> tuple[TokenizedPrompt, SamplingParams, Any]:
    """(prompt, parameters, the line's own "id" or None). `defaults`: parameters that the line may override.

    Raises ValueError that says what is wrong with the line.
    """
    request = _load(line)
    unknown = set(request) - {*PROMPT_KEYS, *OTHER_KEYS, *SAMPLING_KEYS}
    if unknown:
        known = ", ".join((*PROMPT_KEYS, *OTHER_KEYS, *SAMPLING_KEYS))
        raise ValueError(f"unknown key {sorted(unknown)[0]!r}; known are {known}")
    if ("prompt" in request) == ("messages" in request):
        raise ValueError('must have one of the keys "prompt" and "messages"')
    sampling = {key: value for key, value in request.items() if key in SAMPLING_KEYS}
    params = SamplingParams.from_dict({**defaults, **sampling})
    return _read_prompt(request, reader), params, request.get("id")


def result_object(output: RequestOutput, params: Params, line_id: Any = None) -> dict[str, Any]:
    """The result of a request. With n > 1 the sequences are in "outputs", else their fields stand at the
    top."""
    result: dict[str, Any] = {} if line_id is None else {"id": line_id}
    completions = [_completion_object(completion, params.logprobs or 0) for completion in output.outputs]
    if len(completions) == 1:
        result.update(completions[0])
    else:
        result["outputs"] = [{"index": place, **each} for place, each in enumerate(completions)]
    result["prompt_token_ids"] = output.prompt_token_ids
    if output.prompt_logprobs is not None:
        result["prompt_logprobs"] = [
            None if entry is None else _logprob_object(entry, params.prompt_logprobs or 0)
            for entry in output.prompt_logprobs
        ]
    result["num_cached_tokens"] = output.num_cached_tokens
    return result


def error_object(line_number: int, message: str, line_id: Any = None) -> dict[str, Any]:
    """What stands in the place of a line that could not be answered. Lines count from 1."""
    result: dict[str, Any] = {} if line_id is None else {"id": line_id}
    result["error"] = {"line": line_number, "message": message}
    return result


def dump_line(result: dict[str, Any]) -> bytes:
    """One line of JSON in UTF-8, with its line end."""
    return json.dumps(result, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"


def _load(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise ValueError("is not JSON that can be read: nested too deep") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(request, dict):
        raise ValueError(f"must be a JSON object, not {type(request).__name__}")
    return request


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"is not JSON: {name} is no number")


def _read_prompt(request: dict[str, Any], reader: PromptReader) -> TokenizedPrompt:
    if "messages" in request:
        if "cache_salt" in request:
            raise ValueError('cache_salt: goes with "prompt", not with "messages"')
        tools = request.get("tools")
        if tools is not None and not isinstance(tools, list):
            raise ValueError(f"tools={tools!r}: must be a list of objects")
        return reader.read_chat(request["messages"], tools)
    if "tools" in request:
        raise ValueError('tools: goes with "messages", not with "prompt"')
    prompt = request["prompt"]
    if not isinstance(prompt, (str, list)):
        raise ValueError(f"prompt: must be text or a list of token ids, not {type(prompt).__name__}")
    key = "prompt" if isinstance(prompt, str) else "prompt_token_ids"
    return reader.read({key: prompt, "cache_salt": request.get("cache_salt")})


def _completion_object(completion: CompletionOutput, top: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop_reason,
    }
    if completion.logprobs is not None:
        result["logprobs"] = [_logprob_object(entry, top) for entry in completion.logprobs]
        result["cumulative_logprob"] = completion.cumulative_logprob
    return result


def _logprob_object(entry: TokenLogprobs, top: int) -> dict[str, Any]:
    """The chosen token, and the `top` most likely ones (the chosen one perhaps among them) in "top"."""
    chosen, *_ = entry
    likely = sorted(entry, key=lambda token_id: entry[token_id].rank or len(entry))[:top]
    return {**_token_object(chosen, entry), "top": [_token_object(token_id, entry) for token_id in likely]}


def _token_object(token_id: int, entry: TokenLogprobs) -> dict[str, Any]:
    logprob = entry[token_id]
    return {
        "token_id": token_id,
        "token": logprob.decoded_token,
        "logprob": logprob.logprob,
        "rank": logprob.rank,
    }
