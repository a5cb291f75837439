"""Beam search and best_of over HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from small_model import make_small_model
from support.running_server import Running, running, send_request, until

from octavo import LLM, AsyncLLM, BeamSearchParams, SamplingParams

OPTIONS: dict[str, Any] = {"dtype": "float32", "block_size": 8, "executor": "reference"}
BEAMS: dict[str, Any] = {"prompt": "hello", "use_beam_search": True, "n": 4, "temperature": 0, "max_tokens": 9}
LONG = BEAMS | {"max_tokens": 50, "ignore_eos": True}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """The model of `small`, to ask what is right."""
    with LLM(str(make_small_model(tmp_path_factory.mktemp("model"))), **OPTIONS, kv_cache_memory="1MiB") as llm:
        yield llm


class Gate:
    """Lets the executor take so many steps."""

    def __init__(self, execute: Callable[[Any], Any]) -> None:
        self._execute = execute
        self._steps = threading.Semaphore(0)
        self.begun = 0

    def __call__(self, step: Any) -> Any:
        self.begun += 1
        assert self._steps.acquire(timeout=10)
        return self._execute(step)

    def open(self, steps: int) -> None:
        self._steps.release(steps)


@pytest.fixture
def gated(small: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """The small model's server, one step at a time."""
    gate = Gate(small.llm.loaded.executor.execute)
    monkeypatch.setattr(small.llm.loaded.executor, "execute", gate)
    yield gate
    gate.open(1000)
    small.assert_well()


def beams_of(llm: LLM, prompt: str, **params: Any) -> list[tuple[str, float | None, str | None]]:
    (output,) = llm.beam_search(prompt, BeamSearchParams(**params))
    return [(each.text, each.score, each.finish_reason) for each in output.outputs]


def facts(choices: list[dict[str, Any]]) -> list[tuple[str, float | None, str | None]]:
    return [(choice["text"], choice["score"], choice["finish_reason"]) for choice in choices]


@pytest.mark.parametrize(
    ("fields", "params"),
    [
        ({}, {}),
        ({"length_penalty": 0.5, "early_stopping": True}, {"length_penalty": 0.5, "early_stopping": True}),
        ({"length_penalty": 2, "early_stopping": "never"}, {"length_penalty": 2.0, "early_stopping": "never"}),
        ({"n": 2, "best_of": 4}, {"n": 2}),
        ({"ignore_eos": True, "repetition_penalty": 1.3}, {"ignore_eos": True, "repetition_penalty": 1.3}),
        ({"stop": ["a", "b"], "include_stop_str_in_output": True},
         {"stop": ["a", "b"], "include_stop_str_in_output": True}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_beams_are_those_of_the_search(
    small: Running, llm: LLM, stream: bool, fields: dict[str, Any], params: dict[str, Any]
) -> None:
    expected = beams_of(llm, "hello", **{"beam_width": 4, "max_tokens": 9} | params)
    body = BEAMS | fields
    if not stream:
        answer = small.complete(**body)
        assert answer.status_code == 200, answer.text
        assert [choice["index"] for choice in answer.json()["choices"]] == list(range(len(expected)))
        assert facts(answer.json()["choices"]) == expected
        return
    events = small.events("/v1/completions", **body)
    choices = [choice for event in events for choice in event["choices"]]
    assert [choice["index"] for choice in choices] == list(range(len(expected)))
    assert facts(choices) == expected


def test_prompts_of_unequal_length_and_usage(small: Running, llm: LLM) -> None:
    prompts = ["hello", "a", "some longer prompt of letters"]
    body = BEAMS | {"prompt": prompts, "n": 2, "ignore_eos": True}
    answer = small.complete(**body).json()
    expected = [beams_of(llm, prompt, beam_width=2, max_tokens=9, ignore_eos=True) for prompt in prompts]
    assert [choice["text"] for choice in answer["choices"]] == [text for beams in expected for text, _, _ in beams]
    usage = {"completion_tokens": 3 * 2 * 9, "prompt_tokens": sum(map(len, prompts))}
    assert answer["usage"].items() >= usage.items()
    events = small.events("/v1/completions", **body, stream_options={"include_usage": True})
    assert events[-1]["usage"].items() >= usage.items()
    found = sorted((choice["index"], choice["text"]) for event in events for choice in event["choices"])
    assert [text for _, text in found] == [choice["text"] for choice in answer["choices"]]


@pytest.mark.parametrize("stream", [False, True])
def test_chat(small: Running, llm: LLM, stream: bool) -> None:
    message: Any = {"role": "user", "content": "hi"}
    prompt = llm.reader.read_chat([message])
    ids: Any = {"prompt_token_ids": prompt.token_ids}
    expected = beams_of(llm, ids, beam_width=3, n=2, max_tokens=6)
    body = {"messages": [message], "use_beam_search": True, "best_of": 3, "n": 2, "max_tokens": 6, "logprobs": True}
    if stream:
        events = small.events("/v1/chat/completions", **body)
        choices = [choice for event in events for choice in event["choices"]]
        assert [choice["delta"].get("role") for choice in choices[:2]] == ["assistant"] * 2
        choices = choices[2:]
        texts = [choice["delta"]["content"] for choice in choices]
    else:
        choices = small.post("/v1/chat/completions", body).json()["choices"]
        texts = [choice["message"]["content"] for choice in choices]
    assert [(text, each["score"], each["finish_reason"]) for text, each in zip(texts, choices, strict=True)] == expected
    assert [choice["index"] for choice in choices] == [0, 1]
    for choice in choices:
        logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        assert choice["score"] == pytest.approx(sum(logprobs) / len(logprobs), abs=1e-5)


@pytest.mark.parametrize("max_tokens", [0, 4])
def test_logprobs_and_echo(small: Running, max_tokens: int) -> None:
    body = {"prompt": "hello", "echo": True, "logprobs": 1, "max_tokens": max_tokens}
    sampled = small.complete(**body, temperature=0).json()["choices"][0]["logprobs"]
    choices = small.complete(**body, use_beam_search=True, n=2, prompt_logprobs=0).json()["choices"]
    for choice in choices:
        assert choice["text"].startswith("hello") and len(choice["logprobs"]["tokens"]) == 5 + max_tokens
        assert choice["logprobs"]["token_logprobs"][:5] == sampled["token_logprobs"][:5]
        assert len(choice["prompt_logprobs"]) == 5 and choice["prompt_logprobs"][0] is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 0.7}, "temperature is 0.7, must be 0 or left out with use_beam_search=true"),
        ({"top_p": 0.5}, "top_p is 0.5"),
        ({"top_k": 5}, "top_k is 5"),
        ({"min_p": 0.5}, "min_p is 0.5"),
        ({"n": 65}, "n is 65, must be an integer from 1 to 64"),
        ({"best_of": 65}, "best_of is 65, must be an integer from 1 to 64"),
        ({"best_of": 3}, "best_of is 3, must be at least n, which is 4"),
        ({"length_penalty": 11}, "length_penalty is 11"),
        ({"early_stopping": "soon"}, "early_stopping: is 'soon'"),
        ({"use_beam_search": 1}, "use_beam_search: is 1"),
        ({"use_beam_search": False, "length_penalty": 2}, "length_penalty: may only be given with use_beam_search"),
        ({"use_beam_search": False, "early_stopping": True}, "early_stopping: may only be given with use_beam_search"),
        ({"use_beam_search": False, "best_of": 3}, "best_of is 3, must be at least n, which is 4"),
        ({"use_beam_search": False, "best_of": 5, "stream": True}, "best_of is 5, must be n, which is 4"),
        ({"use_beam_search": False, "best_of": 129}, "best_of is 129"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_what_beams_cannot_do_is_refused(small: Running, path: str, fields: dict[str, Any], message: str) -> None:
    body = BEAMS | {"messages": [{"role": "user", "content": "hi"}]} | fields
    answer = small.post(path, body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"].startswith(message)
    assert answer.json()["error"]["param"] == message.split(" ")[0].rstrip(":")


def test_best_of_gives_the_likeliest_of_more_answers(small: Running, llm: LLM) -> None:
    body = {"prompt": "hello", "n": 2, "best_of": 5, "seed": 3, "max_tokens": 8, "ignore_eos": True}
    answer = small.complete(**body).json()
    (expected,) = llm.generate("hello", SamplingParams(n=2, best_of=5, seed=3, max_tokens=8, ignore_eos=True))
    assert [choice["text"] for choice in answer["choices"]] == [each.text for each in expected.outputs]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["usage"]["completion_tokens"] == 5 * 8, "all of them were generated"
    same = small.events("/v1/completions", **body | {"best_of": 2})
    assert {choice["index"] for event in same for choice in event["choices"]} == {0, 1}


def read_head(connection: socket.socket) -> bytes:
    connection.settimeout(10)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(4096)
    return data


def test_a_stream_begins_with_the_search_and_a_disconnect_ends_it_within_a_step(small: Running, gated: Gate) -> None:
    connection = send_request(small, LONG | {"stream": True})
    gated.open(3)
    assert b" 200 OK" in read_head(connection)
    until(lambda: gated.begun == 4)
    connection.close()
    until(lambda: small.llm.progress().unfinished == 0)
    gated.open(1)
    until(lambda: small.llm.stats().running == 0)
    assert gated.begun == 4, "the step that was under way was the last one"
    assert small.llm.stats().referenced_blocks == 0


def test_disconnect_before_the_answer_in_one_piece(small: Running, gated: Gate) -> None:
    connection = send_request(small, LONG)
    gated.open(2)
    until(lambda: gated.begun == 3)
    connection.close()
    until(lambda: small.llm.progress().unfinished == 0)
    gated.open(1)
    until(lambda: small.llm.stats().running == 0)
    assert gated.begun == 3


@pytest.mark.parametrize("stream", [False, True])
def test_deadline_ends_a_search(small: Running, gated: Gate, stream: bool) -> None:
    gated.open(2)
    answer = small.complete(**LONG, timeout=0.2, stream=stream)
    error = json.loads(answer.text.split("data: ")[1]) if stream else answer.json()
    assert answer.status_code == (200 if stream else 504)
    assert error["error"]["code"] == "deadline_exceeded"


def test_the_queue_counts_beams_until_the_search_has_begun(llm: LLM) -> None:
    with running(
        AsyncLLM(llm.loaded.options.model, **OPTIONS, kv_cache_memory="1MiB"), max_queued_requests=6
    ) as server:
        gate = Gate(server.llm.loaded.executor.execute)
        executor: Any = server.llm.loaded.executor
        executor.execute = gate
        connection = send_request(server, LONG)
        until(lambda: gate.begun == 1)
        assert server.complete(**BEAMS).status_code == 429
        assert server.complete(prompt="x", n=1, best_of=3).status_code == 429
        gate.open(1)
        until(lambda: gate.begun == 2)
        gate.open(1000)
        assert server.complete(**BEAMS).status_code == 200
        connection.close()
        server.assert_well()


def test_a_storm_of_searches_that_are_left_leaves_nothing(small: Running) -> None:
    def leave(place: int) -> None:
        connection = send_request(small, LONG | {"n": 1 + place % 5, "stream": place % 2 == 0, "prompt": "ab" * place})
        time.sleep(0.002 * (place % 7))
        connection.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(1, 12)))
    small.assert_well()
