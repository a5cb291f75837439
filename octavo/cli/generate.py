"""`octavo generate`: a file of requests through continuous batching."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import IO, TYPE_CHECKING, Any

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
    from octavo.request_state import RequestState

WINDOW = 1024
"""Lines that are read and not written yet: they bound the memory, however long the input is."""


@click.command(short_help="Answer a file of requests.")
@click.argument("model")
@click.option("--input", "source", type=click.File("rb"), required=True, help="JSON lines; - is standard input.")
@click.option(
    "--output",
    "target",
    type=click.Path(dir_okay=False, allow_dash=True),
    required=True,
    help="JSON lines; - is standard output.",
)
@sampling_options
@engine_options
def generate(model: str, source: IO[bytes], target: str, **values: Any) -> None:
    """Answer every line of a file, and write one result a line in the same order.

    A line is {"prompt": text or [ids]} or {"messages": [...]}, with sampling parameters beside it
    (max_tokens, temperature, logprobs, ...) and an "id" of any kind that is copied. Sampling options of the
    command hold where a line has none. A bad line becomes {"error": {"line", "message"}} in its place, and
    the exit code is 1. Empty lines are left out.
    """
    options = make_engine_options(model, values)
    defaults = given_sampling(values)
    make_sampling_params(**defaults)
    from octavo.llm import LLM
    from octavo.loading import load
    from octavo.progress import Progress

    with user_errors():
        llm = LLM.from_loaded(load(options))
    with llm, user_errors(), click.open_file(target, "wb") as out, Progress(llm) as progress:
        failed = 0
        for result, number_of_tokens in answer_lines(llm, source, defaults, progress.update):
            out.write(result)
            out.flush()
            failed += number_of_tokens is None
            progress.finished()
    if failed:
        click.echo(f"{failed} of {progress.requests} lines were not answered", err=True)
        sys.exit(1)


def answer_lines(
    llm: LLM,
    source: Iterator[bytes] | IO[bytes],
    defaults: dict[str, Any],
    on_step: Any = None,
    window: int = WINDOW,
) -> Iterator[tuple[bytes, int | None]]:
    """(line of the result, its output tokens, or None for an error) in the order of the input."""
    from octavo.cli.request_lines import dump_line, error_object, parse_line, result_object

    ids: dict[int, tuple[int, Any]] = {}  # position -> (line number, the line's "id")
    results: dict[int, tuple[bytes, int | None]] = {}

    def fail(position: int, message: str) -> None:
        line_number, line_id = ids.pop(position)
        results[position] = (dump_line(error_object(line_number, message, line_id)), None)

    def requests() -> Iterator[RequestState | None]:
        position = 0
        for line_number, line in enumerate(source, 1):
            if not line.strip():
                continue
            ids[position] = (line_number, None)
            try:
                prompt, params, line_id = parse_line(line, llm.reader, defaults)
            except ValueError as error:
                fail(position, str(error))
                yield None
            else:
                ids[position] = (line_number, line_id)
                yield llm.driver.new_state(str(position), prompt, params)
            position += 1

    written = 0
    with closing(llm.driver.run(requests(), lambda: window - len(results), on_step)) as finished:
        for state in finished:
            if state is not None:
                position = int(state.request_id)
                if state.error is not None:
                    fail(position, str(state.error))
                else:
                    output = state.output()
                    tokens = output.metrics.num_output_tokens
                    results[position] = (
                        dump_line(result_object(output, state.params, ids.pop(position)[1])),
                        tokens,
                    )
            while written in results:
                yield results.pop(written)
                written += 1
