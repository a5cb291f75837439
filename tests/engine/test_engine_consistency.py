"""The same request gives the same tokens and logprobs, whatever happens around it."""

import pytest
from engine_fakes import make_engine, prompt, request, run
from support.guesses import Guesses

WINDOWS = [(None,), (None, 7), (5,), (None, 3, 16)]


def requests():
    """Mixed lengths, shared prefixes, block multiples, n > 1, seeds, prompt logprobs."""
    shared = prompt(0, 24)
    return [
        request("a", shared, max_tokens=20),
        request("b", shared + prompt(1, 9), max_tokens=5, seed=7),
        request("c", prompt(2, 3), max_tokens=30, n=3, seed=5),
        request("d", shared[:16] + prompt(3, 5), max_tokens=12, n=4),
        request("e", prompt(4, 64), max_tokens=2),
        request("f", shared, max_tokens=6, prompt_logprobs=1),
        request("g", prompt(5, 1), max_tokens=9),
        request("h", prompt(6, 31), max_tokens=18, n=2, seed=1, prompt_logprobs=0),
    ]


@pytest.fixture(scope="module", params=WINDOWS, ids=str)
def case(request):
    windows = request.param
    expected = {}
    for alone in requests():
        engine = make_engine(
            windows, num_blocks=200, block_size=4, enable_prefix_caching=False, max_num_batched_tokens=2048
        )
        expected |= run(engine, [alone])
    return windows, expected


@pytest.mark.parametrize("budget", [1, 7, 16, 64, 2048])
@pytest.mark.parametrize("caching", [True, False])
def test_batch_and_chunk_budget_change_nothing(case, budget, caching):
    windows, expected = case
    engine = make_engine(
        windows,
        num_blocks=600 * len(windows),
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
        max_logits_rows=19,
    )
    assert same(run(engine, requests()), expected)


@pytest.mark.parametrize("block_size", [1, 4, 8, 16, 64])
def test_block_size_changes_nothing(case, block_size):
    windows, expected = case
    engine = make_engine(windows, num_blocks=600 * len(windows), block_size=block_size, max_num_batched_tokens=50)
    assert same(run(engine, requests()), expected)
    assert same(run(engine, requests()), expected), "second time, from the prefix cache"


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_preemption_at_every_step_changes_nothing(case, caching, block_size):
    """F17"""
    windows, expected = case
    engine = make_engine(windows, num_blocks=600 * len(windows), block_size=block_size, enable_prefix_caching=caching)
    answers = run(engine, requests(), each_step=engine.scheduler.preempt_all)
    assert same(answers, expected)
    assert engine.stats().preemptions > 50


@pytest.mark.parametrize("budget", [8, 64])
def test_preemption_at_every_step_with_small_chunks_changes_nothing(case, budget):
    windows, expected = case
    windows_hit = all(window is None for window in windows)
    if not windows_hit and budget < 64:
        pytest.skip("a chunk smaller than what a resumed sequence computes again never ends")
    engine = make_engine(windows, num_blocks=600 * len(windows), max_num_batched_tokens=budget, max_num_seqs=4)
    wanted = [r for r in requests() if r.params.prompt_logprobs is None and r.params.n == 1]
    answers = run(engine, wanted, each_step=engine.scheduler.preempt_all)
    assert same(answers, {r.request_id: expected[r.request_id] for r in wanted})


@pytest.mark.parametrize("num_blocks", [40, 55, 90])
@pytest.mark.parametrize("caching", [True, False])
def test_a_pool_that_is_too_small_for_all_changes_nothing(case, num_blocks, caching):
    windows, expected = case
    num_blocks *= len(windows)
    engine = make_engine(
        windows,
        num_blocks=num_blocks,
        enable_prefix_caching=caching,
        segment_blocks=7,
        max_num_batched_tokens=40,
    )
    assert same(run(engine, requests()), expected)
    assert engine.stats().peak_blocks <= num_blocks


@pytest.mark.parametrize(
    "settings", [{}, {"block_size": 1}, {"max_num_batched_tokens": 9}, {"max_logits_rows": 5}], ids=str
)
@pytest.mark.parametrize("preempting", [False, True])
def test_drafts_change_nothing(case, settings, preempting):
    windows, expected = case
    if preempting and "max_num_batched_tokens" in settings:
        pytest.skip("a chunk smaller than what a resumed sequence computes again never ends")
    engine = make_engine(windows, num_blocks=600 * len(windows), **settings)
    engine.speculation = Guesses(lambda sequence: expected[sequence.request.request_id].tokens[sequence.index])
    preempt = engine.scheduler.preempt_all if preempting else None
    assert same(run(engine, requests(), each_step=preempt), expected)
    stats = engine.stats()
    assert preempting or 10 < stats.accepted_tokens < stats.drafted_tokens


@pytest.mark.parametrize("num_blocks", [40, 55])
def test_drafts_in_a_pool_that_is_too_small_for_all_change_nothing(case, num_blocks):
    windows, expected = case
    engine = make_engine(windows, num_blocks=num_blocks * len(windows), segment_blocks=7, max_num_batched_tokens=40)
    engine.speculation = Guesses(lambda sequence: expected[sequence.request.request_id].tokens[sequence.index])
    assert same(run(engine, requests()), expected)
    assert engine.stats().accepted_tokens > 0


def same(answers, expected):
    for name, answer in expected.items():
        got = answers[name]
        assert got.tokens == answer.tokens, name
        assert got.reasons == answer.reasons
        assert [[x.logprob for x in row] for row in got.logprobs.values()] == [
            [x.logprob for x in row] for row in answer.logprobs.values()
        ]
        assert got.prompt_logprobs == answer.prompt_logprobs
    return answers.keys() == expected.keys()
