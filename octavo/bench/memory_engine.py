"""A trace through the real engine in a fixed KV memory: paged, and each contiguous policy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.bench.contiguous import POLICIES
from octavo.bench.contiguous_manager import contiguous_manager
from octavo.bench.lengths import MAX_LENGTH, SHAREGPT, Trace
from octavo.bench.memory_simulation import POOL_SLOTS
from octavo.engine.engine import Engine
from octavo.engine.kv_cache_manager import KVCacheManager
from octavo.engine.request import Request
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.loading import LoadedModel


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One policy. Means are over the steps at which somebody waited for memory; rates over the whole run."""

    policy: str
    elapsed_s: float
    """From the first arrival to the last token"""
    output_tokens_per_s: float
    output_tokens_per_cpu_s: float
    """Over the CPU time of this process: less of what its neighbours on the machine do is in it"""
    saturated_tokens_per_s: float
    """Output tokens over time while somebody waited"""
    mean_batch: float
    tokens_share: float
    """Slots of the KV memory that hold a token's K and V"""
    preemptions: int
    steps: int


class Meter:
    """Sums over steps at which requests wait."""

    def __init__(self) -> None:
        self.steps = 0
        self.batch = 0
        self.tokens = 0
        self.output = 0
        self.seconds = 0.0

    def add(self, batch: int, tokens: int, output: int, seconds: float) -> None:
        """One step."""
        self.steps += 1
        self.batch += batch
        self.tokens += tokens
        self.output += output
        self.seconds += seconds


def run_trace(engine: Engine, trace: Trace, policy: str, vocab_size: int) -> EngineRow:
    """Requests come when their time has come, in wall-clock seconds, and end at their length."""
    rng = np.random.default_rng(0)
    requests = [
        Request(
            str(number),
            rng.integers(0, vocab_size, int(prompt)).tolist(),
            SamplingParams(temperature=0.0, max_tokens=int(output), ignore_eos=True),
        )
        for number, (prompt, output) in enumerate(zip(trace.prompts, trace.outputs, strict=True))
    ]
    final_lengths = trace.prompts + trace.outputs - 1
    meter, arrived = Meter(), 0
    slots = engine.pool.num_blocks * engine.config.block_size
    started, cpu_started = time.perf_counter(), time.process_time()
    while arrived < len(requests) or engine.has_unfinished:
        now = time.perf_counter() - started
        while arrived < len(requests) and (trace.arrivals[arrived] <= now or not engine.has_unfinished):
            engine.add_request(requests[arrived])
            arrived += 1
        begun, computed = time.perf_counter(), engine.stats().computed_tokens
        updates = engine.step()
        budget_was_left = engine.stats().computed_tokens - computed < engine.config.max_num_batched_tokens
        if engine.scheduler.waiting and budget_was_left:
            # Those that ended with this step held their memory during it.
            ended = [int(update.request_id) for update in updates if update.finish_reason is not None]
            active = [sequence for request in engine.scheduler.running for sequence in request.active]
            tokens = sum(sequence.num_computed_tokens for sequence in active) + int(final_lengths[ended].sum())
            meter.add(len(active) + len(ended), tokens, len(updates), time.perf_counter() - begun)
    elapsed = time.perf_counter() - started
    stats = engine.stats()
    return EngineRow(
        policy=policy,
        elapsed_s=elapsed,
        output_tokens_per_s=stats.generated_tokens / elapsed,
        output_tokens_per_cpu_s=stats.generated_tokens / max(1e-9, time.process_time() - cpu_started),
        saturated_tokens_per_s=meter.output / max(1e-9, meter.seconds),
        mean_batch=meter.batch / max(1, meter.steps),
        tokens_share=meter.tokens / max(1, meter.steps) / slots,
        preemptions=stats.preemptions,
        steps=stats.steps,
    )


def measure_engine(
    loaded: LoadedModel,
    requests: int = 100,
    scale: float = 0.5,
    block_size: int = 16,
    rate: float = 20.0,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """One row a policy, on ShareGPT-like lengths times `scale`, in a memory of POOL_SLOTS times `scale`."""
    trace = SHAREGPT.sample(requests, seed).scaled(scale).arriving(rate, seed)
    longest = int(MAX_LENGTH * scale)
    managers: dict[str, type[KVCacheManager]] = {"paged": KVCacheManager}
    managers |= {f"contiguous-{policy}": contiguous_manager(policy, longest) for policy in POLICIES}
    rows = []
    for policy, manager_type in managers.items():
        say(policy)
        engine = _engine(loaded, int(POOL_SLOTS * scale) // block_size, block_size, longest, manager_type)
        rows.append(asdict(run_trace(engine, trace, policy, loaded.vocab_size)))
    return rows


def _engine(
    loaded: LoadedModel, num_blocks: int, block_size: int, longest: int, manager_type: type[KVCacheManager]
) -> Engine:
    """Another engine over a loaded model's executor, whose KV memory becomes that of this one."""
    old = loaded.engine
    config = replace(
        old.config,
        num_blocks=num_blocks,
        block_size=block_size,
        max_model_len=longest,
        enable_prefix_caching=False,
    )
    return Engine(loaded.executor, old.sampler, loaded.program, config, (), manager_type=manager_type)
