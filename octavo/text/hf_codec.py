"""The tokenizer of a Hugging Face model directory (tokenizer.json), run by the `tokenizers` library."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from octavo.text.byte_level import letters_to_bytes
from octavo.text.codec import Span
from octavo.text.sentencepiece import SPACE

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]


class HFCodec:
    """Ids exactly as tokenizer.json gives them."""

    def __init__(self, path: Path) -> None:
        """Read `path`/tokenizer.json; ValueError if it is missing or no tokenizer."""
        self._file = path / "tokenizer.json"
        self._tokenizer = _load(self._file)
        self._vocab_size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self._added = self._tokenizer.get_added_tokens_decoder()
        self._control = {token.content: token_id for token_id, token in self._added.items() if token.special}
        self._control_ids = frozenset(self._control.values())
        self._rule, self._strip = _decoding_rule(self._tokenizer)
        self._lock = threading.Lock()
        self._with_aliases: dict[str, _AliasTokenizer] = {}

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return self._vocab_size

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Spelling -> id of the special added tokens."""
        return self._control

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids of special added tokens."""
        return self._control_ids

    @property
    def strips_leading_space(self) -> bool:
        """True where tokenizer.json's decoder strips one leading space."""
        return self._strip

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """Ids of `text` without what the post-processor adds."""
        with self._lock:  # the library keeps this switch on the tokenizer, and threads may share it
            self._tokenizer.encode_special_tokens = not parse_special
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_owned(self, text: str, owned: Sequence[Span]) -> list[int]:
        """Ids of `text` with control tokens at exactly the `owned` spans."""
        mark = next((letter for letter in _NONCHARACTERS if letter not in text), None)
        if mark is None:
            raise ValueError("the text uses all of U+FDD0 to U+FDEF; one of them must be free")
        if mark not in self._with_aliases:
            self._with_aliases[mark] = _AliasTokenizer(_load(self._file), self._control, self._added, mark)
        return self._with_aliases[mark].encode(text, owned)

    def added_by_post_processor(self) -> tuple[list[int], list[int]]:
        """The ids that tokenizer.json's post-processor puts before and after a text."""
        plain = self._tokenizer.encode("a", add_special_tokens=False).ids
        full = self._tokenizer.encode("a", add_special_tokens=True).ids
        for start in range(len(full) - len(plain) + 1):
            if full[start : start + len(plain)] == plain:
                return list(full[:start]), list(full[start + len(plain) :])
        return [], []

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes of a token; None for all tokens where the decoder has no rule per token."""
        if self._rule is None:
            return None
        if token_id in self._added:
            return self._added[token_id].content.encode()
        token = self._tokenizer.id_to_token(token_id) if 0 <= token_id < 2**32 else None
        if token is None:
            return b""
        if self._rule == "byte level":
            return letters_to_bytes(token)
        match = _BYTE_TOKEN.fullmatch(token)
        return bytes((int(match[1], 16),)) if match else token.replace(SPACE, " ").encode()

    def decode_text(self, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
        """tokenizer.json's own decoding of all ids; ids outside the vocabulary are left out."""
        known = [token_id for token_id in token_ids if 0 <= token_id < 2**32]
        return str(self._tokenizer.decode(known, skip_special_tokens=skip_special_tokens))


class _AliasTokenizer:
    """A second tokenizer in which control tokens have another, unwritable spelling.

    The library finds special tokens in all of the text or in none of it. Here their usual spellings are text,
    and an alias (not special, so always found) stands where a control token is meant: the whole text is still
    encoded in one go, with the library's own rules for what surrounds an added token.
    """

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, control: Mapping[str, int], added: Mapping[int, Any], mark: str
    ) -> None:
        aliases = {token_id: f"{mark}{token_id}{mark}" for token_id in control.values()}
        tokenizer.add_tokens([_alias_token(alias, added[token_id]) for token_id, alias in aliases.items()])
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._alias = {spelling: aliases[token_id] for spelling, token_id in control.items()}
        self._meant = {tokenizer.token_to_id(alias): token_id for token_id, alias in aliases.items()}

    def encode(self, text: str, owned: Sequence[Span]) -> list[int]:
        pieces, end = [], 0
        for start, stop in owned:
            pieces += [text[end:start], self._alias[text[start:stop]]]
            end = stop
        ids = self._tokenizer.encode("".join(pieces) + text[end:], add_special_tokens=False).ids
        return [self._meant.get(token_id, token_id) for token_id in ids]


def _alias_token(alias: str, original: Any) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(alias, lstrip=original.lstrip, rstrip=original.rstrip, normalized=False)


def _load(file: Path) -> tokenizers.Tokenizer:
    if not file.is_file():
        raise ValueError(f"{file} is missing; a model directory needs it for its tokenizer")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the binding raises plain Exception
        raise ValueError(f"{file} is not a usable tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _decoding_rule(tokenizer: tokenizers.Tokenizer) -> tuple[str | None, bool]:
    """("byte level" | "pieces" | None for a decoder without a rule per token, whether a leading space is
    stripped).
    """
    decoder = tokenizer.decoder
    if decoder is None:
        return None, False
    description = json.loads(decoder.__getstate__())
    steps = description["decoders"] if description["type"] == "Sequence" else [description]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return "byte level", False
    if kinds[:3] != ["Replace", "ByteFallback", "Fuse"]:
        return None, False
    if steps[0]["pattern"] != {"String": SPACE} or steps[0]["content"] != " ":
        return None, False
    if len(kinds) == 3:
        return "pieces", False
    strips_one_space = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return ("pieces", True) if steps[3:] == [strips_one_space] else (None, False)
