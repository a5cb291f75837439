"""Offline use: prompts in, answers out, in the caller's own thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypeVar

from octavo.beam_search_params import BeamSearchParams
from octavo.config import EngineOptions
from octavo.loading import LoadedModel, load
from octavo.outputs import RequestOutput
from octavo.progress import Progress
from octavo.prompts import (
    Conversation,
    Prompt,
    PromptReader,
    TokenizedPrompt,
    split_conversations,
    split_prompts,
)
from octavo.request_driver import EngineError, RequestDriver
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.engine.stats import EngineStats
    from octavo.request_state import RequestState
    from octavo.text.tokenizer import Tokenizer

T = TypeVar("T")
Params = SamplingParams | Sequence[SamplingParams] | None
BeamParams = BeamSearchParams | Sequence[BeamSearchParams] | None

KEPT_BYTES = 256 * 2**20
"""KV memory without content that an LLM keeps ready between calls; what is beyond goes back to the system."""

MATCHERS_PER_SEAT = 2
"""Of structured outputs, so many requests for each that can run are in the engine at once: each takes some 100 KB"""


class LLM:
    """A model with its KV memory.

        llm = LLM("smollm2", kv_cache_memory="512MiB")
        outputs = llm.generate(["Hello", "Good morning"], SamplingParams(max_tokens=16))

    `model` is an alias, a GGUF file or a directory of safetensors; the options are the fields of
    octavo.config.EngineOptions. Every request may use the whole context; they share the KV memory and run
    together. One thread at a time; for many callers at once there is AsyncLLM. Raises ValueError for bad
    options, prompts or parameters, with the field, the value and the limit.
    """

    def __init__(self, model: str, **options: Any) -> None:
        self._start(load(EngineOptions(model=model, **options)))

    @classmethod
    def from_loaded(cls, loaded: LoadedModel) -> Self:
        """Takes over a model that is loaded already."""
        llm = cls.__new__(cls)
        llm._start(loaded)
        return llm

    def _start(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self._ids = count()
        self._closed = False
        self._kept_blocks = KEPT_BYTES // loaded.block_bytes
        self.driver = RequestDriver(loaded.engine, loaded.tokenizer, loaded.vocab_size, loaded.grammars)
        self.reader = PromptReader(loaded.tokenizer, loaded.vocab_size, loaded.max_model_len)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Answers one prompt or many; the outputs are in the order of the prompts.

        A prompt is text, a list of token ids, {"prompt": text} or {"prompt_token_ids": ids}.
        `sampling_params`: one for all, or one per prompt. A bad prompt raises ValueError before anything
        runs. What goes wrong later for one request alone ends that request only: its finish_reason is "error",
        and output.error says why. `use_tqdm` shows requests done, tokens a second and KV memory in use.
        """
        return self._run([self.reader.read(prompt) for prompt in split_prompts(prompts)], sampling_params, use_tqdm)

    def beam_search(
        self, prompts: Prompt | Sequence[Prompt], params: BeamParams = None, use_tqdm: bool = False
    ) -> list[RequestOutput]:
        """Searches the likeliest answers to one prompt or many; `outputs` of each are the best first, with `score`.

        Prompts are those of generate(), and all searches share their batches. `params`: one for all, or one per
        prompt.
        """
        read = [self.reader.read(prompt) for prompt in split_prompts(prompts)]
        each = _beam_params_per_prompt(params, len(read))
        return self._run_states(
            [self._new_state(prompt, one) for prompt, one in zip(read, each, strict=True)], use_tqdm
        )

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: Params = None,
        use_tqdm: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> list[RequestOutput]:
        """Answers one conversation or many through the model's own chat template."""
        conversations = split_conversations(messages)
        prompts = [self.reader.read_chat(each, tools, add_generation_prompt) for each in conversations]
        return self._run(prompts, sampling_params, use_tqdm)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[RequestOutput]:
        """Answers one prompt token by token: cumulative outputs, new text in `outputs[i].delta`.

        Closing the iterator aborts the request.
        """
        return self._stream(self.reader.read(prompt), sampling_params)

    def stream_chat(
        self,
        messages: Conversation,
        sampling_params: SamplingParams | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Iterator[RequestOutput]:
        """The same for a conversation."""
        return self._stream(self.reader.read_chat(messages, tools), sampling_params)

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer: encode, decode, apply_chat_template."""
        return self.loaded.tokenizer

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, as generate() would read it."""
        return self.loaded.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def stats(self) -> EngineStats:
        """What the KV memory and the scheduler hold now."""
        return self.loaded.engine.stats()

    def reset_prefix_cache(self) -> int:
        """Forgets all cached prefixes that no request uses and gives their memory back: the number of blocks."""
        self._check_open()
        self.loaded.engine.drop_prefix_cache()
        return self.driver.release_idle_memory()

    def close(self) -> None:
        """Aborts what runs and frees threads and memory. May be called twice."""
        if not self._closed:
            self._closed = True
            self.driver.abort_all(EngineError("the LLM was closed"))
            self.loaded.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _new_state(
        self, prompt: TokenizedPrompt, params: SamplingParams | BeamSearchParams, incremental: bool = False
    ) -> RequestState:
        self.loaded.grammars.check(params)
        return self.driver.new_state(str(next(self._ids)), prompt, params, incremental)

    def _run(self, prompts: list[TokenizedPrompt], params: Params, use_tqdm: bool) -> list[RequestOutput]:
        each = _params_per_prompt(params, len(prompts))
        return self._run_states(
            [self._new_state(prompt, one) for prompt, one in zip(prompts, each, strict=True)], use_tqdm
        )

    def _run_states(self, states: list[RequestState], use_tqdm: bool) -> list[RequestOutput]:
        self._check_open()
        window = len(states)
        if any(state.params.structured_outputs is not None for state in states):
            window = min(window, MATCHERS_PER_SEAT * self.loaded.options.max_num_seqs)
        with (
            Progress(self, len(states), shown=use_tqdm) as progress,
            closing(self.driver.run(states, lambda: window, progress.update)) as finished,
        ):
            for state in finished:
                if state is not None and state.refused and state.error is not None:
                    raise state.error  # before the first step
                progress.finished()
        self.driver.release_idle_memory(self._kept_blocks)
        return [state.output() for state in states]

    def _stream(self, prompt: TokenizedPrompt, params: SamplingParams | None) -> Iterator[RequestOutput]:
        self._check_open()
        state = self._new_state(prompt, params or SamplingParams(), incremental=True)
        self.driver.add(state)
        return self._follow(state)

    def _follow(self, state: RequestState) -> Iterator[RequestOutput]:
        try:
            while not state.finished:
                changed = self.driver.step()
                if (self.driver.catch_up(state) or state in changed) and state.error is None:
                    yield state.next_output()
            if state.error is not None:
                raise state.error
            if not state.delivered:
                yield state.next_output()
        finally:
            self.driver.abort(state.request_id)
            if not self._closed:
                self.driver.release_idle_memory(self._kept_blocks)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("the LLM is closed")


def _params_per_prompt(params: Params, number: int) -> list[SamplingParams]:
    if params is None:
        params = SamplingParams()
    if isinstance(params, SamplingParams):
        return [params] * number
    return _checked_number(list(params), number, "sampling_params")


def _beam_params_per_prompt(params: BeamParams, number: int) -> list[BeamSearchParams]:
    if params is None:
        params = BeamSearchParams()
    if isinstance(params, BeamSearchParams):
        return [params] * number
    return _checked_number(list(params), number, "params")


def _checked_number(each: list[T], number: int, name: str) -> list[T]:
    if len(each) != number:
        raise ValueError(f"{name}: {len(each)} for {number} prompts; give one, or one per prompt")
    return each
