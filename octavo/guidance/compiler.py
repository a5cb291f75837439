"""Compiles grammars within limits, off the threads that others wait for, and remembers them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

import numpy as np

from octavo.guidance.grammar import grammar_text
from octavo.guidance.token_constraint import Mask, TokenConstraint, failure, fill_mask
from octavo.guidance.vocabulary import TokenSource, build_vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

    from octavo.beam_search_params import BeamSearchParams
    from octavo.sampling_params import SamplingParams

    Params = SamplingParams | BeamSearchParams

COMPILE_SECONDS = 20.0
"""Who has waited so long for a grammar, others before it included, is refused"""
MAX_REMEMBERED = 64
MAX_REMEMBERED_BYTES = 262_144
"""Text of the grammars that are remembered; compiled, one takes up to some 400 times its text"""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Compiled(NamedTuple):
    """At the beginning of an output."""

    matcher: LLMatcher
    first_mask: Mask


@dataclass(slots=True)
class _Remembered:
    """A grammar that was compiled before."""

    error: str | None = None
    """Why it was refused"""
    spare: _Compiled | None = None
    """For the next request that asks for it"""
    uses: int = 0


class GrammarCompiler:
    """The grammars of one model. Any thread may call it.

    Nothing is built before the first grammar is asked for. One thread compiles; llguidance's own limits of work bound
    it, for nothing can stop it. Copies of a matcher share what they have learnt of the vocabulary, the limits on that,
    and the fault where one exceeds them: so every request has a matcher compiled for it alone, which its sequences
    share. Where a grammar is asked for again and again, the next one is compiled ahead.
    """

    def __init__(self, tokenizer: TokenSource, vocab_size: int, eos_token_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = tuple(token_id for token_id in eos_token_ids if token_id < vocab_size)
        self._vocabulary: LLTokenizer | None = None
        self._lock = threading.RLock()
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()
        self._worker: ThreadPoolExecutor | None = None

    def check(self, params: Params) -> None:
        """Raises ValueError that says what is wrong with the grammar. Waits where it is not known yet."""
        if params.structured_outputs is None:
            return
        text = grammar_text(params.structured_outputs)
        with self._lock:
            known = self._remembered.get(text)
        if known is None:
            _result_of(self._work(self._prepare, text))
        elif known.error is not None:
            raise ValueError(known.error)

    def constraint(self, params: Params) -> TokenConstraint | None:
        """What limits the tokens of a request; None where nothing does. Waits where it is not compiled yet.

        Raises ValueError that says what is wrong with the grammar.
        """
        return None if params.structured_outputs is None else _result_of(self.submit(params))

    async def awaited(self, params: Params) -> TokenConstraint | None:
        """The same on an event loop."""
        if params.structured_outputs is None:
            return None
        import asyncio  # callers on a loop have it; others need not wait for it

        try:
            return await asyncio.wait_for(asyncio.wrap_future(self.submit(params)), COMPILE_SECONDS)
        except TimeoutError:
            raise _timeout() from None

    def submit(self, params: Params) -> Future[TokenConstraint]:
        """The same for params that have structured_outputs, without waiting; it may be cancelled."""
        assert params.structured_outputs is not None
        text = grammar_text(params.structured_outputs)
        done: Future[TokenConstraint] = Future()
        try:
            compiled = self._take(text)
        except ValueError as error:
            done.set_exception(error)
            return done
        if compiled is None:
            return self._work(self._serve, text, params)
        done.set_result(self._begin(compiled, params))
        return done

    def close(self) -> None:
        """Ends the thread once it has compiled what it is at. May be called twice."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown(wait=True, cancel_futures=True)

    def _begin(self, compiled: _Compiled, params: Params) -> TokenConstraint:
        return TokenConstraint(compiled.matcher, compiled.first_mask, self._eos_token_ids, params)

    # ---- what is remembered ----

    def _take(self, text: str) -> _Compiled | None:
        """What was compiled ahead, if there is something. Raises ValueError for a grammar that was refused before."""
        with self._lock:
            known = self._remembered.get(text)
            if known is None:
                return None
            self._remembered.move_to_end(text)
            if known.error is not None:
                raise ValueError(known.error)
            known.uses += 1
            spare, known.spare = known.spare, None
            if known.uses > 1:
                self._work(self._prepare, text)
            return spare

    def _remember(self, text: str, error: str | None = None, spare: _Compiled | None = None) -> None:
        with self._lock:
            known = self._remembered.setdefault(text, _Remembered())
            known.error, known.spare = error, spare or known.spare
            total = sum(map(len, self._remembered))
            while len(self._remembered) > 1 and (
                len(self._remembered) > MAX_REMEMBERED or total > MAX_REMEMBERED_BYTES
            ):
                total -= len(self._remembered.popitem(last=False)[0])

    # ---- in the worker ----

    def _work(self, job: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        with self._lock:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix="octavo-grammar")
            return self._worker.submit(job, *args, **kwargs)

    def _serve(self, text: str, params: Params) -> TokenConstraint:
        compiled = self._take(text)
        if compiled is None:
            compiled = self._compile(text)
            self._remember(text)
        return self._begin(compiled, params)

    def _prepare(self, text: str) -> None:
        """Compiles ahead, if that has not been done."""
        with self._lock:
            known = self._remembered.get(text)
        if known is None or (known.spare is None and known.error is None):
            self._remember(text, spare=self._compile(text))

    def _compile(self, text: str) -> _Compiled:
        try:
            return self._compile_in_limits(text)
        except ValueError as error:
            self._remember(text, error=str(error))
            raise
        except BaseException as error:  # a panic in Rust is no Exception
            raise ValueError(f"structured_outputs: the grammar's compiler failed: {str(error)[:200]}") from error

    def _compile_in_limits(self, text: str) -> _Compiled:
        from llguidance import LLMatcher

        if self._vocabulary is None:
            self._vocabulary = build_vocabulary(self._tokenizer, self._vocab_size, self._eos_token_ids)
        matcher = LLMatcher(self._vocabulary, text, log_level=0, limits=_limits())
        if matcher.is_error():
            raise failure(matcher)
        first_mask = np.zeros((self._vocab_size + 31) // 32, np.uint32)
        fill_mask(matcher, first_mask)
        return _Compiled(matcher, first_mask)


def _limits() -> LLParserLimits:
    """In llguidance's units of work. The engine waits for a step, of which the worst known grammar takes 50 ms. A
    schema of 100 tools has 4300 symbols, an object with 300 optional properties 1200 items in a row."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=1_000_000,
        max_grammar_size=6000,
        max_items_in_row=1500,
        max_lexer_states=10_000,
        step_lexer_fuel=100_000,
        step_max_items=2500,
        verbose_errors=False,
    )


def _result_of(future: Future[_T]) -> _T:
    try:
        return future.result(COMPILE_SECONDS)
    except TimeoutError:
        future.cancel()
        raise _timeout() from None


def _timeout() -> ValueError:
    return ValueError(f"structured_outputs: was not compiled within {COMPILE_SECONDS:g} s")
