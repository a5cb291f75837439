"""A function that a model may call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}
_OPEN = {"additionalProperties", "$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "unevaluatedProperties"}
"""Keywords with which a schema says something about properties that it does not declare"""


@dataclass(frozen=True, slots=True)
class Function:
    """Its name, what it does, and the JSON schema of its arguments, an object."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None

    def for_template(self) -> dict[str, Any]:
        """As chat templates take tools. Equal functions give equal prompts."""
        parameters = _EMPTY if self.parameters is None else self.parameters
        about = {"name": self.name, "description": self.description, "parameters": dict(parameters)}
        return {"type": "function", "function": {key: value for key, value in about.items() if value is not None}}

    def arguments_schema(self) -> dict[str, Any]:
        """What the arguments are held to: the parameters, and no others than those that are declared, unless the
        schema may mean others."""
        schema = {"type": "object", **(_EMPTY if self.parameters is None else self.parameters)}
        declared, required = schema.get("properties"), schema.get("required", [])
        if isinstance(declared, Mapping) and isinstance(required, list) and not _OPEN & set(schema):
            closed = all(isinstance(name, str) and name in declared for name in required)
            schema |= {"additionalProperties": False} if closed else {}
        return schema
