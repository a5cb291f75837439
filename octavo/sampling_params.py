"""What a user asks of sampling, under the names that vLLM's users type, checked when it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from octavo.parameter_checks import (
    MAX_INT32,
    MAX_PENALTY,
    MAX_REPETITION_PENALTY,
    check_boolean,
    check_ids_in_vocab,
    check_integer,
    check_logit_bias,
    check_logprobs,
    check_number,
    check_stop,
    check_stop_token_ids,
    id_from_json,
    parameter_error,
)
from octavo.structured_outputs import StructuredOutputsParams, check_structured_outputs

MAX_N = 128
MAX_TEMPERATURE = 100.0
GREEDY_TEMPERATURE = 1e-5
"""Temperatures below this are greedy: the division would only amplify rounding."""


@dataclass(frozen=True, slots=True, init=False)
class SamplingParams:
    """How the tokens of one request are chosen and when it ends. See octavo.sampling for the exact order of
    operations.

    Every value is checked here: a ValueError names the field, the value and the limit. Numbers must be
    numbers: no strings, no booleans, no NaN, no fractions where an integer is meant.
    """

    n: int
    """Answers to give, 1 to 128. Each has its own random stream."""
    best_of: int | None
    """Answers to generate, n to 128, of which the n with the highest cumulative logprob are given, best first. None:
    n, in order of their random streams."""
    temperature: float
    """0 to 100; 0 (and anything below 1e-5) always takes the most likely token."""
    top_p: float
    """Above 0, up to 1: keep the smallest set of most likely tokens with at least this share of the
    probability."""
    top_k: int
    """Keep the k most likely tokens; 0 or -1 keeps all."""
    min_p: float
    """0 up to, not including, 1: drop tokens less likely than this fraction of the most likely one."""
    repetition_penalty: float
    """Above 0, up to 100: divides positive and multiplies negative logits of tokens in prompt or output."""
    presence_penalty: float
    """-2 to 2: subtracted once from the logits of tokens in the output."""
    frequency_penalty: float
    """-2 to 2: subtracted from the logits of tokens in the output for each occurrence."""
    logit_bias: Mapping[int, float] | None = field(hash=False)
    """Token id -> number from -100 to 100 that is added to its logit. At most 4096 entries."""
    seed: int | None
    """A 64-bit number (-2^63 to 2^64 - 1) that makes the answer repeatable."""
    stop: tuple[str, ...]
    """Up to 16 strings that end the answer. Given as a string, a sequence of strings or None."""
    stop_token_ids: tuple[int, ...]
    """Up to 128 token ids that end the answer, besides the model's own."""
    include_stop_str_in_output: bool
    """Leave the stop string at the end of the text."""
    min_tokens: int
    """Neither end of sequence nor stop_token_ids are chosen before this many tokens."""
    max_tokens: int | None
    """The most tokens to generate; None: as many as the context allows."""
    ignore_eos: bool
    """Go on after the end of sequence."""
    logprobs: int | None
    """Report the logprob of each chosen token and of this many most likely ones, 0 to 64."""
    prompt_logprobs: int | None
    """The same for the tokens of the prompt."""
    skip_special_tokens: bool
    """Leave special tokens out of the text."""
    structured_outputs: StructuredOutputsParams | None
    """The form that the output must have. An output that can only end then ends, whatever min_tokens and ignore_eos
    say."""

    def __init__(
        self,
        *,
        n: int = 1,
        best_of: int | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Sequence[int] | None = None,
        include_stop_str_in_output: bool = False,
        min_tokens: int = 0,
        max_tokens: int | None = 16,
        ignore_eos: bool = False,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        skip_special_tokens: bool = True,
        structured_outputs: StructuredOutputsParams | None = None,
    ) -> None:
        values: dict[str, object] = {
            "n": check_integer("n", n, 1, MAX_N),
            "best_of": None if best_of is None else check_integer("best_of", best_of, 1, MAX_N),
            "temperature": check_number("temperature", temperature, 0.0, MAX_TEMPERATURE),
            "top_p": check_number("top_p", top_p, 0.0, 1.0, above=True),
            "top_k": check_integer("top_k", top_k, -1, MAX_INT32),
            "min_p": check_number("min_p", min_p, 0.0, 1.0, below=True),
            "repetition_penalty": check_number(
                "repetition_penalty", repetition_penalty, 0.0, MAX_REPETITION_PENALTY, above=True
            ),
            "presence_penalty": check_number("presence_penalty", presence_penalty, -MAX_PENALTY, MAX_PENALTY),
            "frequency_penalty": check_number("frequency_penalty", frequency_penalty, -MAX_PENALTY, MAX_PENALTY),
            "logit_bias": check_logit_bias(logit_bias),
            "seed": None if seed is None else check_integer("seed", seed, -(2**63), 2**64 - 1),
            "stop": check_stop(stop),
            "stop_token_ids": check_stop_token_ids(stop_token_ids),
            "include_stop_str_in_output": check_boolean("include_stop_str_in_output", include_stop_str_in_output),
            "min_tokens": check_integer("min_tokens", min_tokens, 0, MAX_INT32),
            "max_tokens": None if max_tokens is None else check_integer("max_tokens", max_tokens, 1, MAX_INT32),
            "ignore_eos": check_boolean("ignore_eos", ignore_eos),
            "logprobs": check_logprobs("logprobs", logprobs),
            "prompt_logprobs": check_logprobs("prompt_logprobs", prompt_logprobs),
            "skip_special_tokens": check_boolean("skip_special_tokens", skip_special_tokens),
            "structured_outputs": check_structured_outputs(structured_outputs),
        }
        if max_tokens is not None and min_tokens > max_tokens:
            raise parameter_error("min_tokens", min_tokens, f"at most max_tokens, which is {max_tokens}")
        if best_of is not None and best_of < n:
            raise parameter_error("best_of", best_of, f"at least n, which is {n}")
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < GREEDY_TEMPERATURE

    @property
    def num_sequences(self) -> int:
        """Sequences that run at once."""
        return self.best_of or self.n

    @property
    def chooses_best(self) -> bool:
        """Whether more answers are generated than given."""
        return self.best_of is not None and self.best_of > self.n

    def for_engine(self) -> Self:
        """What the engine is asked for: every answer, and the logprobs that the best are chosen by."""
        if not self.chooses_best:
            return self
        assert self.best_of is not None
        return replace(self, n=self.best_of, best_of=None, logprobs=self.logprobs or 0)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Builds from parsed JSON. Unknown keys are refused by name; keys of logit_bias may be decimal
        strings, and structured_outputs an object."""
        if not isinstance(values, Mapping):
            raise parameter_error("sampling parameters", values, "an object of names and values")
        known = {entry.name for entry in fields(cls)}
        unknown = sorted(str(name) for name in values if name not in known)
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: unknown; must be of {', '.join(sorted(known))}")
        arguments = dict(values)
        bias = arguments.get("logit_bias")
        if isinstance(bias, Mapping):
            arguments["logit_bias"] = {id_from_json(key): value for key, value in bias.items()}
        if isinstance(arguments.get("structured_outputs"), Mapping):
            arguments["structured_outputs"] = StructuredOutputsParams.from_dict(arguments["structured_outputs"])
        return cls(**arguments)

    def check_vocab(self, vocab_size: int) -> None:
        """Raises ValueError where logit_bias or stop_token_ids name an id that a vocabulary of this size
        lacks."""
        check_ids_in_vocab(self.logit_bias, self.stop_token_ids, vocab_size)
