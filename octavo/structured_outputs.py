"""What form an output must have, checked when it is said."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from octavo.json_schema import check_schema
from octavo.parameter_checks import check_boolean, parameter_error

MAX_TEXT_BYTES = 131_072
MAX_CHOICES = 4096


@dataclass(frozen=True, slots=True)
class StructuredOutputsParams:
    """Exactly one form. Every output that ends by itself has it, and only max_tokens and what the request stops at cut
    one short.

        SamplingParams(structured_outputs=StructuredOutputsParams(json={"type": "integer"}))

    A ValueError names the field, the value and the limit. docs/structured_outputs.md says what is understood; what the
    grammar's compiler does not understand is a ValueError before the request reaches the engine.
    """

    json: str | Mapping[str, Any] | None = None
    """A JSON schema, which is kept as text. The output is JSON without blanks"""
    regex: str | None = None
    """A regular expression that the whole output matches"""
    choice: Sequence[str] | None = None
    """1 to 4096 texts, of which the output is one"""
    grammar: str | None = None
    """A Lark grammar in llguidance's dialect; its rule `start` is the output"""
    json_object: bool = False
    """Any JSON object, without blanks"""

    def __post_init__(self) -> None:
        check_boolean("structured_outputs.json_object", self.json_object)
        names = [entry.name for entry in fields(self)]
        given = [name for name in names if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            shown = " and ".join(given) or "none"
            raise ValueError(f"structured_outputs: has {shown}, must have exactly one of {', '.join(names)}")
        if self.json is not None:
            object.__setattr__(self, "json", _schema_text(self.json))
        if self.choice is not None:
            object.__setattr__(self, "choice", _check_choice(self.choice))
        for name in ("regex", "grammar"):
            if getattr(self, name) is not None:
                _check_text(f"structured_outputs.{name}", getattr(self, name))

    @property
    def kind(self) -> str:
        """The name of the field that was given."""
        return next(entry.name for entry in fields(self) if getattr(self, entry.name) not in (None, False))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Builds from parsed JSON. Unknown keys are refused by name; null is as if left out."""
        if not isinstance(values, Mapping):
            raise parameter_error("structured_outputs", values, "an object")
        known = [entry.name for entry in fields(cls)]
        unknown = sorted(str(name) for name, value in values.items() if name not in known and value is not None)
        if unknown:
            raise ValueError(f"structured_outputs.{unknown[0]}: is not supported; must be of {', '.join(known)}")
        return cls(**{name: value for name, value in values.items() if value is not None})


def check_structured_outputs(value: object) -> StructuredOutputsParams | None:
    """None, or what it should be."""
    if value is not None and not isinstance(value, StructuredOutputsParams):
        raise parameter_error("structured_outputs", value, "a StructuredOutputsParams")
    return value


def _schema_text(schema: object) -> str:
    """One schema has one text, and later changes of a dict do not reach it."""
    name = "structured_outputs.json"
    if isinstance(schema, str):
        _check_text(name, schema)
    elif not isinstance(schema, Mapping):
        raise parameter_error(name, schema, "a JSON schema that is an object, or its text")
    try:
        text = schema if isinstance(schema, str) else json_text.dumps(dict(schema), ensure_ascii=False)
        value = json_text.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"{name}: nests too deeply") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise parameter_error(name, value, "a JSON schema that is an object, or its text")
    check_schema(name, value)
    text = json_text.dumps(value, ensure_ascii=False, separators=(",", ":"))
    _check_text(name, text)
    return text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _check_choice(choice: object) -> tuple[str, ...]:
    name = "structured_outputs.choice"
    if isinstance(choice, str) or not isinstance(choice, Sequence) or not 1 <= len(choice) <= MAX_CHOICES:
        raise parameter_error(name, choice, f"a list of 1 to {MAX_CHOICES} texts")
    for place, text in enumerate(choice):
        _check_text(f"{name}[{place}]", text)
    total = sum(len(text.encode()) for text in choice)
    if total > MAX_TEXT_BYTES:
        raise ValueError(f"{name}: has {total} bytes, must have at most {MAX_TEXT_BYTES}")
    return tuple(choice)


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str) or not text:
        raise parameter_error(name, text, "a text that is not empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: character {error.start} is a lone surrogate, which is no text") from None
    if size > MAX_TEXT_BYTES:
        raise ValueError(f"{name}: has {size} bytes, must have at most {MAX_TEXT_BYTES}")
