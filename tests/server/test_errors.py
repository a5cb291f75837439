"""Hostile bodies: each is a 400 that names the field, and the next request is served."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.running_server import Running

CASES: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ""}, "prompt"),
    ({"prompt": [""]}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": {"a": 1}}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt[0]"),
    ({"prompt": [1.5]}, "prompt[0]"),
    ({"prompt": [-1]}, "prompt_token_ids[0]"),
    ({"prompt": [2**40]}, "prompt_token_ids[0]"),
    ({"prompt": [[1, True]]}, "prompt_token_ids[1]"),
    ({"prompt": "x" * 64}, "prompt"),
    ({"prompt": ["x"] * 300}, "prompt"),
    ({"temperature": 999999}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"top_p": -1}, "top_p"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": 0.01}, "top_k"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 1.0}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"n": 10**9}, "n"),
    ({"n": 0}, "n"),
    ({"n": "2"}, "n"),
    ({"n": 2.0}, "n"),
    ({"seed": 2**70}, "seed"),
    ({"seed": 10**4000}, "seed"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"min_tokens": 5, "max_tokens": 2}, "min_tokens"),
    ({"logprobs": -1}, "logprobs"),
    ({"logprobs": 1000}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"100000": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 1000}}, "logit_bias[5]"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop_token_ids": [10**6]}, "stop_token_ids"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": 5}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": "1"}, "timeout"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"cache_salt": 5}, "cache_salt"),
    ({"model": 5}, "model"),
    ({"use_beam_search": True, "temperature": 1}, "temperature"),
    ({"use_beam_search": True, "n": 65}, "n"),
    ({"length_penalty": 2}, "length_penalty"),
    ({"early_stopping": True}, "early_stopping"),
    ({"best_of": 3, "n": 4}, "best_of"),
    ({"suffix": "end"}, "suffix"),
    ({"tools": [{}]}, "tools"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"echo": 1}, "echo"),
]


@pytest.mark.parametrize(("body", "param"), CASES, ids=lambda value: repr(value)[:40])
def test_bad_value_is_refused_by_name(small: Running, body: dict[str, Any], param: str) -> None:
    answer = small.complete(**{"prompt": "hello", "max_tokens": 2} | body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert set(error) == {"message", "type", "param", "code"}
    assert param.split("[")[0].split(".")[0] in error["message"]


def test_after_all_of_them_the_server_is_well(small: Running) -> None:
    for body, _ in CASES:
        small.complete(**{"prompt": "hello"} | body)
    small.assert_well()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1]",
        b"null",
        b'"text"',
        b'{"prompt": "x", "temperature": NaN}',
        b'{"prompt": "x", "temperature": Infinity}',
        b'{"prompt": "x", "temperature": 1e999}',
        b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}",
        b'{"prompt": "\xff"}',
        b'{"prompt": "\xed\xa0\x80"}',
        b'{"a":' * 100_000,
        b'{"prompt": "x", "logit_bias": {"5": NaN}}',
    ],
    ids=lambda data: repr(data[:40]),
)
def test_what_is_no_strict_json_is_refused(small: Running, data: bytes) -> None:
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
        answer = small.client.post(path, content=data, headers={"content-type": "application/json"})
        assert answer.status_code == 400, answer.text
    small.assert_well()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (r'{"prompt": "a\ud800b"}', "prompt"),
        (r'{"prompt": ["a", "\uDFFF"]}', "prompt[1]"),
        (r'{"prompt": "a", "stop": ["\ud83d"]}', "stop[0]"),
        (r'{"messages": [{"role": "user", "content": "\ud800"}]}', "messages[0].content"),
        (r'{"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "\ud800"}]}', "tools[0].name"),
        (r'{"prompt": "a", "\ud800": 1}', "the body"),
    ],
)
def test_lone_surrogates_are_named(small: Running, body: str, param: str) -> None:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    answer = small.client.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert param in answer.json()["error"]["message"]
    assert "lone surrogate" in answer.json()["error"]["message"]
    pair = small.client.post(
        "/tokenize", content=r'{"prompt": "\ud83d\ude00"}', headers={"content-type": "application/json"}
    )
    assert pair.status_code == 200


def test_request_that_never_fits_is_refused_and_the_next_is_served(small: Running) -> None:
    """The pool has fewer blocks than eight sequences of the longest context need."""
    answer = small.complete(prompt="a" * 30, n=100, max_tokens=33)
    assert answer.status_code == 400
    assert "blocks" in answer.json()["error"]["message"]
    assert small.complete(prompt="a" * 30, n=100, max_tokens=33, stream=True).status_code == 400
    small.assert_well()


def test_unknown_model_path_and_method(small: Running) -> None:
    answer = small.complete(model="other", prompt="x")
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "model_not_found"
    assert small.client.get("/v1/models/other").status_code == 404
    assert small.client.get("/nowhere").json()["error"]["type"] == "not_found_error"
    assert small.client.get("/v1/completions").status_code == 405


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
NAMES = sorted({name for body, _ in CASES for name in body} | {"messages", "top_logprobs", "tokens", "ignore_eos"})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"]),
    body=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
    good=st.booleans(),
)
def test_any_body_is_answered_or_refused(small: Running, path: str, body: dict[str, Any], good: bool) -> None:
    if good:
        body = {"prompt": "a", "messages": [{"role": "user", "content": "a"}], "tokens": [5], "max_tokens": 2} | body
        body = {name: value for name, value in body.items() if path != "/tokenize" or name != "messages"}
    assert small.post(path, body).status_code in (200, 400, 404)
    assert small.llm.progress().alive


def test_after_any_body_the_server_is_well(small: Running) -> None:
    small.assert_well()
