"""Chat templates: the Jinja program in a model's files that writes a conversation as the model's prompt."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
from jinja2.ext import Extension

MAX_OUTPUT = 16 * 1024 * 1024
"""characters that a template may write, and that a string inside it may have"""
MAX_ITERATIONS = 200_000
"""items of all loops and calls of all macros of one rendering together"""

_LOOP, _CALL, _JOIN = "_octavo_loop", "_octavo_call", "_octavo_join"


class ChatTemplate:
    """A compiled chat template, in the environment that Hugging Face's templates are written for.

    Sandboxed: no attribute access behind the scenes, no changes to its arguments, and bounded loops and
    strings.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """`special_tokens`: bos_token, eos_token, ... as the template may name them. ValueError on bad
        syntax.
        """
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._environment = _Environment()
        try:
            tree = _Bounds().visit(self._environment.parse(source))
            self._template = self._environment.from_string(tree)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ValueError(f"the chat template cannot be read: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The conversation as text. ValueError says what the template objected to or which bound it broke."""
        budget = _Budget()
        variables = {
            **self._special_tokens,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
            _LOOP: budget.loop,
            _CALL: budget.call,
        }
        try:
            for piece in self._template.generate(variables):
                budget.write(piece)
        except _TemplateRefusal as error:
            raise ValueError(f"the chat template refused the messages: {error}") from error
        except _BoundBroken as error:
            raise ValueError(f"the chat template {error}") from error
        except RecursionError as error:
            raise ValueError("the chat template calls itself without end") from error
        except Exception as error:  # a template is a program and can raise anything
            raise ValueError(f"the chat template failed: {type(error).__name__}: {error}") from error
        return "".join(budget.pieces)


class _TemplateRefusal(jinja2.TemplateError):
    pass


class _BoundBroken(Exception):
    pass


class _Budget:
    """What one rendering has used."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._length = 0
        self._iterations = 0

    def write(self, piece: str) -> None:
        self._length += len(piece)
        if self._length > MAX_OUTPUT:
            raise _BoundBroken(f"writes more than {MAX_OUTPUT} characters")
        self.pieces.append(piece)

    def loop(self, items: Any) -> Any:
        """The same items, counted: at once where they have a length, else one by one."""
        if hasattr(items, "__len__"):
            self._count(len(items) + 1)
            return items
        return self._counted(items)

    def call(self) -> str:
        self._count(1)
        return ""

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._count(1)
            yield item

    def _count(self, number: int) -> None:
        self._iterations += number
        if self._iterations > MAX_ITERATIONS:
            raise _BoundBroken(f"loops more than {MAX_ITERATIONS} times")


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Hugging Face's environment, with a bound on what operators may build."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlock])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self.globals[_JOIN] = _join

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse what would be huge before it is computed."""
        if operator == "*" and _length(left) * _factor(right) + _length(right) * _factor(left) > MAX_OUTPUT:
            raise _BoundBroken(f"builds a value longer than {MAX_OUTPUT}")
        if operator == "+" and _length(left) + _length(right) > MAX_OUTPUT:
            raise _BoundBroken(f"builds a value longer than {MAX_OUTPUT}")
        if operator == "**" and (abs(left) > 2**64 or abs(right) > 64):
            raise _BoundBroken("computes a power that is too large")
        if operator == "%" and isinstance(left, str) and any(len(run) > 5 for run in _digit_runs(left)):
            raise _BoundBroken("formats with a width that is too large")
        return super().call_binop(context, operator, left, right)


class _GenerationBlock(Extension):
    """{% generation %} marks the assistant's words for training; for a prompt it is just its contents."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own declaration

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """The statements inside the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Bounds(jinja2.visitor.NodeTransformer):
    """Puts a counter into every loop and macro, and a length check onto every ~."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.For:
        self.generic_visit(node)
        node.iter = _call(_LOOP, [node.iter], node.lineno)
        return node

    def visit_Macro(self, node: jinja2.nodes.Macro) -> jinja2.nodes.Macro:
        self.generic_visit(node)
        counter = jinja2.nodes.Output([_call(_CALL, [], node.lineno)], lineno=node.lineno)
        node.body.insert(0, counter)
        return node

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Call:
        self.generic_visit(node)
        return _call(_JOIN, node.nodes, node.lineno)


def _call(name: str, arguments: Sequence[jinja2.nodes.Node], lineno: int) -> jinja2.nodes.Call:
    function = jinja2.nodes.Name(name, "load", lineno=lineno)
    return jinja2.nodes.Call(function, list(arguments), [], None, None, lineno=lineno)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0


def _factor(value: Any) -> int:
    return max(value, 0) if isinstance(value, int) else 0


def _digit_runs(text: str) -> list[str]:
    return "".join(letter if letter.isdigit() else " " for letter in text).split()


def _join(*values: Any) -> str:
    texts = [str(value) for value in values]
    if sum(map(len, texts)) > MAX_OUTPUT:
        raise _BoundBroken(f"builds a value longer than {MAX_OUTPUT}")
    return "".join(texts)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, unlike jinja2's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise _TemplateRefusal(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)
