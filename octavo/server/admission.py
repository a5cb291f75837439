"""Who may wait: a bounded queue."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from octavo.server.errors import ApiError

_STARTS = 64
_LONGEST_WAIT = 60


class Admission:
    """Counts what waits for its first token, in sequences and in prompt tokens, and refuses what is too much.

    Who has a first token does not wait any more: the engine bounds those (max_num_seqs). To an empty queue
    anything is admitted, so no single request is too big for ever.
    """

    def __init__(self, max_requests: int, max_tokens: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_requests = max_requests
        self.max_tokens = max_tokens
        self.queued_requests = 0
        self.queued_tokens = 0
        self.refused = 0
        self.draining = False
        self._clock = clock
        self._starts: deque[tuple[float, int]] = deque(maxlen=_STARTS)

    def check(self, requests: int = 1, tokens: int = 0) -> None:
        """ApiError 429 where the queue has no room for this, 503 while the server drains."""
        if self.draining:
            raise ApiError(503, "the server is shutting down", code="shutting_down", headers={"Retry-After": "5"})
        if not self.queued_requests:
            return
        if self.queued_requests + requests > self.max_requests:
            full = f"{self.queued_requests} requests wait, the limit is {self.max_requests}"
        elif self.queued_tokens + tokens > self.max_tokens:
            full = f"{self.queued_tokens} prompt tokens wait, the limit is {self.max_tokens}"
        else:
            return
        self.refused += 1
        wait = self.estimated_wait()
        raise ApiError(
            429,
            f"the queue is full: {full}. Estimated wait: {wait} s",
            code="queue_full",
            headers={"Retry-After": str(wait)},
        )

    def admit(self, n: int, prompt_tokens: Sequence[int]) -> Ticket:
        """Room for prompts of these lengths, each with n sequences; ApiError 429 where there is none."""
        self.check(n * len(prompt_tokens), sum(prompt_tokens))
        return Ticket(self, n, prompt_tokens)

    def estimated_wait(self) -> int:
        """Seconds until the queue of now has drained, as fast as the last ones did; from 1 to 60."""
        if len(self._starts) < 2:
            return 1
        elapsed = self._clock() - self._starts[0][0]
        rate = sum(n for _, n in self._starts) / max(elapsed, 1e-3)
        return max(1, min(_LONGEST_WAIT, math.ceil(self.queued_requests / rate)))

    def _enter(self, n: int, tokens: int) -> None:
        self.queued_requests += n
        self.queued_tokens += tokens

    def _leave(self, n: int, tokens: int, started: bool) -> None:
        self.queued_requests -= n
        self.queued_tokens -= tokens
        if started:
            self._starts.append((self._clock(), n))


class Ticket:
    """A request's place in the queue, a part for each of its prompts."""

    def __init__(self, admission: Admission, n: int, prompt_tokens: Sequence[int]) -> None:
        self._admission = admission
        self._n = n
        self._waiting = dict(enumerate(prompt_tokens))
        for tokens in prompt_tokens:
            admission._enter(n, tokens)

    def start(self, place: int) -> None:
        """A prompt has its first token: it waits no more. More calls do nothing."""
        self._take(place, True)

    def close(self) -> None:
        """The request has ended, however."""
        for place in list(self._waiting):
            self._take(place, False)

    def _take(self, place: int, started: bool) -> None:
        tokens = self._waiting.pop(place, None)
        if tokens is not None:
            self._admission._leave(self._n, tokens, started)
