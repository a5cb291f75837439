"""Options that several commands share: the engine's and the sampling's, in the same words as in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from octavo.config import ActivationDType, DType, EngineOptions, ExecutorName, InstructionSet, KVCacheDType

if TYPE_CHECKING:
    from octavo.sampling_params import SamplingParams
    from octavo.structured_outputs import StructuredOutputsParams

Command = TypeVar("Command", bound=Callable[..., Any])


class BlockSize(click.ParamType[int | str]):
    """A whole number, or "auto"."""

    name = "integer or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The number of a text."""
        if value == "auto" or isinstance(value, int):
            return str(value) if value == "auto" else int(value)
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither an integer nor auto", param, ctx)


_ENGINE = (
    click.option(
        "--dtype",
        type=click.Choice(get_args(DType)),
        default="auto",
        show_default=True,
        help="Compute format; float32 is full precision.",
    ),
    click.option(
        "--activation-dtype",
        type=click.Choice(get_args(ActivationDType)),
        default="auto",
        show_default=True,
        help="What weights in 4 to 8 bits multiply; int8 is faster without AMX and less accurate.",
    ),
    click.option(
        "--block-size",
        type=BlockSize(),
        default=64,
        show_default=True,
        help="Tokens in a KV block: 8 to 256, times of 8; auto takes what `octavo tune` found.",
    ),
    click.option(
        "--kv-cache-dtype",
        type=click.Choice(get_args(KVCacheDType)),
        default="auto",
        show_default=True,
        help="Format of the KV memory; int8 is half of bfloat16.",
    ),
    click.option(
        "--kv-cache-memory",
        metavar="SIZE",
        help="Cap of the KV memory, e.g. 512MiB. Default: half of what is free.",
    ),
    click.option("--max-model-len", type=int, help="Longest prompt and answer in tokens. Default: the model's own."),
    click.option("--max-num-seqs", type=int, default=256, show_default=True, help="Most sequences that run at once."),
    click.option("--max-num-batched-tokens", type=int, default=2048, show_default=True, help="Most tokens in a step."),
    click.option(
        "--no-prefix-caching",
        "enable_prefix_caching",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Do not reuse the KV of common prefixes.",
    ),
    click.option("--threads", type=int, help="Default: the cores that this process may use."),
    click.option("--executor", type=click.Choice(get_args(ExecutorName)), default="auto", show_default=True),
    click.option(
        "--instruction-set",
        type=click.Choice(get_args(InstructionSet)),
        help="Force one that is not the best.",
    ),
)

_SAMPLING = (
    click.option("--max-tokens", type=int, help="Most tokens of an answer."),
    click.option("--min-tokens", type=int, help="No end before this many tokens."),
    click.option("--temperature", type=float, help="0 is greedy."),
    click.option("--top-k", type=int),
    click.option("--top-p", type=float),
    click.option("--min-p", type=float),
    click.option("--repetition-penalty", type=float),
    click.option("--presence-penalty", type=float),
    click.option("--frequency-penalty", type=float),
    click.option("--seed", type=int, help="The same seed gives the same answer."),
    click.option("--stop", multiple=True, metavar="TEXT", help="Stop at this text; may be repeated."),
    click.option("--ignore-eos", is_flag=True, default=None, help="Go on after the end of sequence."),
    click.option(
        "--json-schema",
        type=click.File(encoding="utf-8"),
        metavar="FILE",
        help="The answer is JSON of this schema; - is standard input.",
    ),
    click.option("--regex", metavar="TEXT", help="The answer matches this regular expression."),
    click.option("--choice", multiple=True, metavar="TEXT", help="The answer is one of these; may be repeated."),
    click.option(
        "--grammar", type=click.File(encoding="utf-8"), metavar="FILE", help="The answer follows it, in Lark."
    ),
)

_FORMS = {"json_schema": "json", "regex": "regex", "choice": "choice", "grammar": "grammar"}
"""Option -> field of StructuredOutputsParams"""

ENGINE_NAMES = (
    "dtype",
    "activation_dtype",
    "block_size",
    "kv_cache_dtype",
    "kv_cache_memory",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_draft_tokens",
    "enable_prefix_caching",
    "threads",
    "executor",
    "instruction_set",
)


def engine_options(command: Command) -> Command:
    """Adds the engine's options to a command; make_engine_options() reads them."""
    return _add_engine_options(command, max_draft_tokens=8)


def bench_engine_options(command: Command) -> Command:
    """The same for commands that time greedy answers to random prompts. These repeat themselves more than text does, so
    nothing is drafted unless it is asked for."""
    return _add_engine_options(command, max_draft_tokens=0)


def _add_engine_options(command: Command, max_draft_tokens: int) -> Command:
    drafts = click.option(
        "--max-draft-tokens",
        type=int,
        default=max_draft_tokens,
        show_default=True,
        help="Most tokens that a step tries behind each sequence's last one: the same answers, sooner. 0: none.",
    )
    for option in reversed((*_ENGINE, drafts)):
        command = option(command)
    return command


def sampling_options(command: Command) -> Command:
    """Adds the sampling's options; those that are not given are left out by given_sampling()."""
    for option in reversed(_SAMPLING):
        command = option(command)
    return command


def make_engine_options(model: str, values: dict[str, Any]) -> EngineOptions:
    """The engine's options among a command's values; a bad one is a usage error."""
    try:
        return EngineOptions(model=model, **{name: values[name] for name in ENGINE_NAMES})
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def given_sampling(values: dict[str, Any]) -> dict[str, Any]:
    """The sampling options that the user gave, as arguments for SamplingParams."""
    names = [option.name for option in _sampling_parameters() if option.name is not None]
    given = {name: values[name] for name in names if values[name] is not None and values[name] != ()}
    if "stop" in given:
        given["stop"] = list(given["stop"])
    form = {key: given.pop(name) for name, key in _FORMS.items() if name in given}
    if form:
        given["structured_outputs"] = _make_form(form)
    return given


def _make_form(form: dict[str, Any]) -> StructuredOutputsParams:
    from octavo.structured_outputs import StructuredOutputsParams

    try:
        texts = {key: value.read() if hasattr(value, "read") else value for key, value in form.items()}
        return StructuredOutputsParams(**texts)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def make_sampling_params(**values: Any) -> SamplingParams:
    """SamplingParams; a bad value is a usage error."""
    from octavo.sampling_params import SamplingParams

    try:
        return SamplingParams(**values)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None


@contextmanager
def user_errors() -> Iterator[None]:
    """What a user can cause (a wrong file, too long a prompt) ends the command with its message, not a
    traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _sampling_parameters() -> list[click.Parameter]:
    @sampling_options
    def command() -> None: ...

    return list(getattr(command, "__click_params__", ()))
