"""Overload, disconnects, deadlines, slow clients, health, keys, limits, draining, logs."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.running_server import Running, send_request, until

LONG: dict[str, Any] = {"prompt": "long", "max_tokens": 3000, "ignore_eos": True}


def engine_of(server: Running) -> Any:
    return server.llm.loaded.engine


def test_more_than_the_queue_holds_is_refused_at_once(fake: Callable[..., Running]) -> None:
    server = fake(max_queued_requests=16)
    engine_of(server).gate.clear()
    with ThreadPoolExecutor(40) as pool:
        answers = [pool.submit(server.complete, prompt="hello", max_tokens=5) for _ in range(40)]
        until(lambda: sum(answer.done() for answer in answers) >= 24)
        refused = [answer.result() for answer in answers if answer.done()]
        assert [answer.status_code for answer in refused] == [429] * 24
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        assert "Estimated wait" in refused[0].json()["error"]["message"]
        engine_of(server).gate.set()
        served = [answer.result() for answer in answers if answer.result().status_code == 200]
    assert [answer.json()["choices"][0]["text"] for answer in served] == ["HELLO"] * 16
    assert not engine_of(server).running
    assert server.complete(prompt="hello", max_tokens=5).status_code == 200


def test_sequences_and_tokens_count(fake: Callable[..., Running]) -> None:
    server = fake(max_queued_requests=8, max_queued_tokens=20)
    engine_of(server).gate.clear()
    connections = [send_request(server, {"prompt": "abc", "n": 4})]
    until(lambda: engine_of(server).running)
    assert server.complete(prompt="x", n=5).status_code == 429
    assert server.complete(prompt="x" * 18).status_code == 429
    connections.append(send_request(server, {"prompt": "x" * 17, "n": 4}))
    until(lambda: len(engine_of(server).running) == 2 or server.llm.progress().unfinished == 2)
    engine_of(server).gate.set()
    until(lambda: server.llm.progress().unfinished == 0)
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("when", ["before the first token", "later"])
def test_disconnect_frees_the_request(fake: Callable[..., Running], stream: bool, when: str) -> None:
    server = fake()
    engine = engine_of(server)
    engine.before_step = lambda: time.sleep(0.001)
    if when != "later":
        engine.gate.clear()
    connection = send_request(server, LONG | {"stream": stream})
    until(lambda: bool(engine.running))
    if when == "later":
        until(lambda: engine.generated > 5)
    connection.close()
    if when != "later":
        time.sleep(0.05)
        engine.gate.set()
    until(lambda: not engine.running)
    assert engine.generated < 1000
    assert server.complete(prompt="ok", max_tokens=5).json()["choices"][0]["text"] == "OK"


def test_disconnect_of_several_prompts_frees_all(fake: Callable[..., Running]) -> None:
    server = fake()
    engine = engine_of(server)
    engine.before_step = lambda: time.sleep(0.001)
    connection = send_request(server, LONG | {"prompt": ["a", "b", "c"], "stream": True})
    until(lambda: len(engine.running) == 3)
    connection.close()
    until(lambda: not engine.running)


@pytest.mark.parametrize("header", [True, False])
def test_deadline_ends_a_request(fake: Callable[..., Running], header: bool) -> None:
    server = fake()
    engine = engine_of(server)
    engine.before_step = lambda: time.sleep(0.001)
    body = LONG if header else LONG | {"timeout": 0.1}
    headers = {"X-Request-Timeout": "0.1"} if header else {}
    answer = server.client.post("/v1/completions", json=body, headers=headers)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "deadline_exceeded"
    until(lambda: not engine.running)
    streamed = server.client.post("/v1/completions", json=body | {"stream": True}, headers=headers)
    *_, error, done = [line for line in streamed.text.split("\n\n") if line]
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "deadline_exceeded"
    assert done == "data: [DONE]"
    assert server.client.post("/v1/completions", json=body, headers={"X-Request-Timeout": "soon"}).status_code == 400


def test_fault_in_one_request_ends_that_one_only(fake: Callable[..., Running]) -> None:
    server = fake()
    tokenizer: Any = server.llm.loaded.tokenizer
    make = tokenizer.detokenizer

    def detokenizer(skip: bool, after: Any) -> Any:
        made = make(skip, after)
        append = made.append

        def checked(token_id: int) -> str:
            if token_id == ord("Z"):
                raise KeyError("no such token")
            return str(append(token_id))

        made.append = checked
        return made

    tokenizer.detokenizer = detokenizer
    with ThreadPoolExecutor(2) as pool:
        good = pool.submit(server.complete, prompt="hello " * 20, max_tokens=500)
        bad = server.complete(prompt="abz", max_tokens=5)
        assert bad.status_code == 500
        assert bad.json()["error"]["type"] == "server_error"
        assert good.result().json()["choices"][0]["text"] == "HELLO " * 20
    engine_of(server).before_step = lambda: time.sleep(0.002)
    streamed = server.complete(prompt="a" * 50 + "z", max_tokens=60, stream=True)
    assert '"error"' in streamed.text and streamed.text.endswith("data: [DONE]\n\n")


def test_not_ready_while_no_step_ends(fake: Callable[..., Running]) -> None:
    server = fake(stall_seconds=0.1)
    engine = engine_of(server)
    assert server.client.get("/health/ready").json()["status"] == "ready"
    time.sleep(0.15)
    assert server.client.get("/health/ready").status_code == 200  # idle is not stalled
    engine.gate.clear()
    connection = send_request(server, {"prompt": "hello"})
    until(lambda: server.client.get("/health/ready").status_code == 503)
    assert "no step has ended for" in server.client.get("/health/ready").json()["reason"]
    assert server.client.get("/health/live").status_code == 200
    connection.close()
    until(lambda: server.llm.progress().unfinished == 0)
    assert server.client.get("/health/ready").status_code == 503  # who asked has left, and it hangs still
    engine.gate.set()
    until(lambda: server.client.get("/health/ready").status_code == 200)
    server.llm.close()
    assert server.client.get("/health/ready").json()["reason"] == "the engine's thread has ended"
    assert server.complete(prompt="x").status_code == 503


def test_keys_guard_every_route_but_liveness(fake: Callable[..., Running]) -> None:
    server = fake(api_keys=("one", "two"))
    document = server.client.get("/openapi.json", headers={"Authorization": "Bearer two"}).json()
    paths = list(document["paths"])
    assert "/v1/completions" in paths
    for path in [*paths, "/openapi.json", "/nowhere", "/v1/models/x", "/page", "/health/live/x", "//v1/models"]:
        if path not in ("/", "/health/live") and not path.startswith("/page/"):
            for method in ("GET", "POST"):
                answer = server.client.request(method, path, headers={"Authorization": "Bearer three"})
                assert answer.status_code == 401, path
                assert answer.json()["error"]["code"] == "invalid_api_key"
    assert server.client.get("/health/live").status_code == 200
    for key in ("one", "two"):
        assert server.client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200
    for bad in ("one", "Basic one", "Bearer", "Bearer one two", "Bearer onetwo"):
        assert server.client.get("/v1/models", headers={"Authorization": bad}).status_code == 401


def test_bodies_and_headers_have_limits(fake: Callable[..., Running]) -> None:
    server = fake(max_body_bytes=1000, body_seconds=0.2)
    big = b'{"prompt": "' + b"x" * 2000 + b'"}'
    headers = {"content-type": "application/json"}
    assert server.client.post("/v1/completions", content=big, headers=headers).status_code == 413
    chunked: Iterator[bytes] = iter([big[:500], big[500:1500], big[1500:]])
    assert server.client.post("/v1/completions", content=chunked, headers=headers).status_code == 413
    assert server.client.post("/v1/completions", content=b"{}").status_code == 415
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000)
    assert b" 400 " in connection.recv(1000)
    connection.close()
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(
        b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    )
    assert b" 408 " in connection.recv(1000)
    connection.close()


def test_cors_is_off_unless_asked_for(fake: Callable[..., Running]) -> None:
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    closed = fake().client.options("/v1/completions", headers=preflight)
    assert "access-control-allow-origin" not in closed.headers
    opened = fake(cors_origins=("https://a.example",), api_keys=("k",))
    allowed = opened.client.options("/v1/completions", headers=preflight)
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    other = opened.client.options("/v1/completions", headers=preflight | {"Origin": "https://b.example"})
    assert "access-control-allow-origin" not in other.headers


def test_draining_finishes_what_runs_and_refuses_the_rest(fake: Callable[..., Running]) -> None:
    server = fake(drain_seconds=5)
    engine = engine_of(server)
    engine.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.complete, prompt="hello", max_tokens=9)
        until(lambda: bool(engine.running))
        server.server.handle_exit(15, None)
        until(lambda: not any(listener.is_serving() for listener in server.server.servers))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))
        engine.gate.set()
        assert answer.result().json()["choices"][0]["text"] == "HELLO"
    server.thread.join(timeout=5)
    assert not server.thread.is_alive()


def test_draining_ends_in_time(fake: Callable[..., Running]) -> None:
    server = fake(drain_seconds=0.2)
    engine_of(server).before_step = lambda: time.sleep(0.001)
    engine_of(server).answer = lambda request: "x" * 100_000
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.complete, **LONG | {"max_tokens": 100_000})
        until(lambda: bool(engine_of(server).running))
        server.server.handle_exit(15, None)
        assert answer.result().status_code == 503
        assert answer.result().json()["error"]["code"] == "shutting_down"
    server.thread.join(timeout=5)
    assert not server.thread.is_alive()


def test_log_has_ids_and_counts_and_no_prompt(fake: Callable[..., Running], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "octavo.server")
    server = fake()
    answer = server.post("/v1/completions", {"prompt": "secret", "max_tokens": 9}, headers={"X-Request-Id": "mine.1"})
    assert answer.headers["X-Request-Id"] == "mine.1"
    until(lambda: '"event":"request"' in caplog.text)
    line = json.loads(caplog.records[-1].message)
    assert line["request_id"] == "mine.1" and line["status"] == 200
    assert (line["prompt_tokens"], line["completion_tokens"], line["finish_reasons"]) == (6, 7, ["stop"])
    assert "secret" not in caplog.text.lower()
    caplog.clear()
    odd = server.post("/v1/completions", {"prompt": "x"}, headers={"X-Request-Id": "a b\x07"})
    assert odd.headers["X-Request-Id"] != "a b\x07"
    other = fake(log_prompts=True)
    caplog.clear()
    other.complete(prompt="secret", max_tokens=2)
    until(lambda: "secret" in caplog.text)


def test_idle_server_uses_no_cpu(fake: Callable[..., Running]) -> None:
    server = fake()
    server.complete(prompt="hello", max_tokens=5)
    assert threading.active_count() > 2
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.05


def test_requests_that_exceed_the_pool_together_all_finish(small: Running) -> None:
    with ThreadPoolExecutor(24) as pool:
        body: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
        answers = list(pool.map(lambda place: small.complete(prompt=f"prompt {place}", **body), range(24)))
    assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [40] * 24
    assert small.llm.loaded.num_blocks < 24 * 7
    small.assert_well()


def test_seeded_answers_do_not_change_where_blocks_run_out(small: Running) -> None:
    body: dict[str, Any] = {"n": 12, "max_tokens": 40, "ignore_eos": True}

    def ask(place: int) -> list[str]:
        answer = small.complete(prompt=f"seeded {place}", seed=place, **body).json()
        return [choice["text"] for choice in answer["choices"]]

    alone = [ask(place) for place in range(2)]
    before = small.llm.stats().preemptions
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(ask, range(6)))[:2] == alone
    assert small.llm.stats().preemptions > before
    small.assert_well()


def test_a_storm_of_cancels_leaves_nothing(small: Running) -> None:
    def cancel(place: int) -> None:
        connection = send_request(small, {"prompt": f"storm {place}", "max_tokens": 50, "stream": place % 2 == 0})
        time.sleep(place % 7 * 0.003)
        connection.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(cancel, range(200)))
    small.assert_well()


def test_answers_are_counted_by_route_and_status(fake: Callable[..., Running]) -> None:
    server = fake(max_queued_requests=1, max_body_bytes=1000)
    engine = engine_of(server)
    server.complete(prompt="hello", max_tokens=5)
    server.complete(prompt="")
    server.complete(prompt="x" * 2000)
    server.client.get("/nowhere/at/all")
    server.client.get("/v1/models/other")
    engine.gate.clear()
    connection = send_request(server, {"prompt": "hello"})
    until(lambda: bool(engine.running))
    assert server.complete(prompt="hello").status_code == 429
    connection.close()
    until(lambda: server.llm.progress().unfinished == 0)
    engine.gate.set()
    until(lambda: not engine.running)
    engine.before_step = lambda: time.sleep(0.001)
    server.complete(**LONG | {"timeout": 0.05})
    server.complete(**LONG | {"timeout": 1.0, "stream": True})
    server.server._context.drain()
    server.complete(prompt="hello")
    counts = {name: value for name, value in server.metrics().items() if name.startswith("octavo_http_requests_total")}
    assert counts == {
        f'octavo_http_requests_total{{route="{route}",status="{status}"}}': count
        for route, status, count in (
            ("/v1/completions", 200, 1),
            ("/v1/completions", 400, 1),
            ("/v1/completions", 413, 1),
            ("/v1/completions", 429, 1),
            ("/v1/completions", 503, 1),
            ("/v1/completions", 504, 2),
            ("/v1/completions", "none", 1),
            ("/v1/models/{name:path}", 404, 1),
            ("other", 404, 1),
        )
    }


def test_a_refused_key_is_counted_with_its_route(fake: Callable[..., Running]) -> None:
    server = fake(api_keys=("k",))
    server.client.get("/v1/models")
    server.client.headers["Authorization"] = "Bearer k"
    assert server.metrics()['octavo_http_requests_total{route="/v1/models",status="401"}'] == 1
