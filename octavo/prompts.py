"""Prompts as users write them -> token ids, checked before the engine sees them."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.tools.conversation import prepare_conversation
from octavo.tools.style import AUTO, choose_style

if TYPE_CHECKING:
    from octavo.text.tokenizer import Tokenizer

Message = Mapping[str, Any]
"""One chat message: {"role": ..., "content": ...}"""
Conversation = Sequence[Message]
Prompt = str | Sequence[int] | Mapping[str, Any]
"""Text, token ids, {"prompt": text} or {"prompt_token_ids": ids}, the last two with "cache_salt" as an
option"""
CHARACTERS_PER_TOKEN = 16
"""Text of more characters than this for each token of the context is refused unread: tokenizing megabytes that
cannot fit takes minutes"""


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """A prompt that the engine can take."""

    text: str | None
    """None where the prompt was given as token ids"""
    token_ids: list[int]
    cache_salt: str | None = None
    """Requests with different salts never share cached blocks"""


def split_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or many -> a list. A list of integers is one prompt of token ids."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise ValueError(f"prompts: must be text, token ids, or a list of these, not {type(prompts).__name__}")
    if len(prompts) == 0:
        raise ValueError("prompts=[]: must hold at least one prompt")
    if isinstance(prompts[0], numbers.Integral):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def split_conversations(messages: Conversation | Sequence[Conversation]) -> list[Conversation]:
    """One conversation or many -> a list."""
    if isinstance(messages, (str, Mapping)) or not isinstance(messages, Sequence):
        raise ValueError(f"messages: must be a list of messages, not {type(messages).__name__}")
    if len(messages) == 0:
        raise ValueError("messages=[]: must hold at least one message")
    return [messages] if isinstance(messages[0], Mapping) else list(messages)  # type: ignore[list-item, arg-type]


class PromptReader:
    """Tokenizes and checks prompts for one model. Has no state of its own: any thread may use it."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, max_model_len: int, tool_format: str = AUTO) -> None:
        """`tool_format`: how the model writes calls; ValueError for one that is not known."""
        self._tokenizer = tokenizer
        self.tool_style = choose_style(tokenizer.tool_template, tool_format)
        """How the model is told of tools, and how it writes calls"""
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len

    def read(self, prompt: Prompt) -> TokenizedPrompt:
        """Raises ValueError for an empty or too long prompt and for ids that the model does not have."""
        inner, salt = _unpack(prompt) if isinstance(prompt, Mapping) else (prompt, None)
        if isinstance(inner, str):
            _check_text(inner, "prompt")
            self.check_size(len(inner), "prompt")
            ids = self._tokenizer.encode(inner, add_special_tokens=True)
            return self._checked(TokenizedPrompt(inner, ids, salt))
        return self._checked(TokenizedPrompt(None, self._read_ids(inner), salt))

    def read_chat(
        self,
        messages: Conversation,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> TokenizedPrompt:
        """The conversation through the model's own chat template; see prepare_conversation for tools."""
        ids = self.chat_ids(messages, tools, add_generation_prompt)
        text = self._tokenizer.decode(ids, skip_special_tokens=False)
        return self._checked(TokenizedPrompt(text, ids))

    def chat_ids(
        self, messages: Conversation, tools: Sequence[Mapping[str, Any]] | None, add_generation_prompt: bool
    ) -> list[int]:
        """The same, of any length."""
        if isinstance(messages, (str, Mapping)) or not isinstance(messages, Sequence) or len(messages) == 0:
            raise ValueError("messages: must be a list with at least one message")
        for number, message in enumerate(messages):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise ValueError(f'messages[{number}]: must be an object with "role" and "content"')
            if isinstance(message.get("content"), str):
                _check_unicode(message["content"], f"messages[{number}].content")
        self.check_size(text_size([messages, tools]), "messages")
        prepared, given = prepare_conversation(messages, tools, self.tool_style)
        return self._tokenizer.apply_chat_template(prepared, add_generation_prompt, given)

    def check_size(self, characters: int, field: str) -> None:
        """ValueError for more text than could ever fit the context."""
        limit = CHARACTERS_PER_TOKEN * self._max_model_len
        if characters > limit:
            raise ValueError(
                f"{field}: has {characters} characters; with max_model_len={self._max_model_len} it may have at most "
                f"{limit}"
            )

    def _read_ids(self, prompt: Sequence[int]) -> list[int]:
        if not isinstance(prompt, Sequence):
            raise ValueError(f"prompt: must be text or token ids, not {type(prompt).__name__}")
        self._check_length(len(prompt))
        for place, token_id in enumerate(prompt):
            if type(token_id) is not int and (isinstance(token_id, bool) or not isinstance(token_id, numbers.Integral)):
                raise ValueError(f"prompt_token_ids[{place}]={token_id!r}: must be an integer")
            if not 0 <= token_id < self._vocab_size:
                raise ValueError(
                    f"prompt_token_ids[{place}]={token_id}: must be from 0 to {self._vocab_size - 1}, "
                    "the model's vocabulary"
                )
        return [int(token_id) for token_id in prompt]

    def _checked(self, prompt: TokenizedPrompt) -> TokenizedPrompt:
        self._check_length(len(prompt.token_ids))
        return prompt

    def _check_length(self, length: int) -> None:
        if length == 0:
            raise ValueError("prompt: must not be empty")
        if length >= self._max_model_len:
            raise ValueError(
                f"prompt: has {length} tokens; with max_model_len={self._max_model_len} it may have at most "
                f"{self._max_model_len - 1}, so that one token can follow"
            )


def text_size(value: Any) -> int:
    """Characters of all texts in a JSON-like value, names included, and one for anything else in it."""
    size, waiting = 0, [value]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, Mapping):
            waiting += [*entry.keys(), *entry.values()]
        elif isinstance(entry, list | tuple):
            waiting += entry
        else:
            size += len(entry) if isinstance(entry, str) else 1
    return size


def _unpack(prompt: Mapping[str, Any]) -> tuple[str | Sequence[int], str | None]:
    unknown = set(prompt) - {"prompt", "prompt_token_ids", "cache_salt"}
    if unknown:
        raise ValueError(
            f"prompt: unknown key {sorted(unknown)[0]!r}; known are prompt, prompt_token_ids and cache_salt"
        )
    if ("prompt" in prompt) == ("prompt_token_ids" in prompt):
        raise ValueError("prompt: must have one of the keys prompt and prompt_token_ids")
    salt = prompt.get("cache_salt")
    if salt is not None and (not isinstance(salt, str) or not salt):
        raise ValueError(f"cache_salt={salt!r}: must be text that is not empty")
    inner: str | Sequence[int] = prompt["prompt_token_ids"] if "prompt_token_ids" in prompt else prompt["prompt"]
    if isinstance(inner, Mapping):
        raise ValueError("prompt: must be text or token ids")
    return inner, salt


def _check_text(text: str, field: str) -> None:
    if not text:
        raise ValueError(f"{field}: must not be empty")
    _check_unicode(text, field)


def _check_unicode(text: str, field: str) -> None:
    """A lone surrogate (from escaped JSON) is no text that a tokenizer can take."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        surrogate = f"U+{ord(text[error.start]):04X}"
        raise ValueError(
            f"{field}: character {error.start} is the lone surrogate {surrogate}, which is no text"
        ) from None
