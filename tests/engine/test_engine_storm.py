"""Conservation: whatever comes in whatever order, no block is lost and no answer is wrong."""

import random
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from engine_fakes import (
    VOCAB,
    Answer,
    FakeSampler,
    check_invariants,
    collect,
    make_engine,
    prompt,
    request,
    run,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.guesses import Guesses

from octavo.beam_search_params import BeamSearchParams
from octavo.engine.request import Request

KINDS = st.fixed_dictionaries(
    {
        "beam_width": st.sampled_from([0, 0, 0, 2, 3]),
        "family": st.integers(0, 2),
        "length": st.integers(1, 30),
        "n": st.sampled_from([1, 1, 1, 2, 3]),
        "max_tokens": st.integers(1, 15),
        "prompt_logprobs": st.sampled_from([None, None, 0, 1]),
        "cache_salt": st.sampled_from([None, None, "salt"]),
    }
)


class EngineMachine(RuleBasedStateMachine):
    """Adds, steps, aborts, preempts and finishes. After every rule the invariants hold, and at the end each
    request that was left alone has the answer that it has alone. Forks come with n > 1 and with beams."""

    @initialize(
        windows=st.sampled_from([(None,), (None, 6), (4,), (None, 3, 9)]),
        block_size=st.sampled_from([1, 2, 4, 8]),
        blocks=st.integers(0, 30),
        budget=st.sampled_from([3, 16, 100]),
        caching=st.sampled_from([True, True, False]),
        weak_hash=st.booleans(),
        drafting=st.booleans(),
    )
    def start(self, windows, block_size, blocks, budget, caching, weak_hash, drafting):
        self.windows, self.block_size = windows, block_size
        config = {"hash_function": lambda data: bytes([sum(data) % 16])} if weak_hash else {}
        self.engine = make_engine(
            windows,
            block_size=block_size,
            num_blocks=(110 // block_size + 6 + blocks) * len(windows),
            max_num_batched_tokens=budget,
            enable_prefix_caching=caching,
            max_logits_rows=9,
            segment_blocks=5,
            **config,
        )
        self.kinds, self.answers, self.disturbed = {}, {}, set()
        if drafting:
            self.engine.speculation = Guesses(lambda sequence: self.alone(sequence.request.request_id)[sequence.index])

    def make(self, name, kind):
        kind = dict(kind)
        tokens = prompt(kind.pop("family"), 30)[: kind.pop("length")]
        width = kind.pop("beam_width")
        if width:
            params = BeamSearchParams(width, kind["max_tokens"], stop_token_ids=[10, 20, 30, 40], ignore_eos=True)
            return Request(name, tokens, params, kind["cache_salt"])
        return request(name, tokens, seed=kind["max_tokens"], **kind)

    def alone(self, name):
        """{index: tokens} of a request by itself."""
        kind = self.kinds[name]
        return alone(self.windows, kind, lambda: self.make("x", kind))[0]

    @rule(kind=KINDS)
    def add(self, kind):
        name = str(len(self.kinds))
        self.kinds[name] = kind
        try:
            self.engine.add_request(self.make(name, kind))
        except ValueError:
            self.disturbed.add(name)
        check_invariants(self.engine)

    @rule(count=st.integers(1, 6))
    def step(self, count):
        for _ in range(count):
            collect(self.answers, self.engine.step())
            check_invariants(self.engine)

    def unfinished(self):
        scheduler = self.engine.scheduler
        return [*scheduler.running, *scheduler.waiting]

    @precondition(lambda self: self.engine.has_unfinished)
    @rule(data=st.data())
    def abort(self, data):
        name = data.draw(st.sampled_from([r.request_id for r in self.unfinished()]))
        assert self.engine.abort(name)
        self.disturbed.add(name)
        check_invariants(self.engine)

    @precondition(lambda self: self.engine.has_unfinished)
    @rule(data=st.data())
    def finish_one(self, data):
        sequences = [s for r in self.unfinished() for s in r.active + r.pending]
        sequence = data.draw(st.sampled_from(sequences))
        if sequence.request.beam_search is not None:
            assert not self.engine.finish(sequence.request.request_id, 0, "stop"), "beams end among themselves"
            return
        assert self.engine.finish(sequence.request.request_id, sequence.index, "stop")
        self.disturbed.add(sequence.request.request_id)
        check_invariants(self.engine)

    @precondition(lambda self: self.engine.scheduler.running)
    @rule(data=st.data())
    def preempt(self, data):
        running = self.engine.scheduler.running
        for victim in reversed(running[data.draw(st.integers(0, len(running) - 1)) :]):
            self.engine.scheduler.preempt(victim)
        check_invariants(self.engine)

    @rule()
    def give_back(self):
        list(self.engine.commit_ahead(5))
        self.engine.release_idle_memory()
        check_invariants(self.engine)

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        for _ in range(5000):
            if not self.engine.has_unfinished:
                break
            collect(self.answers, self.engine.step())
            check_invariants(self.engine)
        assert not self.engine.has_unfinished, "no progress"
        self.engine.drop_prefix_cache()
        stats = self.engine.stats()
        assert stats.free_blocks == stats.total_blocks
        for name, kind in self.kinds.items():
            if name not in self.disturbed:
                assert alone(self.windows, kind, lambda kind=kind: self.make("x", kind)) == (
                    self.answers[name].tokens,
                    self.answers[name].prompt_logprobs,
                )


ALONE: dict = {}


def alone(windows, kind, make):
    key = (windows, tuple(kind.items()))
    if key not in ALONE:
        engine = make_engine(windows, num_blocks=400, block_size=8, enable_prefix_caching=False)
        answer = run(engine, [make()], check=False).get("x", Answer())
        ALONE[key] = (answer.tokens, answer.prompt_logprobs)
    return ALONE[key]


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


class NullExecutor:
    """Computes nothing."""

    def reserve_kv(self, num_blocks, block_size):
        pass

    def execute(self, step):
        return np.zeros((len(step.logits_rows), VOCAB), np.float32)


class NullSampler(FakeSampler):
    """The same token always."""

    def sample(self, logits, states, rows=None):
        count = len(states)
        return SimpleNamespace(
            token_ids=np.full(count, 7, np.int32), logprobs=np.zeros(count, np.float32), tops=[None] * count
        )


def storm(engine, rng, count, check_every):
    """Runs `count` random requests, of which some are aborted at any moment."""
    added = steps = 0
    live: list[str] = []
    while added < count or engine.has_unfinished:
        while added < count and len(live) < 24:
            name = str(added)
            tokens = [rng.randrange(4, 8) for _ in range(rng.randrange(1, 30))]
            engine.add_request(request(name, tokens, n=rng.choice((1, 1, 1, 3)), max_tokens=rng.randrange(1, 12)))
            live.append(name)
            added += 1
        for update in engine.step():
            if update.finish_reason and rng.random() < 0.5:
                engine.abort(update.request_id)
        if rng.random() < 0.3:
            engine.abort(rng.choice(live))
        if rng.random() < 0.02:
            engine.scheduler.preempt_all()
        live = [name for name in live if name in engine._requests]
        steps += 1
        if steps % check_every == 0:
            check_invariants(engine)
    check_invariants(engine)


@pytest.mark.parametrize("windows, count", [((None,), 9400), ((None, 6), 1400)], ids=str)
def test_after_10_000_random_requests_all_blocks_are_free_and_memory_is_flat(windows, count):
    """F33, F39, F42"""
    engine = make_engine(
        windows,
        NullExecutor(),
        NullSampler(),
        num_blocks=90 * len(windows),
        max_num_batched_tokens=60,
        segment_blocks=8,
    )
    rng = random.Random(0)
    storm(engine, rng, count, check_every=100)
    tracemalloc.start()
    try:
        storm(engine, rng, 300, check_every=100)
        before, _ = tracemalloc.get_traced_memory()
        storm(engine, rng, 300, check_every=100)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 30_000
    stats = engine.stats()
    assert stats.referenced_blocks == 0 and stats.preemptions > 100 and stats.evictions > 1000
    engine.drop_prefix_cache()
    assert engine.stats().free_blocks == engine.stats().total_blocks
    assert engine.manager.prefix_cache.num_nodes == engine.manager.prefix_cache.num_roots == 0
    assert engine.manager.rows.num_free == 16
