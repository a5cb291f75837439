"""Beams in the engine: from rows of logits to sequences that grow, fork and end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.engine.beam_search import Beam, BeamSearch, Extension, FinishedBeam
from octavo.engine.engine_config import EngineConfig
from octavo.engine.kv_cache_manager import KVCacheManager
from octavo.engine.request import Request, Sequence
from octavo.engine.sampling_interface import Sampler
from octavo.engine.sequence_update import NO_TOKEN, BeamScore, SequenceUpdate, TokenLogprob, token_logprob
from octavo.engine.step_builder import BuiltStep


@dataclass(frozen=True, slots=True)
class BeamRows:
    """One request's beams in a step, in the order of its search, and the likeliest tokens of each."""

    request: Request
    logits: npt.NDArray[np.float32] | None
    """Where logprobs are wanted; a copy, as the sampler may overwrite what it gets"""
    token_ids: list[list[int]]
    logprobs: list[list[float]]


def check_width(width: int, config: EngineConfig) -> None:
    """All beams of a request compute their last token in one step. Raises ValueError where they never could."""
    for name in ("max_num_seqs", "max_num_batched_tokens", "max_logits_rows"):
        limit = getattr(config, name)
        if width > limit:
            raise ValueError(f"beam_width={width}: must be at most {name}={limit}")


def score_beams(built: BuiltStep, logits: npt.NDArray[np.float32], sampler: Sampler) -> list[BeamRows]:
    """The likeliest tokens of all beams of a step, by one call."""
    sequences = built.beams
    requests = list({id(sequence.request): sequence.request for sequence in sequences}.values())
    top = max(search_of(request).num_candidates for request in requests)
    rows = logits if len(built.beam_rows) == len(logits) else logits[built.beam_rows]
    ids, logprobs = sampler.continuations(rows, [sequence.state for sequence in sequences], top)
    place = {id(sequence): number for number, sequence in enumerate(sequences)}
    groups = []
    for request in requests:
        search = search_of(request)
        places = [place[id(beam.sequence)] for beam in search.beams]
        width = search.num_candidates
        kept = None if search.params.logprobs is None else rows[places]
        groups.append(BeamRows(request, kept, ids[places, :width].tolist(), logprobs[places, :width].tolist()))
    return groups


def advance_beams(rows: BeamRows, manager: KVCacheManager, sampler: Sampler) -> int:
    """Chooses the next beams of a request and lets its sequences grow and fork. How many tokens were chosen."""
    search = search_of(rows.request)
    running, ended = search.choose(rows.token_ids, rows.logprobs)
    chosen = [*running, *(extension for extension, _ in ended)]
    entries = _Logprobs(rows, search, sampler, chosen)
    for extension, finished in ended:
        finished.logprobs = entries.of(extension)
    histories = [entries.of(extension) for extension in running]
    if not search.done:
        _grow(rows.request, search, running, manager)
        for beam, history in zip(search.beams, histories, strict=True):
            beam.logprobs = history
    return len(chosen)


def search_of(request: Request) -> BeamSearch:
    """The search of a request that has one."""
    assert request.beam_search is not None
    return request.beam_search


def beam_updates(request: Request) -> Iterator[SequenceUpdate]:
    """Once that the search has begun, and all tokens of the best finished beams when it is done."""
    search = search_of(request)
    if not search.announced:
        search.announced = True
        begun = SequenceUpdate(request.request_id, 0, NO_TOKEN, None, None, None, request.num_cached_tokens)
        begun.prompt_logprobs = request.prompt_logprobs
        yield begun
    for index in range(search.params.n if search.done else 0):
        if index < len(search.finished):
            yield from _updates_of(request, index, search.finished[index])
        else:  # so few tokens were allowed that there are fewer beams
            yield SequenceUpdate(request.request_id, index, NO_TOKEN, None, "stop", None, request.num_cached_tokens)


def _updates_of(request: Request, index: int, beam: FinishedBeam) -> Iterator[SequenceUpdate]:
    for place, token in enumerate(beam.token_ids):
        last = place + 1 == len(beam.token_ids)
        yield SequenceUpdate(
            request.request_id,
            index,
            token,
            beam.logprobs[place] if beam.logprobs else None,
            beam.finish_reason if last else None,
            beam.stop_reason if last else None,
            request.num_cached_tokens,
            beam=BeamScore(beam.total, beam.score) if last else None,
        )


class _Logprobs:
    """The logprobs of chosen tokens, where they were asked for: the model's own, whatever ranked the beams."""

    def __init__(self, rows: BeamRows, search: BeamSearch, sampler: Sampler, chosen: list[Extension]) -> None:
        self._entries: dict[int, TokenLogprob] = {}
        top = search.params.logprobs
        if top is None or rows.logits is None or not chosen:
            return
        number = {id(beam): place for place, beam in enumerate(search.beams)}
        logits = rows.logits[[number[id(extension.parent)] for extension in chosen]]
        scored = sampler.score(logits, np.array([extension.token_id for extension in chosen], np.int32), top)
        values: list[float] = scored.logprobs.tolist()
        for extension, value, each in zip(chosen, values, scored.tops, strict=True):
            self._entries[id(extension)] = token_logprob(value, each)

    def of(self, extension: Extension) -> list[TokenLogprob]:
        """Of the whole output that an extension makes."""
        if not self._entries:
            return []
        return [*extension.parent.logprobs, self._entries[id(extension)]]


def _grow(request: Request, search: BeamSearch, running: list[Extension], manager: KVCacheManager) -> None:
    """Each beam's first child goes on in its sequence, further ones in forks; childless beams give their blocks
    back, before anything else takes a row or an index."""
    parents = {id(extension.parent) for extension in running}
    for beam in search.beams:
        if id(beam) not in parents:
            manager.release(beam.sequence)
    taken = {beam.sequence.index for beam in search.beams if id(beam) in parents}
    free = iter(index for index in range(search.width) if index not in taken)
    used: set[int] = set()
    sequences = []
    for extension in running:
        parent = extension.parent.sequence
        if id(parent) in used:
            sequences.append(_fork(request, parent, next(free), manager))
        else:
            used.add(id(parent))
            sequences.append(parent)
    for sequence, extension in zip(sequences, running, strict=True):
        sequence.token_ids.append(extension.token_id)
        sequence.state.append(extension.token_id)
    search.beams = [
        Beam(sequence, extension.total, [], extension.text)
        for sequence, extension in zip(sequences, running, strict=True)
    ]
    request.active = sequences
    request.sequences = sequences.copy()


def _fork(request: Request, parent: Sequence, index: int, manager: KVCacheManager) -> Sequence:
    child = Sequence(request, index, parent.state.fork(), parent.stop_ids, parent.min_len, parent.max_len)
    child.token_ids = parent.token_ids.copy()
    manager.fork(parent, child, parent.num_computed_tokens)
    return child
