"""What limits the tokens of one sequence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from octavo.beam_search_params import BeamSearchParams
    from octavo.sampling_params import SamplingParams

Mask = npt.NDArray[np.uint32]


class TokenConstraint:
    """Follows an output through its grammar, and knows which tokens may come next.

    The end of sequence is allowed where the output is complete, and nothing else where it can only end. min_tokens
    and ignore_eos hold tokens that end back as long as anything else is allowed: a complete output ends all the same.
    """

    __slots__ = ("_always_held", "_early_held", "_length", "_matcher", "_min_tokens", "eos_token_ids", "mask")

    def __init__(
        self,
        matcher: LLMatcher,
        first_mask: Mask,
        eos_token_ids: Iterable[int],
        params: SamplingParams | BeamSearchParams,
    ) -> None:
        """matcher: at the beginning of an output, and nobody else's; first_mask: what fill_mask says there."""
        self._matcher = matcher
        self.eos_token_ids = frozenset(eos_token_ids)
        self._always_held = tuple(self.eos_token_ids) if params.ignore_eos else ()
        self._early_held = (*self.eos_token_ids, *params.stop_token_ids)
        self._min_tokens = params.min_tokens
        self._length = 0
        self.mask = first_mask.copy()
        """[ceil(vocab_size / 32)] uint32: bit i % 32 of word i // 32 allows token i next; changes in place"""
        self._hold_back()

    def fork(self) -> Self:
        """One of its own for an output that goes on from here."""
        child = type(self).__new__(type(self))
        child._matcher = self._matcher.deep_copy()
        child.eos_token_ids = self.eos_token_ids
        child._always_held, child._early_held = self._always_held, self._early_held
        child._min_tokens, child._length = self._min_tokens, self._length
        child.mask = self.mask.copy()
        return child

    def advance(self, token_id: int) -> None:
        """Takes over the next token. Raises ValueError for one that is not allowed, and where the grammar becomes too
        complex."""
        self._length += 1
        if not self._matcher.consume_token(token_id):
            raise failure(self._matcher)
        if token_id not in self.eos_token_ids:
            fill_mask(self._matcher, self.mask)
            self._hold_back()

    def _hold_back(self) -> None:
        """Forbids the tokens that must not end the output yet, unless nothing is left then."""
        held = self._early_held if self._length < self._min_tokens else self._always_held
        if not held:
            return
        rest = self.mask.copy()
        for token_id in held:
            if token_id // 32 < len(rest):
                rest[token_id // 32] &= ~np.uint32(1 << token_id % 32)
        if rest.any():
            self.mask[:] = rest


def fill_mask(matcher: LLMatcher, mask: Mask) -> None:
    """The tokens that may come next. Raises ValueError where there are none, or it is too much work to say."""
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
    if matcher.is_error():
        raise failure(matcher)


def failure(matcher: LLMatcher) -> ValueError:
    """A matcher's error in a line, without an excerpt of the grammar."""
    message = matcher.get_error().split("\n<non-verbose/>")[0].split("\n   1 | ")[0].strip()
    if "NoExtension" in message:
        message = "no token of the model can go on from here"
    message = " ".join(message.split())
    return ValueError(f"structured_outputs: {message if len(message) <= 300 else message[:297] + '...'}")
