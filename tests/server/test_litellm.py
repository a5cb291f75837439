"""LiteLLM, which many applications call instead of the official client, against a process with a real model."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from support.running_server import Client

pytestmark = [pytest.mark.real_model, pytest.mark.filterwarnings("ignore")]  # its import and its types warn

HELLO = [{"role": "user", "content": "Say hello."}]
PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
FORECAST = {"type": "function", "function": {"name": "forecast", "parameters": PLACE}}


@pytest.fixture(scope="module")
def litellm() -> Iterator[Any]:
    """Imported here: it takes seconds, and would ask the network for prices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        module = import_module("litellm")
        patch.setattr(module, "num_retries", 0)
        yield module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves sockets and event loops to the collector
        gc.collect()


@pytest.fixture
def where(real: Client) -> dict[str, Any]:
    """What every call is told."""
    return {"api_base": f"http://127.0.0.1:{real.port}/v1", "api_key": "none", "timeout": 120}


def chat(litellm: Any, where: dict[str, Any], **more: Any) -> Any:
    return litellm.completion(model="openai/smollm2", messages=HELLO, max_tokens=12, temperature=0, **where, **more)


def test_chat(real: Client, litellm: Any, where: dict[str, Any]) -> None:
    answer = chat(litellm, where)
    direct = real.post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 12, "temperature": 0}).json()
    assert answer.choices[0].message.content == direct["choices"][0]["message"]["content"]
    assert answer.choices[0].finish_reason == direct["choices"][0]["finish_reason"]
    assert answer.usage.prompt_tokens == direct["usage"]["prompt_tokens"]
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0


def test_chat_streams(litellm: Any, where: dict[str, Any]) -> None:
    chunks = list(chat(litellm, where, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    whole = chat(litellm, where)
    assert text == whole.choices[0].message.content
    usage = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
    assert usage[-1].completion_tokens == whole.usage.completion_tokens


def test_logprobs(litellm: Any, where: dict[str, Any]) -> None:
    answer = chat(litellm, where, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert "".join(entry.token for entry in content) == answer.choices[0].message.content
    assert all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in content)


def test_completions(real: Client, litellm: Any, where: dict[str, Any]) -> None:
    body = {"prompt": "The sea is", "max_tokens": 8, "temperature": 0}
    model = "text-completion-openai/smollm2"
    answer = litellm.text_completion(model=model, **body, **where, logprobs=2)
    assert answer.choices[0].text == real.complete(**body).json()["choices"][0]["text"]
    assert len(answer.choices[0].logprobs.token_logprobs) == answer.usage.completion_tokens == 8
    chunks = list(litellm.text_completion(model=model, **body, **where, stream=True))
    assert "".join(chunk.choices[0].text or "" for chunk in chunks) == answer.choices[0].text


def test_sampling_beyond_openais(litellm: Any, where: dict[str, Any]) -> None:
    """top_k 1 is greedy, whatever the temperature."""
    answers = [
        litellm.completion(
            model="openai/smollm2",
            messages=HELLO,
            max_tokens=12,
            temperature=1.5,
            n=2,
            seed=seed,
            extra_body={"top_k": 1},
            **where,
        )
        for seed in (1, 2)
    ]
    texts = {choice.message.content for answer in answers for choice in answer.choices}
    assert texts == {chat(litellm, where).choices[0].message.content}


def check_place(text: str) -> None:
    """JSON of the schema."""
    value = json.loads(text)
    assert set(value) == {"city", "days"}
    assert isinstance(value["city"], str) and 1 <= value["days"] <= 9


def test_json_schema(litellm: Any, where: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE, "strict": True}}
    more = {"model": "openai/smollm2", "messages": HELLO, "max_tokens": 64, "temperature": 0, "response_format": form}
    answer = litellm.completion(**more, **where)
    check_place(answer.choices[0].message.content)
    chunks = list(litellm.completion(**more, **where, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer.choices[0].message.content


def test_tools(litellm: Any, where: dict[str, Any]) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Will it rain in Paris in the next 2 days?"}]
    more = {"model": "openai/smollm2", "max_tokens": 64, "temperature": 0, "tools": [FORECAST]}
    answer = litellm.completion(messages=messages, **more, **where, tool_choice="required")
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "forecast" and answer.choices[0].finish_reason == "tool_calls"
    check_place(call.function.arguments)
    chunks = list(litellm.completion(messages=messages, **more, **where, tool_choice="required", stream=True))
    (joined,) = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message.tool_calls
    assert joined.function.arguments == call.function.arguments
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"rain": false}'}
    messages += [answer.choices[0].message.model_dump(exclude_none=True), result]
    last = litellm.completion(messages=messages, **more, **where, tool_choice="none")
    assert last.choices[0].message.content and not last.choices[0].message.tool_calls


def test_errors(litellm: Any, where: dict[str, Any]) -> None:
    with pytest.raises(litellm.BadRequestError, match="presence_penalty"):
        chat(litellm, where, presence_penalty=7)
    with pytest.raises(litellm.NotFoundError, match="is not here"):
        litellm.completion(model="openai/other", messages=HELLO, **where)
    with pytest.raises(litellm.Timeout):
        chat(litellm, where | {"timeout": 0.001})
