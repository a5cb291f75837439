"""What KV memory holds under each allocator: a simulation of continuous batching, without a model.

Every step computes one token for each running request, and the whole prompt of those that it admits. It takes
STEP_SECONDS and PROMPT_TOKEN_SECONDS more for each prompt token, about OPT-13B on an A100. Shares are means over
the steps at which somebody waits for memory: an idle memory says nothing about an allocator.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from octavo.bench.contiguous import Arena, BuddyArena, FirstFitArena, Policy, reserved_length
from octavo.bench.lengths import ALPACA, MAX_LENGTH, SHAREGPT, LengthDistribution, Trace

POOL_SLOTS = 15_700
"""KV memory of OPT-13B on a GPU of 40 GB: 12 GB"""
STEP_SECONDS = 0.03
PROMPT_TOKEN_SECONDS = 0.0002
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RATES = {SHAREGPT.name: 6.0, ALPACA.name: 120.0}
"""Requests a second: more than any allocator can serve, so that memory is what limits"""


@dataclass(frozen=True, slots=True)
class SimulationRow:
    """One allocator on one trace. Shares are of all slots of the KV memory."""

    trace: str
    allocator: str
    block_size: int
    """0 where there are no blocks"""
    mean_batch: float
    """Requests that run at once"""
    tokens_share: float
    """Slots that hold a token's K and V"""
    reserved_share: float
    """Held for tokens that the request will yet produce"""
    internal_share: float
    """Held by a request and never used: guessed output, or the end of a tail block"""
    external_share: float
    """Held by nobody though somebody waits, or lost to rounding by the allocator"""
    preemptions: int
    requests_per_s: float


class Running:
    """Requests that run, in order of admission, as arrays."""

    def __init__(self) -> None:
        self.ids = np.empty(0, np.int64)
        self.lengths = np.empty(0, np.int64)
        """Tokens in the cache"""
        self.finals = np.empty(0, np.int64)
        """Tokens in the cache when the request ends"""

    def add(self, request: int, length: int, final: int) -> None:
        self.ids = np.append(self.ids, request)
        self.lengths = np.append(self.lengths, length)
        self.finals = np.append(self.finals, final)

    def keep(self, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        self.ids, self.lengths, self.finals = self.ids[mask], self.lengths[mask], self.finals[mask]


class Allocator(Protocol):
    """Memory under one policy."""

    name: str
    block_size: int

    def admit(self, request: int, length: int, prompt: int, output: int, running: Running) -> bool:
        """Whether a request of `length` known tokens starts; its memory is then taken."""
        ...

    def give_back(self, request: int) -> None:
        """The request has ended or is preempted."""
        ...

    def fits(self, running: Running) -> bool:
        """Whether all running requests, at their lengths, have memory."""
        ...

    def steps_that_fit(self, running: Running) -> int:
        """Steps, this one included, that surely find memory for all running requests; at least 1."""
        ...

    def held(self, running: Running, steps: int) -> tuple[int, int]:
        """(slots that requests hold, without the allocator's rounding; of them, slots for tokens to come), summed
        over this and the following `steps` - 1 steps."""
        ...


class Contiguous:
    """One range for each request, reserved at admission."""

    block_size = 0

    def __init__(self, policy: Policy, arena: Arena, name: str) -> None:
        self.name = name
        self._policy = policy
        self._arena = arena
        self._ranges: dict[int, tuple[int, int]] = {}
        self._reserved = 0

    def admit(self, request: int, length: int, prompt: int, output: int, running: Running) -> bool:
        wanted = reserved_length(self._policy, prompt, output, MAX_LENGTH)
        start = self._arena.allocate(wanted)
        if start is None:
            return False
        self._ranges[request] = (start, wanted)
        self._reserved += wanted
        return True

    def give_back(self, request: int) -> None:
        start, length = self._ranges.pop(request)
        self._arena.free(start)
        self._reserved -= length

    def fits(self, running: Running) -> bool:
        return True

    def steps_that_fit(self, running: Running) -> int:
        return MAX_LENGTH

    def held(self, running: Running, steps: int) -> tuple[int, int]:
        to_come = int((running.finals - running.lengths).sum())
        return self._reserved * steps, to_come * steps - len(running.ids) * _triangle(steps - 1)


class Paged:
    """Blocks on demand. Who is admitted leaves a hundredth of the memory to those that run (vLLM's watermark)."""

    def __init__(self, block_size: int, slots: int = POOL_SLOTS) -> None:
        self.name = "paged"
        self.block_size = block_size
        self._blocks = slots // block_size
        self._watermark = self._blocks // 100

    def _used(self, running: Running) -> int:
        return int((-(-running.lengths // self.block_size)).sum())

    def admit(self, request: int, length: int, prompt: int, output: int, running: Running) -> bool:
        wanted = -(-length // self.block_size)
        return self._used(running) + wanted + self._watermark <= self._blocks

    def give_back(self, request: int) -> None:
        """Blocks are counted from the running requests."""

    def fits(self, running: Running) -> bool:
        return self._used(running) <= self._blocks

    def steps_that_fit(self, running: Running) -> int:
        free = self._blocks - self._used(running)
        count = len(running.ids)
        if free >= count:
            return free // count * self.block_size
        # Free blocks serve those whose tails are full first; the next one after them must wait.
        left = -running.lengths % self.block_size
        return int(np.partition(left, free)[free]) + 1

    def held(self, running: Running, steps: int) -> tuple[int, int]:
        size = self.block_size
        total = 0
        for sign, end in ((1, running.lengths + steps - 1), (-1, running.lengths - 1)):
            full, rest = end // size, end % size  # the sum of ceil(t / size) for t = 1 to end
            total += sign * int((size * full * (full + 1) // 2 + rest * (full + 1)).sum())
        return total * size, 0


def _triangle(count: int) -> int:
    return count * (count + 1) // 2


class Simulation:
    """One trace under one allocator."""

    def __init__(self, trace: Trace, allocator: Allocator, slots: int) -> None:
        self._trace = trace
        self._allocator = allocator
        self._slots = slots
        self._running = Running()
        self._produced = np.zeros(len(trace), np.int64)
        """Tokens that a request had produced when it was preempted"""
        self._waiting: deque[int] = deque()
        self._arrived = 0
        self._finished = 0
        self._time = 0.0
        self._preemptions = 0
        self._sums = np.zeros(6)
        """Of saturated steps: their number, batch, and slots of tokens, reserved, internal and external"""

    def run(self, name: str) -> SimulationRow:
        """Until the last request has arrived and all those that waited have started."""
        while self._arrived < len(self._trace) or self._waiting:
            self._step()
        steps = max(1.0, self._sums[0])
        shares = self._sums[2:] / steps / self._slots
        return SimulationRow(
            trace=name,
            allocator=self._allocator.name,
            block_size=self._allocator.block_size,
            mean_batch=float(self._sums[1] / steps),
            tokens_share=float(shares[0]),
            reserved_share=float(shares[1]),
            internal_share=float(shares[2]),
            external_share=float(shares[3]),
            preemptions=self._preemptions,
            requests_per_s=self._finished / self._time,
        )

    def _step(self) -> None:
        """Everything up to the next step at which a request arrives to be admitted, ends or lacks memory."""
        running, trace = self._running, self._trace
        while self._arrived < len(trace) and trace.arrivals[self._arrived] <= self._time:
            self._waiting.append(self._arrived)
            self._arrived += 1
        while not self._allocator.fits(running):
            self._preempt()
        prompt_tokens = self._admit()
        if not len(running.ids):
            self._time = max(self._time, float(trace.arrivals[self._arrived]))
            return
        steps = min(int((running.finals - running.lengths).min()) + 1, self._allocator.steps_that_fit(running))
        if self._waiting:
            self._record(steps)
        elif self._arrived < len(trace):
            steps = min(steps, 1 + int((trace.arrivals[self._arrived] - self._time) / STEP_SECONDS))
        self._time += STEP_SECONDS * steps + PROMPT_TOKEN_SECONDS * prompt_tokens
        running.lengths += steps
        done = running.lengths > running.finals
        if done.any():
            for request in running.ids[done].tolist():
                self._allocator.give_back(request)
            self._finished += int(done.sum())
            running.keep(~done)

    def _admit(self) -> int:
        """Starts those that wait, first come, first served; the tokens that their first step computes."""
        trace, computed = self._trace, 0
        while self._waiting:
            request = self._waiting[0]
            prompt, output = int(trace.prompts[request]), int(trace.outputs[request])
            length = prompt + int(self._produced[request])
            if not self._allocator.admit(request, length, prompt, output, self._running):
                break
            self._waiting.popleft()
            # The last token that a request produces is never put into the cache.
            self._running.add(request, length, max(length, prompt + output - 1))
            computed += length
        return computed

    def _preempt(self) -> None:
        """The youngest gives its memory up and waits in front; it will compute its tokens again."""
        running = self._running
        request = int(running.ids[-1])
        self._produced[request] = int(running.lengths[-1]) - int(self._trace.prompts[request])
        self._allocator.give_back(request)
        running.keep(np.arange(len(running.ids)) < len(running.ids) - 1)
        self._waiting.appendleft(request)
        self._preemptions += 1

    def _record(self, steps: int) -> None:
        batch = len(self._running.ids)
        tokens = int(self._running.lengths.sum()) * steps + batch * _triangle(steps - 1)
        held, reserved = self._allocator.held(self._running, steps)
        unheld = self._slots * steps - held
        self._sums += (steps, batch * steps, tokens, reserved, held - tokens - reserved, unheld)


def simulate(distribution: LengthDistribution, allocator: Allocator, requests: int, seed: int) -> SimulationRow:
    """One allocator under a load that is more than it can serve."""
    trace = distribution.sample(requests, seed).arriving(RATES[distribution.name], seed)
    return Simulation(trace, allocator, POOL_SLOTS).run(distribution.name)


def contiguous_allocators() -> list[Allocator]:
    """The paper's three baselines, and two that find a place for every length."""
    return [
        Contiguous("max", BuddyArena(POOL_SLOTS), "contiguous-max"),
        Contiguous("pow2", BuddyArena(POOL_SLOTS), "contiguous-pow2"),
        Contiguous("oracle", BuddyArena(POOL_SLOTS), "contiguous-oracle"),
        Contiguous("pow2", FirstFitArena(POOL_SLOTS), "contiguous-pow2, first fit"),
        Contiguous("oracle", FirstFitArena(POOL_SLOTS), "contiguous-oracle, first fit"),
    ]


def measure_simulation(requests: int = 600, seed: int = 0) -> list[dict[str, Any]]:
    """Every allocator and block size on both traces."""
    rows = []
    for distribution in (SHAREGPT, ALPACA):
        count = requests * (1 if distribution is SHAREGPT else 4)
        for allocator in [*contiguous_allocators(), *(Paged(size) for size in BLOCK_SIZES)]:
            rows.append(asdict(simulate(distribution, allocator, count, seed)))
    return rows
