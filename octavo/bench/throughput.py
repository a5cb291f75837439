"""Throughput by concurrency: wall clock with prefill, random prompts, end of sequence ignored, no prefix
cache."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from octavo.bench.prompts import random_prompts
from octavo.bench.stopwatch import Stopwatch, computing_calls
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.llm import LLM


@dataclass(frozen=True, slots=True)
class ThroughputRow:
    """One concurrency. Times are of the median run."""

    concurrency: int
    requests: int
    input_len: int
    output_len: int
    elapsed_s: float
    """From the first request's arrival to the last token, prefill and all"""
    output_tokens_per_s: float
    total_tokens_per_s: float
    """Prompt and output tokens"""
    time_to_first_token_s: float
    """Median over the requests"""
    last_first_token_s: float
    """When the slowest request had its first token: the end of the prefill"""
    decode_tokens_per_s: float
    """Output tokens after that, over the time after that"""
    python_share: float
    """Part of elapsed_s outside of the executor and the sampler"""
    steps: int
    python_per_step_us: float


def measure_throughput(
    llm: LLM,
    concurrencies: Sequence[int],
    input_len: int,
    output_len: int,
    repeat: int = 1,
    say: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """One row a concurrency; each measured `repeat` times after a warm-up, and the median run taken."""
    watch = Stopwatch(computing_calls(llm.loaded.engine))
    _run(llm, watch, 1, input_len, min(8, output_len), seed=0)
    rows = []
    for concurrency in concurrencies:
        say(f"{concurrency} at once")
        runs = [_run(llm, watch, concurrency, input_len, output_len, seed=1 + number) for number in range(repeat)]
        runs.sort(key=lambda row: row.elapsed_s)
        rows.append(asdict(runs[(repeat - 1) // 2]))
    return rows


def _run(llm: LLM, watch: Stopwatch, concurrency: int, input_len: int, output_len: int, seed: int) -> ThroughputRow:
    prompts = random_prompts(concurrency, input_len, llm.loaded.vocab_size, seed)
    params = SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True)
    watch.reset()
    started = time.perf_counter()
    outputs = llm.generate(prompts, params)
    elapsed = time.perf_counter() - started
    produced = sum(output.metrics.num_output_tokens for output in outputs)
    first = sorted(output.metrics.time_to_first_token or 0.0 for output in outputs)
    rest = elapsed - first[-1]
    python = max(0.0, elapsed - sum(watch.seconds.values()))
    return ThroughputRow(
        concurrency=concurrency,
        requests=len(outputs),
        input_len=input_len,
        output_len=output_len,
        elapsed_s=elapsed,
        output_tokens_per_s=produced / elapsed,
        total_tokens_per_s=(produced + concurrency * input_len) / elapsed,
        time_to_first_token_s=statistics.median(first),
        last_first_token_s=first[-1],
        decode_tokens_per_s=(produced - concurrency) / rest if rest > 0 else 0.0,
        python_share=python / elapsed,
        steps=watch.counts["executor"],
        python_per_step_us=python / max(1, watch.counts["executor"]) * 1e6,
    )
