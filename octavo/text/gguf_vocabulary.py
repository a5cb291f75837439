"""The vocabulary of a GGUF file, read from its metadata and checked once."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""The values of tokenizer.ggml.token_type."""

_PREFIX = "tokenizer.ggml."
_TURN_ENDS = ("eot_token_id", "eom_token_id")

# Control tokens of these spellings end a turn in every model that has them, whatever the metadata says.
END_SPELLINGS = frozenset(
    {
        *("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|end|>", "<|eot_id|>", "<|eom_id|>"),
        *("<end_of_turn>", "<|endofturn|>", "<EOT>", "[EOT]", "[EOS]", "<eos>", "</s>", "<|return|>"),
        *("<\uff5cend\u2581of\u2581sentence\uff5c>", "<end_of_utterance>"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFVocabulary:
    """Tokens by id with their types, and what the file says about begin and end of text."""

    model: str
    """gpt2 (byte-level BPE) or llama (SentencePiece BPE)"""
    pre: str
    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float]
    """only of model llama: higher merges first"""
    merges: Sequence[str]
    """only of model gpt2: "left right", best first"""
    bos_token_id: int | None
    eos_token_id: int | None
    unknown_token_id: int | None
    padding_token_id: int | None
    turn_end_ids: tuple[int, ...]
    add_bos_token: bool | None
    """None where the file does not say"""
    add_space_prefix: bool

    def ids_of_type(self, *types: int) -> list[int]:
        """The ids of these token types, ascending."""
        return [int(token_id) for token_id in np.flatnonzero(np.isin(np.asarray(self.types), types))]


def read_vocabulary(metadata: Mapping[str, Any]) -> GGUFVocabulary:
    """Read and check the tokenizer.ggml.* keys; ValueError names the key that is missing or wrong."""
    model = _typed(metadata, "model", str, None)
    if model is None:
        raise ValueError(f"the file has no tokenizer: {_PREFIX}model is missing")
    tokens = list(_array(metadata, "tokens", None))
    if not tokens:
        raise ValueError(f"{_PREFIX}tokens is missing or empty")
    size = len(tokens)
    types = _numbers(metadata, "token_type", size, "i") or [NORMAL] * size
    scores = _numbers(metadata, "scores", size, "f")
    if model == "llama" and not scores:
        raise ValueError(f"{_PREFIX}scores is missing; a SentencePiece vocabulary needs them")
    merges = list(_array(metadata, "merges", None))
    if model == "gpt2" and not merges:
        raise ValueError(f"{_PREFIX}merges is missing; a byte-level BPE vocabulary needs them")
    sentencepiece = model == "llama"
    turn_ends = [_token_id(metadata, name, size) for name in _TURN_ENDS]
    return GGUFVocabulary(
        model=model,
        pre=_typed(metadata, "pre", str, "default"),
        tokens=tokens,
        types=types,
        scores=scores,
        merges=merges,
        bos_token_id=_token_id(metadata, "bos_token_id", size, 1 if sentencepiece else None),
        eos_token_id=_token_id(metadata, "eos_token_id", size, 2 if sentencepiece else None),
        unknown_token_id=_token_id(metadata, "unknown_token_id", size, 0 if sentencepiece else None),
        padding_token_id=_token_id(metadata, "padding_token_id", size),
        turn_end_ids=tuple(token_id for token_id in turn_ends if token_id is not None),
        add_bos_token=_typed(metadata, "add_bos_token", bool, None),
        add_space_prefix=_typed(metadata, "add_space_prefix", bool, sentencepiece),
    )


def _typed(metadata: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = metadata.get(_PREFIX + name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise ValueError(f"{_PREFIX}{name} is {value!r}; it must be a {kind.__name__}")
    return value


def _array(metadata: Mapping[str, Any], name: str, length: int | None) -> Sequence[Any]:
    value: Any = metadata.get(_PREFIX + name)
    if value is None:
        return ()
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        raise ValueError(f"{_PREFIX}{name} is a {type(value).__name__}; it must be an array")
    if length is not None and len(value) != length:
        raise ValueError(f"{_PREFIX}{name} has {len(value)} entries for {length} tokens")
    return value  # type: ignore[no-any-return]


def _numbers(metadata: Mapping[str, Any], name: str, length: int, typecode: str) -> Sequence[Any]:
    """An array of Python numbers, which compare and hash faster than numpy's; a list of them takes eight times as
    much memory."""
    return array(typecode, np.asarray(_array(metadata, name, length), np.dtype(typecode)).tobytes())


def _token_id(metadata: Mapping[str, Any], name: str, size: int, default: int | None = None) -> int | None:
    value = metadata.get(_PREFIX + name, default)
    if value is None:
        return None
    token_id = int(value)
    if token_id == 0xFFFFFFFF:  # "none", as some converters write it
        return None
    if not 0 <= token_id < size:
        if _PREFIX + name not in metadata:
            return None
        raise ValueError(f"{_PREFIX}{name} is {token_id}; the vocabulary has {size} tokens")
    return token_id
