"""The sampler that the engine calls once a step."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from octavo.sampling.logprobs import LogprobArrays, SampledTokens, TopLogprobs
from octavo.sampling.reference_sampler import ReferenceSampler
from octavo.sampling.sampling_state import SamplingState

FloatArray = npt.NDArray[np.float32]
IdArray = npt.NDArray[np.int32]
_FLOAT32 = np.dtype(np.float32)


class _Implementation(Protocol):
    def sample(
        self,
        logits: FloatArray,
        states: Sequence[SamplingState],
        numbers: IdArray | None,
        token_ids: IdArray,
        arrays: LogprobArrays | None,
    ) -> None: ...

    def score(self, logits: FloatArray, token_ids: IdArray, arrays: LogprobArrays) -> None: ...

    def continuations(
        self, logits: FloatArray, states: list[SamplingState], top_ids: IdArray, top_logprobs: FloatArray
    ) -> None: ...


class Sampler:
    """Chooses one token a row, and reports logprobs; octavo.sampling says exactly how.

    name: "native" or "reference". The native one is used where octavo._native is built. Not thread-safe.
    """

    def __init__(
        self,
        vocab_size: int,
        threads: Any = None,
        *,
        use_native: bool | None = None,
        instruction_set: str = "",
    ) -> None:
        """threads: an octavo._native.ThreadTeam, which nobody else may use during a call; None: the
        caller's thread only.

        use_native: True raises ImportError where the native library is missing, False takes numpy, None
        takes what is there. instruction_set: "avx2", "avx512_vnni", "avx512_bf16" or "amx"; empty: the best of this
        machine.
        """
        self.vocab_size = vocab_size
        native = None if use_native is False else _load_native(required=bool(use_native))
        self.name = "reference" if native is None else "native"
        self._implementation: _Implementation = (
            ReferenceSampler(vocab_size)
            if native is None
            else _NativeSampler(native, vocab_size, threads, instruction_set)
        )
        self._look_at(())

    def sample(
        self, logits: FloatArray, states: Sequence[SamplingState], rows: Sequence[int] | None = None
    ) -> SampledTokens:
        """logits [R, vocab_size] float32, states [L]; rows [L]: the row of logits of each, no two the same; None: there
        are as many rows as states. The caller appends each token to its state.

        A row in which no token is possible gets the id NO_TOKEN; it does not disturb the others. The same tuple as in
        the last call saves looking at each of its states again.
        """
        num_rows = len(states)
        if rows is None:
            self._check_shape(logits, num_rows)
            numbers = None
        else:
            self._check_shape(logits, len(logits))
            numbers = np.array(rows, np.int32)
        if states is not self._states:
            self._look_at(states)
        token_ids = np.empty(num_rows, np.int32)
        if self._top < 0:
            self._implementation.sample(logits, states, numbers, token_ids, None)
            return SampledTokens(token_ids, self._no_logprobs, self._no_tops)
        arrays = LogprobArrays.empty(num_rows, self._top)
        self._implementation.sample(logits, states, numbers, token_ids, arrays)
        tops: list[TopLogprobs | None] = [
            None if state.num_logprobs < 0 else arrays.row(i, min(state.num_logprobs, self.vocab_size))
            for i, state in enumerate(states)
        ]
        return SampledTokens(token_ids, arrays.logprobs, tops)

    def _look_at(self, states: Sequence[SamplingState]) -> None:
        self._states = tuple(states)
        self._top = max([state.num_logprobs for state in states], default=-1)
        self._no_logprobs = np.zeros(len(states), np.float32)
        self._no_logprobs.flags.writeable = False
        self._no_tops: list[TopLogprobs | None] = [None] * len(states)

    def score(self, logits: FloatArray, token_ids: IdArray, top: int = 0) -> SampledTokens:
        """The raw logprob and rank of given ids [L], and the `top` most likely tokens of each row.

        Raises ValueError for ids outside the vocabulary.
        """
        token_ids = np.ascontiguousarray(token_ids, np.int32)
        self._check_shape(logits, len(token_ids))
        if len(token_ids) and not 0 <= token_ids.min() <= token_ids.max() < self.vocab_size:
            raise ValueError(
                f"token_ids are from {token_ids.min()} to {token_ids.max()}, must be from 0 to {self.vocab_size - 1}"
            )
        top = min(top, self.vocab_size)
        arrays = LogprobArrays.empty(len(token_ids), top)
        self._implementation.score(logits, token_ids, arrays)
        return SampledTokens(token_ids, arrays.logprobs, [arrays.row(i, top) for i in range(len(token_ids))])

    def continuations(self, logits: FloatArray, states: list[SamplingState], top: int) -> tuple[IdArray, FloatArray]:
        """The `top` likeliest next tokens of each row and their logprobs, [L, top], descending, equal ones by id.

        For beam search: steps 2 to 5 of octavo.sampling act on logprobs instead of logits, and nothing is normalised
        again. Only logprobs above LOGPROB_FLOOR are those of possible tokens. The logits stay as they are.
        """
        self._check_shape(logits, len(states))
        shape = (len(states), min(top, self.vocab_size))
        top_ids, top_logprobs = np.empty(shape, np.int32), np.empty(shape, np.float32)
        self._implementation.continuations(logits, states, top_ids, top_logprobs)
        return top_ids, top_logprobs

    def _check_shape(self, logits: FloatArray, num_rows: int) -> None:
        if logits.shape != (num_rows, self.vocab_size) or logits.dtype != _FLOAT32:
            raise ValueError(f"logits are {logits.dtype} {logits.shape}, must be float32 {(num_rows, self.vocab_size)}")


class _NativeSampler:
    """Hands rows to octavo._native.BatchSampler."""

    def __init__(self, native: Any, vocab_size: int, threads: Any, instruction_set: str) -> None:
        team = native.ThreadTeam(1) if threads is None else threads
        self._sampler = native.BatchSampler(vocab_size, team, instruction_set)
        self._row_class = native.SamplingRow
        self._states: Sequence[SamplingState] = ()
        self._rows: list[Any] = []

    def sample(
        self,
        logits: FloatArray,
        states: Sequence[SamplingState],
        numbers: IdArray | None,
        token_ids: IdArray,
        arrays: LogprobArrays | None,
    ) -> None:
        if states is not self._states:
            row_class = self._row_class
            self._states, self._rows = tuple(states), [state.native_row(row_class) for state in states]
        rows = self._rows
        if not logits.flags.carray:
            logits = np.require(logits, requirements=["C", "W"])
        if arrays is None:
            self._sampler.sample(logits, rows, numbers, token_ids)
        else:
            self._sampler.sample_with_logprobs(
                logits, rows, numbers, token_ids, arrays.logprobs, arrays.ranks, arrays.top_ids, arrays.top_logprobs
            )

    def score(self, logits: FloatArray, token_ids: IdArray, arrays: LogprobArrays) -> None:
        self._sampler.score(
            np.ascontiguousarray(logits),
            np.require(token_ids, requirements=["W"]),
            arrays.logprobs,
            arrays.ranks,
            arrays.top_ids,
            arrays.top_logprobs,
        )

    def continuations(
        self, logits: FloatArray, states: list[SamplingState], top_ids: IdArray, top_logprobs: FloatArray
    ) -> None:
        rows = [state.native_row(self._row_class) if state.changes_logits else None for state in states]
        self._sampler.continuations(np.ascontiguousarray(logits), rows, top_ids, top_logprobs)


def _load_native(required: bool) -> Any:
    try:
        return importlib.import_module("octavo._native")
    except ImportError:
        if required:
            raise
        return None
