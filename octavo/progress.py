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
    """Counts requests, and shows them where it is asked to and standard error is a terminal."""

    def __init__(self, llm: LLM, total: int | None = None, shown: bool = True) -> None:
        """`total`: how many requests there will be, where that is known."""
        self.requests = 0
        self._llm = llm
        self._bar: Any = None
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, unit=" req", desc="generate", dynamic_ncols=True)
            self._started = time.perf_counter()
            self._shown = 0.0
            self._tokens_before = llm.stats().generated_tokens

    def finished(self) -> None:
        """One more request is done."""
        self.requests += 1
        if self._bar is not None:
            self._bar.update()

    def update(self) -> None:
        """After a step."""
        if self._bar is None:
            return
        now = time.perf_counter()
        if now - self._shown < _INTERVAL:
            return
        self._shown = now
        stats = self._llm.stats()
        used = stats.referenced_blocks * self._llm.loaded.block_bytes
        rate = (stats.generated_tokens - self._tokens_before) / max(now - self._started, 1e-9)
        self._bar.set_postfix_str(
            f"{rate:.0f} tok/s, KV {format_bytes(used)} of {format_bytes(self._llm.loaded.kv_cache_bytes)}, "
            f"running {stats.running}, waiting {stats.waiting}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()
