"""Beam search beside parallel sampling of as many sequences: the same work but for the search."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from octavo.beam_search_params import BeamSearchParams
from octavo.bench.prompts import random_prompts
from octavo.bench.stopwatch import Stopwatch, computing_calls
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.llm import LLM


@dataclass(frozen=True, slots=True)
class BeamRow:
    """One way to get `width` sequences from one prompt; medians over the rounds."""

    kind: str
    width: int
    input_len: int
    output_len: int
    elapsed_s: float
    """From the request to its end"""
    tokens_per_s: float
    """Output tokens of all sequences"""
    against_sampling_ratio: float
    """elapsed_s over that of sampling: a median over rounds, in which both ran side by side"""
    python_share: float
    """Part of elapsed_s outside of the executor and the sampler"""
    computed_tokens: int
    peak_blocks: int
    """Most blocks referenced at once"""


def kinds(width: int, output_len: int) -> dict[str, SamplingParams | BeamSearchParams]:
    """What is compared; the first one is what the others are held against."""
    length: dict[str, Any] = {"max_tokens": output_len, "ignore_eos": True}
    return {
        "sampling": SamplingParams(n=width, seed=0, **length),
        "beams": BeamSearchParams(width, **length),
        "beams, repetition penalty": BeamSearchParams(width, repetition_penalty=1.2, **length),
    }


def measure_beams(
    llm: LLM,
    width: int = 4,
    input_len: int = 256,
    output_len: int = 256,
    repeat: int = 3,
    say: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """One row a kind, after a warm-up of each. All kinds run in every round: the machine's moods hit them alike."""
    watch = Stopwatch(computing_calls(llm.loaded.engine))
    runs: dict[str, list[BeamRow]] = {name: [] for name in kinds(width, output_len)}
    for number in range(repeat + 1):
        say(f"round {number} of {repeat}" if number else "warm-up")
        length = output_len if number else min(8, output_len)
        prompt = random_prompts(1, input_len, llm.loaded.vocab_size, number)[0]
        rows = [_run(llm, watch, name, params, prompt, length) for name, params in kinds(width, length).items()]
        for row in rows if number else ():
            runs[row.kind].append(row)
    watch.close()
    sampling = next(iter(runs.values()))
    return [_median(rows, sampling) for rows in runs.values()]


def _run(
    llm: LLM, watch: Stopwatch, kind: str, params: SamplingParams | BeamSearchParams, prompt: list[int], output_len: int
) -> BeamRow:
    pool = llm.loaded.engine.pool
    pool.peak_referenced = 0
    computed = llm.stats().computed_tokens
    watch.reset()
    started = time.perf_counter()
    if isinstance(params, BeamSearchParams):
        (output,) = llm.beam_search([prompt], params)
    else:
        (output,) = llm.generate([prompt], params)
    elapsed = time.perf_counter() - started
    return BeamRow(
        kind=kind,
        width=params.num_sequences,
        input_len=len(prompt),
        output_len=output_len,
        elapsed_s=elapsed,
        tokens_per_s=output.metrics.num_output_tokens / elapsed,
        against_sampling_ratio=1.0,
        python_share=max(0.0, 1 - sum(watch.seconds.values()) / elapsed),
        computed_tokens=llm.stats().computed_tokens - computed,
        peak_blocks=pool.peak_referenced,
    )


def _median(rows: list[BeamRow], sampling: list[BeamRow]) -> dict[str, Any]:
    """The row of median time, with the median ratio."""
    ratios = [row.elapsed_s / other.elapsed_s for row, other in zip(rows, sampling, strict=True)]
    row = sorted(rows, key=lambda row: row.elapsed_s)[(len(rows) - 1) // 2]
    return asdict(row) | {"against_sampling_ratio": statistics.median(ratios)}
