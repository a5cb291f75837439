"""The tokenizer that a GGUF file carries in its metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from octavo.text.added_tokens import SpellingFinder, split_owned
from octavo.text.byte_level import ByteLevelEncoder, letters_to_bytes
from octavo.text.codec import Span
from octavo.text.gguf_vocabulary import (
    BYTE,
    CONTROL,
    END_SPELLINGS,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    GGUFVocabulary,
)
from octavo.text.pre_tokenizers import find_pre_tokenizer
from octavo.text.sentencepiece import SPACE, SentencePieceEncoder

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class _Encoder(Protocol):
    def encode_fragments(self, fragments: Sequence[str | int]) -> list[int]: ...


class GGUFCodec:
    """Ids exactly as llama.cpp gives them, except that text never merges into a control or byte token."""

    def __init__(self, vocabulary: GGUFVocabulary) -> None:
        tokens = vocabulary.tokens
        control = vocabulary.ids_of_type(CONTROL, UNKNOWN)
        user_defined = {tokens[token_id]: token_id for token_id in vocabulary.ids_of_type(USER_DEFINED)}
        self._control = {tokens[token_id]: token_id for token_id in control}
        self._control_ids = frozenset(control)
        self._plain_finder = SpellingFinder(user_defined)
        self._finder = SpellingFinder({**user_defined, **self._control})
        self._encoder, self._token_bytes = _build_encoder(vocabulary, self._control_ids)
        self._vocabulary = replace(vocabulary, merges=())  # the encoder has them

    @property
    def vocab_size(self) -> int:
        """Number of ids, unused ones included."""
        return len(self._vocabulary.tokens)

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Spelling -> id of the control tokens."""
        return self._control

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids of control tokens and of the unknown token."""
        return self._control_ids

    @property
    def strips_leading_space(self) -> bool:
        """True where encoding puts a space in front."""
        return self._vocabulary.model == "llama" and self._vocabulary.add_space_prefix

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """Ids of `text`; user-defined tokens are always found, control tokens with parse_special only."""
        finder = self._finder if parse_special else self._plain_finder
        return self._encoder.encode_fragments(finder.split(text))

    def encode_owned(self, text: str, owned: Sequence[Span]) -> list[int]:
        """Ids of `text` with control tokens at exactly the `owned` spans."""
        return self._encoder.encode_fragments(split_owned(text, list(owned), self._control, self._plain_finder))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of a token; b"" for unused ids and ids outside the vocabulary."""
        if not 0 <= token_id < len(self._vocabulary.tokens):
            return b""
        token, kind = self._vocabulary.tokens[token_id], self._vocabulary.types[token_id]
        if kind == UNUSED:
            return b""
        if kind in (CONTROL, UNKNOWN, USER_DEFINED):
            return token.encode()
        return self._token_bytes.plain(token, kind)

    def decode_text(self, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
        """Not used: every token has bytes."""
        raise NotImplementedError("a GGUF vocabulary decodes token by token")


class _ByteLevelBytes:
    def plain(self, token: str, kind: int) -> bytes:
        return letters_to_bytes(token)


class _SentencePieceBytes:
    def plain(self, token: str, kind: int) -> bytes:
        if kind == BYTE:
            return bytes((_byte_value(token),))
        return token.replace(SPACE, " ").encode()


def _byte_value(token: str) -> int:
    match = _BYTE_TOKEN.fullmatch(token)
    if match is None:
        raise ValueError(f"tokenizer.ggml.tokens has the byte token {token!r}; one is written <0x41>")
    return int(match[1], 16)


def _build_encoder(
    vocabulary: GGUFVocabulary, control: frozenset[int]
) -> tuple[_Encoder, _ByteLevelBytes | _SentencePieceBytes]:
    tokens, merges = vocabulary.tokens, vocabulary.merges
    numbers = list(range(max(len(tokens), len(merges))))  # each once: 32 bytes of memory
    # Where two tokens have the same text the later one counts, as in llama.cpp.
    pieces = dict(zip(tokens, numbers, strict=False))
    for token_id in control:
        if pieces.get(tokens[token_id]) == token_id:
            del pieces[tokens[token_id]]
    if vocabulary.model == "gpt2":
        pre = find_pre_tokenizer(vocabulary.pre)
        return ByteLevelEncoder(pieces, dict(zip(merges, numbers, strict=False)), pre), _ByteLevelBytes()
    if vocabulary.model == "llama":
        byte_tokens = vocabulary.ids_of_type(BYTE)
        byte_ids = {_byte_value(tokens[token_id]): token_id for token_id in byte_tokens}
        for token_id in byte_tokens:
            pieces.pop(tokens[token_id], None)
        encoder = SentencePieceEncoder(
            pieces, vocabulary.scores, byte_ids, vocabulary.unknown_token_id, vocabulary.add_space_prefix
        )
        return encoder, _SentencePieceBytes()
    raise ValueError(
        f"tokenizer.ggml.model is {vocabulary.model!r}; supported are gpt2 (byte-level BPE) and llama (SentencePiece)"
    )


def mark_end_tokens(vocabulary: GGUFVocabulary) -> tuple[GGUFVocabulary, tuple[int, ...]]:
    """The vocabulary with its end-of-generation tokens made control tokens, and their ids, ascending.

    Converters sometimes write such a token as ordinary text, which would let it be printed and never end a
    turn. A spelling alone makes an end token only of a control token: Gemma's </s> is a tag of HTML, typed as
    user-defined.
    """
    declared = {*vocabulary.turn_end_ids}
    if vocabulary.eos_token_id is not None:
        declared.add(vocabulary.eos_token_id)
    control = vocabulary.ids_of_type(CONTROL)
    spelled = {token_id for token_id in control if vocabulary.tokens[token_id] in END_SPELLINGS}
    wrong = [token_id for token_id in declared if vocabulary.types[token_id] in (NORMAL, USER_DEFINED)]
    if wrong:
        types = list(vocabulary.types)
        for token_id in wrong:
            types[token_id] = CONTROL
        vocabulary = replace(vocabulary, types=types)
    return vocabulary, tuple(sorted(declared | spelled))
