# ruff: noqa: RUF001 - the texts are meant to be hard
"""How each known pre-tokenizer cuts text into words."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import pre_tokenizers

from octavo.text.pre_tokenizers import _BY_NAME, find_pre_tokenizer


def words(name, text):
    splits = [
        pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in find_pre_tokenizer(name).patterns
    ]
    return [word for word, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text)]


@pytest.mark.parametrize("name", sorted(_BY_NAME))
def test_words_cover_the_text(name):
    text = "I'LL pay 12345 €\tfor\n\n  it — नमस्ते 你好，世界! x_y <|a|>"
    assert "".join(words(name, text)) == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", ["it", "'s", " 12345", "  ", " x"]),
        ("smollm", ["it", "'s", " ", "1", "2", "3", "4", "5", "  ", " x"]),
        ("llama-bpe", ["it", "'s", " ", "123", "45", "  ", " x"]),
        ("qwen2", ["it", "'s", " ", "1", "2", "3", "4", "5", "  ", " x"]),
        ("default", ["it", "'", "s", " ", "123", "45", "  ", " x"]),
        ("tekken", ["it", "'s", " ", "1", "2", "3", "4", "5", "  ", " x"]),
        ("gpt-4o", ["it's", " ", "123", "45", "  ", " x"]),
    ],
)
def test_words_of_known_pre_tokenizers(name, expected):
    assert words(name, "it's 12345   x") == expected


def test_contractions_in_capitals():
    assert words("gpt-2", "I'LL") == ["I", "'", "LL"]
    assert words("qwen2", "I'LL") == ["I", "'LL"]


def test_line_breaks_stay_with_punctuation_in_newer_ones():
    assert words("qwen2", "a;\n\nb") == ["a", ";\n\n", "b"]
    assert words("gpt-2", "a;\n\nb") == ["a", ";", "\n", "\n", "b"]


def test_an_unknown_name_is_an_error_with_the_known_ones():
    with pytest.raises(ValueError, match="smollm"):
        find_pre_tokenizer("mystery")
