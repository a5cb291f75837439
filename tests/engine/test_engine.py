import pytest
from engine_fakes import (
    EOS,
    FakeExecutor,
    FakeSampler,
    check_invariants,
    collect,
    make_engine,
    prompt,
    request,
    run,
)


class Script(FakeSampler):
    """Gives every sequence the same tokens, by position."""

    def __init__(self, tokens):
        super().__init__()
        self.tokens = tokens

    def sample(self, logits, states, rows=None):
        result = super().sample(logits, states, rows)
        result.token_ids[:] = [self.tokens[state.output_len] for state in states]
        return result


def scripted(tokens, **params):
    """(output tokens, finish reason, stop reason) of one sequence that is given these tokens."""
    engine = make_engine(sampler=Script(tokens))
    engine.add_request(request("a", prompt(0, 5), **params))
    updates = []
    while engine.has_unfinished:
        updates += engine.step()
    assert all(update.finish_reason is None for update in updates[:-1])
    return [update.token_id for update in updates], updates[-1].finish_reason, updates[-1].stop_reason


def test_a_sequence_stops_at_end_of_sequence_stop_token_or_length():
    tokens = [10, EOS, 11, 12, EOS, 13, 12, 14]
    assert scripted(tokens, ignore_eos=False) == ([10, EOS], "stop", None)
    assert scripted(tokens, max_tokens=7) == (tokens[:7], "length", None)
    assert scripted(tokens, stop_token_ids=(12, 99)) == (tokens[:4], "stop", 12)
    assert scripted(tokens, stop_token_ids=(12,), min_tokens=5) == (tokens[:7], "stop", 12)
    assert scripted(tokens, ignore_eos=False, min_tokens=3) == (tokens[:5], "stop", None)
    assert scripted(tokens, ignore_eos=False, min_tokens=2) == (tokens[:2], "stop", None)
    assert scripted(tokens, ignore_eos=False, max_tokens=2) == (tokens[:2], "stop", None)


def test_logprobs_come_where_asked_for():
    engine = make_engine()
    engine.add_request(request("no", prompt(0, 5), logprobs=None))
    engine.add_request(request("yes", prompt(0, 5), logprobs=1))
    no, yes = engine.step()
    assert no.logprobs is None and yes.logprobs.logprob > 0
    assert yes.token_id == yes.logprobs.top_ids[0] and yes.logprobs.rank == 1


def test_the_likeliest_prompt_tokens_take_no_hit_and_equal_a_cold_run():
    """F11: lengths around block multiples, overlapping prompts, both orders."""
    base = prompt(0, 40)
    for lengths in ([15, 16, 17, 31, 32, 33], [33, 32, 31, 17, 16, 15]):
        engine = make_engine(block_size=16)
        for length in lengths * 2:
            tokens = base[:length]
            warm = run(engine, [request("a", tokens, prompt_logprobs=1, max_tokens=2)])["a"]
            cold = run(make_engine(), [request("a", tokens, prompt_logprobs=1, max_tokens=2)])["a"]
            assert warm.prompt_logprobs == cold.prompt_logprobs and warm.tokens == cold.tokens
            assert len(warm.prompt_logprobs) == length and warm.prompt_logprobs[0] is None
            assert warm.num_cached == 0
    assert engine.stats().prefix_queried_tokens == 0


def test_prompt_logprobs_equal_those_of_the_same_tokens_when_sampled():
    """F15, the engine's part: prefill and decode read the same context."""
    answer = run(make_engine(), [request("a", prompt(0, 9))])["a"]
    whole = prompt(0, 9) + answer.tokens[0]
    scored = run(make_engine(), [request("b", whole, prompt_logprobs=0, max_tokens=1)])["b"]
    assert [x.logprob for x in scored.prompt_logprobs[9:]] == [x.logprob for x in answer.logprobs[0]]


def test_a_request_can_be_aborted_in_every_state():
    """F42: waiting, mid-prefill, decoding, preempted, with forked and with unforked siblings."""
    for steps in range(9):
        engine = make_engine(max_num_batched_tokens=6, max_num_seqs=4)
        for name in "abc":
            engine.add_request(request(name, prompt(1, 14), n=2, max_tokens=4))
        for _ in range(steps):
            engine.step()
        if steps % 2:
            engine.scheduler.preempt_all()
        for name in "bac":
            engine.abort(name)
            check_invariants(engine)
        assert engine.abort("a") is False and not engine.has_unfinished and engine.step() == []
        engine.drop_prefix_cache()
        assert engine.stats().free_blocks == engine.stats().total_blocks
        assert run(engine, [request("a", prompt(1, 14))])["a"].reasons == {0: "length"}


def test_finish_from_outside_ends_one_sequence_only():
    engine = make_engine()
    engine.add_request(request("a", prompt(0, 9), n=3, max_tokens=6))
    answers = {}
    collect(answers, engine.step())
    assert engine.finish("a", 1, "stop") and not engine.finish("a", 1, "stop")
    check_invariants(engine)
    while engine.has_unfinished:
        collect(answers, engine.step())
        check_invariants(engine)
    assert {index: len(tokens) for index, tokens in answers["a"].tokens.items()} == {0: 6, 1: 1, 2: 6}
    assert not engine.finish("a", 0, "stop")


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("preempt", [False, True])
def test_another_sequence_leads_when_the_leader_ends_early(steps, preempt):
    engine = make_engine(max_num_batched_tokens=5)
    engine.add_request(request("a", prompt(0, 14), n=3, max_tokens=6))
    engine.add_request(request("b", prompt(1, 8), max_tokens=6))
    answers = {}
    for _ in range(steps):
        collect(answers, engine.step())
    if preempt:
        engine.scheduler.preempt_all()
        collect(answers, engine.step())
    engine.finish("a", 0, "stop")
    check_invariants(engine)
    while engine.has_unfinished:
        collect(answers, engine.step())
        check_invariants(engine)
    alone = run(make_engine(), [request("a", prompt(0, 14), n=3, max_tokens=6)])["a"]
    for index in (1, 2):
        assert answers["a"].tokens[index] == alone.tokens[index]


def test_what_fails_for_one_request_ends_that_request_only():
    engine = make_engine()
    engine.add_request(request("bad", prompt(0, 9), n=2))
    engine.add_request(request("good", prompt(1, 9)))
    engine._requests["bad"].sequences[1].state.fail_at = 3
    answers = {}
    errors = []
    while engine.has_unfinished:
        updates = engine.step()
        check_invariants(engine)
        errors += [update for update in updates if update.error]
        collect(answers, updates)
    assert {(e.request_id, e.index, e.token_id, e.error) for e in errors} == {
        ("bad", i, -1, "RuntimeError: this state fails") for i in (0, 1)
    }
    assert answers["good"].tokens == run(make_engine(), [request("good", prompt(1, 9))])["good"].tokens


@pytest.mark.parametrize("part", ["executor", "sampler"])
def test_a_failing_step_ends_all_requests_cleanly_and_the_next_one_is_right(part):
    engine = make_engine(enable_prefix_caching=True, max_num_batched_tokens=12)
    for i in range(5):
        engine.add_request(request(str(i), prompt(i % 2, 9), n=2))
    for _ in range(3):
        engine.step()
    getattr(engine, part).fail_next = OSError("no more")
    with pytest.raises(OSError, match="no more"):
        engine.step()
    check_invariants(engine)
    assert engine.stats().referenced_blocks == 0 and engine.has_unfinished
    updates = engine.step()
    assert {(u.request_id, u.index) for u in updates} == {(str(i), j) for i in range(5) for j in (0, 1)}
    assert {(u.finish_reason, u.error) for u in updates} == {("error", "OSError: no more")}
    assert not engine.has_unfinished
    expected = run(make_engine(), [request("a", prompt(0, 9))])["a"].tokens
    assert run(engine, [request("a", prompt(0, 9))])["a"].tokens == expected


def test_stats_add_up():
    engine = make_engine(block_size=8)
    engine.add_request(request("a", prompt(0, 19), n=2, max_tokens=4))
    engine.add_request(request("b", prompt(0, 19), max_tokens=4))
    engine.step()
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.running_sequences) == (2, 0, 3)
    assert (stats.referenced_blocks, stats.shared_blocks) == (6, 3)
    assert (stats.used_slots, stats.wasted_slots) == (2 * 19, 2 * 5)
    assert (stats.computed_tokens, stats.generated_tokens, stats.steps) == (38, 3, 1)
    engine.step()
    stats = engine.stats()
    assert (stats.used_slots, stats.wasted_slots) == (2 * 16 + 3 * 4, 3 * 4)
    run(engine)
    run(engine, [request("c", prompt(0, 19))])
    stats = engine.stats()
    assert (stats.prefix_queried_tokens, stats.prefix_hit_tokens) == (57, 18)
    assert stats.free_blocks + stats.cached_blocks == stats.total_blocks and stats.kv_usage == 0.0


def test_memory_is_committed_for_the_blocks_that_come_next():
    executor = FakeExecutor()
    engine = make_engine(executor=executor, segment_blocks=4)
    pieces = engine.commit_ahead(6)
    next(pieces)
    assert len(executor.committed) == 1, "block by block"
    list(pieces)
    assert len(executor.committed) == 6
    assert engine.stats().committed_blocks == 8
    taken = [engine.pool.allocate() for _ in range(6)]
    assert taken == executor.committed
    for block in taken:
        engine.pool.release(block)


def test_idle_memory_goes_back_by_segments():
    executor = FakeExecutor()
    engine = make_engine(executor=executor, segment_blocks=4)
    run(engine, [request("a", prompt(0, 50), max_tokens=1)])
    assert engine.stats().committed_blocks == 16
    assert engine.release_idle_memory() == 0, "every segment has something cached, the last one the tail"
    engine.pool._evict()
    assert engine.release_idle_memory() == 4
    engine.drop_prefix_cache()
    assert engine.release_idle_memory() == 12 and engine.release_idle_memory() == 0
    assert executor.released == [(12, 4), (0, 4), (4, 4), (8, 4)]
    assert engine.stats().committed_blocks == 0
    run(engine, [request("b", prompt(0, 50), max_tokens=1)])
    engine.drop_prefix_cache()
    assert engine.release_idle_memory(keep_blocks=10) == 6
    assert engine.stats().committed_blocks == 12 and executor.released[4:] == [(10, 2), (12, 4)]
    assert engine.pool.upcoming(10) == list(range(10)), "what is kept is taken first"
    assert run(engine, [request("a", prompt(0, 50))])["a"].num_cached == 0


def test_a_request_id_is_used_once_at_a_time():
    engine = make_engine()
    engine.add_request(request("a", prompt(0, 5)))
    with pytest.raises(ValueError, match="request_id='a'"):
        engine.add_request(request("a", prompt(0, 5)))
    run(engine)
    engine.add_request(request("a", prompt(0, 5)))


def test_unseeded_requests_differ():
    answers = [run(make_engine(), [request("a", prompt(0, 5), seed=None)])["a"].tokens[0] for _ in range(3)]
    assert len(set(map(tuple, answers))) == 3


def told_late(name, tokens, **params):
    made = request(name, tokens, logprobs=None, **params)
    made.told_late = True
    return made


def test_of_a_request_that_is_told_late_the_first_tokens_and_the_ends_are_told():
    engine = make_engine()
    engine.add_request(told_late("a", prompt(0, 9), n=2, max_tokens=6))
    updates = [engine.step() for _ in range(4)]
    engine.scheduler.preempt_all()
    while engine.has_unfinished:
        updates.append(engine.step())
    assert [len(each) for each in updates if each] == [2, 2]
    alone = run(make_engine(), [request("a", prompt(0, 9), n=2, max_tokens=6)])["a"]
    for index in (0, 1):
        first, last = (each[index] for each in updates if each)
        assert [first.token_id, *last.earlier, last.token_id] == alone.tokens[index]
        assert (first.finish_reason, last.finish_reason) == (None, "length")


def test_of_a_request_that_is_told_late_a_failure_tells_what_came_before_it():
    engine = make_engine()
    engine.add_request(told_late("a", prompt(0, 9), max_tokens=9))
    engine._requests["a"].sequences[0].state.fail_at = 5
    first, last = [update for _ in range(9) for update in engine.step()]
    alone = run(make_engine(), [request("a", prompt(0, 9), max_tokens=4)])["a"]
    assert [first.token_id, *last.earlier] == alone.tokens[0]
    assert (last.token_id, last.finish_reason) == (-1, "error")


def test_of_a_request_that_is_told_late_tokens_on_the_way_are_told_where_they_are_asked_for():
    engine = make_engine()
    engine.add_request(told_late("a", prompt(0, 9), n=2, max_tokens=9))
    tokens: dict[int, list[int]] = {0: [], 1: []}

    def take():
        untold = engine.untold("a")
        for index, new in untold:
            tokens[index] += new
        return [len(new) for _, new in untold]

    def step():
        updates = engine.step()
        for update in updates:
            tokens[update.index] += [*update.earlier, update.token_id]
        return len(updates)

    assert step() == 2
    assert take() == [], "first tokens are told of themselves"
    assert [step(), step(), step()] == [0, 0, 0]
    assert take() == [3, 3]
    assert take() == []
    step()
    engine.scheduler.preempt_all()
    assert take() == [1, 1], "also of one that waits"
    while engine.has_unfinished:
        step()
    assert take() == []
    assert tokens == run(make_engine(), [request("a", prompt(0, 9), n=2, max_tokens=9)])["a"].tokens


def test_of_other_requests_nothing_is_left_untold():
    engine = make_engine()
    engine.add_request(request("a", prompt(0, 9), max_tokens=9))
    engine.step()
    engine.step()
    assert engine.untold("a") == engine.untold("nobody") == []
