"""The progress bar of a batch: requests done, tokens a second, KV memory in use. On a terminal only."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self

from octavo.config import format_bytes

if TYPE_CHECKING:
    from octavo.llm import LLM

_INTERVAL = 0.1
"""Seconds between two looks at the engine's books"""


class Progress:
    """Counts what is done, and shows it where standard error is a terminal."""

    def __init__(self, llm: LLM) -> None:
        self.requests = 0
        self.tokens = 0
        self._llm = llm
        self._bar: Any = None
        self._started = time.perf_counter()
        self._shown = 0.0
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(unit=" req", desc="generate", dynamic_ncols=True)

    def finished(self, tokens: int) -> None:
        """One more request is written."""
        self.requests += 1
        self.tokens += tokens
        if self._bar is not None:
            self._bar.update()

    def update(self) -> None:
        """After a step."""
        now = time.perf_counter()
        if self._bar is None or now - self._shown < _INTERVAL:
            return
        self._shown = now
        stats = self._llm.stats()
        used = stats.referenced_blocks * self._llm.loaded.block_bytes
        rate = stats.generated_tokens / (now - self._started)
        self._bar.set_postfix_str(
            f"{rate:.0f} tok/s, KV {format_bytes(used)} of {format_bytes(self._llm.loaded.kv_cache_bytes)}, "
            f"running {stats.running}, waiting {stats.waiting}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()
