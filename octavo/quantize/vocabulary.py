"""A directory's tokenizer.json -> the tokenizer.* keys of a GGUF file, and a proof that both give the same ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import tokenizers

from octavo.loaders.gguf_writer import decoded_metadata, numbers, scalar, text, texts
from octavo.quantize.sample import PROBES
from octavo.text.byte_level import make_pre_tokenizer
from octavo.text.gguf_tokenizer import load_gguf_tokenizer
from octavo.text.gguf_vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from octavo.text.pre_tokenizers import find_pre_tokenizer
from octavo.text.sentencepiece import SPACE
from octavo.text.tokenizer import Tokenizer

# One name for each way of cutting text into words; llama.cpp knows them too.
_PRE_TOKENIZERS: Final = ("gpt-2", "smollm", "llama-bpe", "smaug-bpe", "qwen2", "gpt-4o", "tekken", "default")
_NEVER_MERGED: Final = -1e6
"""the score of a piece that no merge makes"""


def vocabulary_metadata(directory: Path, tokenizer: Tokenizer, num_rows: int) -> dict[str, bytes]:
    """The tokenizer.* keys for the tokenizer in `directory`, which `tokenizer` was loaded from.

    num_rows: rows of the embedding; ids without a token become unused ones. Raises ValueError for a tokenizer of
    another sort than byte-level BPE and SentencePiece-like BPE, and where a GGUF file would give other ids.
    """
    parts = _Parts.read(directory)
    if parts.uses_bytes_as_letters:
        keys = {"model": text("gpt2"), "pre": text(_pre_tokenizer_name(parts))}
        keys |= _tokens(parts, num_rows) | {"merges": texts([" ".join(pair) for pair in parts.merges])}
        keys |= {"add_space_prefix": scalar("bool", False)}
    elif parts.model.get("byte_fallback") is True:
        keys = {"model": text("llama"), "pre": text("default")}
        keys |= _tokens(parts, num_rows) | {"scores": numbers(_scores(parts, num_rows))}
        keys |= {"add_space_prefix": scalar("bool", parts.words("a")[0].startswith(SPACE))}
    else:
        raise ValueError(
            f"{parts.file}: is neither byte-level BPE nor BPE with byte_fallback, which are the tokenizers that a "
            "GGUF file can hold"
        )
    keys |= _special_ids(tokenizer, parts) | {"add_bos_token": scalar("bool", tokenizer.add_bos_token)}
    metadata = {f"tokenizer.ggml.{key}": value for key, value in keys.items()} | _chat_templates(tokenizer)
    check_same_ids(tokenizer, load_gguf_tokenizer(decoded_metadata(metadata)), str(parts.file))
    return metadata


def check_same_ids(tokenizer: Tokenizer, written: Tokenizer, where: str) -> None:
    """Raises ValueError where two tokenizers differ on the probes, in their begin token, or `written` lacks an end."""
    for probe in PROBES:
        expected, found = tokenizer.encode(probe), written.encode(probe)
        if expected != found:
            raise ValueError(f"{where}: a GGUF file would give {probe!r} the ids {found}, not {expected}")
    if not set(tokenizer.eos_token_ids) <= set(written.eos_token_ids):
        raise ValueError(
            f"{where}: a GGUF file would end at the tokens {written.eos_token_ids}, not {tokenizer.eos_token_ids}"
        )


@dataclass(frozen=True, slots=True)
class _Parts:
    """tokenizer.json, taken apart."""

    file: Path
    document: Mapping[str, Any]
    tokenizer: tokenizers.Tokenizer

    @classmethod
    def read(cls, directory: Path) -> _Parts:
        file = directory / "tokenizer.json"
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["model"].get("type", "BPE") != "BPE":
            raise ValueError(
                f"{file}: is a {document['model']['type']} tokenizer; only BPE ones can be written to a GGUF file"
            )
        return cls(file, document, tokenizers.Tokenizer.from_file(str(file)))

    @property
    def model(self) -> Mapping[str, Any]:
        model: Mapping[str, Any] = self.document["model"]
        return model

    @property
    def added(self) -> Sequence[Mapping[str, Any]]:
        added: Sequence[Mapping[str, Any]] = self.document.get("added_tokens") or ()
        return added

    @property
    def merges(self) -> list[tuple[str, str]]:
        """Pairs, best first; written as lists, or by older files with a space between."""
        return [
            (pair[0], pair[1]) if isinstance(pair, list) else tuple(pair.split(" ", 1)) for pair in self.model["merges"]
        ]

    @property
    def uses_bytes_as_letters(self) -> bool:
        description = self.document.get("pre_tokenizer") or {}
        steps = description.get("pretokenizers", [description])
        return any(step.get("type") == "ByteLevel" for step in steps)

    def words(self, probe: str) -> list[str]:
        """What is merged, each on its own, in `probe`."""
        normalizer, pre_tokenizer = self.tokenizer.normalizer, self.tokenizer.pre_tokenizer
        normalized = probe if normalizer is None else normalizer.normalize_str(probe)
        if pre_tokenizer is None:
            return [normalized]
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(normalized)]


def _pre_tokenizer_name(parts: _Parts) -> str:
    """The one that cuts the probes into the same words; the same words make the same ids."""
    expected = [parts.words(probe) for probe in PROBES]
    for name in _PRE_TOKENIZERS:
        known = find_pre_tokenizer(name)
        if known.ignore_merges != bool(parts.model.get("ignore_merges")):
            continue
        cut = make_pre_tokenizer(known)
        if all(
            [word for word, _ in cut.pre_tokenize_str(probe)] == words
            for probe, words in zip(PROBES, expected, strict=True)
        ):
            return name
    raise ValueError(f"{parts.file}: cuts text into words as none of {', '.join(_PRE_TOKENIZERS)} does")


def _tokens(parts: _Parts, num_rows: int) -> dict[str, bytes]:
    """Tokens and their types, by id."""
    tokens = [f"[PAD{token_id}]" for token_id in range(num_rows)]
    types = np.full(num_rows, UNUSED, np.int32)
    unknown = parts.model.get("unk_token")

    def put(token_id: int, token: str, kind: int) -> None:
        if not 0 <= token_id < num_rows:
            raise ValueError(f"{parts.file}: token {token!r} has the id {token_id}, the embedding has {num_rows} rows")
        tokens[token_id], types[token_id] = token, kind

    for token, token_id in parts.model["vocab"].items():
        is_byte = parts.model.get("byte_fallback") is True and len(token) == 6 and token.startswith("<0x")
        put(token_id, token, UNKNOWN if token == unknown else BYTE if is_byte else NORMAL)
    for entry in parts.added:
        # Some models add tokens that they have no rows for: nothing but an image encoder could use them.
        if entry["content"] != unknown and entry["id"] < num_rows:
            put(entry["id"], entry["content"], CONTROL if entry["special"] else USER_DEFINED)
    return {"tokens": texts(tokens), "token_type": numbers(types)}


def _scores(parts: _Parts, num_rows: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The earlier its first merge, the higher the score of a piece: [num_rows]."""
    scores = np.full(num_rows, _NEVER_MERGED, np.float32)
    vocabulary = parts.model["vocab"]
    for rank, (left, right) in reversed(list(enumerate(parts.merges))):
        scores[vocabulary[left + right]] = -rank
    return scores


def _special_ids(tokenizer: Tokenizer, parts: _Parts) -> dict[str, bytes]:
    """The ids of tokens with a meaning. A file has room for three that end an answer; others must be known by
    their spelling, which check_same_ids sees to."""
    first = tokenizer.special_token_id("eos_token")
    ends = sorted(tokenizer.eos_token_ids, key=lambda token_id: token_id != first)
    ids: dict[str, int | None] = {
        "bos_token_id": tokenizer.bos_token_id,
        "unknown_token_id": parts.model["vocab"].get(parts.model.get("unk_token")),
        "padding_token_id": tokenizer.special_token_id("pad_token"),
        **dict(zip(("eos_token_id", "eot_token_id", "eom_token_id"), ends, strict=False)),
    }
    return {key: scalar("u32", token_id) for key, token_id in ids.items() if token_id is not None}


def _chat_templates(tokenizer: Tokenizer) -> dict[str, bytes]:
    return {
        "tokenizer.chat_template" + ("" if name == "default" else f".{name}"): text(source)
        for name, source in tokenizer.chat_templates.items()
    }
