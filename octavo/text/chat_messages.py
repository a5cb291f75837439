"""Checking chat messages, and telling their words from the template's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octavo.text.added_tokens import SpellingFinder
from octavo.text.codec import Span
from octavo.text.stop_strings import check_no_surrogates

MAX_DEPTH = 64
"""how deep values in messages and tools may nest"""

_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]


def check_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A copy of `messages` with text parts joined by line breaks; ValueError names message and field."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise ValueError(f"messages is a {type(messages).__name__}; it must be a list of messages")
    if not messages:
        raise ValueError("messages is empty; a chat needs at least one message")
    return [_check_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _check_message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ValueError(f"{where} is {message!r}; it must be an object with role and content")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ValueError(f"{where}.role is {role!r}; it must be a non-empty string")
    copy = {str(key): copy_value(value, f"{where}.{key}") for key, value in message.items()}
    if copy.get("content") is None and "tool_calls" in copy:
        copy["content"] = None
    else:
        copy["content"] = _check_content(copy.get("content"), f"{where}.content")
    return copy


def _check_content(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError(f"{where} is {content!r}; it must be a string or a list of text parts")
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            raise ValueError(f'{where}[{index}] is {part!r}; it must be {{"type": "text", "text": string}}')
        texts.append(part["text"])
    return "\n".join(texts)


def copy_value(value: Any, where: str, change: Callable[[str], str] | None = None, depth: int = 0) -> Any:
    """A copy of a JSON-like value with every string (keys too) passed through `change`; surrogates are
    refused.
    """
    if isinstance(value, str):
        check_no_surrogates(value, where)
        return change(value) if change else value
    if depth > MAX_DEPTH:
        raise ValueError(f"{where} nests deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return {
            copy_value(key, where, change, depth + 1): copy_value(item, f"{where}.{key}", change, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [copy_value(item, f"{where}[{index}]", change, depth + 1) for index, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float):
        return value
    raise ValueError(f"{where} is {value!r}; it must be a value that JSON can hold")


class Fence:
    """Keeps control tokens that are spelled in messages from becoming control tokens.

    Each spelling inside the strings of the messages is broken by a noncharacter before the template runs.
    What the template then writes unbroken is its own; the noncharacters are taken out again. So the text is
    the one that the template writes for the real strings, and every control token in it has a known owner. A
    spelling that the template puts together itself ('<|' + role + '|>') is the template's.
    """

    def __init__(self, control: SpellingFinder, values: Any) -> None:
        """`values`: everything that is not the template's: messages and tools, checked before."""
        used: set[str] = set()
        self._spelled = False

        def look(text: str) -> str:
            used.update(letter for letter in _NONCHARACTERS if letter in text)
            self._spelled = self._spelled or control.find(text) is not None
            return text

        copy_value(values, "messages", look)
        free = [letter for letter in _NONCHARACTERS if letter not in used]
        if self._spelled and not free:
            raise ValueError("messages use all of U+FDD0 to U+FDEF; one of them must be free")
        self._mark = free[0] if free else ""
        self._control = control

    @property
    def needed(self) -> bool:
        """Whether any string spells a control token."""
        return self._spelled

    def guard(self, value: Any) -> Any:
        """A copy of a value with all spellings broken."""
        return copy_value(value, "messages", self._break)

    def release(self, rendered: str) -> tuple[str, list[Span]]:
        """The text without marks, and where in it the template's own control tokens stand."""
        owned: list[Span] = []
        position = 0
        removed = 0
        for start, end, _ in self._control.matches(rendered):
            removed += rendered.count(self._mark, position, start)
            position = end
            if end - start > 1:  # a single letter cannot be broken, so nobody could tell whose it is
                owned.append((start - removed, end - removed))
        return rendered.replace(self._mark, ""), owned

    def _break(self, text: str) -> str:
        pieces, end = [], 0
        for start in self._control.starts(text):
            pieces.append(text[end : start + 1])
            end = start + 1
        return self._mark.join([*pieces, text[end:]]) if pieces else text
