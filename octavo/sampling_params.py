"""What a user asks of sampling, under the names that vLLM's users type, checked when it is built."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

MAX_N = 128
MAX_TEMPERATURE = 100.0
GREEDY_TEMPERATURE = 1e-5
"""Temperatures below this are greedy: the division would only amplify rounding."""
MAX_PENALTY = 2.0
MAX_REPETITION_PENALTY = 100.0
MAX_LOGIT_BIAS = 100.0
MAX_LOGIT_BIAS_ENTRIES = 4096
MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 1024
MAX_STOP_TOKEN_IDS = 128
MAX_LOGPROBS = 64
MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True, init=False)
class SamplingParams:
    """How the tokens of one request are chosen and when it ends. See octavo.sampling for the exact order of
    operations.

    Every value is checked here: a ValueError names the field, the value and the limit. Numbers must be
    numbers: no strings, no booleans, no NaN, no fractions where an integer is meant.
    """

    n: int
    """Answers to generate, 1 to 128. Each has its own random stream."""
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

    def __init__(
        self,
        *,
        n: int = 1,
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
    ) -> None:
        values: dict[str, object] = {
            "n": _integer("n", n, 1, MAX_N),
            "temperature": _number("temperature", temperature, 0.0, MAX_TEMPERATURE),
            "top_p": _number("top_p", top_p, 0.0, 1.0, above=True),
            "top_k": _integer("top_k", top_k, -1, MAX_INT32),
            "min_p": _number("min_p", min_p, 0.0, 1.0, below=True),
            "repetition_penalty": _number(
                "repetition_penalty", repetition_penalty, 0.0, MAX_REPETITION_PENALTY, above=True
            ),
            "presence_penalty": _number("presence_penalty", presence_penalty, -MAX_PENALTY, MAX_PENALTY),
            "frequency_penalty": _number("frequency_penalty", frequency_penalty, -MAX_PENALTY, MAX_PENALTY),
            "logit_bias": _logit_bias(logit_bias),
            "seed": None if seed is None else _integer("seed", seed, -(2**63), 2**64 - 1),
            "stop": _stop(stop),
            "stop_token_ids": _stop_token_ids(stop_token_ids),
            "include_stop_str_in_output": _boolean("include_stop_str_in_output", include_stop_str_in_output),
            "min_tokens": _integer("min_tokens", min_tokens, 0, MAX_INT32),
            "max_tokens": None if max_tokens is None else _integer("max_tokens", max_tokens, 1, MAX_INT32),
            "ignore_eos": _boolean("ignore_eos", ignore_eos),
            "logprobs": _optional_count("logprobs", logprobs),
            "prompt_logprobs": _optional_count("prompt_logprobs", prompt_logprobs),
            "skip_special_tokens": _boolean("skip_special_tokens", skip_special_tokens),
        }
        if max_tokens is not None and min_tokens > max_tokens:
            raise _error("min_tokens", min_tokens, f"at most max_tokens, which is {max_tokens}")
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < GREEDY_TEMPERATURE

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Builds from parsed JSON. Unknown keys are refused by name; keys of logit_bias may be decimal
        strings."""
        if not isinstance(values, Mapping):
            raise _error("sampling parameters", values, "an object of names and values")
        known = {entry.name for entry in fields(cls)}
        unknown = sorted(str(name) for name in values if name not in known)
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: unknown; must be of {', '.join(sorted(known))}")
        arguments = dict(values)
        bias = arguments.get("logit_bias")
        if isinstance(bias, Mapping):
            arguments["logit_bias"] = {_id_from_json(key): value for key, value in bias.items()}
        return cls(**arguments)

    def check_vocab(self, vocab_size: int) -> None:
        """Raises ValueError where logit_bias or stop_token_ids name an id that a vocabulary of this size
        lacks."""
        limit = f"below the vocabulary size {vocab_size}"
        for token_id in self.logit_bias or ():
            if token_id >= vocab_size:
                raise _error("logit_bias id", token_id, limit)
        for token_id in self.stop_token_ids:
            if token_id >= vocab_size:
                raise _error("stop_token_ids id", token_id, limit)


def _error(name: str, value: object, limit: str) -> ValueError:
    """The one form of message: field, value (shortened), limit."""
    try:
        shown = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        shown = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else "not printable"
    return ValueError(f"{name} is {shown if len(shown) <= 80 else shown[:77] + '...'}, must be {limit}")


def _integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _error(name, value, f"an integer from {low} to {high}")
    return value


def _number(name: str, value: object, low: float, high: float, *, above: bool = False, below: bool = False) -> float:
    """A finite number in [low, high]; above and below leave out the ends."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    if not good or (above and value == low) or (below and value == high):
        ends = f"{'above' if above else 'from'} {low:g} {'to below' if below else 'to'} {high:g}"
        raise _error(name, value, f"a number {ends}")
    assert isinstance(value, (int, float)) and math.isfinite(value)
    return float(value)


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _error(name, value, "true or false")
    return value


def _optional_count(name: str, value: object) -> int | None:
    return None if value is None else _integer(name, value, 0, MAX_LOGPROBS)


def _logit_bias(value: object) -> dict[int, float] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _error("logit_bias", value, "a mapping of token ids to numbers")
    if len(value) > MAX_LOGIT_BIAS_ENTRIES:
        raise ValueError(f"logit_bias is of {len(value)} entries, must be of at most {MAX_LOGIT_BIAS_ENTRIES}")
    return {
        _integer("logit_bias id", token_id, 0, MAX_INT32): _number(
            f"logit_bias[{token_id}]", bias, -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS
        )
        for token_id, bias in value.items()
    }


def _id_from_json(key: object) -> object:
    """JSON has only string keys: "42" is the id 42; anything else is left for the check to refuse."""
    return int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10 else key


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    strings = (value,) if isinstance(value, str) else value
    if not isinstance(strings, (list, tuple)):
        raise _error("stop", value, "a string, a list of strings or null")
    if len(strings) > MAX_STOP_STRINGS:
        raise ValueError(f"stop is of {len(strings)} strings, must be of at most {MAX_STOP_STRINGS}")
    for string in strings:
        if not isinstance(string, str) or not 1 <= len(string) <= MAX_STOP_LENGTH:
            raise _error("stop string", string, f"a string of 1 to {MAX_STOP_LENGTH} characters")
    return tuple(strings)


def _stop_token_ids(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise _error("stop_token_ids", value, "a list of token ids or null")
    if len(value) > MAX_STOP_TOKEN_IDS:
        raise ValueError(f"stop_token_ids is of {len(value)} ids, must be of at most {MAX_STOP_TOKEN_IDS}")
    return tuple(_integer("stop_token_ids id", token_id, 0, MAX_INT32) for token_id in value)
