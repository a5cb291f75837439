"""`octavo run`: one answer, or a chat, streamed to the terminal."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from octavo.cli.options import (
    engine_options,
    given_sampling,
    make_engine_options,
    make_sampling_params,
    sampling_options,
    user_errors,
)

if TYPE_CHECKING:
    from octavo.llm import LLM
    from octavo.outputs import RequestOutput
    from octavo.sampling_params import SamplingParams

DEFAULT_MODEL = "smollm2"
DEFAULT_MAX_TOKENS = 1024


@click.command(short_help="Answer a prompt, or chat.")
@click.argument("model", required=False)
@click.argument("prompt", required=False)
@click.option("--system", metavar="TEXT", help="A system message before the conversation.")
@click.option("--raw", is_flag=True, help="Continue PROMPT as text, without the chat template.")
@sampling_options
@engine_options
def run(model: str | None, prompt: str | None, system: str | None, raw: bool, **values: Any) -> None:
    """Answer PROMPT with MODEL, and stream the answer; without PROMPT, chat.

    With one argument only, it is the MODEL if it is an alias, an existing path or looks like owner/name, and
    else the PROMPT for the default model, smollm2. The PROMPT "-" is read from standard input. Answers are
    greedy unless --temperature says otherwise. Ctrl-C stops the answer, not the chat.
    """
    model, prompt = split_arguments(model, prompt)
    options = make_engine_options(model, values)
    params = make_sampling_params(**{"max_tokens": DEFAULT_MAX_TOKENS, "temperature": 0.0, **given_sampling(values)})
    if prompt == "-":
        prompt = sys.stdin.read()
    from octavo.llm import LLM
    from octavo.loading import load

    with user_errors(), _status() as say:
        llm = LLM.from_loaded(load(options, say))
    with llm:
        talk = Talk(llm, params, system, raw)
        if prompt is not None:
            with user_errors():
                stopped = talk.answer(prompt)
            raise SystemExit(130 if stopped else 0)
        chat(talk)


def split_arguments(model: str | None, prompt: str | None) -> tuple[str, str | None]:
    """(model, prompt) of the command's arguments, see run()."""
    if model is None:
        return DEFAULT_MODEL, None
    if prompt is None and not names_model(model):
        return DEFAULT_MODEL, model
    return model, prompt


def names_model(argument: str) -> bool:
    """Whether a lone argument is meant as a model."""
    from octavo.loaders.hub import ALIASES

    if argument in ALIASES or argument.endswith(".gguf"):
        return True
    with suppress(OSError, ValueError):  # a long prompt is no path
        if Path(argument).exists():
            return True
    owner, slash, name = argument.partition("/")
    return bool(slash and owner and name) and "/" not in name and not any(c.isspace() for c in argument)


class Talk:
    """A conversation: what was said goes into the next prompt, and its KV is found in the prefix cache."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None = None, raw: bool = False) -> None:
        self._llm = llm
        self._params = params
        self._raw = raw or llm.get_tokenizer().chat_template is None
        self._first = [] if system is None else [{"role": "system", "content": system}]
        if self._first and self._raw:
            raise click.UsageError("--system needs a model with a chat template, and no --raw")
        self._messages = list(self._first)

    def forget(self) -> None:
        """Begins anew."""
        self._messages = list(self._first)

    def answer(self, text: str) -> bool:
        """Streams the answer to standard output. True when it was stopped by Ctrl-C."""
        if self._raw:
            outputs = self._llm.stream(text, self._params)
        else:
            question = {"role": "user", "content": text}
            outputs = self._llm.stream_chat([*self._messages, question], self._params)
        answer, stopped = stream_to_stdout(outputs)
        if not self._raw:
            self._messages += [question, {"role": "assistant", "content": answer}]
        return stopped


def chat(talk: Talk) -> None:
    """Reads lines until the end of input. /clear forgets the conversation, /bye ends."""
    with suppress(ImportError):
        import readline  # noqa: F401  (input() then has line editing and a history)
    terminal = sys.stdin.isatty()
    if terminal:
        click.echo("Ctrl-C stops an answer, /clear forgets the conversation, Ctrl-D or /bye ends.", err=True)
    while True:
        try:
            line = input(">>> " if terminal else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            click.echo()
            continue
        if line == "/bye":
            return
        if line == "/clear":
            talk.forget()
        elif line:
            try:
                talk.answer(line)
            except ValueError as error:  # too long by now: the conversation goes on
                click.echo(f"Error: {error} (/clear forgets the conversation)", err=True)


def stream_to_stdout(outputs: Iterator[RequestOutput]) -> tuple[str, bool]:
    """Prints text as it comes; returns all of it, and whether Ctrl-C stopped it."""
    text = ""
    with interrupt_flag() as interrupted:
        for output in outputs:
            text = output.outputs[0].text
            sys.stdout.write(output.outputs[0].delta)
            sys.stdout.flush()
            if interrupted():
                outputs.close()  # type: ignore[attr-defined]
                break
        stopped = interrupted()
    if not text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
    return text, stopped


@contextmanager
def interrupt_flag() -> Iterator[Callable[[], bool]]:
    """Ctrl-C sets a flag that is looked at between steps, so that it never tears the engine's books apart. A
    second one interrupts at once."""
    hit = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if hit.is_set():
            raise KeyboardInterrupt
        hit.set()

    if threading.current_thread() is not threading.main_thread():
        yield hit.is_set
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield hit.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """Shows what is being loaded on a terminal, and takes it away again."""
    terminal = sys.stderr.isatty()

    def say(text: str) -> None:
        if terminal:
            sys.stderr.write(f"\r\x1b[K{text} ...")
            sys.stderr.flush()

    try:
        yield say
    finally:
        if terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
