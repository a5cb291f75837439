"""What a tokenizer of any file format has to offer; Tokenizer puts policy and chat templates on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

Span = tuple[int, int]
"""start and end (exclusive) of a piece of text, in characters"""


class TokenCodec(Protocol):
    """Text to ids and ids to bytes, without any policy about begin-of-text tokens or chats."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, unused ones included."""

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Spelling -> id of the tokens that are commands to the model, not text."""

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids that decoding skips as special."""

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """Ids of `text`; spellings of control tokens become those tokens only with parse_special."""

    def encode_owned(self, text: str, owned: Sequence[Span]) -> list[int]:
        """Ids of `text` where exactly the spellings at `owned` (ascending, disjoint) are control tokens."""

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes a token stands for; b"" for unused and unknown ids; None where this decoder has no such
        rule.
        """

    @property
    def strips_leading_space(self) -> bool:
        """Whether decoding drops one space at the beginning of the text (SentencePiece's dummy prefix)."""

    def decode_text(self, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The whole text, for decoders without a per-token rule."""
