"""What a user asks of beam search, checked when it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

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

MAX_BEAM_WIDTH = 64
MAX_LENGTH_PENALTY = 10.0


@dataclass(frozen=True, slots=True, init=False)
class BeamSearchParams:
    """How beam search goes and when it ends; octavo.engine.beam_search says exactly how it chooses.

    Values are checked as those of SamplingParams are: a ValueError names the field, the value and the limit.
    """

    beam_width: int
    """Beams that go on at every step, 1 to 64."""
    n: int
    """Answers to give, best first: 1 to beam_width, which is the default."""
    length_penalty: float
    """-10 to 10: a beam's score is the sum of its logprobs / its length ** length_penalty; above 0 favours long
    ones."""
    early_stopping: bool | Literal["never"]
    """True: end with the first beam_width finished beams. False: end when, at today's length, no running beam could
    beat the worst of them. "never": when none could at any length."""
    repetition_penalty: float
    """As in SamplingParams, but of logprobs; like the other changes of logprobs it moves the scores."""
    presence_penalty: float
    """As in SamplingParams."""
    frequency_penalty: float
    """As in SamplingParams."""
    logit_bias: Mapping[int, float] | None = field(hash=False)
    """As in SamplingParams."""
    stop: tuple[str, ...]
    """Up to 16 strings that finish a beam. Given as a string, a sequence of strings or None."""
    stop_token_ids: tuple[int, ...]
    """Up to 128 token ids that finish a beam, besides the model's own."""
    include_stop_str_in_output: bool
    """Leave the stop string at the end of the text."""
    min_tokens: int
    """Neither end of sequence nor stop_token_ids are chosen before this many tokens."""
    max_tokens: int | None
    """The most tokens of a beam; None: as many as the context allows."""
    ignore_eos: bool
    """Go on after the end of sequence."""
    logprobs: int | None
    """Report the model's own logprob of each chosen token and of this many most likely ones, 0 to 64."""
    prompt_logprobs: int | None
    """The same for the tokens of the prompt."""
    skip_special_tokens: bool
    """Leave special tokens out of the text."""
    structured_outputs: StructuredOutputsParams | None
    """As in SamplingParams; every beam follows it on its own."""

    def __init__(
        self,
        beam_width: int = 4,
        max_tokens: int | None = 16,
        *,
        n: int | None = None,
        length_penalty: float = 1.0,
        early_stopping: bool | Literal["never"] = False,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Sequence[int] | None = None,
        include_stop_str_in_output: bool = False,
        min_tokens: int = 0,
        ignore_eos: bool = False,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        skip_special_tokens: bool = True,
        structured_outputs: StructuredOutputsParams | None = None,
    ) -> None:
        width = check_integer("beam_width", beam_width, 1, MAX_BEAM_WIDTH)
        if not isinstance(early_stopping, bool) and early_stopping != "never":
            raise parameter_error("early_stopping", early_stopping, 'true, false or "never"')
        values: dict[str, object] = {
            "beam_width": width,
            "n": width if n is None else check_integer("n", n, 1, width),
            "length_penalty": check_number("length_penalty", length_penalty, -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY),
            "early_stopping": early_stopping,
            "repetition_penalty": check_number(
                "repetition_penalty", repetition_penalty, 0.0, MAX_REPETITION_PENALTY, above=True
            ),
            "presence_penalty": check_number("presence_penalty", presence_penalty, -MAX_PENALTY, MAX_PENALTY),
            "frequency_penalty": check_number("frequency_penalty", frequency_penalty, -MAX_PENALTY, MAX_PENALTY),
            "logit_bias": check_logit_bias(logit_bias),
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
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def seed(self) -> int:
        """Nothing is random here."""
        return 0

    @property
    def is_greedy(self) -> bool:
        """Nothing is random here."""
        return True

    @property
    def num_sequences(self) -> int:
        """Sequences that run at once."""
        return self.beam_width

    def for_engine(self) -> Self:
        """What the engine is asked for: the same."""
        return self

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Builds from parsed JSON. Unknown keys are refused by name; keys of logit_bias may be decimal strings, and
        structured_outputs an object."""
        if not isinstance(values, Mapping):
            raise parameter_error("beam search parameters", values, "an object of names and values")
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
        """Raises ValueError where logit_bias or stop_token_ids name an id that a vocabulary of this size lacks."""
        check_ids_in_vocab(self.logit_bias, self.stop_token_ids, vocab_size)
