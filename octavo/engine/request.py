"""Requests and their sequences."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from octavo.engine.block_table import UNCHANGED, BlockTable
from octavo.engine.cache_key import CacheFields
from octavo.engine.ngram_lookup import NgramLookup
from octavo.engine.prefix_cache import PrefixNode
from octavo.engine.sampling_interface import Constraint, NewState, SamplingOptions
from octavo.engine.sequence_update import TokenLogprob

if TYPE_CHECKING:
    from octavo.engine.beam_search import BeamSearch, StopSearch


class RequestStatus(enum.Enum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """One token stream. It owns its block tables; the KV cache manager writes them."""

    __slots__ = (
        "changed_from",
        "digests",
        "finish_reason",
        "index",
        "lookup",
        "max_len",
        "min_len",
        "next_seal",
        "node",
        "num_computed_tokens",
        "num_sealed",
        "num_told",
        "request",
        "row",
        "state",
        "stop_ids",
        "tables",
        "token_ids",
        "writable_end",
    )

    def __init__(
        self,
        request: Request,
        index: int,
        state: Any,
        stop_ids: frozenset[int],
        min_len: int,
        max_len: int,
    ) -> None:
        self.request = request
        self.index = index
        self.token_ids = list(request.prompt_token_ids)
        """Prompt and output"""
        self.state = state
        """The sampler's"""
        self.stop_ids = stop_ids
        self.min_len = min_len
        """Length in tokens, prompt included, from which stop_ids end it"""
        self.max_len = max_len
        """Length at which it ends"""
        self.finish_reason: str | None = None
        self.num_computed_tokens = 0
        """Tokens whose KV is in the cache"""
        self.tables: tuple[BlockTable, ...] = ()
        """One per KV group; empty while it holds no blocks"""
        self.writable_end = 0
        """Positions from num_computed_tokens up to here lie in blocks that are mapped and private"""
        self.node: PrefixNode | None = None
        """Of its last sealed block, or its namespace's root; None while it holds no blocks"""
        self.num_sealed = 0
        """Blocks that are in the prefix cache, from the first one on"""
        self.next_seal = 0
        """num_computed_tokens at which the next block seals"""
        self.digests: list[bytes] = []
        """Chain digests of its full blocks, as far as somebody asked for them"""
        self.num_told = 0
        """Tokens, the prompt's included, that updates have told of; 0 where each is told of as it comes"""
        self.lookup: NgramLookup | None = None
        """Predicts its tokens, once somebody has asked"""
        self.row = -1
        self.changed_from = UNCHANGED

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.request.num_prompt_tokens

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    def take_untold(self, end: int) -> list[int]:
        """Its tokens up to `end` of which nobody was told; now somebody is."""
        if not self.num_told:
            return []
        first, self.num_told = self.num_told, end
        return self.token_ids[first:end]


class Request:
    """One prompt and what to do with it; the engine adds its sequences.

    The sequences of a request share one prefill. `active` ones hold block tables, `pending` ones do not yet
    (or not any more); finished ones are in neither.
    """

    __slots__ = (
        "active",
        "arrival",
        "beam_search",
        "cache_fields",
        "constraint",
        "namespace",
        "num_cached_tokens",
        "num_preemptions",
        "params",
        "pending",
        "prompt_logprobs",
        "prompt_token_ids",
        "request_id",
        "sequences",
        "status",
        "stop_search",
        "told_late",
    )

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Iterable[int],
        params: SamplingOptions,
        cache_salt: str | bytes | None = None,
        cache_fields: CacheFields = (),
        stop_search: StopSearch | None = None,
        constraint: Constraint | None = None,
        told_late: bool = False,
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids = [int(token) for token in prompt_token_ids]
        self.params = params
        salt: CacheFields = () if cache_salt is None else (("tenant_salt", cache_salt),)
        self.cache_fields: CacheFields = (*salt, *cache_fields)
        """What else its KV depends on: its prefix is shared only with requests that have the same fields"""
        self.namespace = b""
        self.arrival = -1
        """Number in order of arrival"""
        self.status = RequestStatus.WAITING
        self.sequences: list[Sequence] = []
        """All n of them; empty before it is added and after it has finished"""
        self.active: list[Sequence] = []
        self.pending: list[Sequence] = []
        self.num_preemptions = 0
        self.num_cached_tokens = 0
        """Prompt tokens that were in the prefix cache when it was first admitted"""
        self.prompt_logprobs: list[TokenLogprob | None] | None = None
        """Grows with the prefill where params.prompt_logprobs is set; its first entry is None"""
        self.stop_search = stop_search
        """Finds stop strings in beams; those of other sequences are found by the caller"""
        self.constraint = constraint
        """What limits the tokens of its sequences, each of which gets a fork"""
        self.told_late = told_late
        """Nobody needs each token as it comes: updates come with first tokens and at ends and bring the others, or
        take_untold() does"""
        self.beam_search: BeamSearch | None = None
        """Where its sequences are beams"""

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_unfinished(self) -> int:
        return len(self.active) + len(self.pending)

    @property
    def num_sequences(self) -> int:
        """Sequences that it has or may come to have."""
        count = len(self.active) + len(self.pending)
        return count if self.beam_search is None else max(count, self.beam_search.width)

    @property
    def scores_prompt(self) -> bool:
        """Whether prompt tokens still wait for their logprobs."""
        entries = self.prompt_logprobs
        return entries is not None and len(entries) < len(self.prompt_token_ids)

    @property
    def resumes_siblings(self) -> bool:
        """Whether sequences with output wait for the leader's prompt blocks."""
        return bool(self.pending) and self.pending[0].num_output_tokens > 0

    def take_untold(self) -> list[tuple[int, list[int]]]:
        """(index, tokens that nobody was told of) of those sequences that go on and have any; now somebody is."""
        untold = []
        for sequence in self.sequences:
            end = len(sequence.token_ids)
            if 0 < sequence.num_told < end and sequence.finish_reason is None:
                untold.append((sequence.index, sequence.take_untold(end)))
        return untold


@lru_cache(maxsize=256)
def _id_set(ids: frozenset[int]) -> frozenset[int]:
    """Equal sets as one: it stays in the processor's cache from sequence to sequence."""
    return ids


def new_sequences(
    request: Request, number: int, new_state: NewState, seed: int, eos_token_ids: tuple[int, ...], max_len: int
) -> list[Sequence]:
    """The sequences of a request at their beginning. A constraint knows when an output may end, and then it does."""
    params, constraint = request.params, request.constraint
    min_len = request.num_prompt_tokens
    if constraint is None:
        min_len += params.min_tokens
    ends = eos_token_ids if constraint is not None or not params.ignore_eos else ()
    stop_ids = _id_set(frozenset((*params.stop_token_ids, *ends)))
    sequences = []
    for index in range(number):
        state = new_state(params, request.prompt_token_ids, seed, index, eos_token_ids)
        if constraint is not None:
            state.constrain(constraint.fork())
        sequences.append(Sequence(request, index, state, stop_ids, min_len, max_len))
    return sequences
