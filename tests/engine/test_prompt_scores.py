"""Prompt logprobs out of the prefix cache equal those of a cold run, bit for bit."""

import pytest
from engine_fakes import make_engine, prompt, request, run

WINDOWS = [(None,), (None, 7), (5,)]


def cold(windows, tokens):
    engine = make_engine(windows, enable_prefix_caching=False)
    return run(engine, [request("a", tokens, prompt_logprobs=0, max_tokens=2)])["a"]


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@pytest.mark.parametrize("first", [0, 3], ids=["chosen", "likeliest"])
def test_in_both_orders_around_block_multiples(windows, first):
    """F11"""
    base = prompt(0, 40)
    for lengths in ([15, 16, 17, 31, 32, 33], [33, 32, 31, 17, 16, 15]):
        engine = make_engine(windows, block_size=16, num_blocks=200)
        for number, length in enumerate(lengths * 2):
            tokens = base[:length]
            if number % 2 == 0:
                run(engine, [request("w", tokens, prompt_logprobs=first, max_tokens=1)])
            warm = run(engine, [request("a", tokens, prompt_logprobs=0, max_tokens=2)])["a"]
            expected = cold(windows, tokens)
            assert warm.prompt_logprobs == expected.prompt_logprobs and warm.tokens == expected.tokens
            assert len(warm.prompt_logprobs) == length
            if length > 16:
                assert warm.num_cached >= 15, "all but the last scored token"


def test_only_what_was_scored_is_taken():
    """A prompt that nobody scored is computed again; so is one whose likeliest tokens are asked for."""
    engine = make_engine()
    tokens = prompt(0, 20)
    run(engine, [request("plain", tokens)])
    answers = [run(engine, [request("a", tokens, prompt_logprobs=top)])["a"] for top in (0, 0, 2, 0)]
    assert [answer.num_cached for answer in answers] == [0, 19, 0, 19]
    assert answers[0].prompt_logprobs == answers[1].prompt_logprobs == answers[3].prompt_logprobs
    other = run(engine, [request("b", tokens[:10] + prompt(1, 10), prompt_logprobs=0)])["b"]
    assert other.num_cached == 9
    assert other.prompt_logprobs == cold((None,), tokens[:10] + prompt(1, 10)).prompt_logprobs


def test_scored_prompts_survive_preemption_and_small_chunks():
    for budget in (3, 16):
        engine = make_engine(max_num_batched_tokens=budget, max_logits_rows=3, num_blocks=200)
        for length in (30, 33, 17):
            tokens = prompt(0, length)
            steps = iter(range(10**6))
            each = lambda steps=steps, engine=engine: next(steps) % 3 == 2 and engine.scheduler.preempt_all()  # noqa: E731
            warm = run(engine, [request("a", tokens, prompt_logprobs=0, max_tokens=2)], each_step=each)["a"]
            assert warm.prompt_logprobs == cold((None,), tokens).prompt_logprobs
