"""SentencePiece BPE: merge the neighbours whose union has the best score, fall back to bytes for unknown
letters.

The merging is done here, not by a general BPE with derived merge rules: deriving those for 262 thousand
tokens takes seconds, and rules cannot express that pieces with equal text have equal rank however they are
put together. Words are remembered, so ordinary text costs little.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from octavo.text.merging import WordMemory, merge_parts

SPACE = "▁"
"""U+2581, which stands for a space in the vocabulary"""


class SentencePieceEncoder:
    """Encodes plain text (no added tokens in it) with pieces and their scores."""

    def __init__(
        self,
        pieces: Mapping[str, int],
        scores: Sequence[float],
        byte_ids: Mapping[int, int],
        unknown_id: int | None,
        add_space_prefix: bool,
    ) -> None:
        """`pieces` are the texts that merging may give; `byte_ids` maps a byte to its fallback token."""
        self._pieces = pieces
        self._scores = scores
        self._byte_ids = byte_ids
        self._unknown = [] if unknown_id is None else [unknown_id]
        self._add_space_prefix = add_space_prefix
        self._words = _word_pattern(pieces)
        self._memory = WordMemory(self._encode_word)

    def encode_fragments(self, fragments: Sequence[str | int]) -> list[int]:
        """Ids of text fragments with the given ids between them.

        With add_space_prefix a fragment at the beginning and after a given id gets a space in front.
        """
        ids: list[int] = []
        after_token = True
        for fragment in fragments:
            if isinstance(fragment, int):
                ids.append(fragment)
                after_token = True
                continue
            text = fragment.replace(" ", SPACE)
            if self._add_space_prefix and after_token:
                text = SPACE + text
            self._memory.extend(ids, self._words.findall(text))
            after_token = False
        return ids

    def _encode_word(self, word: str) -> list[int]:
        ids: list[int] = []
        for piece in merge_parts(list(word), self._rank):
            token_id = self._pieces.get(piece)
            if token_id is not None:
                ids.append(token_id)
            else:
                ids += self._spell(piece)
        return ids

    def _rank(self, left: str, right: str) -> float | None:
        """The better the score of the union, the lower the rank."""
        token_id = self._pieces.get(left + right)
        return None if token_id is None else -self._scores[token_id]

    def _spell(self, letter: str) -> list[int]:
        ids = [self._byte_ids.get(byte) for byte in letter.encode()]
        if None in ids:
            return self._unknown
        return [token_id for token_id in ids if token_id is not None]


def _word_pattern(pieces: Mapping[str, int]) -> re.Pattern[str]:
    """A pattern that cuts text into parts no piece spans: before a run of spaces.

    Some vocabularies have a few pieces with a space inside; text is not cut after the letters before such a
    space.
    """
    joined = "\0".join(pieces)
    crossed = {match[0] for match in re.findall(f"[^\0{SPACE}]{SPACE}", joined)}
    if joined.count("\0") >= max(len(pieces), 1):  # a piece has the separator itself
        crossed.add("\0")
    word = f"(?:{SPACE}+[^{SPACE}]*|[^{SPACE}]+)"
    if crossed:
        letters = "".join(re.escape(letter) for letter in sorted(crossed))
        word += f"(?:(?<=[{letters}]){SPACE}+[^{SPACE}]*)*"
    return re.compile(word, re.DOTALL)
