"""Beam search and best_of through LLM and AsyncLLM, with a very small model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from small_model import make_small_model

from octavo import LLM, AsyncLLM, BeamSearchParams, SamplingParams

OPTIONS: dict[str, Any] = {"block_size": 8, "kv_cache_memory": "1MiB", "threads": 1}
PROMPTS = ["abc", "a prompt of some length", "x" * 30]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_small_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def llm(model: str) -> Iterator[LLM]:
    with LLM(model, **OPTIONS) as llm:
        yield llm


def facts(output: Any) -> list[Any]:
    return [(each.token_ids, each.text, each.score, each.finish_reason, each.stop_reason) for each in output.outputs]


def test_answers_are_the_best_first_and_the_same_alone(llm: LLM) -> None:
    params = [BeamSearchParams(3, 10, length_penalty=penalty, logprobs=1) for penalty in (0.5, 1.0, 2.0)]
    together = llm.beam_search(PROMPTS, params)
    for prompt, one, output in zip(PROMPTS, params, together, strict=True):
        assert output.finished and [each.index for each in output.outputs] == [0, 1, 2]
        assert facts(llm.beam_search(prompt, one)[0]) == facts(output)
        scores = [each.score for each in output.outputs]
        assert scores == sorted(scores, reverse=True)
        for each in output.outputs:
            assert each.logprobs is not None and len(each.logprobs) == len(each.token_ids)
            chosen = [entry[token].logprob for entry, token in zip(each.logprobs, each.token_ids, strict=True)]
            assert each.cumulative_logprob == pytest.approx(sum(chosen), abs=1e-5)
            assert each.score == pytest.approx(sum(chosen) / len(chosen) ** one.length_penalty, abs=1e-5)
    assert llm.stats().referenced_blocks == 0


def test_n_gives_the_first_beams(llm: LLM) -> None:
    (all_beams,) = llm.beam_search("abc", BeamSearchParams(4, 8))
    (two,) = llm.beam_search("abc", BeamSearchParams(4, 8, n=2))
    assert facts(two) == facts(all_beams)[:2]


def test_a_width_of_one_is_greedy(llm: LLM) -> None:
    (beam,) = llm.beam_search("abc", BeamSearchParams(1, 12, ignore_eos=True))
    (greedy,) = llm.generate("abc", SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))
    assert beam.outputs[0].token_ids == greedy.outputs[0].token_ids and beam.outputs[0].text == greedy.outputs[0].text


@pytest.mark.parametrize("include", [True, False])
def test_stop_strings_finish_beams(llm: LLM, include: bool) -> None:
    (free,) = llm.beam_search("abc", BeamSearchParams(4, 12, ignore_eos=True))
    text = free.outputs[0].text
    stop = text[4:6]
    found = text.index(stop)
    params = BeamSearchParams(
        4, 12, length_penalty=0.0, ignore_eos=True, stop=[stop], include_stop_str_in_output=include
    )
    (stopped,) = llm.beam_search("abc", params)
    ended = [each for each in stopped.outputs if each.stop_reason == stop]
    assert ended
    for each in stopped.outputs:
        assert each.finish_reason == ("stop" if each in ended else "length")
        assert (stop in each.text) == (include and each in ended)
        whole = llm.get_tokenizer().decode(each.token_ids)
        assert each in ended or each.text == whole
        assert each not in ended or whole.index(stop) + len(stop) == len(whole)
    assert any(llm.get_tokenizer().decode(each.token_ids) == text[: found + 2] for each in ended) or found != 4


def test_allowed_tokens_hold_for_every_beam(llm: LLM) -> None:
    """The hook of guided decoding: a mask in a beam's state goes with its forks."""
    allowed = {40, 41, 42, 43}
    state = llm._new_state(llm.reader.read("abc"), BeamSearchParams(3, 6, ignore_eos=True))
    llm.driver.add(state)
    mask = np.zeros(3, np.uint32)
    for token in allowed:
        mask[token // 32] |= np.uint32(1 << token % 32)
    (sequence,) = llm.loaded.engine._requests[state.request_id].sequences
    sequence.state.allowed_mask = mask
    while not state.finished:
        llm.driver.step()
    assert len(state.output().outputs) == 3
    assert all(set(each.token_ids) <= allowed and len(each.token_ids) == 6 for each in state.output().outputs)


def test_fewer_beams_than_asked_for_are_empty_answers(llm: LLM) -> None:
    bias = dict.fromkeys(range(96), -100.0)
    params = BeamSearchParams(4, 1, ignore_eos=True, logit_bias=bias)
    assert len(llm.beam_search("abc", params)[0].outputs) == 4
    state = llm._new_state(llm.reader.read("abc"), BeamSearchParams(4, 1, ignore_eos=True))
    llm.driver.add(state)
    llm.loaded.engine._requests[state.request_id].sequences[0].state.allowed_mask = np.array([0, 6, 0], np.uint32)
    while not state.finished:
        llm.driver.step()
    assert [len(each.token_ids) for each in state.output().outputs] == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"beam_width": 0}, "beam_width is 0, must be an integer from 1 to 64"),
        ({"n": 5}, "n is 5, must be an integer from 1 to 4"),
        ({"early_stopping": 1}, 'early_stopping is 1, must be true, false or "never"'),
        ({"length_penalty": float("nan")}, "length_penalty is nan, must be a number"),
        ({"min_tokens": 17}, "min_tokens is 17, must be at most max_tokens, which is 16"),
        ({"temperature": 1}, "temperature: unknown"),
    ],
)
def test_bad_parameters_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BeamSearchParams.from_dict(values)


def test_parameters_and_prompts_must_match(llm: LLM) -> None:
    with pytest.raises(ValueError, match="params: 1 for 2 prompts"):
        llm.beam_search(["a", "b"], [BeamSearchParams()])
    with pytest.raises(ValueError, match="below the vocabulary size 96"):
        llm.beam_search("a", BeamSearchParams(stop_token_ids=[96]))
    for empty in ("", [], [[]], [""]):
        with pytest.raises(ValueError, match=r"empty|at least one"):  # F26
            llm.beam_search(empty, BeamSearchParams())
    assert not llm.driver.has_unfinished


def test_async_search_and_its_cancellation(model: str, llm: LLM) -> None:
    (expected,) = llm.beam_search("abc", BeamSearchParams(3, 8))

    async def search(llm: AsyncLLM, params: BeamSearchParams) -> list[Any]:
        return [output async for output in llm.beam_search("abc", params)]

    async def main() -> None:
        async with AsyncLLM(model, **OPTIONS) as llm:
            found = await asyncio.gather(*(search(llm, BeamSearchParams(3, 8)) for _ in range(3)))
            assert [facts(outputs[-1]) for outputs in found] == [facts(expected)] * 3
            begun = asyncio.Event()

            async def search_long() -> None:
                async for _ in llm.beam_search("abc", BeamSearchParams(4, 60, ignore_eos=True)):
                    begun.set()

            task = asyncio.create_task(search_long())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            *running, ended = await search(llm, BeamSearchParams(3, 30, ignore_eos=True))
            for output in running:  # none where this task was not awake in between
                assert not output.finished and all(not each.token_ids and not each.text for each in output.outputs)
                assert output.metrics.time_to_first_token == ended.metrics.time_to_first_token
            assert [each.delta for each in ended.outputs] == [each.text for each in ended.outputs]
            assert ended.metrics.time_to_first_token is not None
            assert llm.stats().referenced_blocks == 0

    asyncio.run(main())


def test_best_of_gives_the_likeliest_of_more_answers(llm: LLM) -> None:
    settings: dict[str, Any] = dict(temperature=1.0, seed=3, max_tokens=8, ignore_eos=True)
    (all_of_them,) = llm.generate("abc", SamplingParams(n=5, logprobs=0, **settings))
    (best,) = llm.generate("abc", SamplingParams(n=2, best_of=5, **settings))
    expected = sorted(all_of_them.outputs, key=lambda each: -(each.cumulative_logprob or 0))[:2]
    assert [each.token_ids for each in best.outputs] == [each.token_ids for each in expected]
    assert [each.index for each in best.outputs] == [0, 1] and [each.logprobs for each in best.outputs] == [None, None]
    assert best.outputs[0].cumulative_logprob == expected[0].cumulative_logprob
    *running, last = llm.stream("abc", SamplingParams(n=2, best_of=5, **settings))
    assert all(each.text == "" for output in running for each in output.outputs)
    assert [each.delta for each in last.outputs] == [each.text for each in best.outputs]
    with pytest.raises(ValueError, match="best_of is 1, must be at least n, which is 2"):
        SamplingParams(n=2, best_of=1)
