"""One request on its way out: tokens and logprobs come in, text and RequestOutput go out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from octavo.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput, TokenLogprobs

if TYPE_CHECKING:
    from octavo.beam_search_params import BeamSearchParams
    from octavo.engine.sequence_update import SequenceUpdate, TokenLogprob
    from octavo.guidance import TokenConstraint
    from octavo.prompts import TokenizedPrompt
    from octavo.sampling_params import SamplingParams
    from octavo.text.text_stream import TextStream
    from octavo.text.tokenizer import Tokenizer

    Params = SamplingParams | BeamSearchParams


class SequenceState:
    """One sequence: its tokens, its logprobs and its text.

    Where somebody looks at its text on the way, it is made when they do, or at once where a stop string may end it.
    Else it is decoded once at the end, which costs a fraction of it.
    """

    __slots__ = (
        "_detokenizer",
        "_incremental",
        "_num_read",
        "_params",
        "_prompt_ids",
        "_stream",
        "_text",
        "_tokenizer",
        "cumulative_logprob",
        "finish_reason",
        "index",
        "logprobs",
        "score",
        "stop_reason",
        "token_ids",
    )

    def __init__(
        self, index: int, params: Params, tokenizer: Tokenizer, incremental: bool, prompt_ids: Sequence[int] = ()
    ) -> None:
        self.index = index
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] | None = None if params.logprobs is None else []
        self.cumulative_logprob: float | None = None if params.logprobs is None else 0.0
        self.score: float | None = None
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self._params = params
        self._tokenizer = tokenizer
        self._prompt_ids = prompt_ids
        self._text = ""
        self._num_read = 0  # tokens of which text is made
        self._stream: TextStream | None = None
        self._incremental = incremental or bool(params.stop)

    @property
    def told_late(self) -> bool:
        """Whether it may take several tokens at once: nothing is decided by each, and nothing comes with it."""
        return not self._params.stop and self.logprobs is None

    def extend(self, token_ids: Sequence[int]) -> None:
        """Takes tokens after which it goes on."""
        self.token_ids += token_ids

    def append(self, update: SequenceUpdate) -> bool:
        """Takes the next tokens. True when a stop string was found that the engine does not know of yet."""
        self.token_ids += update.earlier
        self.token_ids.append(update.token_id)
        if self.logprobs is not None and update.logprobs is not None:
            self.logprobs.append(readable_logprobs(update.token_id, update.logprobs, self._tokenizer))
            self.cumulative_logprob = (self.cumulative_logprob or 0.0) + update.logprobs.logprob
        if update.beam is not None:
            self.cumulative_logprob, self.score = update.beam
        self.finish_reason, self.stop_reason = update.finish_reason, update.stop_reason
        if not self._incremental:
            if self.finish_reason is not None:
                self._text = self._decode(self._visible_ids())
            return False
        if self._params.stop or self.finish_reason is not None:
            return self._add_text()
        return False

    def end(self, reason: str) -> None:
        """Ends it from outside (abort, error): the text is what is complete so far."""
        if self.finish_reason is None:
            if self._incremental:
                with suppress(Exception):  # text that fails does not keep it from ending
                    self._add_text()
                    if self._stream is not None:
                        self._text += self._stream.finish()
            else:
                self._text = self._decode(self.token_ids)
            self.finish_reason = reason

    def output(self) -> CompletionOutput:
        """What is known of it. Raises where its text cannot be made."""
        if self._incremental:
            self._add_text()
        return CompletionOutput(
            index=self.index,
            text=self._text,
            token_ids=list(self.token_ids),
            cumulative_logprob=self.cumulative_logprob,
            logprobs=None if self.logprobs is None else list(self.logprobs),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            score=self.score,
        )

    def _add_text(self) -> bool:
        """Makes the text of tokens that have none. True when a stop string was found that ends it."""
        new, self._num_read = self.token_ids[self._num_read :], len(self.token_ids)
        if not new:
            return False
        ended = self.finish_reason is not None
        stream = self._current_stream()
        self._text += stream.extend(new[:-1] if self._ends_in_stop_token() else new)
        if stream.matched_stop is not None:
            self.finish_reason, self.stop_reason = "stop", stream.matched_stop
            return not ended
        if ended:
            self._text += stream.finish()
        return False

    def _current_stream(self) -> TextStream:
        """Stop strings count from token min_tokens + 1 on: only text that begins there can match."""
        from octavo.text.text_stream import TextStream

        params = self._params
        if self._stream is None:
            self._detokenizer = self._tokenizer.detokenizer(params.skip_special_tokens, self._prompt_ids)
            stop = () if params.min_tokens else params.stop
            self._stream = TextStream(self._detokenizer, stop, params.include_stop_str_in_output)
        elif params.min_tokens and params.stop and len(self.token_ids) == params.min_tokens + 1:
            self._stream = TextStream(self._detokenizer, params.stop, params.include_stop_str_in_output)
        return self._stream

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, self._params.skip_special_tokens, self._prompt_ids)

    def _ends_in_stop_token(self) -> bool:
        """The token that stopped the sequence belongs to token_ids but not to the text."""
        if self.finish_reason != "stop" or isinstance(self.stop_reason, str):
            return False
        return not self._params.include_stop_str_in_output

    def _visible_ids(self) -> list[int]:
        return self.token_ids[:-1] if self._ends_in_stop_token() else self.token_ids


class RequestState:
    """One request: its sequences, its prompt's logprobs and its times."""

    __slots__ = (
        "_arrival",
        "_num_cached_tokens",
        "_prompt_logprobs",
        "_sent",
        "_started",
        "_tokenizer",
        "constraint",
        "delivered",
        "elapsed",
        "engine_params",
        "error",
        "finished",
        "finished_into",
        "params",
        "prompt",
        "refused",
        "request_id",
        "sequences",
        "time_to_first_token",
    )

    def __init__(
        self,
        request_id: str,
        prompt: TokenizedPrompt,
        params: Params,
        tokenizer: Tokenizer,
        incremental: bool = False,
    ) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.params = params
        self.engine_params = params.for_engine()
        self.constraint: TokenConstraint | None = None
        """What its structured_outputs were compiled to"""
        self.error: Exception | None = None
        """What ended this request and no other"""
        self.finished = False
        self.refused = False
        """The engine never took it"""
        self.finished_into: deque[RequestState] | None = None
        """Where the driver puts it when it has finished"""
        self.sequences = tuple(
            SequenceState(index, self.engine_params, tokenizer, incremental, prompt.token_ids)
            for index in range(self.engine_params.n)
        )
        self._tokenizer = tokenizer
        self._prompt_logprobs: list[TokenLogprobs | None] | None = None
        self._arrival = time.time()
        self._started = time.perf_counter()
        self.time_to_first_token: float | None = None
        """Seconds from arrival"""
        self.elapsed: float | None = None
        """Seconds from arrival to the end; None while it runs"""
        self._num_cached_tokens = 0
        self._sent = [0] * params.n
        self.delivered = False
        """The reader of a stream has seen the final output"""

    @property
    def told_late(self) -> bool:
        """Whether it need not be told of each token as it comes."""
        return all(sequence.told_late for sequence in self.sequences)

    def append(self, update: SequenceUpdate) -> bool:
        """Takes one update of one sequence. True when a stop string ended it, which the engine must be
        told."""
        if self.time_to_first_token is None:
            self.time_to_first_token = time.perf_counter() - self._started
            self._num_cached_tokens = update.num_cached_tokens
        if update.prompt_logprobs is not None:
            self._prompt_logprobs = self._readable_prompt(update.prompt_logprobs)
        sequence = self.sequences[update.index]
        found_stop = False
        if sequence.finish_reason is not None:
            return False  # a stop string ended it before this token of the same step
        if update.token_id >= 0:
            found_stop = sequence.append(update)
        elif update.finish_reason is not None:
            sequence.end(update.finish_reason)
        if sequence.finish_reason is not None and all(each.finish_reason is not None for each in self.sequences):
            self._finish()
        return found_stop

    def end(self, reason: str, error: Exception | None = None) -> None:
        """Ends all its sequences from outside: aborted, or failed with `error`."""
        self.error = error
        self._finish()
        for sequence in self.sequences:
            sequence.end(reason)

    def _finish(self) -> None:
        self.finished = True
        self.elapsed = time.perf_counter() - self._started

    def output(self) -> RequestOutput:
        """All that is known now."""
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt.text,
            prompt_token_ids=self.prompt.token_ids,
            prompt_logprobs=self._prompt_logprobs,
            outputs=self._outputs(),
            finished=self.finished,
            metrics=RequestMetrics(
                arrival_time=self._arrival,
                num_cached_tokens=self._num_cached_tokens,
                time_to_first_token=self.time_to_first_token,
                elapsed=self.elapsed,
                num_output_tokens=sum(len(sequence.token_ids) for sequence in self.sequences),
            ),
            error=None if self.error is None else str(self.error),
        )

    def _outputs(self) -> list[CompletionOutput]:
        """All answers, or the best ones where more were generated: these have no text before all have ended."""
        n = self.params.n
        if n == len(self.sequences):
            return [sequence.output() for sequence in self.sequences]
        if not self.finished:
            return [CompletionOutput(index, "", [], None, None) for index in range(n)]
        best = sorted(self.sequences, key=lambda sequence: -(sequence.cumulative_logprob or 0.0))[:n]
        outputs = [sequence.output() for sequence in best]
        for index, output in enumerate(outputs):
            output.index = index
            if self.params.logprobs is None:
                output.logprobs = None
        return outputs

    def next_output(self) -> RequestOutput:
        """For the one reader of a stream: the same, with the text since its last call as `delta`."""
        output = self.output()
        for place, completion in enumerate(output.outputs):
            completion.delta = completion.text[self._sent[place] :]
            self._sent[place] = len(completion.text)
        self.delivered = output.finished
        return output

    def _readable_prompt(self, entries: list[TokenLogprob | None]) -> list[TokenLogprobs | None]:
        ids = self.prompt.token_ids
        return [
            None if entry is None else readable_logprobs(token_id, entry, self._tokenizer)
            for token_id, entry in zip(ids, entries, strict=True)
        ]


def readable_logprobs(token_id: int, entry: TokenLogprob, tokenizer: Tokenizer) -> TokenLogprobs:
    """The chosen token first, then the likeliest ones, each with the text that it decodes to alone."""
    result = {token_id: Logprob(entry.logprob, entry.rank or None, tokenizer.decode([token_id], False))}
    for place, (other, logprob) in enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True)):
        if other not in result:
            result[other] = Logprob(logprob, place + 1, tokenizer.decode([other], False))
    return result
