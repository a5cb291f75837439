"""Beams over fakes: the choices of a textbook search, and what becomes of blocks."""

import numpy as np
import pytest
from engine_fakes import FakeExecutor, FakeSampler, check_invariants, collect, make_engine, prompt, request, run

from octavo.beam_search_params import BeamSearchParams
from octavo.engine.request import Request
from octavo.engine.step import Step

WINDOWS = [(None,), (None, 7), (5,)]
ENDS = (10, 20, 30, 40, 50)


class Text:
    """A stop "string": two tokens of output whose sum is a multiple of 9."""

    def __init__(self, last=None, matched=None):
        self.last, self.matched = last, matched

    def extended(self, token):
        return Text(token, "nine" if self.last is not None and (self.last + token) % 9 == 0 else None)


def beam_request(name, tokens, width=4, stop=False, **params):
    settings = dict(beam_width=width, max_tokens=12, ignore_eos=True, stop_token_ids=ENDS) | params
    return Request(name, tokens, BeamSearchParams(**settings), stop_search=Text() if stop else None)


def logprobs(windows, tokens):
    """Of the next token after `tokens`, with no engine."""
    executor = FakeExecutor(windows)
    length = np.array([len(tokens)], np.int32)
    table = np.zeros((1, 1), np.int32)
    groups = tuple(table + group for group in range(len(windows)))
    executor.reserve_kv(len(windows), len(tokens))
    arange = np.arange(len(tokens), dtype=np.int32)
    step = Step(np.array(tokens, np.int32), arange, np.array([0, len(tokens)], np.int32), length, groups,
                length - np.int32(1), np.zeros((0, 2), np.int32))  # fmt: skip
    return executor.execute(step)[0].astype(float) - 1


def textbook(windows, start, width, max_tokens, length_penalty=1.0, early_stopping=False, stop=False):
    """[(output, score)] by complete enumeration of every step's candidates."""
    running, finished = [([], 0.0)], []
    while True:
        candidates = []
        for output, total in running:
            values = np.float32(logprobs(windows, start + output))
            candidates += [(total + float(value), [*output, token]) for token, value in enumerate(values)]
        candidates.sort(key=lambda candidate: -candidate[0])
        running = []
        length = len(candidates[0][1])
        for rank, (total, output) in enumerate(candidates):
            ended = output[-1] in ENDS or length == max_tokens
            ended |= stop and length > 1 and (output[-1] + output[-2]) % 9 == 0
            if ended and rank < width:
                finished.append((output, total / length**length_penalty))
            elif not ended and len(running) < width:
                running.append((output, total))
        finished = sorted(finished, key=lambda beam: -beam[1])[:width]
        if not running:
            return finished
        if len(finished) == width:
            reach = max_tokens if early_stopping == "never" and length_penalty > 0 else length
            if early_stopping is True or running[0][1] / reach**length_penalty <= finished[-1][1]:
                return finished


class Scored:
    """Outputs and scores of beam requests, in order."""

    def __init__(self):
        self.beams = {}

    def collect(self, updates):
        for update in updates:
            assert update.finish_reason != "error", update.error
            if update.token_id < 0 and update.finish_reason is None:
                assert update.request_id not in self.beams  # a search begins once
                self.beams[update.request_id] = {}
                continue
            beams = self.beams[update.request_id]
            beams.setdefault(update.index, []).append(update.token_id)
            if update.beam is not None:
                beams[update.index] = (beams[update.index], round(update.beam.score, 5))

    def of(self, name):
        beams = self.beams[name]
        return [beams[index] for index in sorted(beams)]


def search(engine, requests, each_step=lambda: None):
    found = Scored()
    for one in requests:
        engine.add_request(one)
    while engine.has_unfinished:
        each_step()
        found.collect(engine.step())
        check_invariants(engine)
    assert engine.stats().referenced_blocks == 0
    return found


CASES = [
    dict(width=2, length_penalty=0.5, early_stopping=True),
    dict(width=4, length_penalty=2.0, early_stopping=False),
    dict(width=3, length_penalty=1.0, early_stopping="never"),
    dict(width=8, length_penalty=1.0, early_stopping=False, stop=True),
    dict(width=4, length_penalty=-1.0, early_stopping=True, stop=True),
    dict(width=1, length_penalty=0.0, early_stopping=False),
]


@pytest.fixture(scope="module", params=WINDOWS, ids=str)
def case(request):
    """(windows, requests, what each finds) of unequal length, two with a common prefix."""
    windows = request.param
    prompts = [prompt(0, 9), prompt(1, 3), prompt(0, 9) + prompt(2, 4), prompt(3, 16), prompt(4, 1), prompt(5, 6)]
    expected = [
        [(output, round(score, 5)) for output, score in textbook(windows, tokens, max_tokens=12, **settings)]
        for tokens, settings in zip(prompts, CASES, strict=True)
    ]

    def requests():
        return [beam_request(str(i), tokens, **settings)
                for i, (tokens, settings) in enumerate(zip(prompts, CASES, strict=True))]  # fmt: skip

    return windows, requests, expected


def engine_for(windows, **config):
    return make_engine(windows, **(dict(num_blocks=600 * len(windows), max_num_seqs=40) | config))


def check(case, each_step=None, **config):
    windows, requests, expected = case
    engine = engine_for(windows, **config)
    found = search(engine, requests(), each_step(engine) if each_step else lambda: None)
    for number, beams in enumerate(expected):
        assert found.of(str(number)) == beams, number
    return engine


def test_beams_are_those_of_a_textbook_search_batched_and_alone(case):
    """F22"""
    check(case)
    check(case, max_num_seqs=8)
    windows, requests, expected = case
    for number, one in enumerate(requests()):
        assert search(engine_for(windows), [one]).of(str(number)) == expected[number]


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("budget", [8, 11, 64])
def test_chunks_change_no_beam(case, budget, caching):
    check(case, max_num_batched_tokens=budget, max_logits_rows=9, enable_prefix_caching=caching)


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_blocks_change_no_beam(case, block_size):
    check(case, block_size=block_size)


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("block_size", [1, 4])
def test_preemption_at_every_step_changes_no_beam(case, block_size, caching):
    engine = check(
        case, lambda engine: engine.scheduler.preempt_all, block_size=block_size, enable_prefix_caching=caching
    )
    assert engine.stats().preemptions > 20


def test_a_scarce_pool_changes_no_beam(case):
    """Groups wait for and preempt each other as wholes."""
    engine = check(case, num_blocks=50 * len(case[0]))
    assert engine.stats().peak_blocks <= 50 * len(case[0])


def test_beams_among_sampled_requests(case):
    windows, requests, expected = case
    engine = engine_for(windows, max_num_seqs=60)
    others = [request(f"n{i}", prompt(i, 5 + i), n=1 + i % 3, max_tokens=9, seed=i) for i in range(8)]
    alone = {other.request_id: run(engine_for(windows), [other])[other.request_id].tokens for other in others}
    answers, found = {}, Scored()
    for one in [*others[:4], *requests(), *others[4:]]:
        engine.add_request(one)
    while engine.has_unfinished:
        updates = engine.step()
        check_invariants(engine)
        collect(answers, [u for u in updates if u.request_id in alone])
        found.collect([u for u in updates if u.request_id not in alone])
    assert {name: answers[name].tokens for name in alone} == alone
    assert [found.of(str(number)) for number in range(len(expected))] == expected


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_forks_copy_at_most_one_tail_each_and_compute_no_prompt_again(block_size):
    """F23"""
    engine = make_engine(num_blocks=400, block_size=block_size)
    engine.executor.keep_steps = True
    engine.add_request(beam_request("a", prompt(0, 30), width=4, max_tokens=40, stop_token_ids=()))
    while engine.has_unfinished:
        engine.step()
        check_invariants(engine)
    first, *others = engine.executor.steps
    assert first.num_tokens == 30 and len(others) == 39
    for step in others:
        assert step.num_tokens == step.num_seqs == 4, "one token of each beam"
        assert len(step.copies) <= 3, "the last of those that share a tail writes in place"
    if block_size == 1:
        assert not any(len(step.copies) for step in others)
    engine.drop_prefix_cache()
    assert engine.stats().free_blocks == engine.stats().total_blocks


def test_a_group_is_aborted_as_one_in_every_state():
    for steps in range(8):
        engine = make_engine(max_num_batched_tokens=8, num_blocks=60)
        for name in "ab":
            engine.add_request(beam_request(name, prompt(1, 14)))
        for _ in range(steps):
            engine.step()
        if steps % 2:
            engine.scheduler.preempt_all()
        assert engine.abort("a") and not engine.finish("b", 0, "stop") and engine.abort("b")
        check_invariants(engine)
        engine.drop_prefix_cache()
        assert engine.stats().free_blocks == engine.stats().total_blocks and not engine.has_unfinished


def test_logprobs_are_the_models_own_along_each_beam():
    engine = make_engine(num_blocks=400)
    updates = []
    engine.add_request(beam_request("a", prompt(0, 9), width=3, logprobs=1, stop_token_ids=()))
    while engine.has_unfinished:
        updates += engine.step()
    del updates[0]  # the search has begun
    for index in range(3):
        output = [update.token_id for update in updates if update.index == index]
        assert len(output) == 12
        for place, update in enumerate(u for u in updates if u.index == index):
            row = logprobs((None,), prompt(0, 9) + output[:place]) + 1
            assert update.logprobs.logprob == pytest.approx(row[output[place]])
            assert update.logprobs.rank == 1 + int((row > row[output[place]]).sum())
            assert update.logprobs.top_ids == [int(row.argmax())]


def scores_of(engine, one):
    """A request's prompt logprobs, and the prompt tokens that were cached: both come with its first update."""
    engine.add_request(one)
    first, *_ = [update for _ in range(30) if engine.has_unfinished for update in engine.step()]
    check_invariants(engine)
    return first.prompt_logprobs, first.num_cached_tokens


@pytest.mark.parametrize("top", [0, 2])
def test_prompts_of_beams_are_scored_like_those_of_samples(top):
    tokens = prompt(0, 30)
    sampled = scores_of(make_engine(), request("s", tokens, max_tokens=1, prompt_logprobs=top))
    engine = make_engine()
    cold = scores_of(engine, beam_request("a", tokens, prompt_logprobs=top))
    warm = scores_of(engine, beam_request("b", tokens, prompt_logprobs=top))
    assert cold == sampled and len(cold[0]) == 30 and cold[0][0] is None
    assert warm[0] == cold[0] and (warm[1] > 0) == (top == 0)


def test_a_width_beyond_the_engines_limits_is_refused():
    engine = make_engine(max_num_seqs=16, max_num_batched_tokens=7, max_logits_rows=5)
    for width, name in [(17, "max_num_seqs=16"), (8, "max_num_batched_tokens=7"), (6, "max_logits_rows=5")]:
        with pytest.raises(ValueError, match=f"beam_width={width}: must be at most {name}"):
            engine.add_request(beam_request("a", prompt(0, 4), width=width))


class NoTokens(FakeSampler):
    """Allows few tokens, then none."""

    allowed = 3

    def continuations(self, logits, states, top):
        ids, values = super().continuations(logits, states, top)
        values[:, self.allowed :] = -np.inf
        self.allowed = 0
        return ids, values


def test_a_search_with_no_token_left_fails_alone():
    engine = make_engine(sampler=NoTokens())
    engine.add_request(beam_request("a", prompt(0, 4)))
    (begun,) = engine.step()
    assert begun.token_id == -1 and begun.finish_reason is None and len(engine.scheduler.running[0].active) == 3
    check_invariants(engine)
    updates = engine.step()
    assert [update.finish_reason for update in updates] == ["error"] * 3 and "no token" in updates[0].error
    check_invariants(engine)
    assert run(engine, [request("b", prompt(0, 5))])["b"].reasons == {0: "length"}
