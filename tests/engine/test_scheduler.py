import pytest
from engine_fakes import VOCAB, FakeExecutor, check_invariants, collect, make_engine, prompt, request, run

from octavo.engine.prefix_cache import common_length


def test_what_can_never_fit_is_refused_at_once_and_the_next_one_served():
    """F29"""
    engine = make_engine(num_blocks=50, max_model_len=400)
    with pytest.raises(ValueError, match=r"needs up to 63 blocks.*has 50"):
        engine.add_request(request("big", prompt(0, 63 * 4), max_tokens=1))
    with pytest.raises(ValueError, match=r"needs up to 51 blocks.*has 50"):
        engine.add_request(request("grows", prompt(0, 100), max_tokens=102))
    with pytest.raises(ValueError, match=r"needs up to 54 blocks.*n=4.*has 50"):
        engine.add_request(request("many", prompt(0, 8), max_tokens=50, n=4))
    with pytest.raises(ValueError, match=r"400 tokens.*max_model_len is 400"):
        engine.add_request(request("long", prompt(0, 400)))
    with pytest.raises(ValueError, match=r"n=17.*max_num_seqs=16"):
        engine.add_request(request("wide", prompt(0, 4), max_tokens=1, n=17))
    answers = run(engine, [request("fits", prompt(0, 100), max_tokens=101), request("short", prompt(1, 5))])
    assert answers["fits"].reasons == answers["short"].reasons == {0: "length"}
    assert len(answers["fits"].tokens[0]) == 101


def test_without_max_tokens_a_sequence_ends_where_model_or_pool_ends():
    engine = make_engine(num_blocks=50, max_model_len=120)
    assert len(run(engine, [request("a", prompt(0, 100), max_tokens=None)])["a"].tokens[0]) == 20
    engine = make_engine(num_blocks=10, max_model_len=120)
    assert len(run(engine, [request("a", prompt(0, 30), max_tokens=None)])["a"].tokens[0]) == 11
    engine = make_engine(num_blocks=64, max_model_len=120)
    assert len(run(engine, [request("a", prompt(0, 100), max_tokens=50)])["a"].tokens[0]) == 20, "clamped"


def test_a_prompt_of_whole_blocks_that_is_all_cached_computes_one_token():
    """F28: k = 1 to 4 blocks, twice; the output and the hit count are right."""
    for blocks in range(1, 5):
        engine = make_engine()
        tokens = prompt(blocks, 4 * blocks)
        first = run(engine, [request("a", tokens)])["a"]
        computed = engine.stats().computed_tokens
        second = run(engine, [request("a", tokens)])["a"]
        assert second.tokens == first.tokens and second.logprobs == first.logprobs
        assert second.num_cached == 4 * blocks - 1
        assert engine.stats().computed_tokens - computed == 1 + 15
        assert engine.stats().prefix_hit_tokens == 4 * blocks - 1


def test_a_prompt_that_departs_inside_a_cached_block_starts_there():
    for departs in range(1, 24):
        engine = make_engine(block_size=8)
        tokens = prompt(0, 24)
        run(engine, [request("a", tokens, max_tokens=3)])
        other = [*tokens[:departs], tokens[departs] ^ 1, *prompt(1, 5)]
        expected = run(make_engine(enable_prefix_caching=False), [request("b", other)])["b"]
        got = run(engine, [request("b", other)])["b"]
        assert got.tokens == expected.tokens and got.num_cached == departs


def test_an_answer_goes_on_from_its_last_token():
    """The next turn of a chat: all but the newest token of the answer is there."""
    engine = make_engine(block_size=16)
    first = run(engine, [request("a", prompt(0, 9), max_tokens=11)])["a"]
    turn = prompt(0, 9) + first.tokens[0] + prompt(1, 6)
    expected = run(make_engine(enable_prefix_caching=False), [request("b", turn)])["b"]
    second = run(engine, [request("b", turn)])["b"]
    assert second.tokens == expected.tokens and second.num_cached == 19


def test_a_partial_hit_that_leaves_no_room_for_its_copy_is_given_up():
    engine = make_engine(num_blocks=5, block_size=4)
    tokens = prompt(0, 20)
    first = run(engine, [request("a", tokens, max_tokens=1)])["a"]
    again = run(engine, [request("a", tokens, max_tokens=1)])["a"]
    assert again.tokens == first.tokens and again.num_cached == 16


def test_output_is_cached_too():
    engine = make_engine()
    first = run(engine, [request("a", prompt(0, 10), max_tokens=11)])["a"]
    again = run(engine, [request("b", prompt(0, 10) + first.tokens[0])])["b"]
    assert again.num_cached == 20


def test_two_equal_prompts_in_one_step_do_not_hit_each_other():
    """F32: nothing is hit before it is computed; both are released in any order."""
    for order in ("ab", "ba"):
        engine = make_engine()
        for name in "ab":
            engine.add_request(request(name, prompt(0, 17), max_tokens=50))
        engine.step()
        check_invariants(engine)
        assert engine.stats().prefix_hit_tokens == 0 and engine.stats().referenced_blocks == 10
        for name in order:
            engine.abort(name)
            check_invariants(engine)
        assert run(engine, [request("c", prompt(0, 17))])["c"].num_cached == 16


def test_a_resumed_request_takes_its_hit_before_the_budget_is_shared():
    """F31"""
    engine = make_engine(max_num_batched_tokens=8)
    engine.add_request(request("a", prompt(0, 30), max_tokens=20))
    answers = {}
    for _ in range(6):
        collect(answers, engine.step())
    engine.scheduler.preempt_all()
    check_invariants(engine)
    computed = engine.stats().computed_tokens
    collect(answers, engine.step())
    assert 0 < engine.stats().computed_tokens - computed <= 4, "all but the last block was a hit"
    assert engine.stats().prefix_queried_tokens == 30, "what was computed before is not counted again"
    alone = run(make_engine(enable_prefix_caching=False), [request("a", prompt(0, 30), max_tokens=20)])
    collect(answers, [u for _ in iter(lambda: engine.has_unfinished, False) for u in engine.step()])
    assert answers["a"].tokens == alone["a"].tokens


def test_two_requests_of_60_percent_of_the_pool_finish_one_after_the_other():
    """F41: the second one is not admitted to half of what it needs."""
    engine = make_engine(num_blocks=50, max_num_batched_tokens=16)
    requests = [request(name, prompt(i, 118), max_tokens=3) for i, name in enumerate("ab")]
    answers = run(engine, requests)
    assert all(len(answer.tokens[0]) == 3 for answer in answers.values())
    assert engine.stats().preemptions == 0


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("windows", [(None,), (None, 9)], ids=str)
def test_generations_whose_sum_exceeds_the_pool_all_finish(caching, windows):
    """F43"""

    def four():
        return [request(name, prompt(i, 8), max_tokens=60, seed=i) for i, name in enumerate("abcd")]

    expected = run(make_engine(windows, num_blocks=500), four())
    engine = make_engine(windows, num_blocks=22 * len(windows), enable_prefix_caching=caching)
    answers = run(engine, four())
    assert {k: v.tokens for k, v in answers.items()} == {k: v.tokens for k, v in expected.items()}
    assert engine.stats().preemptions > 0


@pytest.mark.parametrize("num_blocks", range(31, 50, 3))
def test_the_oldest_request_advances_in_every_step(num_blocks):
    """F41, F43: proof of progress: the first of those that are left computes tokens in each step."""
    engine = make_engine(num_blocks=num_blocks, max_num_batched_tokens=13)
    for i in range(12):
        engine.add_request(request(str(i), prompt(i, 5 + 3 * i), max_tokens=60 - 3 * i, seed=i, n=1 + (i % 5 == 0)))
    for _ in range(3000):
        if not engine.has_unfinished:
            break
        unfinished = [*engine.scheduler.running, *engine.scheduler.waiting]
        oldest = min(unfinished, key=lambda request: request.arrival)
        before = progress(oldest)
        engine.step()
        check_invariants(engine)
        after = progress(oldest)
        assert any(
            after.get(seq) is None or after[seq] > computed for seq, computed in before.items() if computed is not None
        )
    assert not engine.has_unfinished and engine.stats().preemptions > 0


def progress(request):
    """Computed tokens by sequence; None for a finished one."""
    return {seq.index: None if seq.finished else seq.num_computed_tokens for seq in request.sequences}


def test_the_youngest_is_preempted_first_and_resumes_before_later_arrivals():
    engine = make_engine(num_blocks=20, max_num_batched_tokens=64)
    for i, name in enumerate("abcd"):
        engine.add_request(request(name, prompt(i, 12), max_tokens=40, seed=i))
    order = []
    while engine.has_unfinished:
        order += [u.request_id for u in engine.step() if u.finish_reason]
        running = [r.request_id for r in engine.scheduler.running]
        waiting = [r.request_id for r in engine.scheduler.waiting]
        assert running + waiting == sorted(running + waiting)
    assert order == list("abcd")


def test_max_num_seqs_counts_sequences():
    engine = make_engine(max_num_seqs=5)
    for i in range(3):
        engine.add_request(request(str(i), prompt(i, 5), n=2))
    engine.step()
    assert (engine.stats().running, engine.stats().waiting, engine.stats().running_sequences) == (2, 1, 4)


def test_logits_rows_bound_the_chunks_of_prompt_logprobs():
    executor = FakeExecutor()
    executor.keep_steps = True
    engine = make_engine(executor=executor, max_logits_rows=7)
    answers = run(engine, [request(str(i), prompt(i, 40), prompt_logprobs=1, max_tokens=3) for i in range(3)])
    assert max(len(step.logits_rows) for step in executor.steps) == 7
    expected = run(make_engine(), [request("2", prompt(2, 40), prompt_logprobs=1, max_tokens=3)])
    assert answers["2"].prompt_logprobs == expected["2"].prompt_logprobs


def test_more_sequences_than_logits_rows_take_turns():
    engine = make_engine(max_logits_rows=3)
    answers = run(engine, [request(str(i), prompt(i, 9)) for i in range(8)])
    assert all(len(answer.tokens[0]) == 16 for answer in answers.values())


def test_n_sequences_share_one_prefill_and_copy_only_tails():
    executor = FakeExecutor()
    executor.keep_steps = True
    engine = make_engine(executor=executor)
    engine.add_request(request("a", prompt(0, 10), n=4, max_tokens=5))
    engine.step()
    check_invariants(engine)
    assert engine.stats().computed_tokens == 10 and engine.stats().referenced_blocks == 3
    assert len(executor.steps[0].logits_rows) == 1
    engine.step()
    check_invariants(engine)
    tail = executor.steps[0].block_tables[0][0, 2]
    assert [source for source, _ in executor.steps[1].copies.tolist()] == [tail] * 3
    assert engine.stats().referenced_blocks == 2 + 4
    run(engine)
    assert engine.stats().computed_tokens == 10 + 4 * 4


def test_siblings_differ_and_end_on_their_own():
    """F16, below HTTP."""
    siblings = {"n": 4, "seed": 9, "ignore_eos": False, "max_tokens": 60}
    answer = run(make_engine(num_blocks=128), [request("a", prompt(0, 10), **siblings)])["a"]
    assert sorted(answer.reasons) == [0, 1, 2, 3]
    assert len({tuple(tokens) for tokens in answer.tokens.values()}) == 4
    again = run(make_engine(num_blocks=128), [request("a", prompt(0, 10), **siblings)])["a"]
    assert again == answer


def test_siblings_share_their_prompt_again_after_preemption():
    for caching in (True, False):
        engine = make_engine(enable_prefix_caching=caching)
        engine.add_request(request("a", prompt(0, 18), n=3, max_tokens=20))
        for _ in range(8):
            engine.step()
        engine.scheduler.preempt_all()
        engine.step()
        check_invariants(engine)
        assert engine.stats().shared_blocks == 4


def test_a_copy_source_may_be_handed_out_within_the_same_step():
    """The fake executor copies in order and then writes, and sees any token that is in a wrong place."""
    for num_blocks in range(12, 30):
        engine = make_engine(num_blocks=num_blocks, enable_prefix_caching=False)
        requests = [request(str(i), prompt(i, 6), n=3, max_tokens=9, seed=i) for i in range(6)]
        answers = run(engine, requests)
        roomy = run(make_engine(num_blocks=500), [request("5", prompt(5, 6), n=3, max_tokens=9, seed=5)])
        assert answers["5"].tokens == roomy["5"].tokens


def test_namespaces_never_share():
    """F37: adapters, revisions, salts, images; a salt equal to an adapter's name."""
    engine = make_engine(num_blocks=200)
    variants = [
        {},
        {"cache_salt": "x"},
        {"cache_fields": (("adapter", "x"), ("adapter_revision", 1))},
        {"cache_fields": (("adapter", "x"), ("adapter_revision", 2))},
        {"cache_fields": (("image", b"x"),)},
        {"cache_salt": b"x"},
    ]
    tokens = prompt(0, 20)
    for i, variant in enumerate(variants):
        assert run(engine, [request(str(i), tokens, **variant)])[str(i)].num_cached == 0
    for i, variant in enumerate(variants):
        assert run(engine, [request(str(i), tokens, **variant)])[str(i)].num_cached == 19


def test_a_4_bit_hash_gives_misses_and_never_wrong_kv():
    """F36: the fake executor sees any block with other tokens."""
    engine = make_engine(hash_function=lambda data: bytes([sum(data) % 16]), num_blocks=300)
    plain = make_engine(enable_prefix_caching=False)
    for i in range(60):
        tokens = prompt(i % 7, 12) + prompt(i, 6)
        got = run(engine, [request("a", tokens, max_tokens=4)])["a"]
        assert got.tokens == run(plain, [request("a", tokens, max_tokens=4)])["a"].tokens
        shared = max((common_length(tokens, prompt(j % 7, 12) + prompt(j, 6)) for j in range(i)), default=0)
        assert got.num_cached == shared and (shared >= 12) == (i >= 7)


def test_token_ids_outside_the_vocabulary_are_refused():
    engine = make_engine()
    for bad in (-1, VOCAB):
        with pytest.raises(ValueError, match=f"{bad}: must be 0 to {VOCAB - 1}"):
            engine.add_request(request("a", [5, bad, 6]))
    with pytest.raises(ValueError, match="at least one token"):
        engine.add_request(request("a", []))


def test_a_plan_of_last_tokens_goes_on_until_requests_come_or_go():
    engine = make_engine(block_size=8)
    schedule, plans = engine.scheduler.schedule, []
    engine.scheduler.schedule = lambda drafts: plans.append(schedule(drafts)) or plans[-1]

    def steps(number):
        for _ in range(number):
            engine.step()
            check_invariants(engine)
        return len({id(plan) for plan in plans[-number:]})

    for number in range(3):
        engine.add_request(request(str(number), prompt(number, 5 + number), max_tokens=60))
    engine.step()
    assert steps(20) == 1, "also where blocks are taken"
    engine.add_request(request("new", prompt(9, 6), max_tokens=60))
    assert steps(2) == 2
    assert steps(10) == 1
    engine.abort("1")
    assert steps(10) == 1 and len(plans[-1].sequences) == 3
    assert engine.finish("0", 0, "stop")
    assert steps(2) == 1 and len(plans[-1].sequences) == 2
    engine.scheduler.preempt_all()
    assert steps(2) == 2
    assert steps(5) == 1


@pytest.mark.parametrize("windows", [(None,), (6,), (None, 6)])
def test_a_plan_that_goes_on_computes_what_a_new_one_would(windows):
    """Under a pool that runs out, with those that wait, and with siblings that copy their tail."""

    def answers(each_step):
        engine = make_engine(windows, num_blocks=20 * len(windows), max_num_seqs=6)
        requests = [request(str(i), prompt(i, 3 + 2 * i), max_tokens=12 + i, n=1 + i % 2) for i in range(7)]
        return run(engine, requests, each_step=lambda: each_step(engine)), engine.stats()

    def forget(engine):
        engine.scheduler._plan = None

    kept, stats = answers(lambda engine: None)
    anew, others = answers(forget)
    assert kept == anew and stats == others
    assert stats.preemptions or windows == (6,)
