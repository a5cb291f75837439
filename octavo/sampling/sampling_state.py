"""What one sequence carries from token to token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from octavo.sampling_params import SamplingParams

_MASK64 = 2**64 - 1


class Constraint(Protocol):
    """What decides which tokens one sequence may have next; see octavo.guidance."""

    @property
    def mask(self) -> npt.NDArray[np.uint32]:
        """As SamplingState.allowed_mask; always the same array, which advance() changes."""

    def advance(self, token_id: int) -> None:
        """Takes over the next token. Raises ValueError where it cannot go on."""

    def fork(self) -> Self:
        """One of its own for a sequence that goes on from here."""


class SamplingState:
    """The parameters, the position and the token counts of one sequence. Not tied to a batch, a row or a
    sampler.

    It lives as long as its sequence: preemption leaves it as it is. One thread at a time may use it.
    """

    __slots__ = (
        "_allowed_mask",
        "_native",
        "constraint",
        "counts",
        "end_ids",
        "num_logprobs",
        "output_len",
        "params",
        "seed",
        "sequence_index",
    )

    def __init__(
        self,
        params: SamplingParams,
        prompt_token_ids: Sequence[int],
        seed: int,
        sequence_index: int = 0,
        eos_token_ids: Sequence[int] = (),
    ) -> None:
        """params: also BeamSearchParams, for Sampler.continuations; seed: any integer, of which 64 bits count;
        sequence_index: 0 to n - 1, which answer of the request it is."""
        self.params = params
        self.num_logprobs = -1 if params.logprobs is None else params.logprobs
        """How many of the likeliest tokens are reported with each; -1 for nothing at all"""
        self.seed = seed & _MASK64
        self.sequence_index = sequence_index
        self.output_len = 0
        self.end_ids: tuple[int, ...] = ()
        """Forbidden while output_len < min_tokens."""
        if params.min_tokens:
            eos = () if params.ignore_eos else tuple(eos_token_ids)
            self.end_ids = tuple(dict.fromkeys((*eos, *params.stop_token_ids)))
        self.counts: dict[int, int] | None = None
        """Token id -> occurrences in the output, 0 for prompt tokens; None where there are no penalties."""
        if params.repetition_penalty != 1.0:
            self.counts = dict.fromkeys(prompt_token_ids, 0)
        elif params.presence_penalty or params.frequency_penalty:
            self.counts = {}
        self.constraint: Constraint | None = None
        """What decides allowed_mask from token to token; None where nothing does"""
        self._allowed_mask: npt.NDArray[np.uint32] | None = None
        self._native: Any = None  # the native sampler's copy of all this; made when first sampled

    def constrain(self, constraint: Constraint) -> None:
        """From now on `constraint`, which is this sequence's own, decides what is allowed, min_tokens included."""
        self.constraint = constraint
        self.end_ids = ()
        self.allowed_mask = constraint.mask

    def append(self, token_id: int) -> None:
        """Takes over the next token of the output. Raises ValueError where a constraint cannot go on."""
        self.output_len += 1
        if self.counts is not None:
            self.counts[token_id] = self.counts.get(token_id, 0) + 1
        if self._native is not None:
            self._native.append(token_id)
        if self.constraint is not None:
            self.constraint.advance(token_id)

    def fork(self) -> Self:
        """A state of its own for a sequence that goes on from here."""
        child = type(self).__new__(type(self))
        child.params, child.seed, child.sequence_index = self.params, self.seed, self.sequence_index
        child.num_logprobs = self.num_logprobs
        child.output_len, child.end_ids = self.output_len, self.end_ids
        child.counts = None if self.counts is None else self.counts.copy()
        child._allowed_mask, child._native = self._allowed_mask, None
        child.constraint = None
        if self.constraint is not None:
            child.constrain(self.constraint.fork())
        return child

    @property
    def changes_logits(self) -> bool:
        """Whether the next token depends on anything but the model's own distribution and randomness."""
        params = self.params
        return bool(
            self.counts is not None
            or self._allowed_mask is not None
            or params.logit_bias
            or self.output_len < params.min_tokens
        )

    @property
    def allowed_mask(self) -> npt.NDArray[np.uint32] | None:
        """[ceil(vocab_size / 32)] uint32: bit i % 32 of word i // 32 permits token i. None permits all."""
        return self._allowed_mask

    @allowed_mask.setter
    def allowed_mask(self, mask: npt.NDArray[np.uint32] | None) -> None:
        if mask is not None and not _is_mask(mask):
            shown = f"{mask.dtype} {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
            raise ValueError(f"allowed_mask is {shown}, must be a contiguous 1-d uint32 array")
        self._allowed_mask = mask
        if self._native is not None:
            self._native.set_allowed_mask(mask)

    def native_row(self, row_class: Any) -> Any:
        """The counterpart that octavo._native samples with (its class SamplingRow); kept up to date by
        append."""
        if self._native is None:
            self._native = self._make_native(row_class)
        return self._native

    def _make_native(self, row_class: Any) -> Any:
        params = self.params
        bias = params.logit_bias or {}
        row = row_class.make(
            inverse_temperature=inverse_temperature(params),
            top_p=1.0 if params.is_greedy else params.top_p,
            top_k=0 if params.is_greedy else max(params.top_k, 0),
            min_p=0.0 if params.is_greedy else params.min_p,
            repetition_penalty=params.repetition_penalty,
            frequency_penalty=params.frequency_penalty,
            presence_penalty=params.presence_penalty,
            seed=self.seed,
            sequence_index=self.sequence_index,
            min_tokens=params.min_tokens,
            logprobs=self.num_logprobs,
            end_ids=list(self.end_ids),
            bias_ids=list(bias),
            bias_values=list(bias.values()),
        )
        row.set_position(self.output_len)
        if self.counts is not None:
            row.set_counts(*self.count_arrays())
        row.set_allowed_mask(self._allowed_mask)
        return row

    def count_arrays(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """The keys and the values of counts, int32."""
        counts = self.counts or {}
        return (
            np.fromiter(counts.keys(), np.int32, len(counts)),
            np.fromiter(counts.values(), np.int32, len(counts)),
        )


def _is_mask(mask: object) -> bool:
    return isinstance(mask, np.ndarray) and mask.dtype == np.uint32 and mask.ndim == 1 and mask.flags.c_contiguous


def inverse_temperature(params: SamplingParams) -> float:
    """1 / temperature, or 0 for greedy."""
    return 0.0 if params.is_greedy else 1.0 / params.temperature
