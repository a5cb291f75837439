"""What grammars of calls take and refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from matching import Matching

from octavo.tools.formats import FORMATS, MAX_CALLS, ToolFormat
from octavo.tools.functions import Function
from octavo.tools.grammar import calls_grammar
from octavo.tools.parser import ToolParser

WEATHER = Function(
    "get_weather",
    "The weather of a place",
    {
        "type": "object",
        "properties": {"place": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["place", "days"],
    },
)
LONGER = Function("get_weather_map", None, {"type": "object", "properties": {"zoom": {"enum": [1, 2]}}})
NOTHING = Function("now")
ARGUMENTS = {"place": 'Nîmes "x" {', "days": 3}
CALL = ("get_weather", ARGUMENTS)
EACH = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
BOTH = pytest.mark.parametrize("special", [False, True], ids=["plain", "control tokens"])


def grammar(form: ToolFormat, matching: Matching, *functions: Function, **how: Any) -> str:
    how = {"required": False, "parallel": True} | how
    return calls_grammar(form, functions or (WEATHER, LONGER, NOTHING), matching.control, **how)


def matching_for(form: ToolFormat, special: bool = False) -> Matching:
    return Matching(*(form.markers if special else ()))


@EACH
@BOTH
def test_calls_of_each_format_are_taken(form: ToolFormat, special: bool) -> None:
    matching = matching_for(form, special)
    for required in (False, True):
        rules = grammar(form, matching, required=required)
        for call in (CALL, ("get_weather_map", {"zoom": 2}), ("get_weather_map", {}), ("now", {})):
            assert matching.take(rules, form.write([call])).complete, call


@EACH
@BOTH
def test_text_and_then_a_call(form: ToolFormat, special: bool) -> None:
    matching = matching_for(form, special)
    rules = grammar(form, matching)
    text = 'I <look> {"name": "it"} [up].\n\n``` '
    assert matching.take(rules, "").complete
    assert matching.take(rules, text).complete
    call = form.begin + form.opening + form.before + "get_weather" + form.middle
    taken = matching.take(rules, text + call)
    assert taken.all and not taken.complete, "what has begun as a call must become one"
    assert taken.forced.startswith('{"place": "')
    assert not matching.take(rules, text + form.begin + "x").all
    answer = text + call + json.dumps(ARGUMENTS, ensure_ascii=False) + form.after + form.end
    assert matching.take(rules, answer).complete
    parser = ToolParser(form)
    parser.feed(answer)
    assert parser.content == text and parser.calls[0].complete


@EACH
@BOTH
def test_arguments_are_held_to_the_schema(form: ToolFormat, special: bool) -> None:
    matching = matching_for(form, special)
    rules = grammar(form, matching)
    for arguments in ({"place": "x"}, {"place": 1, "days": 1}, {**ARGUMENTS, "days": 8}, {**ARGUMENTS, "more": 1}):
        assert not matching.take(rules, form.write([("get_weather", arguments)])).complete
    assert not matching.take(rules, form.write([("get_wether", ARGUMENTS)])).all


@EACH
@BOTH
def test_required_is_a_call_from_the_first_letter_on(form: ToolFormat, special: bool) -> None:
    matching = matching_for(form, special)
    rules = grammar(form, matching, WEATHER, required=True)
    assert not matching.take(rules, "").complete
    assert not matching.take(rules, "I").all
    if not special:
        begin = "" if form.starts_bare else form.begin + form.opening
        assert matching.take(rules, "").forced == begin + form.before + "get_weather" + form.middle + '{"place": "'


@EACH
def test_one_call_or_several(form: ToolFormat) -> None:
    matching = matching_for(form)
    two = form.write([CALL, ("now", {})])
    assert matching.take(grammar(form, matching, parallel=True), two).complete == (form.between_calls is not None)
    assert not matching.take(grammar(form, matching, parallel=False), two).all
    if form.between_calls is not None:
        most = form.write([("now", {})] * MAX_CALLS)
        assert matching.take(grammar(form, matching), most).complete
        assert not matching.take(grammar(form, matching), form.write([("now", {})] * (MAX_CALLS + 1))).all


@EACH
@BOTH
def test_nothing_follows_a_call(form: ToolFormat, special: bool) -> None:
    matching = matching_for(form, special)
    assert not matching.take(grammar(form, matching), form.write([CALL]) + " Done.").all


def test_a_marker_that_is_a_control_token_begins_a_call_also_when_spelled() -> None:
    form = FORMATS["mistral"]
    matching = matching_for(form, special=True)
    spelled = Matching()
    rules = grammar(form, matching)
    assert spelled.take(grammar(form, spelled), "[TOOL_CALLS]").forced.startswith('[{"name": "')
    plain = Matching("unused")  # the marker in letters, under a grammar that knows the token
    assert plain.take(rules, "x[TOOL_CALLS]").forced.startswith('[{"name": "')


@pytest.mark.parametrize("name", ["hermes", "gemma"])
def test_text_may_be_held_to_a_schema(name: str) -> None:
    form = FORMATS[name]
    matching = matching_for(form)
    rules = grammar(form, matching, text_schema={"type": "object", "properties": {"name": {"type": "string"}}})
    assert matching.take(rules, '{"name":"x"}').complete
    assert matching.take(rules, form.write([CALL])).complete
    assert not matching.take(rules, "x").all


def test_a_schema_for_text_that_looks_like_calls_is_refused() -> None:
    for name in ("llama3", "mistral"):
        with pytest.raises(ValueError, match="response_format"):
            grammar(FORMATS[name], Matching(), text_schema={"type": "object"})
    special = matching_for(FORMATS["mistral"], special=True)
    rules = grammar(FORMATS["mistral"], special, text_schema={"type": "array"})
    assert special.take(rules, "[1]").complete
    assert special.take(rules, FORMATS["mistral"].write([CALL])).complete


def test_schemas_that_say_so_take_more_arguments() -> None:
    form, matching = FORMATS["hermes"], Matching()
    for parameters in (
        {"type": "object", "additionalProperties": True},
        {"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "integer"}},
        {"$ref": "#/$defs/free", "$defs": {"free": {"type": "object"}}},
    ):
        rules = grammar(form, matching, Function("f", None, parameters))
        assert matching.take(rules, form.write([("f", {"a": 1, "b": 2})])).complete
