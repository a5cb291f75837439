"""A function that a model may call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}
_COMBINED = ("$ref", "allOf", "anyOf", "oneOf", "if", "not", "patternProperties", "unevaluatedProperties")


@dataclass(frozen=True, slots=True)
class Function:
    """Its name, what it does, and the JSON schema of its arguments, an object."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None

    def for_template(self) -> dict[str, Any]:
        """As chat templates take tools. Equal functions give equal prompts."""
        about = {"name": self.name, "description": self.description, "parameters": dict(self.parameters or _EMPTY)}
        return {"type": "function", "function": {key: value for key, value in about.items() if value is not None}}

    def arguments_schema(self) -> dict[str, Any]:
        """What the arguments are held to: the parameters, and no others than those that are declared, unless the
        schema says that it takes others."""
        schema = {"type": "object", **(self.parameters or _EMPTY)}
        if "additionalProperties" not in schema and not any(key in schema for key in _COMBINED):
            schema["additionalProperties"] = False
        return schema
