"""POST /v1/completions"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.running_server import Running

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 6}


def text_of(events: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(choice["text"] for event in events for choice in event["choices"] if choice["index"] == index)


def test_answer_has_the_shape_that_clients_read(small: Running) -> None:
    answer = small.complete(model="small", prompt="hello", **GREEDY).json()
    assert answer["object"] == "text_completion"
    assert answer["model"] == "small"
    assert answer["id"].startswith("cmpl-")
    (choice,) = answer["choices"]
    assert len(choice["text"]) == 6
    assert choice["index"] == 0
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] is None
    assert answer["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 6,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": answer["usage"]["prompt_tokens_details"]["cached_tokens"]},
    }


def test_text_ids_and_lists_give_the_same(small: Running) -> None:
    ids = small.post("/tokenize", {"prompt": "hello"}).json()["tokens"]
    single = small.complete(prompt="hello", **GREEDY).json()["choices"][0]["text"]
    assert small.complete(prompt=ids, **GREEDY).json()["choices"][0]["text"] == single
    for many in (["hello", "world"], [ids, ids]):
        choices = small.complete(prompt=many, **GREEDY).json()["choices"]
        assert [choice["index"] for choice in choices] == [0, 1]
        assert choices[0]["text"] == single


def test_n_and_prompts_number_the_choices(small: Running) -> None:
    body: dict[str, Any] = {"prompt": ["ab", "cd"], "n": 3, "seed": 5, "max_tokens": 5}
    whole = small.complete(**body).json()["choices"]
    assert [choice["index"] for choice in whole] == list(range(6))
    assert len({choice["text"] for choice in whole}) > 3
    assert whole == small.complete(**body).json()["choices"]
    events = small.events("/v1/completions", **body)
    assert [text_of(events, index) for index in range(6)] == [choice["text"] for choice in whole]
    ends = [choice["index"] for event in events for choice in event["choices"] if choice["finish_reason"]]
    assert sorted(ends) == list(range(6))


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": True}])
def test_usage_chunk_comes_only_when_asked_for(small: Running, options: dict[str, bool] | None) -> None:
    events = small.events("/v1/completions", prompt="hello", stream_options=options, n=2, **GREEDY)
    asked = options == {"include_usage": True}
    assert all("choices" in event for event in events)
    assert (events[-1]["choices"] == []) is asked
    assert bool(events[-1].get("usage")) is asked
    if asked:
        assert events[-1]["usage"]["completion_tokens"] == 12
        assert all(event["usage"] is None for event in events[:-1])
    else:
        assert not any("usage" in event for event in events)


@pytest.mark.parametrize("max_tokens", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_echo_scores_the_prompt(small: Running, max_tokens: int, stream: bool) -> None:
    body: dict[str, Any] = {"prompt": "hello", "echo": True, "logprobs": 1, "max_tokens": max_tokens, "temperature": 0}
    if stream:
        parts = [event["choices"][0] for event in small.events("/v1/completions", **body)]
        text = "".join(part["text"] for part in parts)
        names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        scores = {name: [value for part in parts for value in (part["logprobs"] or {name: []})[name]] for name in names}
    else:
        answer = small.complete(**body).json()
        text, scores = answer["choices"][0]["text"], answer["choices"][0]["logprobs"]
        assert answer["usage"]["completion_tokens"] == max_tokens
        assert answer["choices"][0]["finish_reason"] == "length"
    assert text.startswith("hello") and len(text) == 5 + max_tokens
    assert "".join(scores["tokens"]) == text
    assert scores["text_offset"] == list(range(5 + max_tokens))
    assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    assert all(value < 0 for value in scores["token_logprobs"][1:])
    assert all(
        max(top.values()) >= value
        for top, value in zip(scores["top_logprobs"][1:], scores["token_logprobs"][1:], strict=True)
    )


def test_echoed_scores_are_those_of_generation(small: Running) -> None:
    answer = small.complete(prompt="hello", logprobs=0, **GREEDY).json()["choices"][0]
    echoed = small.complete(prompt="hello" + answer["text"], echo=True, logprobs=0, max_tokens=0).json()["choices"][0]
    assert echoed["logprobs"]["token_logprobs"][5:] == pytest.approx(answer["logprobs"]["token_logprobs"], abs=1e-4)


def test_logprobs_of_a_stream_are_those_of_the_whole(small: Running) -> None:
    body: dict[str, Any] = {"prompt": "hello", "logprobs": 2, "top_k": 1, "max_tokens": 5}
    whole = small.complete(**body).json()["choices"][0]["logprobs"]
    events = small.events("/v1/completions", **body)
    parts = [event["choices"][0]["logprobs"] for event in events if event["choices"][0]["logprobs"]]
    for name, values in whole.items():
        assert [value for part in parts for value in part[name]] == values


@pytest.mark.parametrize("split", [1, 2, 3, 4])
def test_stop_strings_over_tokens(fake: Callable[..., Running], split: int) -> None:
    server = fake()
    stop = "WORLD"[:split]
    body = {"prompt": "hello wo world again", "max_tokens": 50, "stop": stop}
    whole = server.complete(**body).json()["choices"][0]
    assert whole["text"] == "HELLO WO WORLD AGAIN".split(stop)[0]
    assert (whole["finish_reason"], whole["stop_reason"]) == ("stop", stop)
    assert text_of(server.events("/v1/completions", **body)) == whole["text"]
    assert server.complete(**body, include_stop_str_in_output=True).json()["choices"][0]["text"].endswith(stop)


def test_characters_of_many_bytes_arrive_whole(fake: Callable[..., Running]) -> None:
    text = "汉字 नमस्ते 👩‍👩‍👧 🇩🇪 é"
    server = fake(lambda request: text)
    events = server.events("/v1/completions", prompt="x", max_tokens=200)
    pieces = [choice["text"] for event in events for choice in event["choices"]]
    assert "".join(pieces) == text == server.complete(prompt="x", max_tokens=200).json()["choices"][0]["text"]
    assert not any("\ufffd" in piece for piece in pieces)


def test_one_sequence_ends_early_and_the_other_goes_on(small: Running) -> None:
    body: dict[str, Any] = {"prompt": "hello", "n": 4, "seed": 3, "max_tokens": 20}
    texts = [choice["text"] for choice in small.complete(**body).json()["choices"]]
    body["stop"] = texts[0][2]
    whole = small.complete(**body).json()["choices"]
    assert [choice["text"] for choice in whole] == [text.split(body["stop"])[0] for text in texts]
    assert whole[0]["finish_reason"] == "stop"
    events = small.events("/v1/completions", **body)
    assert [text_of(events, index) for index in range(4)] == [choice["text"] for choice in whole]


def test_cached_tokens_are_told(small: Running) -> None:
    prompt = "the same prompt of some blocks"
    small.complete(prompt=prompt, **GREEDY)
    usage = small.complete(prompt=prompt, **GREEDY).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1
    usage = small.complete(prompt=prompt, cache_salt="other", **GREEDY).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_prompt_logprobs_are_given_under_vllms_name(small: Running) -> None:
    answer = small.complete(prompt="abc", prompt_logprobs=1, max_tokens=1).json()["choices"][0]
    first, *rest = answer["prompt_logprobs"]
    assert first is None and len(rest) == 2
    assert all({"logprob", "rank", "decoded_token"} == set(item) for entry in rest for item in entry.values())
