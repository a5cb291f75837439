"""LLM and AsyncLLM over the real engine, sampler, tokenizer and executors, with a very small model.

An answer must not depend on its neighbours, on the cache, on chunks, on block sizes, on preemption or on
threads.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_model import WEIGHTS, make_small_model
from support.machine import INSTRUCTION_SETS

from octavo import LLM, AsyncLLM, RequestOutput, SamplingParams
from octavo.cli.generate import answer_lines

PROMPTS = [f"prompt number {number}, {'abc' * number}" for number in range(9)]
"""Of 17 to 41 tokens; the model takes 64"""
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=2)
SEEDED = SamplingParams(temperature=1.0, seed=7, max_tokens=12, ignore_eos=True, logprobs=2, top_p=0.9)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_small_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module", params=["reference", "native"])
def executor(request: pytest.FixtureRequest) -> str:
    if request.param == "native" and not hasattr(importlib.import_module("octavo.executors.native"), "NativeExecutor"):
        pytest.skip("the native executor is not there")
    return str(request.param)


@pytest.fixture
def make_llm(model: str, executor: str) -> Iterator[Callable[..., LLM]]:
    made: list[LLM] = []

    def make(**options: Any) -> LLM:
        options = {"executor": executor, "block_size": 8, "kv_cache_memory": "1MiB", "threads": 1, **options}
        made.append(LLM(model, **options))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


def facts(output: RequestOutput, executor: str) -> Any:
    """Everything about an answer that must never vary. The matrix products of the reference executor are
    numpy's, whose last bits depend on the number of rows, so its logprobs are left out."""
    return [
        (each.token_ids, each.text, each.finish_reason, each.logprobs if executor == "native" else None)
        for each in output.outputs
    ]


@pytest.fixture(scope="module")
def alone(model: str, executor: str) -> dict[str, list[Any]]:
    """The answers of each prompt by itself, without cache."""
    with LLM(model, executor=executor, block_size=8, threads=1, enable_prefix_caching=False) as llm:
        return {
            name: [facts(llm.generate(prompt, params)[0], executor) for prompt in PROMPTS]
            for name, params in (("greedy", GREEDY), ("seeded", SEEDED))
        }


@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enable_prefix_caching": False},
        {"block_size": 16},
        {"block_size": 64},
        {"max_num_batched_tokens": 7},
        {"max_num_batched_tokens": 16, "max_num_seqs": 2},
        {"threads": 2},
    ],
    ids=lambda options: "-".join(f"{key}={value}" for key, value in options.items()) or "batched",
)
def test_same_bytes(
    make_llm: Callable[..., LLM],
    executor: str,
    alone: dict[str, list[Any]],
    options: dict[str, Any],
    params: SamplingParams,
) -> None:
    llm = make_llm(**options)
    expected = alone["greedy" if params is GREEDY else "seeded"]
    for _ in range(2):  # the second time from the cache
        assert [facts(output, executor) for output in llm.generate(PROMPTS, params)] == expected


def test_same_bytes_under_preemption(make_llm: Callable[..., LLM], executor: str, alone: dict[str, list[Any]]) -> None:
    block_bytes = make_llm().loaded.block_bytes
    llm = make_llm(kv_cache_memory=9 * block_bytes, max_draft_tokens=0)  # drafts would end some before others lack room
    assert [facts(output, executor) for output in llm.generate(PROMPTS, GREEDY)] == alone["greedy"]
    stats = llm.stats()
    assert stats.preemptions > 0
    assert stats.referenced_blocks == 0


@pytest.mark.parametrize("order", [1, -1], ids=["short-first", "long-first"])
def test_prompt_logprobs_are_the_same_cold_and_cached(make_llm: Callable[..., LLM], order: int) -> None:
    """F11: around block ends, each prompt twice, the shorter ones the beginning of the longer ones."""
    params = SamplingParams(temperature=0.0, max_tokens=2, prompt_logprobs=1)
    cold, warm = make_llm(enable_prefix_caching=False, block_size=16), make_llm(block_size=16)
    for length in [15, 16, 17, 31, 32, 33][::order]:
        prompt = [3 + place for place in range(length)]
        (expected,) = cold.generate(prompt, params)
        warm.generate(prompt, SamplingParams(max_tokens=1))
        for _ in range(2):
            (found,) = warm.generate(prompt, params)
            assert found.prompt_logprobs == expected.prompt_logprobs
            assert found.prompt_logprobs is not None
            assert len(found.prompt_logprobs) == length
            assert found.prompt_logprobs[0] is None


def test_exact_blocks_sent_twice_give_the_same_answer(make_llm: Callable[..., LLM], executor: str) -> None:
    """F28: a prompt of exactly k blocks takes all but its last token from the cache."""
    llm = make_llm()
    for blocks in (1, 2, 3, 6):
        prompt = [40 + blocks + place for place in range(8 * blocks)]
        (first,), (second,) = llm.generate(prompt, GREEDY), llm.generate(prompt, GREEDY)
        assert facts(first, executor) == facts(second, executor)
        assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 8 * blocks - 1)


@pytest.mark.parametrize("threads", [1, 2, 17])
def test_any_number_of_threads(
    make_llm: Callable[..., LLM], executor: str, alone: dict[str, list[Any]], threads: int
) -> None:
    """F65"""
    llm = make_llm(threads=threads)
    assert llm.loaded.threads == threads
    params = replace(GREEDY, max_tokens=3)
    (output,) = llm.generate(PROMPTS[8], params)
    assert output.outputs[0].token_ids == alone["greedy"][8][0][0][:3]


def test_close_ends_all_threads(model: str) -> None:
    def threads() -> set[str]:
        return set(os.listdir("/proc/self/task"))

    before = threads()
    llm = LLM(model, executor="native", threads=3, kv_cache_memory="1MiB")
    assert len(threads() - before) == 2, "one team for executor and sampler"
    llm.generate("abc", GREEDY)
    llm.close()
    assert not threads() - before


def test_a_lower_instruction_set_can_be_chosen(model: str) -> None:
    """F65"""
    for name in INSTRUCTION_SETS:
        with LLM(model, instruction_set=name, dtype="float32", threads=2) as llm:
            executor: Any = llm.loaded.executor
            assert executor.instruction_set == name
            assert llm.generate(PROMPTS[0], GREEDY)[0].outputs[0].finish_reason == "length"


def test_four_generations_that_do_not_fit_together_all_finish(make_llm: Callable[..., LLM], executor: str) -> None:
    """F43"""
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
    expected = [facts(output, executor) for output in make_llm().generate(PROMPTS[:4], params)]
    block_bytes = make_llm().loaded.block_bytes
    llm = make_llm(kv_cache_memory=12 * block_bytes, max_draft_tokens=0)
    assert [facts(output, executor) for output in llm.generate(PROMPTS[:4], params)] == expected
    assert llm.stats().preemptions > 0


def test_stop_strings_are_not_searched_in_the_prompt(make_llm: Callable[..., LLM]) -> None:
    """F09"""
    params = SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True)
    llm = make_llm()
    prompt = "the END of it"
    (plain,) = llm.generate(prompt, params)
    (stopped,) = llm.generate(prompt, replace(params, stop=("END",)))
    assert "END" not in plain.outputs[0].text
    assert stopped.outputs[0].text == plain.outputs[0].text


def test_a_stretched_context_gets_its_rotary_table(tmp_path: Path) -> None:
    """F63: dynamic rope, asked for more than the original 64 tokens, equals transformers at that length."""
    data = WEIGHTS / "llama_rope_dynamic_long.npz"
    stored = dict(np.load(data))
    number = len(stored) // 3 - 1
    prompt, logits = stored[f"prompt{number}"].tolist(), stored[f"logits{number}"]
    path = str(make_small_model(tmp_path, "llama_rope_dynamic_long"))
    with LLM(path) as llm:
        assert llm.loaded.max_model_len == 64
    with pytest.raises(ValueError, match="max_model_len=129: the model was made for at most 128"):
        LLM(path, max_model_len=129)
    # Its numbers are those of one forward of so many tokens.
    with LLM(path, max_model_len=len(prompt), dtype="float32") as llm:
        (output,) = llm.generate(prompt[:-1], SamplingParams(max_tokens=1, temperature=0, logprobs=1))
    best = int(logits[-2].argmax())
    expected = float(logits[-2][best] - np.log(np.exp(logits[-2].astype(np.float64)).sum()))
    assert output.outputs[0].token_ids == [best]
    assert output.outputs[0].cumulative_logprob == pytest.approx(expected, abs=1e-4)


def test_cached_tokens_are_reported(make_llm: Callable[..., LLM]) -> None:
    llm = make_llm()
    prompt = list(range(3, 36))
    assert llm.generate(prompt, GREEDY)[0].num_cached_tokens == 0
    assert llm.generate(prompt, GREEDY)[0].num_cached_tokens == 32
    salted = {"prompt_token_ids": prompt, "cache_salt": "mine"}
    assert llm.generate(salted, GREEDY)[0].num_cached_tokens == 0
    assert llm.generate(salted, GREEDY)[0].num_cached_tokens == 32


def test_request_that_never_fits_is_refused_and_the_next_is_served(make_llm: Callable[..., LLM]) -> None:
    block_bytes = make_llm().loaded.block_bytes
    llm = make_llm(kv_cache_memory=3 * block_bytes)
    with pytest.raises(ValueError, match=r"needs up to 5 blocks .* the pool has 3"):
        llm.generate([5] * 40, SamplingParams(max_tokens=1))
    assert llm.generate([5] * 10, SamplingParams(max_tokens=3))[0].finished


def test_too_little_memory_is_refused(make_llm: Callable[..., LLM]) -> None:
    with pytest.raises(ValueError, match=r"kv_cache_memory=100: holds 0 blocks of 8 tokens"):
        make_llm(kv_cache_memory=100)


def test_longer_than_the_model_is_refused(make_llm: Callable[..., LLM]) -> None:
    with pytest.raises(ValueError, match="max_model_len=65: the model was made for at most 64"):
        make_llm(max_model_len=65)
    llm = make_llm(max_model_len=20)
    with pytest.raises(ValueError, match="max_model_len=20"):
        llm.generate([5] * 20)
    assert len(llm.generate([5] * 19, SamplingParams(max_tokens=9))[0].outputs[0].token_ids) == 1


def test_stream_and_generate_agree(make_llm: Callable[..., LLM], executor: str) -> None:
    llm = make_llm()
    messages = [{"role": "user", "content": "hello"}]
    (whole,) = llm.chat(messages, GREEDY)
    outputs = list(llm.stream_chat(messages, GREEDY))
    assert whole.prompt == "<s>user: hello; assistant: "
    assert "".join(output.outputs[0].delta for output in outputs) == whole.outputs[0].text
    assert facts(outputs[-1], executor) == facts(whole, executor)


def test_several_sequences_differ_and_repeat(make_llm: Callable[..., LLM]) -> None:
    llm = make_llm()
    params = SamplingParams(n=4, temperature=1.0, seed=1, max_tokens=10, ignore_eos=True)
    first, second = llm.generate("abc", params) + llm.generate("abc", params)
    assert facts(first, "") == facts(second, "")
    assert len({tuple(completion.token_ids) for completion in first.outputs}) == 4
    assert llm.stats().referenced_blocks == 0


def test_ids_beyond_the_vocabulary_in_parameters_are_refused(make_llm: Callable[..., LLM]) -> None:
    llm = make_llm()
    for params in (SamplingParams(logit_bias={96: 1.0}), SamplingParams(stop_token_ids=[96])):
        with pytest.raises(ValueError, match="below the vocabulary size 96"):
            llm.generate("abc", params)
    assert not llm.driver.has_unfinished


def test_request_without_any_token_to_choose_ends_alone(
    make_llm: Callable[..., LLM], executor: str, alone: dict[str, list[Any]]
) -> None:
    """Every token ends the sequence, and none may before min_tokens: nothing is left to choose."""
    nothing = SamplingParams(max_tokens=5, min_tokens=2, stop_token_ids=list(range(96)))
    llm = make_llm()
    good, bad, other = llm.generate(PROMPTS[:3], [GREEDY, nothing, GREEDY])
    assert [facts(output, executor) for output in (good, other)] == [alone["greedy"][0], alone["greedy"][2]]
    assert bad.error is not None and "no token can be chosen" in bad.error
    assert (bad.outputs[0].finish_reason, bad.outputs[0].token_ids) == ("error", [])
    assert llm.stats().referenced_blocks == 0
    line = json.dumps({"prompt": "abc", "min_tokens": 2, "stop_token_ids": list(range(96))}).encode()
    ((result, tokens),) = answer_lines(llm, [line], {})
    assert tokens is None and "no token can be chosen" in json.loads(result)["error"]["message"]


def test_file_of_requests(make_llm: Callable[..., LLM], alone: dict[str, list[Any]]) -> None:
    llm = make_llm()
    lines = [
        json.dumps({"prompt": prompt, "temperature": 0, "max_tokens": 12, "ignore_eos": True}).encode()
        for prompt in PROMPTS
    ]
    results = [json.loads(line) for line, _ in answer_lines(llm, [*lines, b"{}"], {}, window=3)]
    assert [result["token_ids"] for result in results[:-1]] == [answer[0][0] for answer in alone["greedy"]]
    assert results[-1]["error"]["line"] == 10


def test_readers_that_leave_give_their_blocks_back(model: str, executor: str, alone: dict[str, list[Any]]) -> None:
    async def leave(llm: AsyncLLM, number: int) -> None:
        seen = 0
        async for _ in llm.generate(PROMPTS[number % 9], GREEDY):
            seen += 1
            if seen > number % 5:
                return

    async def main() -> None:
        options: dict[str, Any] = {
            "executor": executor,
            "block_size": 8,
            "kv_cache_memory": "1MiB",
            "threads": 1,
        }
        async with AsyncLLM(model, **options) as llm:
            await asyncio.gather(*(leave(llm, number) for number in range(60)))
            results = [output async for output in llm.generate(PROMPTS[3], GREEDY)]
            assert facts(results[-1], executor) == alone["greedy"][3]
            await asyncio.sleep(0.05)
            stats = llm.stats()
            assert stats.referenced_blocks == 0
            assert stats.free_blocks + stats.cached_blocks == stats.total_blocks

    asyncio.run(main())


def test_directory_that_is_no_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises((ValueError, OSError), match=tmp_path.name):
        LLM(str(tmp_path), executor="reference")
