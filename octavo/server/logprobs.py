"""Logprobs in the two formats of the API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from octavo.outputs import TokenLogprobs
from octavo.text.tokenizer import Tokenizer

# Logprobs come with a finite floor (octavo.sampling.logprobs.LOGPROB_FLOOR), so all of them are JSON.


class TokenSpelling:
    """Tokens as text, and as "bytes:\\xe2\\x80" where a token is no whole character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def data(self, token_id: int) -> bytes:
        """The bytes that a token stands for."""
        data = self._tokenizer.token_bytes(token_id)
        return self._tokenizer.decode([token_id], False).encode() if data is None else data

    def text(self, token_id: int) -> str:
        """As text where it is some."""
        data = self.data(token_id)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def chat_logprobs(entries: Sequence[TokenLogprobs], top: int, spelling: TokenSpelling) -> dict[str, Any]:
    """choices[].logprobs of a chat completion."""
    return {"content": [_chat_token(entry, top, spelling) for entry in entries], "refusal": None}


def _chat_token(entry: TokenLogprobs, top: int, spelling: TokenSpelling) -> dict[str, Any]:
    """The chosen token is the entry's first; among the likeliest it is only where its rank says so."""
    tokens = [
        {"token": spelling.text(token_id), "logprob": logprob.logprob, "bytes": list(spelling.data(token_id))}
        for token_id, logprob in entry.items()
    ]
    ranks = [logprob.rank or len(entry) + top for logprob in entry.values()]
    by_rank = sorted(range(len(tokens)), key=ranks.__getitem__)
    return {**tokens[0], "top_logprobs": [tokens[place] for place in by_rank if ranks[place] <= top][:top]}


class CompletionLogprobs:
    """choices[].logprobs of a completion, or of a part of a stream."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.token_logprobs: list[float | None] = []
        self.top_logprobs: list[dict[str, float] | None] = []
        self.text_offset: list[int] = []

    def add(
        self,
        token_ids: Iterable[int],
        entries: Iterable[TokenLogprobs | None],
        offsets: Iterable[int],
        spelling: TokenSpelling,
    ) -> None:
        """Appends tokens; an entry is None for a prompt's first token, which nothing predicts."""
        for token_id, entry, offset in zip(token_ids, entries, offsets, strict=True):
            self.tokens.append(spelling.text(token_id))
            self.token_logprobs.append(None if entry is None else entry[token_id].logprob)
            self.top_logprobs.append(None if entry is None else _by_spelling(entry, spelling))
            self.text_offset.append(offset)

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def _by_spelling(entry: TokenLogprobs, spelling: TokenSpelling) -> dict[str, float]:
    """The likeliest first among those that are spelled alike."""
    result: dict[str, float] = {}
    for token_id, logprob in entry.items():
        name = spelling.text(token_id)
        result[name] = max(result.get(name, logprob.logprob), logprob.logprob)
    return result


class TokenOffsets:
    """Where in the text each token begins; the tokens of one character begin together."""

    def __init__(
        self, tokenizer: Tokenizer, skip_special_tokens: bool, start: int = 0, after: Sequence[int] = ()
    ) -> None:
        """`start`: length of what is before, the text of the ids `after`."""
        self._detokenizer = tokenizer.detokenizer(skip_special_tokens, after)
        self.position = start

    def add(self, token_ids: Iterable[int]) -> list[int]:
        """Offsets of the next tokens."""
        offsets = []
        for token_id in token_ids:
            offsets.append(self.position)
            self.position += len(self._detokenizer.extend((token_id,)))
        return offsets


def prompt_text_and_offsets(
    text: str | None, token_ids: Sequence[int], tokenizer: Tokenizer, skip_special_tokens: bool
) -> tuple[str, list[int]]:
    """A prompt as echo gives it back, and where its tokens begin there. Begin-of-text, which the tokenizer adds
    to a text, has no length."""
    if text is None:
        walk = TokenOffsets(tokenizer, skip_special_tokens)
        return tokenizer.decode(token_ids, skip_special_tokens), walk.add(token_ids)
    walk = TokenOffsets(tokenizer, False)
    offsets = walk.add(token_ids)
    whole = tokenizer.decode(token_ids, False)
    added = len(whole) - len(text) if whole.endswith(text) else 0
    return text, [max(0, offset - added) for offset in offsets]


def prompt_logprobs_json(entries: Sequence[TokenLogprobs | None] | None) -> list[dict[str, Any] | None] | None:
    """The field prompt_logprobs, as vLLM's users know it."""
    if entries is None:
        return None
    return [
        None
        if entry is None
        else {
            str(token_id): {"logprob": item.logprob, "rank": item.rank, "decoded_token": item.decoded_token}
            for token_id, item in entry.items()
        }
        for entry in entries
    ]
