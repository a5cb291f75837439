"""The official client."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from support.running_server import Running


@pytest.fixture
def client(small: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{small.port}/v1", api_key="x", max_retries=0) as client:
        yield client


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["small"]
    assert client.models.retrieve("small").owned_by == "octavo"


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": "hi"}], max_completion_tokens=5, seed=1, logprobs=True,
        top_logprobs=2, extra_body={"top_k": 5},
    )  # fmt: skip
    assert answer.usage is not None and answer.usage.completion_tokens == 5
    assert answer.usage.prompt_tokens_details is not None
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert "".join(entry.token for entry in logprobs.content) == answer.choices[0].message.content


def test_streams(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="small", messages=[{"role": "user", "content": "hi"}], max_tokens=5, temperature=0, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    whole = client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": "hi"}], max_tokens=5, temperature=0
    )
    assert text == whole.choices[0].message.content
    completion = list(client.completions.create(model="small", prompt="ab", max_tokens=4, stream=True))
    assert completion[-1].choices[0].finish_reason == "length"


def test_beam_search(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="small", prompt="ab", n=2, best_of=4, max_tokens=5, temperature=0,
        extra_body={"use_beam_search": True, "length_penalty": 0.8},
    )  # fmt: skip
    scores = [(choice.model_extra or {})["score"] for choice in answer.choices]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True)


def test_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        client.completions.create(model="small", prompt="x", temperature=1000)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="x")
