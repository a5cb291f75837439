"""Drives an engine for callers who think in requests: LLM in the caller's thread, AsyncLLM in a thread of its
own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from octavo.request_state import RequestState

if TYPE_CHECKING:
    from octavo.engine.engine import Engine
    from octavo.engine.sequence_update import SequenceUpdate
    from octavo.guidance import GrammarCompiler
    from octavo.prompts import TokenizedPrompt
    from octavo.request_state import Params
    from octavo.text.stop_search import StopSearch
    from octavo.text.tokenizer import Tokenizer


class EngineError(RuntimeError):
    """The engine failed in a step, or is closed: no fault of the request that gets this error."""


class RequestError(RuntimeError):
    """Something went wrong inside the engine for this request alone."""


class RequestObserver(Protocol):
    """Told, in the engine's thread, what becomes of requests. It must be quick and must not raise."""

    def added(self, state: RequestState) -> None:
        """The engine has taken a request."""

    def first_token(self, state: RequestState) -> None:
        """A request has its first token."""

    def ended(self, state: RequestState) -> None:
        """A request that was added has ended, for whatever reason."""


class RequestDriver:
    """Requests in, tokens to their states, stop strings back to the engine. One thread at a time."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, vocab_size: int, grammars: GrammarCompiler) -> None:
        self.engine = engine
        self._grammars = grammars
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._states: dict[str, RequestState] = {}
        self.observer: RequestObserver | None = None

    @property
    def has_unfinished(self) -> bool:
        return bool(self._states)

    def new_state(
        self, request_id: str, prompt: TokenizedPrompt, params: Params, incremental: bool = False
    ) -> RequestState:
        """A request that the engine does not know yet. `incremental`: its text will be looked at on the
        way."""
        # A grammar speaks of bytes: a space that it begins with is there to stay.
        tokenizer = self._tokenizer if params.structured_outputs is None else self._tokenizer.verbatim
        return RequestState(request_id, prompt, params, tokenizer, incremental)

    def add(self, state: RequestState) -> None:
        """Hands a request to the engine. Raises ValueError where it can never fit or its id is in use, and where a
        grammar is wrong that nobody has compiled for it before."""
        from octavo.engine.request import Request

        state.params.check_vocab(self._vocab_size)
        if state.request_id in self._states:
            raise ValueError(f"request_id={state.request_id!r}: is in use by a request that has not finished")
        if state.constraint is None:
            state.constraint = self._grammars.constraint(state.params)
        self.engine.add_request(
            Request(
                request_id=state.request_id,
                prompt_token_ids=state.prompt.token_ids,
                params=state.engine_params,
                cache_salt=state.prompt.cache_salt,
                stop_search=self._stop_search(state),
                constraint=state.constraint,
                told_late=state.told_late,
            )
        )
        self._states[state.request_id] = state
        if self.observer is not None:
            self.observer.added(state)

    def _stop_search(self, state: RequestState) -> StopSearch | None:
        """What finds stop strings in beams while they are searched."""
        from octavo.beam_search_params import BeamSearchParams
        from octavo.text.stop_search import StopSearch

        params = state.params
        if not isinstance(params, BeamSearchParams) or not params.stop:
            return None
        return StopSearch(self._tokenizer, params.stop, params.skip_special_tokens, params.min_tokens)

    def abort(self, request_id: str, error: Exception | None = None) -> RequestState | None:
        """Ends a request in any state; None where there is no such request (any more)."""
        state = self._states.get(request_id)
        if state is None:
            return None
        try:
            with suppress(Exception):  # whatever fails here, it ends
                self.catch_up(state)
            self.engine.abort(request_id)
        finally:
            state.end("abort" if error is None else "error", error)
            self._forget(state)
        return state

    def abort_all(self, error: Exception | None = None) -> list[RequestState]:
        """Ends every request. One that the engine cannot even abort is ended here all the same."""
        states = list(self._states.values())
        for state in states:
            with suppress(Exception):
                self.abort(state.request_id, error)
        return states

    def step(self) -> list[RequestState]:
        """One engine step, delivered: the states that changed, each once."""
        return self.deliver(self.engine.step())

    def awaits(self, updates: Iterable[SequenceUpdate]) -> bool:
        """Whether a step's updates must be delivered before the next step: something begins or ends, or text decides
        whether it does."""
        for update in updates:
            state = self._states.get(update.request_id)
            if state is not None and (
                update.finish_reason is not None or state.time_to_first_token is None or state.params.stop
            ):
                return True
        return False

    def deliver(self, updates: Iterable[SequenceUpdate]) -> list[RequestState]:
        """Takes the updates of steps to their requests. What fails for one request ends that request only."""
        changed: dict[str, RequestState] = {}
        for update in updates:
            state = self._states.get(update.request_id)
            if state is None or state.finished:
                continue
            changed[state.request_id] = state
            try:
                if update.error is not None:
                    state.sequences[update.index].token_ids += update.earlier
                    raise RequestError(update.error)
                is_first = state.time_to_first_token is None
                found_stop = state.append(update)
                if is_first and self.observer is not None:
                    self.observer.first_token(state)
                if found_stop:
                    self.engine.finish(state.request_id, update.index, "stop")
                if state.finished:
                    self._forget(state)
            except Exception as error:
                self.abort(state.request_id, error)
        return list(changed.values())

    def catch_up(self, state: RequestState) -> bool:
        """Takes to a request that is told late what steps have made of it by now. Whether that is anything."""
        untold = self.engine.untold(state.request_id)
        for index, token_ids in untold:
            state.sequences[index].extend(token_ids)
        return bool(untold)

    def commit_ahead(self, num_blocks: int) -> Iterator[None]:
        """Commits KV memory for requests to come, piece by piece; nothing may run, nor begin before the end of it."""
        return iter(()) if self._states else self.engine.commit_ahead(num_blocks)

    def release_idle_memory(self, keep_blocks: int = 0) -> int:
        """Gives KV memory that holds nothing back to the system, if nothing runs: the number of blocks."""
        return 0 if self._states else self.engine.release_idle_memory(keep_blocks)

    def is_running(self, state: RequestState) -> bool:
        """Whether the engine has this very request, not another one of the same id."""
        return self._states.get(state.request_id) is state

    def run(
        self,
        requests: Iterable[RequestState | None],
        window: Callable[[], int],
        on_step: Callable[[], None] | None = None,
    ) -> Generator[RequestState | None, None, None]:
        """Runs requests and yields each as it finishes, with its `error` where it failed or was refused.

        At most `window()` of them are in the engine at once, and the next ones are read only then: a huge
        input never sits in memory. All of the first window is added before the first step. None among the
        requests stands for one that went wrong before: it is yielded at once. Aborts what is left when it is
        closed.
        """
        waiting = iter(requests)
        mine: dict[str, RequestState] = {}
        done: deque[RequestState] = deque()
        more = True
        try:
            while more or mine or done:
                while more and len(mine) < window():
                    try:
                        state = next(waiting)
                    except StopIteration:
                        more = False
                        break
                    if state is None:
                        yield None
                    elif self._try_add(state, done):
                        mine[state.request_id] = state
                while done:
                    finished = done.popleft()
                    mine.pop(finished.request_id, None)
                    yield finished
                if mine and not done:
                    self.step()
                    if on_step is not None:
                        on_step()
        finally:
            for request_id in mine:
                self.abort(request_id)

    def _try_add(self, state: RequestState, done: deque[RequestState]) -> bool:
        state.finished_into = done
        try:
            self.add(state)
        except ValueError as error:
            state.refused = True
            state.end("error", error)
            done.append(state)
            return False
        return True

    def _forget(self, state: RequestState) -> None:
        """A finished request: whoever waits for it finds it, whoever's step it was."""
        self._states.pop(state.request_id, None)
        if self.observer is not None:
            self.observer.ended(state)
        if state.finished_into is not None:
            state.finished_into.append(state)
