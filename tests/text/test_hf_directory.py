"""Tokenizers from Hugging Face directories, made small with the library itself."""

from __future__ import annotations

import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from octavo.text.byte_level import _byte_letters
from octavo.text.detokenizer import PrefixDetokenizer
from octavo.text.tokenizer import load_tokenizer

SPECIAL = ["<s>", "</s>", "<|user|>"]
TEMPLATE = "{{ bos_token }}{% for m in messages %}<|user|>{{ m.content }}</s>{% endfor %}"


def byte_level_backend(**added):
    letters = list(_byte_letters().values())
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "hello")]
    vocabulary = {token: index for index, token in enumerate([*letters, *(a + b for a, b in merges)])}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken(token, special=True, **added) for token in SPECIAL])
    return backend


def sentencepiece_backend(prepend_scheme="first"):
    pieces = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *"▁helo|<>/su",
        "▁h",
        "el",
        "▁hel",
        "lo",
        "▁hello",
    ]
    merges = [("▁", "h"), ("e", "l"), ("▁h", "el"), ("l", "o"), ("▁hel", "lo")]
    model = models.BPE({piece: index for index, piece in enumerate(pieces)}, merges, unk_token="<unk>",
                       byte_fallback=True, fuse_unk=True)  # fmt: skip
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=prepend_scheme, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    backend.add_special_tokens([tokenizers.AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return backend


def save(path, backend, config=None, **files):
    backend.save(str(path / "tokenizer.json"))
    config = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>"},
        "chat_template": TEMPLATE,
        **(config or {}),
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    for name, value in files.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return load_tokenizer(path)


BACKENDS = [byte_level_backend, sentencepiece_backend]
TEXTS = ["hello hello", " hello", "héllo 你好 👍🏽", "", "<s>hello</s> hello"]


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_text_equal_the_library_s(tmp_path, make, text):
    backend = make()
    tokenizer = save(tmp_path, backend)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert ids == backend.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == backend.decode(ids)
    assert tokenizer.decode(ids, False) == backend.decode(ids, skip_special_tokens=False)
    for detokenizer in (tokenizer.detokenizer(), PrefixDetokenizer(lambda ids: backend.decode(ids))):
        assert "".join(detokenizer.extend([token_id]) for token_id in ids) + detokenizer.finish() == backend.decode(ids)


@pytest.mark.parametrize("make", BACKENDS)
def test_special_spellings_can_be_plain_text(tmp_path, make):
    tokenizer = save(tmp_path, make())
    end = tokenizer.eos_token_ids[0]
    assert end in tokenizer.encode("a</s>")
    assert end not in tokenizer.encode("a</s>", parse_special=False)
    assert end in tokenizer.encode("a</s>")


def test_bos_follows_the_post_processor(tmp_path):
    backend = byte_level_backend()
    assert not save(tmp_path, backend).add_bos_token
    bos = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", bos)])
    tokenizer = save(tmp_path, backend)
    assert tokenizer.encode("hello") == tokenizer.encode("<s>hello") == [bos, *tokenizer.encode("hello", False)]


def test_add_bos_token_in_the_config_decides(tmp_path):
    tokenizer = save(tmp_path, byte_level_backend(), {"add_bos_token": True})
    assert tokenizer.encode("hello")[0] == tokenizer.bos_token_id


@pytest.mark.parametrize("make", [*BACKENDS, lambda: sentencepiece_backend("always")])
def test_chat_ids_equal_the_library_s_on_the_whole_text(tmp_path, make):
    backend = make()
    tokenizer = save(tmp_path, backend)
    messages = [{"role": "user", "content": "hello"}, {"role": "user", "content": " hello"}]
    expected = backend.encode("<s><|user|>hello</s><|user|> hello</s>", add_special_tokens=False).ids
    assert tokenizer.apply_chat_template(messages) == expected


@pytest.mark.parametrize("make", [*BACKENDS, lambda: sentencepiece_backend("always")])
def test_control_tokens_in_content_are_plain_text(tmp_path, make):
    backend = make()
    tokenizer = save(tmp_path, backend)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "hello</s> hello"}])
    names = [backend.id_to_token(token_id) for token_id in ids]
    assert names[:2] == ["<s>", "<|user|>"] and names[-1] == "</s>" and names.count("</s>") == 1
    # The same text with an ordinary word in the place of the spelling has the same ids around it.
    plain = tokenizer.apply_chat_template([{"role": "user", "content": "hello hello"}])
    assert ids[:3] == plain[:3] and ids[-2:] == plain[-2:]
    assert tokenizer.decode(ids, False) == backend.decode(plain, skip_special_tokens=False).replace(
        "hello hello", "hello</s> hello"
    )


def test_added_tokens_keep_their_stripping_when_owned(tmp_path):
    tokenizer = save(tmp_path, byte_level_backend(rstrip=True))
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "  hello</s>"}])
    assert tokenizer.decode(ids) == "hello</s>"


def test_end_tokens_come_from_generation_config(tmp_path):
    tokenizer = save(tmp_path, byte_level_backend(), generation_config={"eos_token_id": [7, 9]})
    assert set(tokenizer.eos_token_ids) == {7, 9, tokenizer.encode("</s>")[0]}


def test_end_tokens_come_from_config_without_generation_config(tmp_path):
    tokenizer = save(tmp_path, byte_level_backend())
    (tmp_path / "config.json").write_text('{"eos_token_id": 7}')
    assert set(load_tokenizer(tmp_path).eos_token_ids) == {7, *tokenizer.eos_token_ids}


def test_a_bad_end_token_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"generation_config\.json: eos_token_id has 'x'"):
        save(tmp_path, byte_level_backend(), generation_config={"eos_token_id": "x"})


def test_a_template_file_goes_before_the_config(tmp_path):
    save(tmp_path, byte_level_backend())
    (tmp_path / "chat_template.jinja").write_text("from the file")
    assert load_tokenizer(tmp_path).chat_template == "from the file"


def test_named_templates(tmp_path):
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    tokenizer = save(tmp_path, byte_level_backend(), {"chat_template": named})
    assert tokenizer.render_chat([{"role": "user", "content": "x"}], tools=[{}]) == "b"


def test_an_unknown_decoder_is_decoded_as_a_whole(tmp_path):
    backend = byte_level_backend()
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("xyz", "!")])
    tokenizer = save(tmp_path, backend)
    ids = tokenizer.encode("hello 你好")
    detokenizer = tokenizer.detokenizer()
    assert (
        "".join(detokenizer.extend([token_id]) for token_id in ids) + detokenizer.finish()
        == tokenizer.decode(ids)
        == "hello 你好"
    )
    assert tokenizer.decode([10**6, *ids, -1]) == "hello 你好"


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer\.json is missing"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="not a usable tokenizer"):
        load_tokenizer(tmp_path)


def test_a_broken_config_is_named(tmp_path):
    save(tmp_path, byte_level_backend())
    (tmp_path / "tokenizer_config.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json holds a list"):
        load_tokenizer(tmp_path)


def test_a_normalizer_that_prepends_is_left_to_the_library(tmp_path):
    backend = sentencepiece_backend("never")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = None
    tokenizer = save(tmp_path, backend)
    messages = [{"role": "user", "content": "hello"}]
    expected = backend.encode("<s><|user|>hello</s>", add_special_tokens=False).ids
    assert tokenizer.apply_chat_template(messages) == expected


@given(st.lists(st.integers(-1, 300), max_size=20))
def test_any_ids_stream_to_their_decoding(ids):
    from octavo.text.detokenizer import ByteDetokenizer, TokenBytes, decode_bytes
    from octavo.text.hf_codec import HFCodec

    codec = HFCodec.__new__(HFCodec)
    codec._tokenizer = sentencepiece_backend()
    codec._added = codec._tokenizer.get_added_tokens_decoder()
    codec._rule = "pieces"
    table = TokenBytes(codec.token_bytes, frozenset())
    detokenizer = ByteDetokenizer(table, True)
    assert "".join(detokenizer.extend([token_id]) for token_id in ids) + detokenizer.finish() == decode_bytes(
        table, ids, True
    )
