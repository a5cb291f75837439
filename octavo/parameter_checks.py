"""Checks of the values that users give: each raises a ValueError that names field, value and limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

MAX_PENALTY = 2.0
MAX_REPETITION_PENALTY = 100.0
MAX_LOGIT_BIAS = 100.0
MAX_LOGIT_BIAS_ENTRIES = 4096
MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 1024
MAX_STOP_TOKEN_IDS = 128
MAX_LOGPROBS = 64
MAX_INT32 = 2**31 - 1


def parameter_error(name: str, value: object, limit: str) -> ValueError:
    """The one form of message: field, value (shortened), limit."""
    try:
        shown = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        shown = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else "not printable"
    return ValueError(f"{name} is {shown if len(shown) <= 80 else shown[:77] + '...'}, must be {limit}")


def check_integer(name: str, value: object, low: int, high: int) -> int:
    """An integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise parameter_error(name, value, f"an integer from {low} to {high}")
    return value


def check_number(
    name: str, value: object, low: float, high: float, *, above: bool = False, below: bool = False
) -> float:
    """A finite number in [low, high]; above and below leave out the ends."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    if not good or (above and value == low) or (below and value == high):
        ends = f"{'above' if above else 'from'} {low:g} {'to below' if below else 'to'} {high:g}"
        raise parameter_error(name, value, f"a number {ends}")
    assert isinstance(value, (int, float)) and math.isfinite(value)
    return float(value)


def check_boolean(name: str, value: object) -> bool:
    """True or false, nothing like it."""
    if not isinstance(value, bool):
        raise parameter_error(name, value, "true or false")
    return value


def check_logprobs(name: str, value: object) -> int | None:
    """None, or how many alternatives to report."""
    return None if value is None else check_integer(name, value, 0, MAX_LOGPROBS)


def check_logit_bias(value: object) -> dict[int, float] | None:
    """Token id -> bias, copied."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise parameter_error("logit_bias", value, "a mapping of token ids to numbers")
    if len(value) > MAX_LOGIT_BIAS_ENTRIES:
        raise ValueError(f"logit_bias is of {len(value)} entries, must be of at most {MAX_LOGIT_BIAS_ENTRIES}")
    return {
        check_integer("logit_bias id", token_id, 0, MAX_INT32): check_number(
            f"logit_bias[{token_id}]", bias, -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS
        )
        for token_id, bias in value.items()
    }


def id_from_json(key: object) -> object:
    """JSON has only string keys: "42" is the id 42; anything else is left for the check to refuse."""
    return int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10 else key


def check_stop(value: object) -> tuple[str, ...]:
    """Stop strings, given as one or many."""
    if value is None:
        return ()
    strings = (value,) if isinstance(value, str) else value
    if not isinstance(strings, (list, tuple)):
        raise parameter_error("stop", value, "a string, a list of strings or null")
    if len(strings) > MAX_STOP_STRINGS:
        raise ValueError(f"stop is of {len(strings)} strings, must be of at most {MAX_STOP_STRINGS}")
    for string in strings:
        if not isinstance(string, str) or not 1 <= len(string) <= MAX_STOP_LENGTH:
            raise parameter_error("stop string", string, f"a string of 1 to {MAX_STOP_LENGTH} characters")
    return tuple(strings)


def check_stop_token_ids(value: object) -> tuple[int, ...]:
    """Token ids that end an answer."""
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise parameter_error("stop_token_ids", value, "a list of token ids or null")
    if len(value) > MAX_STOP_TOKEN_IDS:
        raise ValueError(f"stop_token_ids is of {len(value)} ids, must be of at most {MAX_STOP_TOKEN_IDS}")
    return tuple(check_integer("stop_token_ids id", token_id, 0, MAX_INT32) for token_id in value)


def check_ids_in_vocab(logit_bias: Mapping[int, float] | None, stop_token_ids: Iterable[int], vocab_size: int) -> None:
    """No id that a vocabulary of this size lacks."""
    limit = f"below the vocabulary size {vocab_size}"
    for token_id in logit_bias or ():
        if token_id >= vocab_size:
            raise parameter_error("logit_bias id", token_id, limit)
    for token_id in stop_token_ids:
        if token_id >= vocab_size:
            raise parameter_error("stop_token_ids id", token_id, limit)
