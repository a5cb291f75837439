"""Octavo and other engines on the same work, in turns within one run: a table of rows by engines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from octavo import __version__
from octavo.bench.peers import Peer, PeerError, Taken, Work
from octavo.bench.prompts import random_prompts
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.llm import LLM

OURS = "octavo"
Measure = Literal["output", "decode", "prefill"]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of some work, in tokens a second.

    output: output tokens over the whole time, prefill and all. decode: of one sequence, tokens after the first over the
    time after it. prefill: prompt tokens over the time to the first token.
    """

    name: str
    work: Work
    measure: Measure

    def value(self, taken: Taken) -> float | None:
        """None where the engine does not tell the end of the prefill."""
        work, first = self.work, taken.first_s
        if self.measure == "output":
            return work.concurrency * work.output_len / taken.wall_s
        if first is None:
            return None
        if self.measure == "prefill":
            return work.concurrency * work.input_len / first
        return (work.output_len - 1) / max(1e-9, taken.wall_s - first)


@dataclass(frozen=True, slots=True)
class CompareRow:
    """One row of the table and one engine."""

    row: str
    measure: Measure
    engine: str
    tokens_per_s: float | None
    """Median over the rounds"""
    octavo_ratio: float | None
    """Octavo's median over this one"""
    values: list[float]
    """Of each round"""


def make_rows(concurrencies: Sequence[int], input_len: int, output_len: int, prefill: int, context: int) -> list[Row]:
    """The rows of a comparison. prefill: tokens of a prompt whose prefill alone counts; context: tokens of prompt and
    output of one long sequence; 0 leaves either out. Raises ValueError where the context has no room for the output."""
    rows = []
    for count in concurrencies:
        work = Work(count, input_len, output_len)
        name = "one stream" if count == 1 else f"{count} streams"
        if count == 1:
            rows.append(Row(f"{name}, decode", work, "decode"))
        rows.append(Row(f"{name}, output", work, "output"))
    if prefill:
        rows.append(Row(f"prefill of {prefill}", Work(1, prefill, 1), "prefill"))
    if context:
        if context <= output_len:
            raise ValueError(f"context={context}: must be more than the output's {output_len} tokens")
        work = Work(1, context - output_len, output_len)
        rows += [Row(f"context {context}, {measure}", work, measure) for measure in ("decode", "prefill")]
    return rows


class Ours:
    """Octavo itself, in this process."""

    name = OURS
    version = f"octavo {__version__}"

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    def run(self, work: Work) -> Taken:
        """Does it."""
        prompts = random_prompts(work.concurrency, work.input_len, self._llm.loaded.vocab_size, work.seed)
        params = SamplingParams(temperature=0.0, max_tokens=work.output_len, ignore_eos=True)
        started = time.perf_counter()
        outputs = self._llm.generate(prompts, params)
        wall = time.perf_counter() - started
        return Taken(max(output.metrics.time_to_first_token or wall for output in outputs), wall)

    def close(self) -> None:
        """The model belongs to the caller."""


def measure_compare(
    llm: LLM,
    peers: Sequence[Peer],
    rows: Sequence[Row],
    rounds: int = 5,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows by engines, and what went wrong, by engine.

    In each round every piece of work goes to one engine after the other, so that a slow moment of the machine hits all.
    An engine that fails does no more work. Before the first round each does a little, which does not count. Raises
    ValueError for work that is longer than the model allows.
    """
    for row in rows:
        if row.work.input_len + row.work.output_len > llm.loaded.max_model_len:
            raise ValueError(
                f"{row.name}: needs {row.work.input_len + row.work.output_len} tokens, "
                f"max_model_len is {llm.loaded.max_model_len}"
            )
    engines: list[Peer] = [Ours(llm), *peers]
    failed: dict[str, str] = {}
    values: dict[tuple[str, str], list[float]] = {(row.name, engine.name): [] for row in rows for engine in engines}

    def run(engine: Peer, work: Work) -> Taken | None:
        if engine.name in failed:
            return None
        try:
            return engine.run(work)
        except PeerError as error:
            failed[engine.name] = str(error)
            return None

    for engine in engines:
        say(f"warming {engine.name}")
        run(engine, Work(1, 16, 4))
    for number in range(rounds):
        for work in dict.fromkeys(row.work for row in rows):
            for engine in engines:
                say(f"round {number + 1} of {rounds}: {work.concurrency} x {work.input_len}, {engine.name}")
                taken = run(engine, replace(work, seed=number + 1))
                for row in (row for row in rows if row.work == work and taken is not None):
                    assert taken is not None
                    value = row.value(taken)
                    values[row.name, engine.name] += [] if value is None else [value]
    return [asdict(_compare_row(row, engine.name, values)) for row in rows for engine in engines], failed


def _compare_row(row: Row, engine: str, values: dict[tuple[str, str], list[float]]) -> CompareRow:
    mine, ours = values[row.name, engine], values[row.name, OURS]
    median = statistics.median(mine) if mine else None
    ratio = statistics.median(ours) / median if median and ours else None
    return CompareRow(row.name, row.measure, engine, median, ratio, mine)


def compare_table(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line a row, a column an engine, and Octavo's figure over the best of the others."""
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    lines: list[dict[str, Any]] = []
    for name in dict.fromkeys(row["row"] for row in rows):
        mine = {row["engine"]: row["tokens_per_s"] for row in rows if row["row"] == name}
        others = [value for engine, value in mine.items() if engine != OURS and value is not None]
        best = mine[OURS] / max(others) if others and mine[OURS] is not None else None
        lines.append({"tokens/s": name, **{engine: mine[engine] for engine in engines}, "over_best_ratio": best})
    return lines
