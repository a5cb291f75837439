"""The tokenizer of a model: text to ids and back, and chats to ids."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.text.added_tokens import SpellingFinder
from octavo.text.chat_messages import Fence, check_messages, copy_value
from octavo.text.chat_template import ChatTemplate
from octavo.text.codec import Span, TokenCodec
from octavo.text.detokenizer import (
    ByteDetokenizer,
    IncrementalDetokenizer,
    PrefixDetokenizer,
    TokenBytes,
    decode_bytes,
)
from octavo.text.stop_strings import check_no_surrogates


class Tokenizer:
    """Encodes and decodes with a codec, and adds the policy: begin-of-text, end-of-turn, chats.

    Begin-of-text is added by encode exactly when the model's files say so, and not a second time to text that
    already begins with it. A chat's text is the template's: it writes its own begin-of-text, and nothing is
    added to it.
    """

    def __init__(
        self,
        codec: TokenCodec,
        *,
        bos_token_id: int | None,
        eos_token_ids: Sequence[int],
        add_bos_token: bool,
        special_tokens: Mapping[str, str] | None = None,
        chat_templates: Mapping[str, str] | None = None,
    ) -> None:
        """`special_tokens`: names and spellings for templates; `chat_templates`: by name, "default" and
        others.

        ValueError where add_bos_token is set and there is no such token.
        """
        if add_bos_token and bos_token_id is None:
            raise ValueError("add_bos_token is true, but the tokenizer has no bos token")
        self._codec = codec
        self.bos_token_id = bos_token_id
        """id of the begin-of-text token; None where there is none"""
        self.eos_token_ids = tuple(eos_token_ids)
        """every id that ends a generation"""
        self.add_bos_token = add_bos_token
        """whether encode puts begin-of-text in front"""
        self._special_tokens = dict(special_tokens or {})
        self._chat_templates = dict(chat_templates or {})
        self._compiled: dict[str, ChatTemplate] = {}
        self._control = SpellingFinder(codec.control_tokens)
        self._strips = codec.strips_leading_space
        self._has_bytes = codec.token_bytes(0) is not None
        self._tables = {
            skip: TokenBytes(codec.token_bytes, codec.control_ids if skip else frozenset()) for skip in (True, False)
        }

    @property
    def vocab_size(self) -> int:
        """Number of ids, unused ones included."""
        return self._codec.vocab_size

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids that are commands to the model, not text."""
        return self._codec.control_ids

    @property
    def chat_template(self) -> str | None:
        """The source of the default chat template, if the model has one."""
        return self._chat_templates.get("default")

    @property
    def verbatim(self) -> Tokenizer:
        """The same tokenizer, which decodes to all bytes of the tokens, also a space at the beginning that this one
        takes for SentencePiece's dummy prefix."""
        if not self._strips:
            return self
        other = copy.copy(self)
        other._strips = False
        return other

    def encode(self, text: str, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        """Ids of `text`.

        With add_special_tokens begin-of-text is put in front where the model wants it and the text does not
        begin with it; with parse_special the spelling of a control token becomes that token, else it is plain
        text. ValueError for lone surrogates, TypeError for what is not text.
        """
        if not isinstance(text, str):
            raise TypeError(f"text is a {type(text).__name__}; it must be a string")
        check_no_surrogates(text, "text")
        ids = self._codec.encode(text, parse_special)
        bos = self.bos_token_id
        if add_special_tokens and self.add_bos_token and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True, after: Sequence[int] = ()) -> str:
        """The text of all ids, as it stands after the text of others. Unknown ids give nothing; bytes that are no
        UTF-8 give U+FFFD."""
        if not self._has_bytes:
            return self._codec.decode_text(token_ids, skip_special_tokens)
        table = self._tables[skip_special_tokens]
        return decode_bytes(table, token_ids, self._strips_after(table, after))

    def token_bytes(self, token_id: int) -> bytes | None:
        """What one id adds to the text, control tokens spelled out; None where the decoder has no rule per
        token."""
        return self._codec.token_bytes(token_id)

    @property
    def chat_templates(self) -> Mapping[str, str]:
        """Sources by name, "default" and others."""
        return dict(self._chat_templates)

    def special_token_id(self, name: str) -> int | None:
        """The id of the token that the model's files name so ("eos_token", "pad_token", ...), if there is one."""
        return self._codec.control_tokens.get(self._special_tokens.get(name, ""))

    def detokenizer(self, skip_special_tokens: bool = True, after: Sequence[int] = ()) -> IncrementalDetokenizer:
        """A new detokenizer for one stream of ids, which continues the text of others."""
        if self._has_bytes:
            table = self._tables[skip_special_tokens]
            return ByteDetokenizer(table, self._strips_after(table, after))
        return PrefixDetokenizer(functools.partial(self._codec.decode_text, skip_special_tokens=skip_special_tokens))

    def _strips_after(self, table: TokenBytes, after: Sequence[int]) -> bool:
        """A space is dropped where a text begins, not where it is continued."""
        return self._strips and not any(table[token_id] for token_id in after)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[int]:
        """Ids of a conversation: those of the rendered text, with only the template's control tokens parsed.

        A control token spelled in a message (in any of its strings, or in a tool) is plain text. ValueError
        for bad messages, for a template that fails, and for a model without one.
        """
        text, owned = self._render(messages, add_generation_prompt, tools)
        if owned is None:
            return self._codec.encode(text, parse_special=True)
        return self._codec.encode_owned(text, owned)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The text that apply_chat_template encodes."""
        return self._render(messages, add_generation_prompt, tools)[0]

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
    ) -> tuple[str, list[Span] | None]:
        """The text, and where its control tokens are; None for "wherever they are spelled"."""
        template = self._template("tool_use" if tools and "tool_use" in self._chat_templates else "default")
        checked = check_messages(messages)
        checked_tools = None if tools is None else copy_value(tools, "tools")
        fence = Fence(self._control, [checked, checked_tools])
        if not fence.needed:
            return template.render(checked, add_generation_prompt, checked_tools), None
        guarded = template.render(fence.guard(checked), add_generation_prompt, fence.guard(checked_tools))
        return fence.release(guarded)

    def _template(self, name: str) -> ChatTemplate:
        if name not in self._compiled:
            source = self._chat_templates.get(name)
            if source is None:
                raise ValueError("this model has no chat template; give it a prompt instead of messages")
            self._compiled[name] = ChatTemplate(source, self._special_tokens)
        return self._compiled[name]


def load_tokenizer(source: Mapping[str, Any] | Path) -> Tokenizer:
    """The tokenizer of a GGUF file's metadata, or of a model directory. ValueError names the key or file at
    fault.
    """
    if isinstance(source, Path):
        from octavo.text.hf_directory import load_directory_tokenizer

        return load_directory_tokenizer(source)
    from octavo.text.gguf_tokenizer import load_gguf_tokenizer

    return load_gguf_tokenizer(source)
