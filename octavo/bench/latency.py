"""Latency of one request: first token, each token after it, and the speed of a prefill."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from octavo.bench.prompts import random_prompts
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.llm import LLM


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One prompt length; medians over the runs."""

    input_len: int
    output_len: int
    time_to_first_token_s: float
    prefill_tokens_per_s: float
    """input_len over the time to the first token"""
    time_per_output_token_s: float
    """Between tokens after the first: median"""
    time_per_output_token_p95_s: float
    output_tokens_per_s: float
    """After the first token"""


def measure_latency(
    llm: LLM,
    input_lens: Sequence[int],
    output_len: int,
    repeat: int = 3,
    say: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """One row a prompt length, of a single request alone; `repeat` runs after a warm-up."""
    rows = []
    for input_len in input_lens:
        say(f"prompt of {input_len}")
        _token_times(llm, input_len, min(4, output_len), seed=0)
        runs = [_token_times(llm, input_len, output_len, seed=1 + number) for number in range(repeat)]
        first = statistics.median(times[0] for times in runs)
        gaps = sorted(b - a for times in runs for a, b in pairwise(times)) or [0.0]
        rate = statistics.median((len(times) - 1) / max(times[-1] - times[0], 1e-9) for times in runs)
        rows.append(
            asdict(
                LatencyRow(
                    input_len=input_len,
                    output_len=output_len,
                    time_to_first_token_s=first,
                    prefill_tokens_per_s=input_len / first,
                    time_per_output_token_s=statistics.median(gaps),
                    time_per_output_token_p95_s=gaps[min(len(gaps) - 1, int(0.95 * len(gaps)))],
                    output_tokens_per_s=rate,
                )
            )
        )
    return rows


def _token_times(llm: LLM, input_len: int, output_len: int, seed: int) -> list[float]:
    """Seconds from the request to each of its tokens, as a reader of the stream sees them."""
    prompt = random_prompts(1, input_len, llm.loaded.vocab_size, seed)[0]
    params = SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True)
    started = time.perf_counter()
    return [time.perf_counter() - started for _ in llm.stream(prompt, params)]
