"""The fields tools, tool_choice and parallel_tool_calls: checked at the door."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from octavo.json_schema import check_schema
from octavo.server.errors import bad_request, unsupported
from octavo.server.fields import ChatFields
from octavo.text.chat_messages import copy_value
from octavo.tools.functions import Function

MAX_TOOLS = 128
_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")
_CHOICES = ("none", "auto", "required")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a request says about functions."""

    functions: tuple[Function, ...]
    """All that the model is told of"""
    callable: tuple[Function, ...]
    """Those that it may call: one where it is named"""
    choice: str
    """auto, required or named"""
    parallel: bool | None
    """Whether there may be several calls; None: where the model was made for calls"""

    @property
    def required(self) -> bool:
        """Whether there must be a call."""
        return self.choice != "auto"

    @property
    def for_template(self) -> list[dict[str, Any]]:
        return [function.for_template() for function in self.functions]


def read_tool_use(fields: ChatFields, ignored: list[str]) -> ToolUse | None:
    """None where there are no tools, or none that may be called: the model is not told of them either.

    ApiError 400 names the field; the names of unknown fields are added to `ignored`.
    """
    functions = tuple(read_functions(fields.tools, ignored))
    choice, name = _read_choice(fields.tool_choice, ignored)
    if not functions:
        if choice in ("required", "named"):
            raise bad_request("tools: must hold a function where tool_choice asks for a call")
        if fields.parallel_tool_calls is not None:
            raise bad_request("parallel_tool_calls: may only be given with tools")
        return None
    named = tuple(function for function in functions if function.name == name)
    if choice == "named" and not named:
        where = "tool_choice.function.name"
        raise bad_request(f"{where}: is {str(name)[:80]!r}, must be the name of one of tools", where)
    if choice == "none":
        return None
    parallel = False if choice == "named" else fields.parallel_tool_calls
    return ToolUse(functions, named or functions, choice, parallel)


def read_functions(tools: Any, ignored: list[str]) -> list[Function]:
    """The field tools. ApiError 400 names what is wrong in it."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise bad_request("tools: must be a list")
    if len(tools) > MAX_TOOLS:
        raise bad_request(f"tools: has {len(tools)} functions, must be at most {MAX_TOOLS}")
    functions = [_read_tool(tool, f"tools[{place}]", ignored) for place, tool in enumerate(tools)]
    places: dict[str, int] = {}
    for place, function in enumerate(functions):
        if function.name in places:
            where = f"tools[{place}].function.name"
            raise bad_request(f"{where}: is {function.name!r}, as that of tools[{places[function.name]}]", where)
        places[function.name] = place
    return functions


def _read_tool(tool: Any, where: str, ignored: list[str]) -> Function:
    if not isinstance(tool, dict):
        raise bad_request(f"{where}: must be an object", where)
    kind = tool.get("type")
    if isinstance(kind, str) and kind != "function":
        raise unsupported(f"{where}.type", f"tools of type {kind[:40]!r} are not supported, only function is")
    function = tool.get("function")
    if kind is None or not isinstance(function, dict):
        raise bad_request(f'{where}: must be {{"type": "function", "function": {{"name": ...}}}}', where)
    ignored += [f"{where}.{name}" for name in tool if name not in ("type", "function")]
    where = f"{where}.function"
    given = {name: value for name, value in function.items() if value is not None}
    ignored += [f"{where}.{name}" for name in given if name not in ("name", "description", "parameters", "strict")]
    name = given.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = repr(name[:80]) if isinstance(name, str) else "not text"
        raise bad_request(f"{where}.name: is {shown}, must be 1 to 64 of a-z, A-Z, 0-9, _ and -", f"{where}.name")
    description = given.get("description")
    if not isinstance(description, str | None):
        raise bad_request(f"{where}.description: must be text", f"{where}.description")
    if not isinstance(given.get("strict"), bool | None):
        raise bad_request(f"{where}.strict: must be true or false", f"{where}.strict")
    return Function(name, description, _read_parameters(given.get("parameters"), f"{where}.parameters"))


def _read_parameters(parameters: Any, where: str) -> dict[str, Any] | None:
    if not isinstance(parameters, dict | None):
        raise bad_request(f"{where}: must be a JSON schema, an object", where)
    if parameters is not None and parameters.get("type", "object") != "object":
        raise bad_request(f'{where}.type: must be "object": arguments are named', f"{where}.type")
    if parameters is None:
        return None
    try:
        check_schema(where, parameters)
        copy_value(parameters, where)  # refuses what nests too deeply for a template
    except ValueError as error:
        raise bad_request(str(error), where) from None
    return parameters


def _read_choice(choice: Any, ignored: list[str]) -> tuple[str, str | None]:
    """(none, auto, required or named; the name)"""
    if choice is None:
        return "auto", None
    if isinstance(choice, str) and choice in _CHOICES:
        return choice, None
    if not isinstance(choice, dict):
        shown = repr(choice[:40]) if isinstance(choice, str) else "neither"
        raise bad_request(f"tool_choice: is {shown}, must be one of {', '.join(_CHOICES)}, or an object")
    kind, function = choice.get("type"), choice.get("function")
    if isinstance(kind, str) and kind != "function":
        raise unsupported("tool_choice.type", f"{kind[:40]!r} is not supported, only function is")
    if kind is None or not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise bad_request('tool_choice: must be {"type": "function", "function": {"name": ...}}')
    ignored += [f"tool_choice.{name}" for name in choice if name not in ("type", "function")]
    ignored += [f"tool_choice.function.{name}" for name in function if name != "name"]
    return "named", function["name"]
