"""Tiny vocabularies that spell everything, and the real models' tokenizers where they are on this machine."""

from __future__ import annotations

import functools
import os
import struct
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from octavo.text.byte_level import _byte_letters
from octavo.text.tokenizer import Tokenizer, load_tokenizer

REAL_MODELS = {
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3-270m": "gemma-3-270m-q4_k_m.gguf",
}


hypothesis.settings.register_profile("octavo", deadline=None, max_examples=60)


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("octavo")  # no deadlines: timings on a shared machine are no failures
    config.addinivalue_line("markers", "real_model: needs a real model's file under $OCTAVO_HOME; skipped without")


_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class _Reader:
    """As much of GGUF as its metadata needs."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.data = file.read(64 << 20)
        self.at = 0

    def take(self, code: str, count: int = 1) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{count}{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{count}{code}")
        return found

    def string(self) -> str:
        (length,) = self.take("Q")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == 8:
            return self.string()
        if kind == 9:
            item, count = *self.take("I"), *self.take("Q")
            return [self.string() for _ in range(count)] if item == 8 else self.take(_SCALARS[item], count)
        return self.take(_SCALARS[kind])[0]

    def metadata(self) -> dict[str, Any]:
        self.at = 16
        (count,) = self.take("Q")
        return {self.string(): self.value(*self.take("I")) for _ in range(count)}


@functools.cache
def _real_tokenizer(name: str) -> Tokenizer | None:
    home = Path(os.environ.get("OCTAVO_HOME") or Path.home() / ".cache" / "octavo")
    file = next(iter(sorted(home.rglob(REAL_MODELS[name]))), None) if home.is_dir() else None
    return load_tokenizer(_Reader(file).metadata()) if file else None


@pytest.fixture(scope="session")
def real_tokenizer() -> Any:
    def find(name: str) -> Tokenizer:
        found = _real_tokenizer(name)
        if found is None:
            pytest.skip(f"{REAL_MODELS[name]} is not under $OCTAVO_HOME")
        return found

    return find


def byte_level_metadata(**changes: Any) -> dict[str, Any]:
    """A byte-level vocabulary: all bytes, a few merges, control, user-defined and unused tokens."""
    letters = list(_byte_letters().values())
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "ä ½", "Ġ Ġ", "< |"]
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    tokens = [*special, *letters, *(merge.replace(" ", "") for merge in merges), "<tag>", "[PAD1]"]
    types = [3, 3, 3, *([1] * (len(letters) + len(merges))), 4, 5]
    metadata = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": tokens,
        "token_type": types,
        "merges": merges,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in {**metadata, **changes}.items() if value is not None}


def sentencepiece_metadata(**changes: Any) -> dict[str, Any]:
    """A SentencePiece vocabulary: bytes, letters and some pieces with scores; only some letters."""
    special = ["<unk>", "<s>", "</s>"]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = [
        "▁h",
        "el",
        "▁hel",
        "lo",
        "▁hello",
        "aa",
        "aaa",
        "▁▁",
        "wor",
        "or",
        "ld",
        "▁wor",
        "▁world",
        "e",
        "h",
    ]
    letters = [*"loawrd▁你好<>s/", "x"]
    tokens = [*special, *byte_tokens, *pieces, *letters, "<tag>"]
    types = [2, 3, 3, *([6] * 256), *([1] * (len(pieces) + len(letters))), 4]
    scores = [*([0.0] * 259), *(-float(index) for index in range(len(pieces) + len(letters))), -1000.0]
    metadata = {
        "model": "llama",
        "tokens": tokens,
        "token_type": types,
        "scores": scores,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in {**metadata, **changes}.items() if value is not None}


@pytest.fixture(scope="session")
def byte_level() -> Any:
    return byte_level_metadata


@pytest.fixture(scope="session")
def sentencepiece() -> Any:
    return sentencepiece_metadata
