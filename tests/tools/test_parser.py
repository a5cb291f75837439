"""Answers read in any pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.tools.formats import FORMATS, ToolFormat
from octavo.tools.parser import ToolFormatError, ToolParser

NAMES = st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=3)
CALLS = st.lists(st.tuples(NAMES, OBJECTS), min_size=1, max_size=3)
ALL = st.sampled_from(list(FORMATS.values()))
TRICKY = '<tool_call {"name": " [TOOL [TOOL_CALLS ```tool_code\\ <|python_tag| "}\\'


def read(form: ToolFormat, pieces: list[str], cut: bool = False) -> tuple[ToolParser, list[Any]]:
    """The parser after all pieces, and the joined deltas: text, then (name, arguments) of each call."""
    parser = ToolParser(form)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)] + parser.finish(cut)
    text, calls = "", []
    for delta in deltas:
        text += delta.content
        if delta.name is not None:
            assert delta.call == len(calls)
            calls.append([delta.name, ""])
        if delta.arguments:
            assert delta.call == len(calls) - 1
            calls[-1][1] += delta.arguments
    assert text == parser.content
    assert calls == [[call.name, call.arguments] for call in parser.calls]
    return parser, [text, *map(tuple, calls)]


def begins_a_call(form: ToolFormat, text: str) -> bool:
    return form.begin in text or (form.starts_bare and text.startswith(form.before))


def split(text: str, places: list[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places})
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


@settings(deadline=None)
@given(ALL, CALLS, st.lists(st.integers(0, 500), max_size=20))
def test_calls_are_read_back_however_they_were_cut(form: ToolFormat, calls: Any, places: list[int]) -> None:
    if form.between_calls is None:
        calls = calls[:1]
    answer = form.write(calls)
    parser, (text, *found) = read(form, split(answer, places))
    assert text == ""
    assert [(name, json.loads(arguments)) for name, arguments in found] == calls
    assert not parser.in_call and all(call.complete for call in parser.calls)


@settings(deadline=None)
@given(ALL, st.text(st.sampled_from(TRICKY), max_size=60) | st.text(max_size=20), st.lists(st.integers(0, 99)))
def test_text_before_calls_is_content(form: ToolFormat, text: str, places: list[int]) -> None:
    if begins_a_call(form, text):
        return
    call = form.begin + form.opening + form.write([("f", {"x": 1})]).removeprefix(form.begin + form.opening)
    _, found = read(form, split(text + call, places))
    assert found == [text, ("f", '{"x": 1}')]


@settings(deadline=None)
@given(ALL, st.text(st.sampled_from(TRICKY), max_size=60), st.lists(st.integers(0, 99)))
def test_text_without_calls_is_content(form: ToolFormat, text: str, places: list[int]) -> None:
    if begins_a_call(form, text):
        return
    assert read(form, split(text, places))[1] == [text]


@settings(deadline=None)
@given(ALL, CALLS, st.integers(0, 500), st.lists(st.integers(0, 500)))
def test_an_answer_that_is_cut_anywhere_is_a_beginning_of_the_whole(
    form: ToolFormat, calls: Any, end: int, places: list[int]
) -> None:
    if form.between_calls is None:
        calls = calls[:1]
    answer = form.write(calls)[:end]
    parser, (text, *found) = read(form, split(answer, places), cut=True)
    whole = read(form, [form.write(calls)])[1][1:]
    assert text == "", "a beginning of a call is never content"
    assert [name for name, _ in found] == [name for name, _ in whole[: len(found)]]
    for (_, part), (_, all_of_it), call in zip(found, whole, parser.calls, strict=False):
        assert all_of_it.startswith(part)
        assert call.complete == (part == all_of_it)
    assert sum(not call.complete for call in parser.calls) <= parser.in_call


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_only_a_real_beginning_of_a_call_is_held_back(form: ToolFormat) -> None:
    parser = ToolParser(form)
    assert [delta.content for delta in parser.feed("a < [ ` b")] == ["a < [ ` b"]
    for place, letter in enumerate(form.begin[:-1]):
        assert parser.feed(letter) == [], f"{place} letters of the beginning are held"
    assert [delta.content for delta in parser.feed("~")] == [form.begin[:-1] + "~"]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_what_is_held_at_the_end_is_text_where_the_model_ended(form: ToolFormat) -> None:
    half = form.begin[: len(form.begin) // 2]
    assert read(form, ["x", half])[1] == [f"x{half}"]
    assert read(form, ["x", half], cut=True)[1] == ["x"]


def test_names_and_arguments_come_as_soon_as_they_are_known() -> None:
    parser = ToolParser(FORMATS["hermes"])
    assert parser.feed('<tool_call>\n{"name": "look_up", "argu') == []
    (start,) = parser.feed('ments": ')
    assert (start.call, start.name, start.arguments) == (0, "look_up", "")
    assert [delta.arguments for delta in parser.feed('{"a": "}')] == ['{"a": "}']
    assert [delta.arguments for delta in parser.feed('\\"}{"}}\n</to')] == ['\\"}{"}']
    assert not parser.in_call


def test_what_is_not_of_the_format_is_an_error_and_never_content() -> None:
    for answer in ("<tool_call>{", '<tool_call>\n{"nam', '<tool_call>\n{"name": "f", "arguments": {}}x'):
        parser = ToolParser(FORMATS["hermes"])
        with pytest.raises(ToolFormatError, match="not its format"):
            parser.feed(answer + "~~~")
        assert parser.content == ""


def test_a_bare_call_is_one_only_at_the_start() -> None:
    form = FORMATS["llama3"]
    assert read(form, ['{"name": "f", "parameters": {}}'])[1] == ["", ("f", "{}")]
    assert read(form, ['x {"name": "f", "parameters": {}}'])[1] == ['x {"name": "f", "parameters": {}}']
    assert read(form, ['x <|python_tag|>{"name": "f", "parameters": {}}'])[1] == ["x ", ("f", "{}")]
    assert read(form, ['{"names": 1}'])[1] == ['{"names": 1}']
