"""An engine without a model: real scheduling and block tables, no numbers behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.engine.engine import Engine
from octavo.engine.engine_config import EngineConfig
from octavo.engine.step import Step

VOCAB_SIZE = 1000


class NullExecutor:
    """Computes nothing; all logits are zero."""

    name = "null"
    vocab_size = VOCAB_SIZE

    def block_bytes(self, block_size: int) -> int:
        """No bytes are behind a block; one a token, so that pools can be sized."""
        return block_size

    def reserve_kv(self, num_blocks: int, block_size: int) -> None:
        """There is no memory."""

    def commit_blocks(self, first: int, count: int) -> None:
        """There is no memory."""

    def release_blocks(self, first: int, count: int) -> None:
        """There is no memory."""

    def execute(self, step: Step) -> npt.NDArray[np.float32]:
        """Zeros."""
        return np.zeros((len(step.logits_rows), VOCAB_SIZE), np.float32)

    def close(self) -> None:
        """There is nothing to free."""


@dataclass
class NullState:
    """A sequence's state: nothing depends on it."""

    params: Any
    prompt_token_ids: list[int]
    seed: int
    sequence_index: int
    eos_token_ids: tuple[int, ...]

    def append(self, token_id: int) -> None:
        """Every token is as good as the other."""


@dataclass
class NullSampler:
    """Random tokens, the same for the same calls."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def sample(self, logits: npt.NDArray[np.float32], states: tuple[Any, ...], rows: list[int] | None = None, /) -> Any:
        """One token for each state."""
        return self._rows(self.rng.integers(1, VOCAB_SIZE, len(states)).astype(np.int32))

    def continuations(
        self, logits: npt.NDArray[np.float32], states: list[Any], top: int, /
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Random tokens of random likelihood, the likeliest first."""
        shape = (len(logits), top)
        logprobs = -np.sort(self.rng.exponential(size=shape).astype(np.float32), axis=1)
        return self.rng.integers(1, VOCAB_SIZE, shape).astype(np.int32), logprobs

    def score(self, logits: npt.NDArray[np.float32], token_ids: npt.NDArray[np.int32], top: int, /) -> Any:
        """Certainty."""
        return self._rows(token_ids)

    def _rows(self, token_ids: npt.NDArray[np.int32]) -> Any:
        count = len(token_ids)
        return SimpleNamespace(token_ids=token_ids, logprobs=np.zeros(count, np.float32), tops=[None] * count)


def null_engine(num_blocks: int, block_size: int, max_model_len: int, **config: Any) -> Engine:
    """An engine over nothing, with one KV group without a window; `config` are more fields of EngineConfig."""
    program: Any = SimpleNamespace(kv_groups=(SimpleNamespace(window=None),), vocab_size=VOCAB_SIZE)
    return Engine(
        NullExecutor(),
        NullSampler(),
        program,
        EngineConfig(num_blocks=num_blocks, block_size=block_size, max_model_len=max_model_len, **config),
        (),
        new_state=NullState,
    )
