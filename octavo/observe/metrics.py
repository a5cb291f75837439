"""The metrics of one engine: counted in its thread as things happen, written out when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from octavo.observe.exposition import Counter, Histogram, Labels, family_lines
from octavo.observe.process import cpu_seconds, resident_bytes

if TYPE_CHECKING:
    from octavo.engine.stats import EngineStats
    from octavo.request_state import RequestState

OUTCOMES = ("stop", "length", "abort", "error")
"""How a request ends, the worst of its sequences last"""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_STEP_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class EngineMetrics:
    """Counters and histograms of requests and steps. A step costs a few microseconds here."""

    def __init__(self, labels: Labels) -> None:
        """`labels` say which engine this is (version, model)."""
        self._labels = dict(labels)
        self._computed_tokens = 0
        self.added = Counter("octavo_requests_added_total", "Requests that the engine has taken.")
        self.ended = Counter("octavo_requests_ended_total", "Requests that ended, by outcome.", "outcome", OUTCOMES)
        self.prompt_tokens = Counter("octavo_prompt_tokens_total", "Prompt tokens of the requests taken.")
        self.first_token = Histogram(
            "octavo_time_to_first_token_seconds", "From a request's arrival to its first token.", _SECONDS
        )
        self.per_token = Histogram(
            "octavo_time_per_output_token_seconds",
            "Mean time between a request's tokens after its first one, by request.",
            _SECONDS[:12],
        )
        self.request_seconds = Histogram("octavo_request_seconds", "From a request's arrival to its end.", _SECONDS)
        self.step_seconds = Histogram("octavo_step_seconds", "Time of a step of the engine.", _SECONDS[:14])
        self.step_tokens = Histogram("octavo_step_tokens", "Tokens computed in a step.", _STEP_TOKENS)

    # ---- in the engine's thread ----

    def count_added(self, state: RequestState) -> None:
        self.added.add()
        self.prompt_tokens.add(len(state.prompt.token_ids))

    def count_first_token(self, state: RequestState) -> None:
        if state.time_to_first_token is not None:
            self.first_token.observe(state.time_to_first_token)

    def count_ended(self, state: RequestState) -> None:
        self.ended.add(1, outcome(state))
        if state.elapsed is None:
            return
        self.request_seconds.observe(state.elapsed)
        tokens = max(len(sequence.token_ids) for sequence in state.sequences)
        if tokens > 1 and state.time_to_first_token is not None:
            self.per_token.observe((state.elapsed - state.time_to_first_token) / (tokens - 1))

    def count_step(self, seconds: float, computed_tokens: int) -> None:
        """`computed_tokens`: of all steps up to this one."""
        self.step_seconds.observe(seconds)
        self.step_tokens.observe(computed_tokens - self._computed_tokens)
        self._computed_tokens = computed_tokens

    # ---- when somebody asks ----

    def text(self, stats: EngineStats) -> str:
        """All of it in Prometheus' text format."""
        lines = [
            *family_lines("octavo_info", "gauge", "Which engine this is.", [(self._labels, 1)]),
            *_stats_lines(stats),
            *(line for metric in self._metrics() for line in metric.lines()),
            *_process_lines(),
        ]
        return "\n".join(lines) + "\n"

    def _metrics(self) -> tuple[Counter | Histogram, ...]:
        return (
            self.added,
            self.ended,
            self.prompt_tokens,
            self.first_token,
            self.per_token,
            self.request_seconds,
            self.step_seconds,
            self.step_tokens,
        )


def outcome(state: RequestState) -> str:
    """How a request has ended: its error, or the worst of its sequences' ends."""
    if state.error is not None:
        return "error"
    reasons = [sequence.finish_reason for sequence in state.sequences]
    return max((reason for reason in reasons if reason in OUTCOMES), key=OUTCOMES.index, default="abort")


def _stats_lines(stats: EngineStats) -> Iterator[str]:
    """What the engine counts itself, and its state now."""
    blocks = [
        ({"state": "free"}, stats.free_blocks),
        ({"state": "cached"}, stats.cached_blocks),
        ({"state": "referenced"}, stats.referenced_blocks),
    ]
    requests = [({"state": "running"}, stats.running), ({"state": "waiting"}, stats.waiting)]
    yield from family_lines("octavo_requests", "gauge", "Requests in the engine, by state.", requests)
    yield from family_lines("octavo_kv_blocks", "gauge", "KV blocks by state; their sum is the pool.", blocks)
    for name, help, value in (
        ("octavo_sequences_running", "Sequences that hold blocks.", stats.running_sequences),
        ("octavo_kv_blocks_shared", "KV blocks that are referenced more than once.", stats.shared_blocks),
        ("octavo_kv_blocks_committed", "KV blocks that may have memory behind them.", stats.committed_blocks),
        ("octavo_kv_blocks_peak", "Most KV blocks ever referenced at once.", stats.peak_blocks),
        ("octavo_kv_block_tokens", "Tokens that a KV block has room for.", stats.block_size),
        ("octavo_kv_slots_used", "Slots of referenced blocks that hold a token.", stats.used_slots),
        ("octavo_kv_slots_wasted", "Slots of referenced blocks that hold none.", stats.wasted_slots),
    ):
        yield from family_lines(name, "gauge", help, [({}, value)])
    for name, help, value in (
        ("octavo_generated_tokens_total", "Tokens generated.", stats.generated_tokens),
        ("octavo_computed_tokens_total", "Tokens computed, again after preemptions included.", stats.computed_tokens),
        ("octavo_draft_tokens_total", "Tokens computed on trial.", stats.drafted_tokens),
        ("octavo_draft_tokens_accepted_total", "Of these, those that were right.", stats.accepted_tokens),
        ("octavo_steps_total", "Steps of the engine.", stats.steps),
        ("octavo_preemptions_total", "Requests whose blocks were taken for older ones.", stats.preemptions),
        ("octavo_evictions_total", "Cached blocks given up for new content.", stats.evictions),
        (
            "octavo_prefix_cache_queried_tokens_total",
            "Prompt tokens looked up in the prefix cache when a request was first admitted.",
            stats.prefix_queried_tokens,
        ),
        (
            "octavo_prefix_cache_hit_tokens_total",
            "Of these, tokens found. What a preempted request finds again is not counted.",
            stats.prefix_hit_tokens,
        ),
    ):
        yield from family_lines(name, "counter", help, [({}, value)])


def _process_lines() -> Iterator[str]:
    yield from family_lines("process_cpu_seconds_total", "counter", "CPU time of this process.", [({}, cpu_seconds())])
    resident = resident_bytes()
    if resident is not None:
        yield from family_lines("process_resident_memory_bytes", "gauge", "Resident memory.", [({}, resident)])
