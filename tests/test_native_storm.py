"""Conservation over real kernels: after a storm of requests no block is lost and no memory either."""

from __future__ import annotations

import random

from support.weights import random_checkpoint, small_config

from octavo.beam_search_params import BeamSearchParams
from octavo.engine.engine import Engine, EngineConfig, Request
from octavo.engine.invariants import check_invariants
from octavo.executors.native import NativeExecutor
from octavo.memory import resident_bytes
from octavo.models.registry import build_program
from octavo.sampling.sampler import Sampler
from octavo.sampling_params import SamplingParams


def storm(engine: Engine, rng: random.Random, count: int) -> None:
    """`count` random requests, up to 24 at once; a good part of them is aborted, all are preempted now and then."""
    added = steps = 0
    live: list[str] = []
    while added < count or engine.has_unfinished:
        while added < count and len(live) < 24:
            prompt = [1 + rng.randrange(3), *range(4, 4 + rng.randrange(30))]
            length, number = rng.randrange(1, 10), rng.choice((1, 1, 1, 1, 3))
            params: SamplingParams | BeamSearchParams = SamplingParams(n=number, max_tokens=length, seed=added)
            if added % 9 == 0:
                params = BeamSearchParams(1 + number, length, presence_penalty=added % 2)
            engine.add_request(Request(str(added), prompt, params))
            live.append(str(added))
            added += 1
        running = {update.request_id for update in engine.step() if update.finish_reason is None}
        if rng.random() < 0.5:
            engine.abort(rng.choice(live))
        if rng.random() < 0.02:
            engine.scheduler.preempt_all()
        steps += 1
        if steps % 50 == 0:
            check_invariants(engine)
            engine.release_idle_memory()
        unfinished = {request.request_id for request in (*engine.scheduler.running, *engine.scheduler.waiting)}
        live = [name for name in live if name in unfinished or name in running]


def test_after_10_000_requests_all_blocks_are_free_and_memory_is_flat() -> None:
    """F39, F42"""
    program = build_program(small_config(family="mistral", num_hidden_layers=1, sliding_window=12))
    executor = NativeExecutor(program, random_checkpoint(program), num_threads=1)
    config = EngineConfig(num_blocks=60, block_size=8, max_model_len=60, max_num_seqs=32, max_num_batched_tokens=96)
    sampler = Sampler(program.vocab_size, executor.thread_team)
    engine = Engine(executor, sampler, program, config, eos_token_ids=(2,))
    rng = random.Random(0)
    storm(engine, rng, 2000)
    before = resident_bytes()
    storm(engine, rng, 8000)
    after = resident_bytes()
    check_invariants(engine)
    stats = engine.stats()
    assert stats.referenced_blocks == stats.running == stats.waiting == 0
    assert stats.preemptions > 100 and stats.evictions > 1000 and stats.prefix_hit_tokens > 1000
    engine.drop_prefix_cache()
    engine.release_idle_memory()
    stats = engine.stats()
    assert stats.free_blocks == stats.total_blocks and stats.committed_blocks == 0
    assert before is not None and after is not None
    assert after - before < 4_000_000
    executor.close()
