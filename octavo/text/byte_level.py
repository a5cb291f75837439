"""Byte-level BPE: every byte is written as one printable character, and words are merged by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tokenizers
from tokenizers import pre_tokenizers

from octavo.text.merging import WordMemory, merge_parts
from octavo.text.pre_tokenizers import PreTokenizer


def _byte_letters() -> dict[int, str]:
    """GPT-2's alphabet: printable Latin-1 bytes stand for themselves, others for letters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(0x100) if byte not in letters]
    letters.update({byte: chr(0x100 + index) for index, byte in enumerate(others)})
    return letters


_BYTE_OF_LETTER = {letter: byte for byte, letter in _byte_letters().items()}


def letters_to_bytes(token: str) -> bytes:
    """The bytes that a token of a byte-level vocabulary spells; letters outside the alphabet stand for
    themselves.
    """
    try:
        return bytes([_BYTE_OF_LETTER[letter] for letter in token])
    except KeyError:
        return b"".join(
            bytes((_BYTE_OF_LETTER[letter],)) if letter in _BYTE_OF_LETTER else letter.encode() for letter in token
        )


def make_pre_tokenizer(pre: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    """What cuts text into words and writes their bytes as letters."""
    splits = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in pre.patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


class ByteLevelEncoder:
    """Encodes plain text (no added tokens in it) with a byte-level BPE vocabulary.

    The words come from the `tokenizers` library; the merging is done here, because handing it the vocabulary
    and the merges takes longer than everything else in loading, and words are remembered anyway.
    """

    def __init__(self, vocabulary: Mapping[str, int], ranks: Mapping[str, int], pre: PreTokenizer) -> None:
        """`ranks` of merges, "left right", the best the lowest. ValueError where a merge is not of this form."""
        self._vocabulary = vocabulary
        self._ranks = ranks
        self._ignore_merges = pre.ignore_merges
        wrong = next((merge for merge in ranks if " " not in merge), None)
        if wrong is not None:
            raise ValueError(f"tokenizer.ggml.merges has {wrong!r}; a merge is two tokens and a space")
        self._pre_tokenizer = make_pre_tokenizer(pre)
        self._memory = WordMemory(self._encode_word)

    def encode_fragments(self, fragments: Sequence[str | int]) -> list[int]:
        """Ids of text fragments, each encoded on its own, with the given ids between them."""
        ids: list[int] = []
        for fragment in fragments:
            if isinstance(fragment, int):
                ids.append(fragment)
            else:
                words = self._pre_tokenizer.pre_tokenize_str(fragment)
                self._memory.extend(ids, [word for word, _ in words])
        return ids

    def _encode_word(self, word: str) -> list[int]:
        """Ids of a word in byte letters; bytes that the vocabulary lacks are left out, as llama.cpp does."""
        vocabulary = self._vocabulary
        if self._ignore_merges and word in vocabulary:
            return [vocabulary[word]]
        ids: list[int] = []
        for part in merge_parts(list(word), self._rank):
            if part in vocabulary:
                ids.append(vocabulary[part])
            else:
                ids += [vocabulary[letter] for letter in part if letter in vocabulary]
        return ids

    def _rank(self, left: str, right: str) -> int | None:
        return self._ranks.get(f"{left} {right}")
