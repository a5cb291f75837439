"""Ids, begin-of-text, end-of-turn and errors of tokenizers from GGUF metadata, on tiny vocabularies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.text.tokenizer import load_tokenizer

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def spelled(tokenizer, ids):
    before = len(tokenizer.decode([1], skip_special_tokens=False))  # so that no token is the first one
    return [tokenizer.decode([1, token_id], skip_special_tokens=False)[before:] for token_id in ids]


@pytest.fixture(scope="module")
def bpe(byte_level):
    return load_tokenizer(byte_level())


@pytest.fixture(scope="module")
def spm(sentencepiece):
    return load_tokenizer(sentencepiece())


def test_byte_level_merges_by_rank(bpe):
    assert spelled(bpe, bpe.encode("hello world")) == ["hello", " world"]
    assert spelled(bpe, bpe.encode("helo 12")) == ["he", "l", "o", " ", "1", "2"]


def test_byte_level_falls_back_to_bytes(bpe):
    ids = bpe.encode("你")
    assert len(ids) == 2  # E4 BD merges, A0 does not
    assert bpe.decode(ids) == "你"


def test_control_tokens_are_parsed_only_when_asked(bpe):
    text = "hello<|im_end|>"
    assert bpe.encode(text)[-1] == 1
    plain = bpe.encode(text, parse_special=False)
    assert 1 not in plain and bpe.decode(plain) == text


def test_user_defined_tokens_are_always_parsed(bpe):
    tag = bpe.encode("<tag>")
    assert len(tag) == 1 and bpe.encode("<tag>", parse_special=False) == tag
    assert bpe.decode(tag) == "<tag>"


def test_ignore_merges_takes_a_whole_word(byte_level):
    merges = ["h e", "l l", "Ġ w"]
    tokens = [*byte_level()["tokenizer.ggml.tokens"][:259], "he", "ll", "Ġw", "hello"]
    changes = {"tokens": tokens, "token_type": None, "merges": merges, "bos_token_id": 0}
    assert len(load_tokenizer(byte_level(**changes, pre="llama-bpe")).encode("hello", False)) == 1
    assert len(load_tokenizer(byte_level(**changes, pre="dbrx")).encode("hello", False)) == 3


def test_sentencepiece_merges_by_score_then_from_the_left(spm):
    assert spelled(spm, spm.encode("hello world", False)) == [" hello", " world"]
    assert spelled(spm, spm.encode("xaaaaa", False)) == [" ", "x", "aa", "aaa"]


def test_sentencepiece_spells_unknown_letters_in_bytes(spm):
    ids = spm.encode("é", False)
    assert ids[1:] == [3 + 0xC3, 3 + 0xA9]
    assert spm.decode(ids) == "é"


def test_sentencepiece_without_bytes_gives_the_unknown_token(sentencepiece):
    metadata = sentencepiece()
    types = metadata["tokenizer.ggml.token_type"]
    tokens = metadata["tokenizer.ggml.tokens"]
    tokens = [token.replace("<0x", "byte") if kind == 6 else token for token, kind in zip(tokens, types, strict=True)]
    types = [1 if kind == 6 else kind for kind in types]
    tokenizer = load_tokenizer(sentencepiece(tokens=tokens, token_type=types))
    assert tokenizer.encode("é", False)[-1] == 0


def test_space_prefix_at_the_beginning_and_after_tokens(sentencepiece):
    with_prefix = load_tokenizer(sentencepiece())
    without = load_tokenizer(sentencepiece(add_space_prefix=False))
    assert spelled(with_prefix, with_prefix.encode("hello</s>hello", False)) == [" hello", "</s>", " hello"]
    assert spelled(without, without.encode("hello</s> hello", False)) == ["h", "el", "lo", "</s>", " hello"]
    assert with_prefix.encode("", False) == []


def test_text_never_merges_into_control_or_byte_tokens(sentencepiece):
    metadata = sentencepiece()
    tokens = [*metadata["tokenizer.ggml.tokens"], "</", "</s", "s>"]
    types = [*metadata["tokenizer.ggml.token_type"], 1, 1, 1]
    scores = [*metadata["tokenizer.ggml.scores"], 5.0, 4.0, 3.0]
    tokenizer = load_tokenizer(sentencepiece(tokens=tokens, token_type=types, scores=scores))
    ids = tokenizer.encode("</s><0x41>", False, parse_special=False)
    assert 2 not in ids and 3 + 0x41 not in ids
    assert tokenizer.decode(ids) == "</s><0x41>"


def test_words_are_not_cut_inside_a_piece_with_a_space(sentencepiece):
    metadata = sentencepiece()
    tokens = [*metadata["tokenizer.ggml.tokens"], ">▁<"]
    tokenizer = load_tokenizer(
        sentencepiece(
            tokens=[*tokens, "▁<"],
            token_type=[*metadata["tokenizer.ggml.token_type"], 1, 1],
            scores=[*metadata["tokenizer.ggml.scores"], 9.0, 8.0],
            add_space_prefix=False,
        )
    )
    assert spelled(tokenizer, tokenizer.encode("x> <x", False)) == ["x", "> <", "x"]


@given(TEXT)
def test_byte_level_decodes_what_it_encoded(text):
    tokenizer = _shared("bpe")
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


@given(TEXT)
def test_sentencepiece_decodes_what_it_encoded(text):
    tokenizer = _shared("spm")
    text = text.replace("▁", "")  # which stands for a space
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


_SHARED = {}


@pytest.fixture(autouse=True, scope="module")
def _share(bpe, spm):
    _SHARED.update(bpe=bpe, spm=spm)


def _shared(name):
    return _SHARED[name]


def test_bos_is_added_exactly_when_the_file_says_so(byte_level, sentencepiece):
    for metadata in (byte_level, sentencepiece):
        yes, no = load_tokenizer(metadata(add_bos_token=True)), load_tokenizer(metadata(add_bos_token=False))
        assert yes.encode("hello") == [yes.bos_token_id, *no.encode("hello")]
        assert yes.encode("hello", add_special_tokens=False) == no.encode("hello")


def test_bos_is_assumed_for_sentencepiece_and_llama3_only(byte_level, sentencepiece):
    assert load_tokenizer(sentencepiece()).add_bos_token
    assert load_tokenizer(byte_level(pre="llama-bpe")).add_bos_token
    assert not load_tokenizer(byte_level(pre="qwen2")).add_bos_token


def test_bos_is_never_added_twice(sentencepiece):
    tokenizer = load_tokenizer(sentencepiece())
    assert tokenizer.encode("<s>hello") == tokenizer.encode("hello")
    assert tokenizer.encode("") == [1]


def test_bos_that_is_only_spelled_does_not_count(sentencepiece):
    tokenizer = load_tokenizer(sentencepiece())
    ids = tokenizer.encode("<s>", parse_special=False)
    assert ids[0] == 1 and ids.count(1) == 1 and len(ids) > 1


def test_bos_without_a_token_is_an_error(byte_level):
    with pytest.raises(ValueError, match="no bos token"):
        load_tokenizer(byte_level(add_bos_token=True, bos_token_id=None))


def test_every_end_of_turn_token_ends_a_generation(byte_level):
    assert load_tokenizer(byte_level()).eos_token_ids == (1, 2)
    assert load_tokenizer(byte_level(eos_token_id=2, eot_token_id=0)).eos_token_ids == (0, 1, 2)


def test_a_user_defined_token_spelled_like_an_end_is_no_end(byte_level):
    types = byte_level()["tokenizer.ggml.token_type"]
    assert load_tokenizer(byte_level(token_type=[3, 3, 4, *types[3:]])).eos_token_ids == (1,)


def test_an_end_token_that_the_file_types_as_text_becomes_a_control_token(byte_level):
    types = byte_level()["tokenizer.ggml.token_type"]
    tokenizer = load_tokenizer(byte_level(token_type=[3, 1, 3, *types[3:]]))
    assert tokenizer.encode("<|im_end|>") == [1]
    assert tokenizer.decode([1]) == ""


def test_special_tokens_are_skipped_or_shown(bpe):
    ids = [0, *bpe.encode("hello"), 1]
    assert bpe.decode(ids) == "hello"
    assert bpe.decode(ids, skip_special_tokens=False) == "<|im_start|>hello<|im_end|>"


def test_unused_and_unknown_ids_decode_to_nothing(bpe, spm):
    for tokenizer in (bpe, spm):
        outside = [tokenizer.vocab_size, -1, 2**40]
        assert tokenizer.decode([*outside, *tokenizer.encode("hello"), *outside]) == "hello"
    assert bpe.decode([bpe.vocab_size - 1], skip_special_tokens=False) == ""


def test_arrays_may_come_from_numpy(sentencepiece):
    metadata = sentencepiece()
    arrays = {
        "token_type": np.array(metadata["tokenizer.ggml.token_type"], np.int32),
        "scores": np.array(metadata["tokenizer.ggml.scores"], np.float32),
    }
    assert load_tokenizer(sentencepiece(**arrays)).encode("hello") == load_tokenizer(metadata).encode("hello")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "tokenizer.ggml.model is missing"),
        ({"model": "t5"}, "'t5'"),
        ({"tokens": None}, "tokens is missing"),
        ({"merges": None}, "merges is missing"),
        ({"merges": ["ab"]}, "'ab'"),
        ({"token_type": [1, 2]}, "token_type has 2 entries"),
        ({"pre": "no-such"}, "'no-such', which is not known"),
        ({"eos_token_id": 10**6}, "eos_token_id is 1000000"),
        ({"add_bos_token": "yes"}, "add_bos_token is 'yes'"),
    ],
)
def test_bad_metadata_is_refused_by_name(byte_level, changes, message):
    with pytest.raises(ValueError, match=message):
        load_tokenizer(byte_level(**changes))


def test_a_badly_written_byte_token_is_refused(sentencepiece):
    tokens = sentencepiece()["tokenizer.ggml.tokens"]
    with pytest.raises(ValueError, match="byte token"):
        load_tokenizer(sentencepiece(tokens=[*tokens[:3], "<0xGG>", *tokens[4:]]))


def test_lone_surrogates_are_refused(bpe):
    with pytest.raises(ValueError, match=r"U\+D83D at character 2"):
        bpe.encode("ab\ud83d")
    with pytest.raises(TypeError, match="bytes"):
        bpe.encode(b"ab")
