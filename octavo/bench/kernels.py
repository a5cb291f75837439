"""Every kernel on a model's real shapes, over the machine's own limits: the rows of a roofline table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.bench.attention_timing import AttentionCase, Order, TimedAttention
from octavo.bench.machine_limits import MachineLimits
from octavo.bench.model_shape import ModelShape, RowShape
from octavo.bench.random_weights import random_weights
from octavo.native_library import native_library
from octavo.sampling.sampler import Sampler
from octavo.sampling.sampling_state import SamplingState
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo._native import ThreadTeam

GROUPS = ("linear", "head", "attention", "paging", "rows", "sampling")
ATTENTION_CASES = (
    *(AttentionCase(1, context) for context in (128, 2048, 8192)),
    *(AttentionCase(32, context) for context in (128, 2048)),
    AttentionCase(1, 1024, 1024),
    AttentionCase(1, 8192, 512),
)
PAGING_CASES = (AttentionCase(1, 2048), AttentionCase(8, 2048), AttentionCase(1, 8192))
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "top-k 50": SamplingParams(temperature=1.0, top_k=50, seed=1),
    "top-p 0.9": SamplingParams(temperature=1.0, top_p=0.9, seed=1),
}
_PRODUCTS = {"f32": "float32", "bf16": "bf16", "float32": "float32", "bfloat16": "bf16"}
"""Which products a format of weights or K and V multiplies by; all others are integers"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel in one shape: all layers of a model, or, of row operations and sampling, one call."""

    kernel: str
    rows: int
    """Of input: tokens, sequences of decode attention, rows of logits"""
    context: int | None
    """Of attention, in tokens"""
    time_us: float
    gb_per_s: float
    """Bytes of weights, K and V or rows that must be read and written, over the time"""
    bandwidth_share: float
    """gb_per_s over what a read loop gets on a memory of that size"""
    top_per_s: float | None
    """Useful operations of matrix products; a product and its addition are two"""
    peak_share: float | None
    """top_per_s over what the loop of the same kind of products gets"""
    bound_by: str
    """The limit that is nearer: memory or products"""


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """What to measure, and how often."""

    rows: Sequence[int] = (1, 8, 32, 64, 256, 1024)
    formats: Sequence[str] = ("w4", "w4symmetric", "w6g16", "w8", "bf16", "f32")
    groups: Sequence[str] = GROUPS
    by_shape: bool = False
    """Linears by their shape instead of all layers at once"""
    activation_dtype: str = "auto"
    """What linears in integer formats multiply: auto, 14-bit integers; or int8"""
    kv_dtype: str = "bfloat16"
    block_size: int = 64
    repeats: int = 10
    attention: Sequence[AttentionCase] = ATTENTION_CASES
    paging: Sequence[AttentionCase] = PAGING_CASES


class KernelBench:
    """Measures kernels of one instruction set on one team of threads."""

    def __init__(self, shape: ModelShape, isa: str, threads: int, options: KernelOptions, say: Say) -> None:
        self._shape, self._isa, self._options, self._say = shape, isa, options, say
        self._team: ThreadTeam = native_library().ThreadTeam(threads)
        self.limits = MachineLimits(isa, self._team)

    def rows(self) -> Iterator[KernelRow]:
        """One after the other, as they are measured."""
        measures: dict[str, Callable[[], Iterator[KernelRow]]] = {
            "linear": self._linears,
            "head": self._head,
            "attention": self._attention,
            "rows": self._row_operations,
            "sampling": self._sampling,
        }
        for group, measure in measures.items():
            if group in self._options.groups:
                yield from measure()

    def paging(self) -> Iterator[dict[str, Any]]:
        """The same attention kernel over shuffled blocks, blocks in order, and contiguous memory."""
        if "paging" not in self._options.groups:
            return
        for case in self._options.paging:
            self._say(f"paging, {case.seqs} x {case.context}")
            yield self._paged_against_contiguous(case)

    # ---- linears ----

    def _linears(self) -> Iterator[KernelRow]:
        shapes = self._shape.linears
        each = [[shape] * shapes.count(shape) for shape in dict.fromkeys(shapes)]
        for fmt in self._options.formats:
            for part in each if self._options.by_shape else [list(shapes)]:
                name = f"linear {self._label(fmt)}" + (f" {part[0][1]}x{part[0][0]}" if self._options.by_shape else "")
                yield from self._multiplied(name, fmt, part, self._options.rows, self._int8)

    def _head(self) -> Iterator[KernelRow]:
        """Of a step's sampled rows only, so of few."""
        for fmt in self._options.formats:
            rows = [count for count in self._options.rows if count <= 64]
            yield from self._multiplied(f"head {fmt}", fmt, [self._shape.head], rows)

    @property
    def _int8(self) -> bool:
        return self._options.activation_dtype == "int8"

    def _label(self, fmt: str) -> str:
        """ "w4", or "w4/int8" where 4-bit weights multiply 8-bit activations."""
        return f"{fmt}/int8" if self._int8 and fmt not in _PRODUCTS else fmt

    def _multiplied(
        self, name: str, fmt: str, shapes: list[tuple[int, int]], rows: Sequence[int], int8: bool = False
    ) -> Iterator[KernelRow]:
        self._say(name)
        weights = random_weights(shapes, fmt, self._team)
        size = sum(weight.nbytes for weight in weights)
        operations = 2 * sum(weight.n * weight.k for weight in weights)
        for count in rows:
            repeats = self._options.repeats if count <= 64 else min(3, self._options.repeats)
            seconds = native_library().time_linears(weights, count, self._isa, self._team, repeats, int8)
            yield self._row(name, count, None, seconds, size, operations * count, _PRODUCTS.get(fmt, "int8"))

    # ---- attention ----

    def _timed(self, case: AttentionCase, order: Order) -> TimedAttention:
        options = self._options
        return TimedAttention(self._shape, case, options.block_size, order, options.kv_dtype, self._isa, self._team)

    def _attention(self) -> Iterator[KernelRow]:
        products = _PRODUCTS.get(self._options.kv_dtype, "int8")
        for case in self._options.attention:
            self._say(f"{case.name}, {case.seqs} x {case.context}")
            timed = self._timed(case, "shuffled")
            seconds = timed.seconds(self._options.repeats if case.new == 1 else min(3, self._options.repeats))
            rows = case.seqs * case.new
            yield self._row(case.name, rows, case.context, seconds, timed.kv_bytes, timed.operations, products)

    def _paged_against_contiguous(self, case: AttentionCase) -> dict[str, Any]:
        """Taken in turns, so that a slow moment of the machine hits all three; medians of the rounds."""
        orders: tuple[Order, ...] = ("shuffled", "in order", "one block")
        timed = {order: self._timed(case, order) for order in orders}
        rounds = [{order: each.seconds(1) for order, each in timed.items()} for _ in range(self._options.repeats + 1)]
        median = {order: float(np.median([each[order] for each in rounds[1:]])) for order in orders}
        return {
            "sequences": case.seqs,
            "context": case.context,
            "block_size": self._options.block_size,
            "shuffled_us": median["shuffled"] * 1e6,
            "in_order_us": median["in order"] * 1e6,
            "contiguous_us": median["one block"] * 1e6,
            "shuffled_ratio": median["shuffled"] / median["one block"],
            "in_order_ratio": median["in order"] / median["one block"],
        }

    # ---- rows and sampling ----

    def _row_operations(self) -> Iterator[KernelRow]:
        self._say("operations on rows")
        for shape in self._shape.rows:
            for count in self._options.rows:
                operation = "prepare_int8" if self._int8 and shape.name == "prepare_integers" else shape.name
                seconds = native_library().time_row_operation(
                    operation, count, shape.width, shape.heads, self._isa, self._team, self._options.repeats
                )
                name = f"{operation} {shape.width}"
                yield self._row(name, count, None, seconds, count * shape.width * _row_bytes(shape))

    def _sampling(self) -> Iterator[KernelRow]:
        vocab_size = self._shape.vocab_size
        sampler = Sampler(vocab_size, self._team, use_native=True, instruction_set=self._isa)
        for name, params in SAMPLINGS.items():
            self._say(f"sampling, {name}")
            for count in (count for count in self._options.rows if count <= 64):
                states = [SamplingState(params, [0], seed) for seed in range(count)]
                logits = np.random.default_rng(0).standard_normal((count, vocab_size), dtype=np.float32) * 4
                seconds = min(_sampled(sampler, logits, states) for _ in range(self._options.repeats))
                yield self._row(f"sampling {name}", count, None, seconds, logits.nbytes)

    # ---- over the limits ----

    def _row(
        self,
        kernel: str,
        rows: int,
        context: int | None,
        seconds: float,
        size: int,
        operations: int = 0,
        products: str | None = None,
    ) -> KernelRow:
        speed = self.limits.read_speed(size)
        peak = None if products is None else self.limits.product_speed(products)
        return KernelRow(
            kernel=kernel,
            rows=rows,
            context=context,
            time_us=seconds * 1e6,
            gb_per_s=size / seconds / 1e9,
            bandwidth_share=size / seconds / speed,
            top_per_s=None if peak is None else operations / seconds / 1e12,
            peak_share=None if peak is None else operations / seconds / peak,
            bound_by="memory" if peak is None or size / speed >= operations / peak else "products",
        )


def _row_bytes(shape: RowShape) -> int:
    """Read and written, of each value of a row."""
    return {"rope": 8, "rms_norm": 8, "prepare_integers": 6}.get(shape.name, 12)


def _sampled(sampler: Sampler, logits: Any, states: list[SamplingState]) -> float:
    copy = logits.copy()  # the sampler may overwrite what it gets
    started = time.perf_counter()
    sampler.sample(copy, states)
    return time.perf_counter() - started


def measure_kernels(
    shape: ModelShape, isa: str, threads: int, options: KernelOptions, say: Say = lambda _: None
) -> dict[str, Any]:
    """{"limits": ..., "rows": [...], "paging": [...]} of one instruction set.

    Raises ValueError for a format, an instruction set or a kv_dtype that is not known or not supported here.
    """
    bench = KernelBench(shape, isa, threads, options, say)
    say("the machine's limits")
    limits = bench.limits.facts()
    return {
        "limits": limits,
        "rows": [asdict(row) for row in bench.rows()],
        "paging": list(bench.paging()),
    }
