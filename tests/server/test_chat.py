"""POST /v1/chat/completions"""

from __future__ import annotations

from typing import Any

import pytest
from support.running_server import Running

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 6}


def test_answer_has_the_shape_that_clients_read(small: Running) -> None:
    answer = small.chat("hi", **GREEDY).json()
    assert answer["object"] == "chat.completion"
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"]) == 6
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 6


def test_stream_is_the_whole_in_pieces(small: Running) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "n": 2, "seed": 1, "max_tokens": 6}
    whole = small.post("/v1/chat/completions", body).json()["choices"]
    events = small.events("/v1/chat/completions", **body)
    for choice in whole:
        deltas = [c for event in events for c in event["choices"] if c["index"] == choice["index"]]
        assert deltas[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(c["delta"].get("content", "") for c in deltas) == choice["message"]["content"]
        assert [c["finish_reason"] for c in deltas if c["finish_reason"]] == [choice["finish_reason"]]
    assert events[0]["object"] == "chat.completion.chunk"


def test_roles_and_parts(small: Running) -> None:
    def ids(*messages: dict[str, Any]) -> Any:
        return small.post("/tokenize", {"messages": list(messages)}).json()["tokens"]

    system = ids({"role": "system", "content": "be\nkind"})
    assert ids({"role": "developer", "content": "be\nkind"}) == system
    parts = [{"type": "text", "text": "be"}, {"type": "text", "text": "kind"}]
    assert ids({"role": "system", "content": parts}) == system
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    answer = small.post(
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "content": "2", "tool_call_id": "1"},
            ],
            "max_completion_tokens": 3,
            "ignore_eos": True,
        },
    )
    assert answer.json()["usage"]["completion_tokens"] == 3


def test_control_tokens_in_content_are_plain_text(small: Running) -> None:
    tokens = small.post("/tokenize", {"messages": [{"role": "user", "content": "</s>"}]}).json()["tokens"]
    text = small.post("/detokenize", {"tokens": tokens}).json()["prompt"]
    assert 2 not in tokens and text.startswith("<s>user: </s>;")


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hi", "messages"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": "x", "tool_calls": []}], "messages[0].tool_calls"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            "messages[0].tool_calls",
        ),
        ([5], "messages[0]"),
    ],
)
def test_bad_messages_are_named(small: Running, messages: Any, param: str) -> None:
    answer = small.post("/v1/chat/completions", {"messages": messages})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_logprobs(small: Running) -> None:
    answer = small.chat("hi", logprobs=True, top_logprobs=3, **GREEDY).json()["choices"][0]
    entries = answer["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == answer["message"]["content"]
    for entry in entries:
        assert entry["bytes"] == list(entry["token"].encode())
        tops = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(tops) == 3 and tops == sorted(tops, reverse=True)
        assert entry["logprob"] == tops[0]
    assert small.chat("hi", top_logprobs=3).json()["error"]["param"] == "top_logprobs"
    bare = small.chat("hi", logprobs=True, **GREEDY).json()["choices"][0]["logprobs"]["content"]
    assert all(entry["top_logprobs"] == [] for entry in bare)


def test_token_limits_must_agree(small: Running) -> None:
    agreed = small.chat("hi", max_tokens=3, max_completion_tokens=3, ignore_eos=True)
    assert agreed.json()["usage"]["completion_tokens"] == 3
    assert small.chat("hi", max_tokens=3, max_completion_tokens=4).status_code == 400


def test_unknown_fields_are_told(small: Running) -> None:
    answer = small.chat("hi", max_tokens=1, foo=1, user="me", stream=True, stream_options={"bar": 1})
    assert set(answer.headers["X-Octavo-Ignored"].split(", ")) == {"foo", "user", "stream_options.bar"}
    assert "X-Octavo-Ignored" not in small.chat("hi", max_tokens=1).headers
    assert small.chat("hi", max_tokens=1, **{"a\r\nb": 1}).headers["X-Octavo-Ignored"] == "?"
