"""Reading an answer that its grammar forced, as it arrives: text, then calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.tools.formats import ToolFormat


class ToolFormatError(Exception):
    """A call is not of its format, which its grammar should have made impossible."""


@dataclass(frozen=True, slots=True)
class ToolDelta:
    """Something new of an answer: text, a call's name, or a piece of its arguments."""

    content: str = ""
    call: int | None = None
    """Which call, from 0"""
    name: str | None = None
    """At a call's first delta only"""
    arguments: str = ""


@dataclass(slots=True)
class ToolCall:
    """A call, as far as it was read."""

    name: str
    arguments: str = ""
    complete: bool = False


@dataclass(slots=True)
class _Scan:
    """Where a JSON object stands that is being read."""

    depth: int = 0
    in_string: bool = False
    escaped: bool = False

    def end(self, text: str) -> int | None:
        """The place behind the object's last brace, once it is there."""
        for place, letter in enumerate(text):
            if self.in_string:
                if self.escaped:
                    self.escaped = False
                elif letter == "\\":
                    self.escaped = True
                elif letter == '"':
                    self.in_string = False
            elif letter == '"':
                self.in_string = True
            elif letter in "{[":
                self.depth += 1
            elif letter in "}]":
                self.depth -= 1
                if self.depth == 0:
                    return place + 1
        return None


class ToolParser:
    """Takes an answer in any pieces; the joined deltas do not depend on how it was cut.

    Text is held back only while it is a beginning of what begins a call. A name is given out once it is
    complete, arguments as they come.
    """

    def __init__(self, form: ToolFormat) -> None:
        self._form = form
        self._read: Callable[[], bool] = self._read_text
        """Reads what comes next; False where it needs more for that"""
        self._buffer = ""
        self._at_start = form.starts_bare
        self._scan = _Scan()
        self._deltas: list[ToolDelta] = []
        self.content = ""
        """All text"""
        self.calls: list[ToolCall] = []
        """All calls whose name is known"""

    @property
    def in_call(self) -> bool:
        """Whether a call has begun whose arguments are not complete."""
        return self._read in (self._read_opening, self._read_name, self._read_arguments)

    def feed(self, text: str) -> list[ToolDelta]:
        """Takes more of the answer. ToolFormatError where it is not of the format."""
        self._buffer += text
        while self._read():
            pass
        return self._take()

    def finish(self, cut: bool) -> list[ToolDelta]:
        """The end. `cut`: the answer was ended from outside, so that what may be a call's beginning is one."""
        if self._read == self._read_text and not cut:
            self._give_text(len(self._buffer))
        return self._take()

    def _take(self) -> list[ToolDelta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def _read_text(self) -> bool:
        form, text = self._form, self._buffer
        if self._at_start:
            if text.startswith(form.before):
                self._read = self._read_name
                return True
            if form.before.startswith(text):
                return False
            self._at_start = False
        place = text.find(form.begin)
        if place < 0:
            self._give_text(len(text) - _overlap(text, form.begin))
            return False
        self._give_text(place)
        self._buffer = self._buffer[len(form.begin) :]
        self._read = self._read_opening
        return True

    def _read_opening(self) -> bool:
        return self._skip(self._form.opening, self._read_name)

    def _read_name(self) -> bool:
        """From `before` to `middle`: a name has no letter that `middle` begins with."""
        form, text = self._form, self._buffer
        end = text.find(form.middle, len(form.before))
        if end < 0:
            if not (text.startswith(form.before) or form.before.startswith(text)):
                raise _unexpected(text)
            return False
        name = text[len(form.before) : end]
        self._deltas.append(ToolDelta(call=len(self.calls), name=name))
        self.calls.append(ToolCall(name))
        self._buffer = text[end + len(form.middle) :]
        self._scan = _Scan()
        self._read = self._read_arguments
        return True

    def _read_arguments(self) -> bool:
        end = self._scan.end(self._buffer)
        piece = self._buffer[:end]
        if piece:
            self.calls[-1].arguments += piece
            self._deltas.append(ToolDelta(call=len(self.calls) - 1, arguments=piece))
        self._buffer = self._buffer[len(piece) :]
        if end is None:
            return False
        self.calls[-1].complete = True
        self._read = self._read_after
        return True

    def _read_after(self) -> bool:
        return self._skip(self._form.after, self._read_between)

    def _read_between(self) -> bool:
        """Another call, or the end; the one may begin as the other."""
        more, end, text = self._form.between_calls, self._form.end, self._buffer
        if more is not None and text.startswith(more):
            return self._skip(more, self._read_name)
        if text != end and not end.startswith(text) and not (more is not None and more.startswith(text)):
            raise _unexpected(text)
        return False

    def _skip(self, literal: str, then: Callable[[], bool]) -> bool:
        if not self._buffer.startswith(literal):
            if not literal.startswith(self._buffer):
                raise _unexpected(self._buffer)
            return False
        self._buffer = self._buffer[len(literal) :]
        self._read = then
        return True

    def _give_text(self, length: int) -> None:
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        if text:
            self.content += text
            self._deltas.append(ToolDelta(content=text))


def _overlap(text: str, begin: str) -> int:
    """Length of the longest end of `text` that is a beginning of `begin`, and not all of it."""
    for length in range(min(len(text), len(begin) - 1), 0, -1):
        if begin.startswith(text[-length:]):
            return length
    return 0


def _unexpected(text: str) -> ToolFormatError:
    return ToolFormatError(f"a call goes on with {text[:40]!r}, which is not its format")
