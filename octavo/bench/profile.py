"""The anatomy of a step: where its time goes, kernel by kernel, in sampling and in Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from octavo.bench.prompts import random_prompts
from octavo.bench.stopwatch import Stopwatch, step_calls
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.llm import LLM
    from octavo.request_state import RequestState

GROUPS = ("executor", "linears", "LM head", "attention", "rows", "waiting", "setup", "sampling", "Python")
_GROUP_OF = {"logits": "LM head"} | {name: name for name in ("executor", "attention", "waiting", "setup", "sampling")}
_GROUP_OF |= dict.fromkeys(("scheduler", "step builder", "engine", "delivery", "call"), "Python")
Parts = dict[str, float]
"""Seconds of one step by part"""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One part of one kind of step: a mean over the faster half of the steps."""

    step: str
    """decode or prefill, sequences x tokens"""
    group: str
    part: str
    time_us: float
    step_share: float


def measure_profile(
    llm: LLM,
    sequences: Sequence[int] = (1, 32, 64),
    context: int = 128,
    prefill: int = 1024,
    steps: int = 32,
    say: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Rows of decode steps of so many sequences, each of about `context` tokens, and of one prompt of `prefill` tokens.

    Times are those of the thread that drives the engine. Raises ValueError where the lengths exceed what the model or
    its KV memory can hold.
    """
    executor: Any = llm.loaded.executor
    native = hasattr(executor, "profile_in_detail")
    watch = Stopwatch(step_calls(llm.loaded.engine))
    try:
        if native:
            executor.profile_in_detail(True)
        rows: list[ProfileRow] = []
        for count in sequences:
            say(f"decode of {count}")
            rows += _rows(f"decode {count} x {context}", _decode_steps(llm, watch, count, context, steps))
        if prefill:
            say(f"prefill of {prefill}")
            taken = [_prefill(llm, watch, prefill, seed) for seed in range(max(2, steps // 4))]
            rows += _rows(f"prefill 1 x {prefill}", taken[1:])
        return [asdict(row) for row in rows]
    finally:
        watch.close()
        if native:
            executor.profile_in_detail(False)


def group_of(part: str) -> str:
    """The group that a part belongs to, one of GROUPS."""
    return "linears" if part.startswith("linear ") else _GROUP_OF.get(part, "rows")


def _decode_steps(llm: LLM, watch: Stopwatch, count: int, context: int, steps: int) -> list[Parts]:
    """Steps in which each of `count` sequences computes one token."""
    states = _add(llm, count, context, steps + 2, seed=count)
    try:
        while any(state.time_to_first_token is None for state in states):
            llm.driver.step()
        return [_one_step(llm, watch) for _ in range(steps)]
    finally:
        llm.driver.abort_all()


def _prefill(llm: LLM, watch: Stopwatch, length: int, seed: int) -> Parts:
    """From the request to its first token, in one step or in chunks."""
    (state,) = _add(llm, 1, length, 2, seed=1000 + seed)
    parts: Parts = {}
    try:
        while state.time_to_first_token is None:
            for name, seconds in _one_step(llm, watch).items():
                parts[name] = parts.get(name, 0.0) + seconds
        return parts
    finally:
        llm.driver.abort_all()


def _add(llm: LLM, count: int, length: int, max_tokens: int, seed: int) -> list[RequestState]:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    states = []
    for number, prompt in enumerate(random_prompts(count, length, llm.loaded.vocab_size, seed)):
        states.append(llm.driver.new_state(f"profile-{seed}-{number}", llm.reader.read(prompt), params))
        llm.driver.add(states[-1])
    return states


def _one_step(llm: LLM, watch: Stopwatch) -> Parts:
    executor: Any = llm.loaded.executor
    take: Callable[[], Parts] = getattr(executor, "take_profile", dict)
    take()
    watch.reset()
    started = time.perf_counter()
    llm.driver.step()
    whole = time.perf_counter() - started
    inside = take()
    inside["setup"] = inside.get("setup", 0.0) + inside.pop("rows", 0.0)  # in detail, of rows only the clock is left
    seconds = watch.seconds
    stations = sum(seconds[name] for name in ("scheduler", "step builder", "executor", "sampling"))
    parts = {name: value for name, value in inside.items() if value > 0} or {"executor": seconds["executor"]}
    return {
        **parts,
        "call": max(0.0, seconds["executor"] - sum(parts.values())),
        "sampling": seconds["sampling"],
        "scheduler": seconds["scheduler"],
        "step builder": seconds["step builder"],
        "engine": seconds["step"] - stations,
        "delivery": whole - seconds["step"],
    }


def _rows(step: str, taken: Sequence[Parts]) -> list[ProfileRow]:
    """Slow steps met other work of the machine: the faster half counts."""
    fast = sorted(taken, key=lambda parts: sum(parts.values()))[: (len(taken) + 1) // 2]
    names = dict.fromkeys(name for parts in fast for name in parts)
    means = {name: sum(parts.get(name, 0.0) for parts in fast) / len(fast) for name in names}
    whole = sum(means.values())
    rows = [ProfileRow(step, group_of(name), name, mean * 1e6, mean / whole) for name, mean in means.items()]
    return sorted(rows, key=lambda row: GROUPS.index(row.group))


def profile_table(rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """The rows as a table for people: a line a part, one more a group of several, a column a kind of step."""
    steps = list(dict.fromkeys(row["step"] for row in rows))
    lines: list[dict[str, str]] = []
    for group in (group for group in GROUPS if any(row["group"] == group for row in rows)):
        mine = [row for row in rows if row["group"] == group]
        parts = list(dict.fromkeys(row["part"] for row in mine))
        if len(parts) > 1:
            lines += [_line("", part, steps, [row for row in mine if row["part"] == part]) for part in parts]
        lines.append(_line(group, "in all" if len(parts) > 1 else "", steps, mine))
    return [*lines, _line("step", "in all", steps, rows)]


def _line(group: str, part: str, steps: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    line = {"group": group, "part": part}
    for step in steps:
        mine = [row for row in rows if row["step"] == step]
        time_us, share = sum(row["time_us"] for row in mine), sum(row["step_share"] for row in mine)
        line[step] = f"{time_us:.0f} us {share:6.1%}" if mine else "-"
    return line
