"""How byte-level BPE vocabularies cut text into words before merging, by the name in tokenizer.ggml.pre."""

from __future__ import annotations

from dataclasses import dataclass

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_REST_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*",
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Patterns (Oniguruma syntax) applied one after the other: each cuts out its matches and leaves the rest
    between.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    """a word that is a token is taken as it is, whatever the merges say"""
    add_bos: bool = False
    """what to assume where the file has no add_bos_token"""


_LLAMA3 = PreTokenizer((rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_REST}",), ignore_merges=True, add_bos=True)
_TIKTOKEN = PreTokenizer(_LLAMA3.patterns)
_SMOLLM = PreTokenizer((r"\p{N}", _GPT2))
_PLAIN_GPT2 = PreTokenizer((_GPT2,))
_QWEN2 = PreTokenizer((rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_REST}",))
# These two as in the models' own tokenizer.json. llama.cpp leaves out \p{M} here, and so differs where
# a combining mark stands beside a word.
_GPT4O = PreTokenizer((rf"{_CASED[0]}{_CONTRACTIONS}?|{_CASED[1]}{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_REST_SLASH}",))
_TEKKEN = PreTokenizer((rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_REST_SLASH}",), ignore_merges=True)
_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))

_BY_NAME = {
    "default": _DEFAULT,
    "gpt-2": _PLAIN_GPT2,
    "phi-2": _PLAIN_GPT2,
    "mpt": _PLAIN_GPT2,
    "olmo": _PLAIN_GPT2,
    "smollm": _SMOLLM,
    "starcoder": _SMOLLM,
    "refact": _SMOLLM,
    "command-r": _SMOLLM,
    "codeshell": _SMOLLM,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "dbrx": _TIKTOKEN,
    "smaug-bpe": _TIKTOKEN,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "stablelm2": _QWEN2,
    "gpt-4o": _GPT4O,
    "tekken": _TEKKEN,
}


def find_pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer of that name; ValueError for an unknown one, because a guess would give other ids."""
    found = _BY_NAME.get(name)
    if found is None:
        known = ", ".join(sorted(_BY_NAME))
        raise ValueError(f"tokenizer.ggml.pre is {name!r}, which is not known; known are {known}")
    return found
