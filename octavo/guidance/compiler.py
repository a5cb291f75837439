"""Compiles grammars within limits, off the threads that others wait for, and remembers them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from octavo.guidance.grammar import grammar_text
from octavo.guidance.token_constraint import Mask, TokenConstraint, failure, fill_mask
from octavo.guidance.vocabulary import TokenSource, build_vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

    from octavo.beam_search_params import BeamSearchParams
    from octavo.sampling_params import SamplingParams

COMPILE_SECONDS = 20.0
"""Who has waited so long for a grammar, others before it included, is refused"""
MAX_CACHED = 64
MAX_CACHED_BYTES = 262_144
"""Text of the grammars that are remembered; compiled, one takes up to some 400 times its text"""


class _Compiled(NamedTuple):
    """At the beginning of an output; never changed."""

    matcher: LLMatcher
    first_mask: Mask


class GrammarCompiler:
    """The grammars of one model. Any thread may call it.

    Nothing is built before the first grammar is asked for. One thread compiles, so equal grammars that come together
    are compiled once; it is bounded by llguidance's own limits of work, not stopped.
    """

    def __init__(self, tokenizer: TokenSource, vocab_size: int, eos_token_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = tuple(token_id for token_id in eos_token_ids if token_id < vocab_size)
        self._vocabulary: LLTokenizer | None = None
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, _Compiled] = OrderedDict()
        self._worker: ThreadPoolExecutor | None = None

    def constraint(self, params: SamplingParams | BeamSearchParams) -> TokenConstraint | None:
        """What limits the tokens of a request; None where nothing does. Waits for the grammar.

        Raises ValueError that says what is wrong with it.
        """
        if params.structured_outputs is None:
            return None
        future = self.submit(params)
        try:
            return future.result(COMPILE_SECONDS)
        except TimeoutError:
            future.cancel()
            raise compile_timeout() from None

    def submit(self, params: SamplingParams | BeamSearchParams) -> Future[TokenConstraint]:
        """The same for params that have structured_outputs, without waiting: done at once where the grammar is known.
        One that nobody waits for any more may be cancelled."""
        assert params.structured_outputs is not None
        text = grammar_text(params.structured_outputs)
        known = self._recall(text)
        if known is not None:
            future: Future[TokenConstraint] = Future()
            future.set_result(self._begin(known, params))
            return future
        with self._lock:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix="octavo-grammar")
            return self._worker.submit(self._compile, text, params)

    def close(self) -> None:
        """Ends the thread once it has compiled what it is at. May be called twice."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown(wait=True, cancel_futures=True)

    def _compile(self, text: str, params: SamplingParams | BeamSearchParams) -> TokenConstraint:
        """In the worker."""
        from llguidance import LLMatcher

        known = self._recall(text)
        if known is not None:
            return self._begin(known, params)
        if self._vocabulary is None:
            self._vocabulary = build_vocabulary(self._tokenizer, self._vocab_size, self._eos_token_ids)
        matcher = LLMatcher(self._vocabulary, text, log_level=0, limits=_limits())
        if matcher.is_error():
            raise failure(matcher)
        first_mask = np.zeros((self._vocab_size + 31) // 32, np.uint32)
        fill_mask(matcher, first_mask)
        compiled = _Compiled(matcher, first_mask)
        self._remember(text, compiled)
        return self._begin(compiled, params)

    def _begin(self, compiled: _Compiled, params: SamplingParams | BeamSearchParams) -> TokenConstraint:
        return TokenConstraint(compiled.matcher.deep_copy(), compiled.first_mask, self._eos_token_ids, params)

    def _recall(self, text: str) -> _Compiled | None:
        with self._lock:
            compiled = self._cache.get(text)
            if compiled is not None:
                self._cache.move_to_end(text)
            return compiled

    def _remember(self, text: str, compiled: _Compiled) -> None:
        with self._lock:
            self._cache[text] = compiled
            total = sum(map(len, self._cache))
            while len(self._cache) > 1 and (len(self._cache) > MAX_CACHED or total > MAX_CACHED_BYTES):
                total -= len(self._cache.popitem(last=False)[0])


def _limits() -> LLParserLimits:
    """In llguidance's units of work: a grammar compiles within seconds, and a step of it takes some 50 ms at worst."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=1_000_000,
        max_grammar_size=50_000,
        max_items_in_row=2000,
        max_lexer_states=10_000,
        step_lexer_fuel=100_000,
        step_max_items=5000,
        verbose_errors=False,
    )


def compile_timeout() -> ValueError:
    """For who has waited COMPILE_SECONDS."""
    return ValueError(f"structured_outputs: was not compiled within {COMPILE_SECONDS:g} s")
