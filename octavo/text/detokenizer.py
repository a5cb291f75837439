"""Token ids to text, as they come."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

_INCOMPLETE = "\ufffd"


class IncrementalDetokenizer(Protocol):
    """The joined results of extend and the final finish equal the decoding of all ids at once."""

    def extend(self, token_ids: Sequence[int]) -> str:
        """Take the next tokens; the text that no later token can change, often none for half a character."""

    def finish(self) -> str:
        """The rest, at the end of the text: half a character becomes U+FFFD. More calls give nothing."""


class TokenBytes(dict[int, bytes]):
    """Token id -> bytes, filled as tokens are met, so that loading does not decode the whole vocabulary."""

    def __init__(self, token_bytes: Callable[[int], bytes | None], skipped: frozenset[int]) -> None:
        super().__init__()
        self._find = token_bytes
        self._skipped = skipped

    def __missing__(self, token_id: int) -> bytes:
        found = b"" if token_id in self._skipped else self._find(token_id) or b""
        self[token_id] = found
        return found


def decode_bytes(table: Mapping[int, bytes], token_ids: Iterable[int], strip_leading_space: bool) -> str:
    """The text of all ids at once; what is no UTF-8 becomes U+FFFD, one for each maximal invalid part."""
    data = b"".join([table[token_id] for token_id in token_ids])
    if strip_leading_space and data.startswith(b" "):
        data = data[1:]
    return data.decode("utf-8", "replace")


class ByteDetokenizer:
    """For vocabularies in which every token stands for fixed bytes (byte-level BPE, SentencePiece)."""

    def __init__(self, table: Mapping[int, bytes], strip_leading_space: bool) -> None:
        """`strip_leading_space` drops one space at the very beginning."""
        self._table = table
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._strip = strip_leading_space

    def extend(self, token_ids: Sequence[int]) -> str:
        """Take the next tokens; the characters that are complete then."""
        data = b"".join([self._table[token_id] for token_id in token_ids])
        if self._strip and data:
            self._strip = False
            if data.startswith(b" "):
                data = data[1:]
        return self._decode(data)

    def finish(self) -> str:
        """An incomplete character as U+FFFD, else nothing."""
        return self._decode(b"", True)


class PrefixDetokenizer:
    """For decoders without a rule per token: decodes everything each time and gives what is new.

    Slow, but it assumes only that more tokens do not change earlier text other than a trailing U+FFFD. Where
    a decoder breaks that, text is held back until the decoded whole begins again with what was given out.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._given = ""

    def extend(self, token_ids: Sequence[int]) -> str:
        """Take the next tokens; the new text, without trailing U+FFFD that may be half a character."""
        self._ids += token_ids
        return self._give(self._decode(self._ids).rstrip(_INCOMPLETE))

    def finish(self) -> str:
        """What was held back."""
        return self._give(self._decode(self._ids))

    def _give(self, text: str) -> str:
        if not text.startswith(self._given):
            return ""
        delta = text[len(self._given) :]
        self._given = text
        return delta
