"""Drafts: fewer steps, the same tokens."""

import numpy as np
import pytest
from engine_fakes import VOCAB, FakeExecutor, FakeSampler, collect, make_engine, prompt, request, run
from support.guesses import FreeRows, Guesses

from octavo.beam_search_params import BeamSearchParams
from octavo.engine.request import Request
from octavo.engine.speculation import LOGITS_BYTES, Speculation
from octavo.engine.step_costs import StepCosts


class Circle(FakeSampler):
    """Each token is the one after the last, of ten."""

    def sample(self, logits, states, rows=None):
        result = super().sample(logits, states, rows)
        result.token_ids[:] = [10 + state.output_len % 10 for state in states]
        return result


class Dear(StepCosts):
    """Rows cost as much as steps."""

    def row_cost(self, sequences):
        return 1.0


def circling(costs=None, vocab_size=VOCAB, **config):
    """An engine whose sequences repeat themselves."""
    engine = make_engine(sampler=Circle(), max_draft_tokens=8, **config)
    engine.speculation = Speculation(8, vocab_size, costs or FreeRows())
    return engine


def test_without_drafts_nobody_speculates():
    assert make_engine().speculation is None


def test_text_that_repeats_itself_takes_fewer_steps():
    engine = circling()
    answers = run(engine, [request("a", prompt(0, 5), max_tokens=100)])
    assert answers["a"].tokens[0] == [10 + place % 10 for place in range(100)]
    stats = engine.stats()
    assert stats.steps < 40
    assert stats.accepted_tokens == 100 - stats.steps
    assert stats.drafted_tokens >= stats.accepted_tokens
    assert stats.generated_tokens == 100


def test_an_answer_is_never_longer_than_it_may_be():
    for max_tokens in range(1, 40):
        engine = circling()
        answer = run(engine, [request("a", prompt(0, 5), max_tokens=max_tokens)])["a"]
        assert len(answer.tokens[0]) == max_tokens and answer.reasons == {0: "length"}


def test_a_stop_token_within_a_draft_ends_the_answer():
    engine = circling(num_blocks=40)
    requests = [request("a", prompt(0, 5), max_tokens=100), request("b", prompt(0, 5), max_tokens=37)]
    requests[0].params.stop_token_ids = (19,)
    requests[0].params.min_tokens = 35
    answers = run(engine, requests)
    assert answers["a"].tokens[0] == [10 + place % 10 for place in range(40)]
    assert answers["a"].reasons == {0: "stop"} and answers["b"].reasons == {0: "length"}
    assert engine.stats().referenced_blocks == 0


def test_every_token_comes_with_its_own_logprob():
    plain = run(make_engine(sampler=Circle()), [request("a", prompt(0, 5), max_tokens=60)])["a"]
    drafted = run(circling(), [request("a", prompt(0, 5), max_tokens=60)])["a"]
    assert [entry.logprob for entry in drafted.logprobs[0]] == [entry.logprob for entry in plain.logprobs[0]]


def test_drafts_that_do_not_pay_are_not_computed():
    engine = circling(Dear(), num_blocks=300)
    run(engine, [request(str(i), prompt(i, 5), max_tokens=50) for i in range(8)])
    stats = engine.stats()
    assert stats.drafted_tokens == 0 and stats.steps <= 52


def test_a_plan_goes_on_where_nothing_is_drafted():
    engine = circling(Dear(), num_blocks=300)
    plans, schedule = [], engine.scheduler.schedule
    engine.scheduler.schedule = lambda drafts: plans.append(schedule(drafts)) or plans[-1]
    run(engine, [request(str(i), prompt(i, 5), max_tokens=30) for i in range(8)])
    assert len({id(plan) for plan in plans[2:-2]}) == 1


def test_drafts_take_no_budget_that_is_not_there():
    for budget, rows in ((3, 256), (64, 3)):
        engine = circling(max_num_batched_tokens=budget, max_logits_rows=rows)
        engine.executor.keep_steps = True
        run(engine, [request(str(i), prompt(i, 2), max_tokens=40) for i in range(2)])
        assert max(step.num_tokens for step in engine.executor.steps) <= budget
        assert max(len(step.logits_rows) for step in engine.executor.steps) <= rows
        assert engine.stats().accepted_tokens > 0


def test_drafts_have_so_many_rows_of_logits_and_the_surest_sequences_get_them():
    engine = circling(vocab_size=LOGITS_BYTES // 4 // 11)  # 11 rows
    engine.executor.keep_steps = True
    run(engine, [request(str(i), prompt(i, 2), max_tokens=60) for i in range(6)])
    assert 6 + 8 < max(len(step.logits_rows) for step in engine.executor.steps) <= 6 + 11
    large = circling(vocab_size=10**9)
    large.executor.keep_steps = True
    run(large, [request(str(i), prompt(i, 2), max_tokens=60) for i in range(6)])
    assert max(len(step.logits_rows) for step in large.executor.steps) == 6 + 8, "one sequence's draft at least"


def test_nobody_is_preempted_for_a_draft():
    engine = circling(num_blocks=10, block_size=4)
    run(engine, [request(str(i), prompt(i, 4), max_tokens=16) for i in range(2)])
    assert engine.stats().preemptions == 0 and engine.stats().accepted_tokens > 0


def test_beams_and_unforked_siblings_have_no_drafts():
    engine = circling()
    beams = Request("beams", prompt(1, 6), BeamSearchParams(2, 20, ignore_eos=True))
    run(engine, [beams])
    assert engine.stats().drafted_tokens == 0
    run(engine, [request("n", prompt(2, 6), n=3, max_tokens=40)])
    assert engine.stats().accepted_tokens > 0


@pytest.mark.parametrize("at", [1, 3])
def test_a_sampler_that_fails_on_a_draft_ends_all_requests(at):
    engine = circling()
    answers, sampled = {}, engine.sampler.sample
    engine.add_request(request("a", prompt(0, 5), max_tokens=80))
    engine.add_request(request("b", prompt(1, 5), max_tokens=80))
    while not engine.stats().accepted_tokens:
        collect(answers, engine.step())
    calls = []

    def fails(logits, states, rows=None):
        calls.append(rows)
        if len(calls) > at:
            raise RuntimeError("no more")
        return sampled(logits, states, rows)

    engine.sampler.sample = fails
    with pytest.raises(RuntimeError, match="no more"):
        engine.step()
    collect(answers, engine.step())
    assert answers["a"].reasons == answers["b"].reasons == {0: "error"}
    assert len(answers["a"].tokens[0]) == len(answers["b"].tokens[0]), "what was sampled before is told"
    assert engine.stats().referenced_blocks == 0 and not engine.has_unfinished


def test_told_late_it_is_told_of_all_tokens():
    engine = circling()
    late = request("a", prompt(0, 5), max_tokens=50)
    late.told_late = True
    late.params.logprobs = None
    engine.add_request(late)
    tokens = []
    while engine.has_unfinished:
        for update in engine.step():
            tokens += [*update.earlier, update.token_id]
        for _, untold in engine.untold("a"):
            tokens += untold
    assert tokens == [10 + place % 10 for place in range(50)]


def test_wrong_drafts_leave_nothing_in_the_prefix_cache():
    """What a draft wrote behind the computed tokens is neither sealed nor kept."""
    expected = run(make_engine(num_blocks=200), [request("a", prompt(0, 30), max_tokens=60)])["a"].tokens[0]
    engine = make_engine(num_blocks=200)
    wrong = np.random.default_rng(0).integers(10, 90, 200).tolist()
    engine.speculation = Guesses(lambda sequence: wrong)
    assert run(engine, [request("a", prompt(0, 30), max_tokens=60)])["a"].tokens[0] == expected
    assert engine.stats().drafted_tokens > 50
    again = request("b", prompt(0, 30) + expected[:40], max_tokens=20)
    answer = run(engine, [again])["b"]
    assert answer.tokens[0] == expected[40:] and answer.num_cached > 60
    assert isinstance(engine.executor, FakeExecutor)
