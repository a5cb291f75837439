"""Which block size suits a model on this machine: attention speed, memory waste and prefix reuse, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from octavo.bench.lengths import ALPACA, SHAREGPT, Lengths
from octavo.bench.null_model import VOCAB_SIZE, null_engine
from octavo.bench.report import make_report
from octavo.engine.request import Request
from octavo.engine.step import Step
from octavo.sampling_params import SamplingParams
from octavo.tuning import Tuning

if TYPE_CHECKING:
    from octavo.loading import LoadedModel

BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
TOLERANCE = 0.05
"""Attention may take this much longer than with the fastest size, for the sake of memory"""
LITTLE_WASTE = 0.04
"""What the PagedAttention paper promises at most"""
ROUNDS = 3
"""Through all sizes, so that a slow moment of the machine does not hit one of them alone"""


@dataclass(frozen=True, slots=True)
class Case:
    """`seqs` sequences of `context` tokens, of which the last `new` are computed in the step."""

    name: str
    seqs: int
    context: int
    new: int


CASES = (
    Case("decode_8x512_s", 8, 512, 1),
    Case("decode_1x2048_s", 1, 2048, 1),
    Case("prefill_256_s", 1, 256, 256),
)


def measure_block_sizes(
    loaded: LoadedModel,
    block_sizes: Sequence[int] = BLOCK_SIZES,
    repeats: int = 5,
    say: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """One row a block size. Its times are of attention alone, over all layers of a step: the least of `repeats` in
    each of ROUNDS rounds.

    The executor's KV memory is replaced: the model is of no use afterwards. Raises ValueError where the executor does
    not tell the time of attention, or where the model's context is too short.
    """
    if not hasattr(loaded.executor, "take_profile"):
        raise ValueError("executor='reference': block sizes matter to the native executor only")
    cases = [case for case in CASES if case.context <= loaded.program.max_model_len]
    if not cases:
        raise ValueError(f"max_model_len={loaded.program.max_model_len}: at least 256 tokens are needed to tune")
    least: dict[tuple[int, str], float] = {}
    for number in range(ROUNDS):
        for size in block_sizes:
            say(f"blocks of {size}, round {number + 1} of {ROUNDS}")
            for case in cases:
                seconds = _attention_seconds(loaded, case, size, repeats)
                least[size, case.name] = min(seconds, least.get((size, case.name), seconds))
    rows = []
    for size in block_sizes:
        times = {case.name: least[size, case.name] for case in cases}
        rows.append(
            {
                "block_size": size,
                **times,
                "sharegpt_waste_share": wasted_share(size, _lengths_in_flight(SHAREGPT.sample(2000, 0))),
                "alpaca_waste_share": wasted_share(size, _lengths_in_flight(ALPACA.sample(2000, 0))),
                **prefix_reuse(size),
            }
        )
    return rows


def recommend(rows: Sequence[dict[str, Any]]) -> Tuning:
    """The smallest size whose attention is within TOLERANCE of the fastest: smaller blocks waste less memory and
    copy less of a prefix."""
    slowness = _slowness(rows)
    fastest = min(slowness, key=slowness.__getitem__)
    size = min(size for size, value in slowness.items() if value <= slowness[fastest] * (1 + TOLERANCE))
    row = next(row for row in rows if row["block_size"] == size)
    against = slowness[size] / slowness[fastest] - 1
    pace = (
        "attention is fastest" if size == fastest else f"attention is within {against:.1%} of the fastest ({fastest})"
    )
    smaller = [each for each in slowness if each < size]
    cost = f"; {smaller[-1]} takes {slowness[smaller[-1]] / slowness[size] - 1:.0%} longer" if smaller else ""
    reason = (
        f"{pace}{cost}; tails waste {row['sharegpt_waste_share']:.1%} of memory on lengths like ShareGPT's, "
        f"{row['alpaca_waste_share']:.1%} on Alpaca's; a prefix hit copies {row['copied_tokens_per_hit']:.1f} tokens "
        f"and loses {row['lost_tokens_per_hit']:.1f}, or {row['lost_tokens_while_running']:.1f} of a running request's"
    )
    return Tuning(size, reason)


def advise_short(rows: Sequence[dict[str, Any]], size: int) -> str:
    """What to take instead of `size` where short requests fill the memory: the largest size that wastes little."""
    chosen = next(row for row in rows if row["block_size"] == size)
    small = [row for row in rows if row["alpaca_waste_share"] <= LITTLE_WASTE]
    if not small or small[-1]["block_size"] >= size:
        return f"it suits short requests too: {chosen['alpaca_waste_share']:.1%} of memory wasted"
    row, slowness = small[-1], _slowness(rows)
    slower = slowness[row["block_size"]] / slowness[size] - 1
    return (
        f"where short requests fill the memory, {row['block_size']}: on lengths like Alpaca's tails waste "
        f"{row['alpaca_waste_share']:.1%} instead of {chosen['alpaca_waste_share']:.1%}; "
        f"attention takes {slower:.0%} longer"
    )


def _slowness(rows: Sequence[dict[str, Any]]) -> dict[int, float]:
    """By block size: the mean over the cases of a size's time over the least one."""
    names = [name for name in rows[0] if name.endswith("_s")]
    least = {name: min(row[name] for row in rows) for name in names}
    return {row["block_size"]: float(np.mean([row[name] / least[name] for name in names])) for row in rows}


def wasted_share(block_size: int, lengths: Lengths) -> float:
    """Slots of blocks that hold no token, for sequences of these lengths."""
    held = int((-(-lengths // block_size)).sum()) * block_size
    return 1 - int(lengths.sum()) / held


def prefix_reuse(block_size: int, trials: int = 64) -> dict[str, float]:
    """What the engine's own prefix cache reuses for requests that depart from another one's prompt at any place: means
    over `trials`, in tokens per hit.

    lost: in the cache, or in a running request's unfinished block, and computed again all the same, after the other
    request has ended and while it runs. copied: from the block in which a request departs; the rest of a hit is shared.
    """
    rng = np.random.default_rng(0)
    lost: dict[bool, list[int]] = {False: [], True: []}
    copied = []
    for _ in range(trials):
        prompt: list[int] = rng.integers(1, VOCAB_SIZE - 1, int(rng.integers(512, 1024))).tolist()
        common = int(rng.integers(512, len(prompt) + 1)) - 1
        for running in lost:
            cached = _cached_tokens(block_size, prompt, common, running)
            lost[running].append(common - cached)
            if not running:
                copied.append(cached % block_size)
    return {
        "lost_tokens_per_hit": float(np.mean(lost[False])),
        "lost_tokens_while_running": float(np.mean(lost[True])),
        "copied_tokens_per_hit": float(np.mean(copied)),
    }


def _cached_tokens(block_size: int, prompt: list[int], common: int, running: bool) -> int:
    """Of a request that has `common` tokens in common with one that ran before, or still runs."""
    engine = null_engine(-(-4096 // block_size), block_size, 2048)
    first = SamplingParams(max_tokens=4 if running else 1, ignore_eos=True)
    engine.add_request(Request("first", prompt, first))
    engine.step()
    # The token after the common part is one that no prompt has.
    engine.add_request(
        Request("second", [*prompt[:common], VOCAB_SIZE - 1, 1], SamplingParams(max_tokens=1, ignore_eos=True))
    )
    return next(update.num_cached_tokens for update in engine.step() if update.request_id == "second")


def _lengths_in_flight(trace: Any) -> Lengths:
    """A length for each request at a moment of its life that is chosen by time: long outputs are seen more often."""
    rng = np.random.default_rng(1)
    seen = rng.choice(len(trace), 20_000, p=trace.outputs / trace.outputs.sum())
    lengths: Lengths = trace.prompts[seen] + (rng.random(len(seen)) * trace.outputs[seen]).astype(np.int64)
    return lengths


def _attention_seconds(loaded: LoadedModel, case: Case, block_size: int, repeats: int) -> float:
    executor: Any = loaded.executor
    groups = len(loaded.program.kv_groups)
    blocks = -(-case.context // block_size)
    executor.reserve_kv(case.seqs * blocks * groups, block_size)
    ids = np.random.default_rng(0).permutation(case.seqs * blocks * groups).astype(np.int32)
    tables = tuple(np.ascontiguousarray(part) for part in ids.reshape(groups, case.seqs, blocks))
    executor.execute(_step(tables, case, 0, min(case.context, 64)))
    step = _step(tables, case, case.context - case.new, case.new)
    best = float("inf")
    deadline = time.perf_counter() + 2.0
    for number in range(repeats + 1):
        executor.take_profile()
        executor.execute(step)
        if number:
            best = min(best, executor.take_profile()["attention"])
        if number and time.perf_counter() > deadline:
            break
    return best


def _step(tables: tuple[npt.NDArray[np.int32], ...], case: Case, first: int, count: int) -> Step:
    """`count` tokens of each sequence from position `first`; what was never written reads as zeros."""
    positions = np.tile(np.arange(first, first + count, dtype=np.int32), case.seqs)
    return Step(
        token_ids=np.arange(len(positions), dtype=np.int32) % 1000,
        positions=positions,
        query_start_loc=np.arange(case.seqs + 1, dtype=np.int32) * np.int32(count),
        seq_lens=np.full(case.seqs, first + count, np.int32),
        block_tables=tables,
        logits_rows=np.array([0], np.int32),
        copies=np.empty((0, 2), np.int32),
    )


def report(loaded: LoadedModel, rows: Sequence[dict[str, Any]], tuning: Tuning) -> dict[str, Any]:
    """The measurement as one object."""
    return make_report(
        "tune",
        rows,
        replace(loaded.options, threads=loaded.threads),
        recommendation=asdict(tuning),
        short_requests=advise_short(rows, tuning.block_size),
    )
