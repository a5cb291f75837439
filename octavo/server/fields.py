"""The fields of requests: their types, and which known ones this server does not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from octavo.parameter_checks import MAX_INT32, MAX_LOGIT_BIAS_ENTRIES, MAX_PENALTY, MAX_REPETITION_PENALTY
from octavo.sampling_params import MAX_N, MAX_TEMPERATURE
from octavo.server.errors import bad_request, short, unsupported

_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_TEXT = {"type": "string", "minLength": 1}
PromptField = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                _TEXT,
                _IDS,
                {"type": "array", "items": _TEXT, "minItems": 1},
                {"type": "array", "items": _IDS, "minItems": 1},
            ]
        }
    ),
]
MessagesField = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["role", "content"],
                "properties": {
                    "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
                    "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
                    "name": {"type": "string"},
                    "tool_call_id": {"type": "string"},
                    "tool_calls": {"type": "array", "items": {"type": "object"}},
                },
            },
        }
    ),
]
ObjectField = Annotated[Any, WithJsonSchema({"type": "object"})]
SchemaField = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "object"}, _TEXT]})]


def _check_entries(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > MAX_LOGIT_BIAS_ENTRIES:
        raise ValueError(f"It has {len(value)} entries, the limit is {MAX_LOGIT_BIAS_ENTRIES}")
    return value


# One wrong entry is enough: an error for each of a million takes seconds.
IdsField = Annotated[list[int], Field(fail_fast=True)]
BiasField = Annotated[dict[str, float], BeforeValidator(_check_entries)]
TextsField = Annotated[list[str], Field(fail_fast=True)]


class Fields(BaseModel):
    """Strict types: no strings for numbers, no booleans for integers."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())

    model: str | None = Field(None, description="The served model's name; may be left out")


def _limits(default: Any, low: float, high: float, *, above: bool = False, below: bool = False) -> Any:
    """A field whose range, ends excluded where `above` or `below`, is written in its schema; SamplingParams checks
    it."""
    limits = {"exclusiveMinimum" if above else "minimum": low, "exclusiveMaximum" if below else "maximum": high}
    return Field(default, json_schema_extra=dict(limits))


class GenerationFields(Fields):
    """Sampling and delivery: OpenAI's names, and vLLM's for the rest."""

    n: int = _limits(1, 1, MAX_N)
    best_of: int | None = Field(
        None, description="Answers to generate, or beams to search, of which the n best are given; n in a stream"
    )
    use_beam_search: bool = Field(False, description="Search the likeliest answers instead of sampling")
    length_penalty: float = Field(1.0, description="With use_beam_search: score = logprob / length ** length_penalty")
    early_stopping: bool | Literal["never"] = Field(
        False, description="With use_beam_search: end with the first finished beams"
    )
    temperature: float = _limits(1.0, 0, MAX_TEMPERATURE)
    top_p: float = _limits(1.0, 0, 1, above=True)
    top_k: int = _limits(0, -1, MAX_INT32)
    min_p: float = _limits(0.0, 0, 1, below=True)
    repetition_penalty: float = _limits(1.0, 0, MAX_REPETITION_PENALTY, above=True)
    presence_penalty: float = _limits(0.0, -MAX_PENALTY, MAX_PENALTY)
    frequency_penalty: float = _limits(0.0, -MAX_PENALTY, MAX_PENALTY)
    logit_bias: BiasField | None = None
    seed: int | None = None
    stop: str | TextsField | None = None
    stop_token_ids: IdsField | None = None
    include_stop_str_in_output: bool = False
    min_tokens: int = _limits(0, 0, MAX_INT32)
    ignore_eos: bool = False
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    stream: bool = False
    stream_options: ObjectField = None
    timeout: float | None = Field(
        None, description="Seconds until the request is given up; or header X-Request-Timeout"
    )
    cache_salt: str | None = Field(None, description="Requests with different salts share no cached blocks")
    response_format: ObjectField = Field(None, description="text, json_object, or json_schema with a schema")
    structured_outputs: ObjectField = Field(
        None, description="One of json, regex, choice, grammar and json_object; guided_* are older names for the same"
    )
    guided_json: SchemaField = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_json_object: bool | None = None


class CompletionFields(GenerationFields):
    """POST /v1/completions"""

    prompt: PromptField
    max_tokens: int = Field(
        16, description="0 with echo scores the prompt", json_schema_extra={"minimum": 0, "maximum": MAX_INT32}
    )
    echo: bool = False
    logprobs: int | None = None


class ChatFields(GenerationFields):
    """POST /v1/chat/completions"""

    messages: MessagesField
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    add_generation_prompt: bool = True


class TokenizeFields(Fields):
    """POST /tokenize: a prompt or messages"""

    prompt: str | None = None
    messages: MessagesField = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool = False


class DetokenizeFields(Fields):
    """POST /detokenize"""

    tokens: IdsField


Anyfields = TypeVar("Anyfields", bound=Fields)

# Known fields that change answers and that this server does not do, with the values that ask for nothing.
UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none",),
    "parallel_tool_calls": (),
    "functions": ([],),
    "function_call": ("none",),
    "guided_decoding_backend": ("auto", "guidance", "llguidance"),
    "guided_whitespace_pattern": (),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "reasoning_effort": (),
    "verbosity": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "documents": ([],),
    "continue_final_message": (False,),
    "truncate_prompt_tokens": (),
    "allowed_token_ids": (),
    "bad_words": ([],),
    "logits_processors": ([],),
    "spaces_between_special_tokens": (True,),
    "return_tokens_as_token_ids": (False,),
    "return_token_ids": (False,),
    "priority": (0,),
    "prompt_embeds": (),
}
COMPLETION_UNSUPPORTED = UNSUPPORTED | {"add_special_tokens": (True,)}
CHAT_UNSUPPORTED = UNSUPPORTED | {"echo": (False,), "add_special_tokens": (False,)}


def parse_fields(
    kind: type[Anyfields], body: Mapping[str, Any], known: Mapping[str, tuple[object, ...]]
) -> tuple[Anyfields, list[str]]:
    """The fields of a body, and the names of those that are unknown and ignored. null is as if left out."""
    given = {name: value for name, value in body.items() if value is not None}
    for name, harmless in known.items():
        if name in given and given[name] not in harmless:
            raise unsupported(name)
    try:
        fields = kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _field_error(first["loc"], first["msg"], first["type"], first["input"]) from None
    return fields, [name for name in fields.model_extra or {} if name not in known]


def stream_usage(fields: GenerationFields, ignored: list[str]) -> bool:
    """stream_options.include_usage, checked."""
    options = fields.stream_options
    if options is None:
        return False
    if not fields.stream:
        raise bad_request("stream_options: may only be given with stream=true")
    if not isinstance(options, dict):
        raise bad_request(f"stream_options: is {short(options)}, must be an object")
    if options.get("continuous_usage_stats") not in (None, False):
        raise unsupported("stream_options.continuous_usage_stats")
    usage = options.get("include_usage")
    if usage is not None and not isinstance(usage, bool):
        raise bad_request(f"stream_options.include_usage: is {short(usage)}, must be true or false")
    ignored += [f"stream_options.{name}" for name in options if name not in ("include_usage", "continuous_usage_stats")]
    return bool(usage)


def _field_error(loc: tuple[int | str, ...], message: str, kind: str, value: object) -> Exception:
    name = str(loc[0]) + "".join(f"[{part}]" for part in loc[1:] if isinstance(part, int))
    if kind == "missing":
        return bad_request(f"{name}: is required", name)
    return bad_request(f"{name}: is {short(value)}. {message}", name)
