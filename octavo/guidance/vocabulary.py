"""A model's vocabulary as llguidance walks it: the exact bytes of every token."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from llguidance import LLTokenizer


class TokenSource(Protocol):
    """What a tokenizer offers."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def control_ids(self) -> frozenset[int]: ...
    def token_bytes(self, token_id: int) -> bytes | None: ...


class _Tokens:
    """What llguidance asks for. Its grammars are compiled so that it never tokenizes."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], special_token_ids: Sequence[int], eos_token_id: int) -> None:
        self.tokens = tokens
        self.special_token_ids = special_token_ids
        self.eos_token_id = eos_token_id

    def __call__(self, text: object) -> list[int]:
        raise NotImplementedError("nothing is tokenized for a grammar")


def build_vocabulary(tokenizer: TokenSource, vocab_size: int, eos_token_ids: Collection[int]) -> LLTokenizer:
    """A trie over the bytes of all tokens of a model. Takes about a second for 262,144 of them.

    Control tokens are none of the text: only a grammar that names one allows it. Raises ValueError for a tokenizer
    that has no bytes for a single token, and for a model that has no end-of-sequence token.
    """
    from llguidance import LLTokenizer

    ends = sorted(token_id for token_id in eos_token_ids if token_id < vocab_size)
    if not ends:
        raise ValueError("structured_outputs: the model has no end-of-sequence token, so no output could end")
    known = min(tokenizer.vocab_size, vocab_size)
    tokens = [tokenizer.token_bytes(token_id) for token_id in range(known)]
    if any(token is None for token in tokens):
        raise ValueError("structured_outputs: this model's tokenizer does not say which bytes a token stands for")
    special = {token_id for token_id in tokenizer.control_ids if token_id < vocab_size} | set(ends)
    every: list[bytes] = [token or b"" for token in tokens] + [b""] * (vocab_size - known)
    wrapper: Any = _Tokens(every, sorted(special), ends[0])
    return LLTokenizer(wrapper, n_vocab=vocab_size, eos_token=ends)
