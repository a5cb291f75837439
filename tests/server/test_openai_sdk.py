"""The official client, against a small model in this process and a real one in its own."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from support.running_server import Client


@pytest.fixture(params=["small", pytest.param("smollm2", marks=pytest.mark.real_model)])
def model(request: pytest.FixtureRequest) -> str:
    """A served model's name."""
    return str(request.param)


@pytest.fixture
def client(model: str, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    server: Client = request.getfixturevalue("small" if model == "small" else "real")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x", max_retries=0) as client:
        yield client


def test_models(client: openai.OpenAI, model: str) -> None:
    assert [entry.id for entry in client.models.list()] == [model]
    assert client.models.retrieve(model).owned_by == "octavo"


def test_chat(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "hi"}], max_completion_tokens=5, seed=1, logprobs=True,
        top_logprobs=2, extra_body={"top_k": 5},
    )  # fmt: skip
    assert answer.usage is not None and answer.usage.completion_tokens == 5
    assert answer.usage.prompt_tokens_details is not None
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert "".join(entry.token for entry in logprobs.content) == answer.choices[0].message.content


def test_streams(client: openai.OpenAI, model: str) -> None:
    chunks = list(
        client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "hi"}], max_tokens=5, temperature=0, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    whole = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "hi"}], max_tokens=5, temperature=0
    )
    assert text == whole.choices[0].message.content
    completion = list(
        client.completions.create(model=model, prompt="ab", max_tokens=4, stream=True, extra_body={"ignore_eos": True})
    )
    assert completion[-1].choices[0].finish_reason == "length"


def test_beam_search(client: openai.OpenAI, model: str) -> None:
    answer = client.completions.create(
        model=model, prompt="ab", n=2, best_of=4, max_tokens=5, temperature=0,
        extra_body={"use_beam_search": True, "length_penalty": 0.8},
    )  # fmt: skip
    scores = [(choice.model_extra or {})["score"] for choice in answer.choices]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True)


def test_completions(client: openai.OpenAI, model: str) -> None:
    answer = client.completions.create(
        model=model, prompt=["ab", "cd"], n=2, seed=3, max_tokens=4, logprobs=2, extra_body={"ignore_eos": True}
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    for choice in answer.choices:
        assert choice.logprobs is not None and choice.logprobs.tokens is not None
        assert "".join(choice.logprobs.tokens) == choice.text
    scored = client.completions.create(model=model, prompt="abc", max_tokens=0, echo=True, logprobs=0).choices[0]
    assert scored.text == "abc" and scored.logprobs is not None
    assert scored.logprobs.token_logprobs is not None and scored.logprobs.token_logprobs[0] is None


def test_errors(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        client.completions.create(model=model, prompt="x", temperature=1000)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="x")
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.001).completions.create(model=model, prompt="x")
    with pytest.raises(openai.BadRequestError) as refused:
        list(client.completions.create(model=model, prompt="", stream=True))
    assert refused.value.type == "invalid_request_error"
