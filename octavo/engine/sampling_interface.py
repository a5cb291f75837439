"""What the engine knows of sampling: the parameters it reads, and the sampler it calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class SamplingOptions(Protocol):
    """The fields of SamplingParams that the engine itself acts on; all others belong to the sampler."""

    @property
    def n(self) -> int: ...
    @property
    def num_sequences(self) -> int: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def min_tokens(self) -> int: ...
    @property
    def ignore_eos(self) -> bool: ...
    @property
    def stop_token_ids(self) -> Collection[int]: ...
    @property
    def logprobs(self) -> int | None: ...
    @property
    def prompt_logprobs(self) -> int | None: ...


class NewState(Protocol):
    """Makes the sampler's state of one sequence; it has append(token_id), constrain(constraint) and, for beams, fork().
    It is kept as long as its sequence."""

    def __call__(
        self,
        params: Any,
        prompt_token_ids: list[int],
        seed: int,
        sequence_index: int,
        eos_token_ids: tuple[int, ...],
    ) -> Any: ...


class Constraint(Protocol):
    """What limits the tokens of one sequence; the sampler's state asks it."""

    def fork(self) -> Any: ...


class TopLogprobs(Protocol):
    """The likeliest tokens of one row, and the rank (from 1) of the chosen one."""

    @property
    def ids(self) -> Any: ...
    @property
    def logprobs(self) -> Any: ...
    @property
    def rank(self) -> int: ...


class SampledTokens(Protocol):
    """One chosen token per row of logits."""

    @property
    def token_ids(self) -> npt.NDArray[np.int32]: ...
    @property
    def logprobs(self) -> npt.NDArray[np.float32]: ...
    @property
    def tops(self) -> Sequence[Any]: ...


class Sampler(Protocol):
    """Chooses tokens. It may overwrite the rows of logits that it reads.

    sample() reads one a state; `rows` says which, all of them different, or None: there are no others."""

    def sample(
        self, logits: npt.NDArray[np.float32], states: tuple[Any, ...], rows: list[int] | None = None, /
    ) -> SampledTokens: ...

    def continuations(
        self, logits: npt.NDArray[np.float32], states: list[Any], top: int, /
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]: ...

    def score(
        self, logits: npt.NDArray[np.float32], token_ids: npt.NDArray[np.int32], top: int, /
    ) -> SampledTokens: ...
