"""The engine: requests in, tokens out, one step at a time."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from octavo.beam_search_params import BeamSearchParams
from octavo.engine.beam_search import BeamSearch
from octavo.engine.beam_steps import BeamRows, advance_beams, beam_updates, score_beams, search_of
from octavo.engine.block_pool import BlockPool
from octavo.engine.cache_key import CacheFields, HashFunction, encode_fields, sha256
from octavo.engine.engine_config import EngineConfig
from octavo.engine.kv_cache_manager import KVCacheManager
from octavo.engine.prefix_cache import PrefixCache
from octavo.engine.prompt_scores import keep_scores
from octavo.engine.request import Request, Sequence, new_sequences
from octavo.engine.request_limits import check_request, longest_sequence
from octavo.engine.sampling_interface import NewState, SampledTokens, Sampler
from octavo.engine.scheduler import Scheduler
from octavo.engine.sequence_update import NO_TOKEN, SequenceUpdate, TokenLogprob, token_logprob
from octavo.engine.speculation import new_speculation
from octavo.engine.stats import EngineStats
from octavo.engine.step_builder import BuiltStep, Drafted, PromptRows, StepBuilder
from octavo.engine.step_plan import NO_DRAFTS, StepPlan

if TYPE_CHECKING:
    from octavo.executors.interface import Executor
    from octavo.program.operations import Program

__all__ = ["Engine", "EngineConfig", "EngineStats", "Request", "SequenceUpdate", "TokenLogprob"]


class Engine:
    """Runs many requests over one executor by continuous batching.

    Not thread-safe: one thread calls it, and never from within a step. Reserves the executor's KV memory.
    """

    def __init__(
        self,
        executor: Executor,
        sampler: Sampler,
        program: Program,
        config: EngineConfig,
        eos_token_ids: Collection[int],
        *,
        new_state: NewState | None = None,
        hash_function: HashFunction = sha256,
        manager_type: type[KVCacheManager] = KVCacheManager,
    ) -> None:
        """new_state makes the sampler's state of a sequence (default: octavo.sampling's); hash_function is
        for tests, manager_type for other policies of memory in benchmarks."""
        windows = tuple(group.window for group in program.kv_groups)
        self.config = config
        self.executor = executor
        self.sampler = sampler
        self.pool = BlockPool(config.num_blocks, config.segment_blocks)
        self.manager = manager_type(
            pool=self.pool,
            prefix_cache=PrefixCache(len(windows), hash_function) if config.enable_prefix_caching else None,
            block_size=config.block_size,
            windows=windows,
            max_rows=config.max_num_seqs,
            max_chunk=min(config.max_num_batched_tokens, config.max_model_len),
        )
        self.scheduler = Scheduler(
            self.manager, config.max_num_seqs, config.max_num_batched_tokens, config.max_logits_rows
        )
        self.speculation = new_speculation(config.max_draft_tokens, program.vocab_size)
        self._builder = StepBuilder(self.manager)
        self._vocab_size = program.vocab_size
        self._eos = tuple(sorted(set(eos_token_ids)))
        self._new_state = new_state or _default_new_state()
        self._requests: dict[str, Request] = {}
        self._late_updates: list[SequenceUpdate] = []
        self.computed_tokens = 0
        self._generated_tokens = 0
        self.steps = 0
        executor.reserve_kv(config.num_blocks, config.block_size)

    # ---- requests ----

    @property
    def has_unfinished(self) -> bool:
        """Whether step() has something to do or to tell."""
        return bool(self._requests or self._late_updates)

    def add_request(self, request: Request) -> None:
        """Queues a request. Raises ValueError at once for what is malformed or can never fit."""
        if request.request_id in self._requests:
            raise ValueError(f"request_id={request.request_id!r}: is in use by a request that has not finished")
        check_request(request, self.config, self._vocab_size)
        params = request.params
        max_len = longest_sequence(request, self.config, self.manager)
        seed = secrets.randbits(63) if params.seed is None else params.seed
        config = self.config
        fields: CacheFields = (("cache_namespace", config.cache_namespace), ("block_size", config.block_size))
        request.namespace = encode_fields((*fields, *request.cache_fields))
        request.prompt_logprobs = None if params.prompt_logprobs is None else [None]
        number = 1 if isinstance(params, BeamSearchParams) else params.n
        request.sequences = new_sequences(request, number, self._new_state, seed, self._eos, max_len)
        request.pending = list(request.sequences)
        if isinstance(params, BeamSearchParams):
            request.beam_search = BeamSearch(params, request.sequences[0], request.stop_search)
        self._requests[request.request_id] = request
        self.scheduler.add(request)

    def abort(self, request_id: str) -> bool:
        """Ends a request in any state. False where there is no such request (any more). No update follows."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return False
        self.scheduler.finish_all(request, "abort")
        return True

    def finish(self, request_id: str, index: int, reason: str) -> bool:
        """Ends one sequence for a reason found outside (a stop string). False where it has ended, or is a beam."""
        request = self._requests.get(request_id)
        if request is None or request.beam_search is not None or request.sequences[index].finished:
            return False
        self._finish(request.sequences[index], reason)
        return True

    def untold(self, request_id: str) -> list[tuple[int, list[int]]]:
        """Of a request that is told late: (index, tokens since the last update or call) of sequences that have any."""
        request = self._requests.get(request_id)
        return [] if request is None else request.take_untold()

    # ---- one step ----

    def step(self) -> list[SequenceUpdate]:
        """Computes one step and returns its new tokens: those of a sequence in order, several where a draft was right;
        those of beams come at the end.

        What fails in the handling of one request ends that request (finish_reason "error"). What the executor
        or the sampler raises ends all of them and is raised here; their last updates come with the next call.
        """
        updates, self._late_updates = self._late_updates, []
        if not self._requests:
            return updates
        started = time.perf_counter()
        try:
            drafts = NO_DRAFTS if self.speculation is None else self.speculation.drafts(self.scheduler.running)
            plan = self.scheduler.schedule(drafts)
            if not plan.sequences:
                raise RuntimeError(f"{len(self._requests)} requests, but none of them can advance")
            built = self._builder.build(plan)
            logits = self.executor.execute(built.step)
            scores = [(rows, self._score(rows, logits)) for rows in built.prompt_rows]
            beams = score_beams(built, logits, self.sampler) if built.beams else []
            sampled = self._sample(built, logits)
        except BaseException as error:
            self._fail_all(error, updates)
            raise
        self.steps += 1
        self.computed_tokens += len(built.step.token_ids)
        self._commit(plan, updates)
        for rows, score in scores:
            self._append_scores(rows, score)
        for request in built.forking:
            if request.active:
                self.scheduler.fork_sampled(request)
        if sampled is not None:
            self._append_sampled(built.sampled, sampled, updates)
        if built.drafted:
            self._accept_drafts(built.drafted, logits, updates)
        for group in beams:
            self._advance_beams(group, updates)
        if self.speculation is not None:
            self.speculation.learn(plan, time.perf_counter() - started)
        return updates

    def _sample(self, built: BuiltStep, logits: npt.NDArray[np.float32]) -> SampledTokens | None:
        if not built.sampled:
            return None
        rows = built.sample_rows
        if rows is not None and built.forking:  # several of them sample from one row, which the sampler may overwrite
            logits, rows = logits[rows], None
        sampled = self.sampler.sample(logits, built.states, rows)
        built.sampled_ids = sampled.token_ids
        return sampled

    def _score(self, rows: PromptRows, logits: npt.NDArray[np.float32]) -> SampledTokens:
        tokens = rows.request.prompt_token_ids[rows.first_token : rows.first_token + rows.count]
        # A copy: the sampler may overwrite what it gets, and sampling reads other rows of the same array.
        part = logits[rows.first_row : rows.first_row + rows.count].copy()
        return self.sampler.score(part, np.array(tokens, np.int32), rows.request.params.prompt_logprobs or 0)

    def _commit(self, plan: StepPlan, updates: list[SequenceUpdate]) -> None:
        """The planned tokens are computed, but for drafts, which may be wrong."""
        for sequence, count in zip(plan.sequences, plan.counts, strict=True):
            if sequence.finish_reason is None:
                if plan.drafts:
                    count -= len(plan.drafts.get(sequence, ()))
                self._advance(sequence, count, updates)

    def _advance(self, sequence: Sequence, count: int, updates: list[SequenceUpdate]) -> None:
        """The KV of so many more tokens is there: full blocks seal."""
        sequence.num_computed_tokens += count
        if sequence.num_computed_tokens >= sequence.next_seal:
            try:
                self.manager.seal(sequence)
            except Exception as error:
                self._fail(sequence.request, error, updates)

    def _append_scores(self, rows: PromptRows, score: SampledTokens) -> None:
        entries = rows.request.prompt_logprobs
        assert entries is not None
        logprobs: list[float] = score.logprobs.tolist()
        entries += [token_logprob(value, top) for value, top in zip(logprobs, score.tops, strict=True)]
        if not rows.request.scores_prompt:
            keep_scores(self.manager, rows.request)

    def _append_sampled(self, sequences: list[Sequence], sampled: SampledTokens, updates: list[SequenceUpdate]) -> None:
        """Sequences grow; those that end give their blocks back."""
        for i, token in enumerate(sampled.token_ids.tolist()):
            sequence = sequences[i]
            if sequence.finish_reason is None:
                try:
                    update = self._append(sequence, token, sampled, i)
                    if update is not None:
                        updates.append(update)
                except Exception as error:
                    self._fail(sequence.request, error, updates)

    def _accept_drafts(
        self, drafted: list[Drafted], logits: npt.NDArray[np.float32], updates: list[SequenceUpdate]
    ) -> None:
        """Samples from the rows of drafts, one after the other, as long as the token before was the drafted one."""
        assert self.speculation is not None
        for depth in itertools.count():
            drafted = [entry for entry in drafted if entry.is_right(depth)]
            self.speculation.accepted_tokens += len(drafted)
            for entry in drafted:
                self._advance(entry.sequence, 1, updates)
            drafted = [entry for entry in drafted if not entry.sequence.finished]  # sealing may have failed
            if not drafted:
                return
            sequences = [entry.sequence for entry in drafted]
            states = tuple([sequence.state for sequence in sequences])
            try:
                sampled = self.sampler.sample(logits, states, [entry.first_row + depth + 1 for entry in drafted])
            except BaseException as error:
                self._fail_all(error, updates)
                raise
            self._append_sampled(sequences, sampled, updates)

    def _append(self, sequence: Sequence, token: int, sampled: SampledTokens, row: int) -> SequenceUpdate | None:
        """The sequence's next token, and the update that tells of it, if one does."""
        if token < 0:
            raise ValueError("no token can be chosen: its logits are not numbers, or nothing is allowed")
        sequence.state.append(token)
        token_ids = sequence.token_ids
        token_ids.append(token)
        self._generated_tokens += 1
        reason = None
        length = len(token_ids)
        if token in sequence.stop_ids and length >= sequence.min_len:
            reason = "stop"
        elif length >= sequence.max_len:
            reason = "length"
        elif sequence.num_told:
            return None
        request = sequence.request
        update = SequenceUpdate(
            request.request_id,
            sequence.index,
            token,
            None if request.params.logprobs is None else token_logprob(sampled.logprobs[row], sampled.tops[row]),
            reason,
            token if reason == "stop" and token in request.params.stop_token_ids else None,
            request.num_cached_tokens,
            request.prompt_logprobs if request.prompt_logprobs and sequence.num_output_tokens == 1 else None,
            earlier=sequence.take_untold(length - 1),
        )
        if reason is not None:
            self._finish(sequence, reason)
        elif request.told_late:
            sequence.num_told = length
        return update

    def _advance_beams(self, rows: BeamRows, updates: list[SequenceUpdate]) -> None:
        """The beams of one request grow and fork; its answers come with the end of the search."""
        request = rows.request
        if not request.active:
            return  # it has failed in this step
        try:
            self._generated_tokens += advance_beams(rows, self.manager, self.sampler)
            updates += beam_updates(request)
            if search_of(request).done:
                self.scheduler.finish_all(request, "stop")
                del self._requests[request.request_id]
        except Exception as error:
            self._fail(request, error, updates)

    # ---- ends ----

    def _finish(self, sequence: Sequence, reason: str) -> None:
        request = sequence.request
        self.scheduler.finish(sequence, reason)
        if not request.num_unfinished:
            del self._requests[request.request_id]

    def _fail(self, request: Request, error: BaseException, updates: list[SequenceUpdate]) -> None:
        """Ends one request with an error."""
        message = f"{type(error).__name__}: {error}"
        for seq in request.sequences:
            if not seq.finished:
                cached, untold = request.num_cached_tokens, seq.take_untold(len(seq.token_ids))
                end = SequenceUpdate(request.request_id, seq.index, NO_TOKEN, None, "error", None, cached)
                end.error, end.earlier = message, untold
                updates.append(end)
        self.scheduler.finish_all(request, "error", keep_tails=False)
        self._requests.pop(request.request_id, None)

    def _fail_all(self, error: BaseException, updates: list[SequenceUpdate]) -> None:
        """Ends all requests; the next step tells of it, after `updates`. Blocks that were not sealed before are free
        again: nothing half computed stays."""
        self._late_updates = updates
        self.manager.take_copies()
        for request in list(self._requests.values()):
            self._fail(request, error, self._late_updates)

    # ---- memory and figures ----

    def close(self) -> None:
        """Lets go of the sampler, which may share the executor's threads. No step may follow."""
        del self.sampler

    def commit_ahead(self, num_blocks: int) -> Iterator[None]:
        """Commits the memory of the next blocks that requests will take, a block an iteration: then these need not wait
        for it. Nothing else may happen to the engine before the iteration ends or is given up."""
        for block in self.pool.upcoming(num_blocks):
            self.executor.commit_blocks(block, 1)
            yield

    def release_idle_memory(self, keep_blocks: int = 0) -> int:
        """Gives the memory of segments without any content back to the system: number of blocks given back.

        `keep_blocks`: so many of them stay ready, the lowest ones, which are taken first.
        """
        released = 0
        for first, count in self.pool.releasable_segments():
            kept = min(count, keep_blocks)
            keep_blocks -= kept
            if kept:
                self.pool.order_segment(first)
            else:
                self.pool.close_segment(first)
            if kept < count:
                self.executor.release_blocks(first + kept, count - kept)
                released += count - kept
        return released

    def drop_prefix_cache(self) -> None:
        """Forgets all cached blocks that nothing refers to."""
        self.pool.evict_all()

    def stats(self) -> EngineStats:
        """Figures of this moment; call it between steps."""
        pool, scheduler = self.pool, self.scheduler
        active = [sequence for request in scheduler.running for sequence in request.active]
        used, wasted = self.manager.used_and_wasted_slots(active)
        return EngineStats(
            total_blocks=pool.num_blocks,
            free_blocks=pool.num_free,
            cached_blocks=pool.num_cached,
            referenced_blocks=pool.num_referenced,
            shared_blocks=pool.num_shared,
            committed_blocks=pool.num_committed,
            peak_blocks=pool.peak_referenced,
            block_size=self.config.block_size,
            used_slots=used,
            wasted_slots=wasted,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            running_sequences=len(active),
            preemptions=scheduler.num_preemptions,
            evictions=pool.num_evictions,
            prefix_queried_tokens=scheduler.prefix_queried_tokens,
            prefix_hit_tokens=scheduler.prefix_hit_tokens,
            computed_tokens=self.computed_tokens,
            generated_tokens=self._generated_tokens,
            drafted_tokens=0 if self.speculation is None else self.speculation.drafted_tokens,
            accepted_tokens=0 if self.speculation is None else self.speculation.accepted_tokens,
            steps=self.steps,
        )


def _default_new_state() -> NewState:
    from octavo.sampling.sampling_state import SamplingState

    return SamplingState
