"""Whether a grammar takes an answer, over a vocabulary of bytes and a few control tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import SimpleNamespace

import llguidance

EOS = 256


@dataclass(frozen=True)
class Taken:
    """How a grammar took a text."""

    all: bool
    """Every token of it"""
    complete: bool
    """It may end there"""
    forced: str
    """The only text that may follow"""


class Matching:
    """A vocabulary: bytes, the end of sequence, and control tokens of these spellings."""

    def __init__(self, *markers: str) -> None:
        self.control = {marker: EOS + 1 + place for place, marker in enumerate(markers)}
        tokens = [*(bytes([value]) for value in range(256)), b"</s>", *(marker.encode() for marker in markers)]
        wrapped = SimpleNamespace(
            eos_token_id=EOS, bos_token_id=None, tokens=tokens, special_token_ids=range(EOS, len(tokens))
        )
        wrapper = llguidance.TokenizerWrapper(_Callable(wrapped))
        self._tokenizer = llguidance.LLTokenizer(wrapper, n_vocab=len(tokens))

    def take(self, grammar: str, text: str) -> Taken:
        """Feeds `text`, its markers as control tokens."""
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        assert not matcher.is_error(), matcher.get_error()
        ids = self._ids(text)
        taken = matcher.try_consume_tokens(ids) == len(ids)
        complete = taken and matcher.is_accepting()
        return Taken(taken, complete, matcher.compute_ff_bytes().decode(errors="replace") if taken else "")

    def _ids(self, text: str) -> list[int]:
        if not self.control:
            return list(text.encode())
        pieces = re.split("(" + "|".join(map(re.escape, self.control)) + ")", text)
        return [
            token for piece in pieces for token in ([self.control[piece]] if piece in self.control else piece.encode())
        ]


class _Callable:
    """What llguidance's wrapper reads, and calls to tokenize."""

    def __init__(self, fields: SimpleNamespace) -> None:
        vars(self).update(vars(fields))

    def __call__(self, text: bytes) -> list[int]:
        return list(text)
