# ruff: noqa: RUF001 - the texts are meant to be hard
"""Joined deltas equal the decoding of all ids at once, whatever the ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.text.detokenizer import PrefixDetokenizer
from octavo.text.tokenizer import load_tokenizer

SCRIPTS = [
    "Hello, world!  two  spaces",
    "你好，世界",
    "नमस्ते दुनिया",
    "👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽",
    "  leading and trailing  ",
    "\n\n\tцитата «é»\r\n",
    "\ufffd real replacement characters \ufffd",
]
_TOKENIZERS = {}


@pytest.fixture(autouse=True, scope="module")
def _tokenizers(byte_level, sentencepiece):
    _TOKENIZERS["bpe"] = load_tokenizer(byte_level())
    _TOKENIZERS["spm"] = load_tokenizer(sentencepiece())
    _TOKENIZERS["spm without prefix"] = load_tokenizer(sentencepiece(add_space_prefix=False))


NAMES = st.sampled_from(["bpe", "spm", "spm without prefix"])


def stream(detokenizer, ids):
    return [*(detokenizer.extend([token_id]) for token_id in ids), detokenizer.finish()]


@given(NAMES, st.lists(st.integers(-2, 320), max_size=40), st.booleans())
def test_any_ids_stream_to_their_decoding(name, ids, skip):
    tokenizer = _TOKENIZERS[name]
    deltas = stream(tokenizer.detokenizer(skip), ids)
    assert "".join(deltas) == tokenizer.decode(ids, skip)


@given(NAMES, st.lists(st.integers(-2, 320), max_size=40), st.integers(1, 5), st.booleans())
def test_tokens_at_once_give_the_text_that_they_give_one_by_one(name, ids, every, skip):
    tokenizer = _TOKENIZERS[name]
    together, one_by_one = tokenizer.detokenizer(skip), tokenizer.detokenizer(skip)
    for at in range(0, len(ids), every):
        some = ids[at : at + every]
        assert together.extend(some) == "".join(one_by_one.extend([token_id]) for token_id in some)
    assert together.finish() == one_by_one.finish()


@given(NAMES, st.lists(st.sampled_from(SCRIPTS), max_size=4), st.integers(1, 8))
def test_text_of_many_scripts_streams_without_broken_characters(name, parts, every):
    tokenizer = _TOKENIZERS[name]
    text = "".join(parts)
    ids = tokenizer.encode(text, add_special_tokens=False)
    deltas = stream(tokenizer.detokenizer(), ids)
    chunks = ["".join(deltas[at : at + every]) for at in range(0, len(deltas), every)]
    assert "".join(chunks) == text
    assert sum(chunk.count("\ufffd") for chunk in chunks) == text.count("\ufffd")


def byte_ids(tokenizer, data):
    """One id for each byte: ids are found by decoding, without relying on the vocabulary's order."""
    found = {tokenizer._codec.token_bytes(token_id): token_id for token_id in range(tokenizer.vocab_size)}
    return [found[bytes((byte,))] for byte in data]


@pytest.mark.parametrize("name", ["bpe", "spm"])
def test_incomplete_characters_are_held_back_and_flushed_once(name):
    tokenizer = _TOKENIZERS[name]
    detokenizer = tokenizer.detokenizer()
    ids = byte_ids(tokenizer, "x你".encode())
    assert [detokenizer.extend([token_id]) for token_id in ids] == ["x", "", "", "你"]
    assert [detokenizer.extend([token_id]) for token_id in ids[:3]] == ["x", "", ""]
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""


def test_an_invalid_byte_costs_one_replacement_character_at_once():
    tokenizer = _TOKENIZERS["bpe"]
    detokenizer = tokenizer.detokenizer()
    deltas = [detokenizer.extend([token_id]) for token_id in byte_ids(tokenizer, b"\xe4\xbda\xffb")]
    assert deltas == ["", "", "\ufffda", "\ufffd", "b"]


def test_one_leading_space_is_dropped_at_the_beginning_only():
    tokenizer = _TOKENIZERS["spm"]
    hello, world = tokenizer.encode("hello world", add_special_tokens=False)
    assert stream(tokenizer.detokenizer(), [1, hello, world]) == ["", "hello", " world", ""]
    assert stream(tokenizer.detokenizer(False), [1, hello, world]) == ["<s>", " hello", " world", ""]
    assert tokenizer.decode(tokenizer.encode("  hello")) == "  hello"


@pytest.mark.parametrize("skip", [True, False])
def test_a_continuation_keeps_its_space(skip):
    tokenizer = _TOKENIZERS["spm"]
    prompt = tokenizer.encode("hello")
    (world,) = tokenizer.encode("world", add_special_tokens=False)  # with a space in front, as a text begins
    whole = tokenizer.decode([*prompt, world], skip)
    assert whole.endswith("hello world")
    assert tokenizer.decode([world], skip, prompt) == " world"
    assert "".join(stream(tokenizer.detokenizer(skip, prompt), [world])) == " world"
    begin = prompt[:1]  # it has no text of its own where it is skipped
    assert tokenizer.decode([world], True, begin) == tokenizer.decode([*begin, world]) == "world"


def test_special_tokens_do_not_break_a_character_when_skipped():
    tokenizer = _TOKENIZERS["bpe"]
    first, *rest = byte_ids(tokenizer, "é".encode())
    assert stream(tokenizer.detokenizer(True), [first, 1, *rest])[-2] == "é"
    shown = stream(tokenizer.detokenizer(False), [first, 1, *rest])
    assert "".join(shown) == "\ufffd<|im_end|>\ufffd" == tokenizer.decode([first, 1, *rest], False)


@given(st.lists(st.integers(0, 300), max_size=30))
def test_prefix_detokenizer_equals_the_whole(ids):
    tokenizer = _TOKENIZERS["bpe"]
    deltas = stream(PrefixDetokenizer(tokenizer.decode), ids)
    assert "".join(deltas) == tokenizer.decode(ids)


def test_prefix_detokenizer_waits_while_earlier_text_changes():
    texts = {1: "a", 2: "b ", 3: "ab.c"}
    detokenizer = PrefixDetokenizer(lambda ids: texts[len(ids)])
    assert [detokenizer.extend([0]) for _ in range(3)] == ["a", "", "b.c"]
