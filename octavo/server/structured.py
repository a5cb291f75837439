"""The form of an answer: OpenAI's response_format, and vLLM's names for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from octavo.server.errors import bad_request, short
from octavo.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    from octavo.server.fields import GenerationFields

_GUIDED = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "guided_json_object": "json_object",
}
_HARMLESS = {
    "disable_fallback": (True, False),
    "disable_any_whitespace": (True, False),
    "disable_additional_properties": (False,),
}
"""Of vLLM's structured_outputs: values that ask for what is done anyway"""
_FORMATS = ("text", "json_object", "json_schema")
_OURS = "structured_outputs"


def read_structured(fields: GenerationFields, ignored: list[str]) -> tuple[StructuredOutputsParams | None, str]:
    """The form that a request asks for, and the field that does. The names of unknown parts are added to `ignored`.

    ApiError 400 where two fields ask, or where one is wrong.
    """
    asked: dict[str, dict[str, Any]] = {}
    for name, key in _GUIDED.items():
        value = getattr(fields, name)
        if value is not None and value is not False:
            asked[name] = {key: value}
    if fields.structured_outputs is not None:
        asked[_OURS] = _read_ours(fields.structured_outputs)
    if fields.response_format is not None:
        wanted = _read_response_format(fields.response_format, ignored)
        if wanted:
            asked["response_format"] = wanted
    if not asked:
        return None, ""
    if len(asked) > 1:
        raise bad_request(f"{' and '.join(asked)}: must not be given together", list(asked)[1])
    ((name, values),) = asked.items()
    name = "response_format.json_schema.schema" if name == "response_format" and "json" in values else name
    try:
        return StructuredOutputsParams.from_dict(values), name
    except ValueError as error:
        raise bad_request(in_words_of(name, str(error)), None if name == _OURS else name) from None


def in_words_of(name: str, message: str) -> str:
    """A message about structured_outputs for a client that asked by another name."""
    if not name or not message.startswith(_OURS) or name == _OURS:
        return message
    rest = message[len(_OURS) :]
    for kind in _GUIDED.values():
        if rest.startswith(f".{kind}"):
            rest = rest[len(kind) + 1 :]
            break
    return name + rest


def _read_ours(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise bad_request(f"{_OURS}: is {short(value)}, must be an object", _OURS)
    return {name: each for name, each in value.items() if name not in _HARMLESS or each not in _HARMLESS[name]}


def _read_response_format(value: Any, ignored: list[str]) -> dict[str, Any]:
    """Arguments of StructuredOutputsParams; none for text."""
    name = "response_format"
    if not isinstance(value, Mapping):
        raise bad_request(f"{name}: is {short(value)}, must be an object", name)
    kind = value.get("type")
    if kind not in _FORMATS:
        raise bad_request(f"{name}.type: is {short(kind)}, must be one of {', '.join(_FORMATS)}", f"{name}.type")
    ignored += [f"{name}.{each}" for each in value if each not in ("type", "json_schema")]
    if kind != "json_schema":
        if value.get("json_schema") is not None:
            raise bad_request(f"{name}.json_schema: goes with type json_schema, not {kind}", f"{name}.json_schema")
        return {"json_object": True} if kind == "json_object" else {}
    return {"json": _read_schema(value.get("json_schema"), f"{name}.json_schema", ignored)}


def _read_schema(value: Any, name: str, ignored: list[str]) -> Any:
    """The schema in OpenAI's wrapping. It is followed whatever `strict` says."""
    if not isinstance(value, Mapping):
        raise bad_request(f"{name}: is {short(value)}, must be an object with name and schema", name)
    for part, kind, words in (("name", str, "text"), ("description", str, "text"), ("strict", bool, "true or false")):
        if value.get(part) is not None and not isinstance(value[part], kind):
            raise bad_request(f"{name}.{part}: is {short(value[part])}, must be {words}", f"{name}.{part}")
    if not isinstance(value.get("schema"), Mapping):
        raise bad_request(f"{name}.schema: is {short(value.get('schema'))}, must be an object", f"{name}.schema")
    ignored += [f"{name}.{each}" for each in value if each not in ("name", "description", "strict", "schema")]
    return value["schema"]
