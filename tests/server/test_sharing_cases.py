"""Failure cases of other engines about sampling several answers and sharing blocks, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from small_model import make_small_model
from support.running_server import Running, running

from octavo import AsyncLLM

BLOCK = 8
SEEDED: dict[str, Any] = {"prompt": "hello", "n": 4, "seed": 11, "temperature": 1, "max_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Native kernels: the same bytes whatever is shared."""
    model = make_small_model(tmp_path_factory.mktemp("model"))
    with running(
        AsyncLLM(str(model), kv_cache_memory="256KiB", block_size=BLOCK, threads=1, max_draft_tokens=0)
    ) as server:
        yield server


def texts(server: Running, **body: Any) -> list[str]:
    answer = server.complete(**body)
    assert answer.status_code == 200, answer.text
    return [choice["text"] for choice in answer.json()["choices"]]


def streamed(server: Running, **body: Any) -> list[str]:
    found = dict.fromkeys(range(body.get("n", 1)), "")
    for event in server.events("/v1/completions", **body):
        for choice in event["choices"]:
            found[choice["index"]] += choice["text"]
    return list(found.values())


def test_answers_are_distinct_and_reproducible_and_share_one_prefill(server: Running) -> None:
    """F16"""
    server.llm.loaded.engine.drop_prefix_cache()
    before = server.llm.stats().computed_tokens
    found = texts(server, **SEEDED)
    assert server.llm.stats().computed_tokens - before == len("hello") + 4 * (12 - 1)
    assert len(set(found)) == 4
    assert found == texts(server, **SEEDED) == streamed(server, **SEEDED)
    # One ends early, the others go on as they would have.
    stop = found[0][3]
    ended = [text.split(stop)[0] for text in found]
    assert texts(server, **SEEDED, stop=stop) == ended == streamed(server, **SEEDED, stop=stop)
    assert len(ended[0]) <= 3
    server.assert_well()


def test_seeded_answers_survive_preemption_and_other_traffic(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """F17"""
    expected = texts(server, **SEEDED)
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(texts, server, prompt="abc" * place, n=2, max_tokens=9) for place in range(1, 8)]
        assert texts(server, **SEEDED) == expected
        assert all(len(other.result()) == 2 for other in others)
    engine = server.llm.loaded.engine
    step = engine.step

    def preempting() -> Any:
        engine.scheduler.preempt_all()
        return step()

    before = engine.stats().preemptions
    monkeypatch.setattr(engine, "step", preempting)
    assert texts(server, **SEEDED) == streamed(server, **SEEDED) == expected
    assert engine.stats().preemptions - before >= 20
    monkeypatch.undo()
    assert texts(server, **SEEDED) == expected
    server.assert_well()


@pytest.mark.parametrize("prompt", ["", [""], [[]], [], None, ["a", ""], [[5], []]])
def test_empty_prompts_are_refused(server: Running, prompt: Any) -> None:
    """F26"""
    for more in ({}, {"stream": True}, {"use_beam_search": True, "n": 2}):
        answer = server.complete(prompt=prompt, max_tokens=2, **more)
        assert answer.status_code == 400 and answer.json()["error"]["param"].startswith("prompt")
    server.assert_well()


def test_empty_chats(server: Running) -> None:
    """F26: no messages are refused; empty content is a message like any other, as the template makes tokens of it."""
    for messages in ([], None, [{"role": "user", "content": []}]):
        assert server.post("/v1/chat/completions", {"messages": messages}).status_code == 400
    answer = server.chat("", max_tokens=2, ignore_eos=True)
    assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 2
    server.assert_well()


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_exact_blocks_sent_twice_compute_one_token(server: Running, blocks: int) -> None:
    """F28"""
    body = {"prompt": "abcdefgh" * blocks, "max_tokens": 6, "temperature": 0, "cache_salt": f"{blocks} blocks"}
    first = server.complete(**body).json()
    before = server.llm.stats()
    second = server.complete(**body).json()
    after = server.llm.stats()
    assert second["choices"][0]["text"] == first["choices"][0]["text"]
    cached = [each["usage"]["prompt_tokens_details"]["cached_tokens"] for each in (first, second)]
    assert cached == [0, blocks * BLOCK - 1]
    assert after.computed_tokens - before.computed_tokens == 1 + 5, "the prompt's last token, and those of the answer"
    assert after.prefix_hit_tokens - before.prefix_hit_tokens == blocks * BLOCK - 1
    assert after.prefix_queried_tokens - before.prefix_queried_tokens == blocks * BLOCK


def test_tenants_never_share(server: Running) -> None:
    """F37: salts, none, and the model's name as a salt."""
    prompt = "~ prompt of three blocks"

    def ask(salt: str | None) -> tuple[str, int]:
        body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "cache_salt": salt}
        answer = server.complete(**body).json()
        return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    salts = [None, "one", "two", "small", "tenant_salt", "one\x00two"]
    first = [ask(salt) for salt in salts]
    assert [cached for _, cached in first] == [0] * len(salts)
    again = [ask(salt) for salt in salts]
    assert [cached for _, cached in again] == [len(prompt) - 1] * len(salts)
    assert len({text for text, _ in first + again}) == 1
