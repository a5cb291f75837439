"""The official client and structured outputs, against a server process with the real model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field
from support.running_server import Client

pytestmark = pytest.mark.real_model


class Step(BaseModel):
    what: str = Field(max_length=24)
    minutes: int = Field(ge=0, le=99)


class Plan(BaseModel):
    """What the client makes a strict schema of: references, nesting, enums, options."""

    title: str = Field(max_length=24)
    kind: Literal["work", "play"]
    steps: list[Step] = Field(min_length=1, max_length=2)
    note: str | None = Field(max_length=12)


@pytest.fixture(scope="module")
def client(real: Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{real.client.base_url}/v1", api_key="x", max_retries=0) as client:
        yield client


def ask(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": 160, **more}


@pytest.fixture(scope="module")
def model(client: openai.OpenAI) -> str:
    return next(iter(client.models.list())).id


def test_parse_gives_an_object_of_the_class(client: openai.OpenAI, model: str) -> None:
    request = ask("Plan my morning.") | {"model": model}
    answer = client.chat.completions.parse(**request, response_format=Plan, temperature=0)
    (choice,) = answer.choices
    assert choice.finish_reason == "stop" and isinstance(choice.message.parsed, Plan)
    assert json.loads(choice.message.content or "") == choice.message.parsed.model_dump()


def test_a_stream_parses_to_the_same(client: openai.OpenAI, model: str) -> None:
    request = ask("Plan my evening.") | {"model": model}
    with client.chat.completions.stream(**request, response_format=Plan, seed=1) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion().choices[0].message
    whole = client.chat.completions.parse(**request, response_format=Plan, seed=1).choices[0].message
    assert isinstance(streamed.parsed, Plan) and streamed.parsed == whole.parsed


def test_the_other_forms_and_what_is_refused(client: openai.OpenAI, model: str) -> None:
    request = ask("Is the sky blue?") | {"model": model}
    answer = client.chat.completions.create(**request, extra_body={"guided_choice": ["yes", "no"]}, n=2)
    assert all(choice.message.content in ("yes", "no") for choice in answer.choices)
    answer = client.chat.completions.create(**request, extra_body={"guided_regex": "[A-Z][a-z]{2}\\."})
    assert re.fullmatch(r"[A-Z][a-z]{2}\.", answer.choices[0].message.content or "")
    request = ask("A small JSON object, please.") | {"model": model}
    answer = client.chat.completions.create(**request, response_format={"type": "json_object"}, temperature=0)
    assert answer.choices[0].finish_reason == "length" or json.loads(answer.choices[0].message.content or "") != []
    schema: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {"type": "string"}}}}
    with pytest.raises(openai.BadRequestError, match="not") as caught:
        client.chat.completions.create(**request, response_format=schema)
    assert caught.value.param == "response_format.json_schema.schema"
