"""A GGUF file's tokenizer gives the ids of the tokenizer.json that it was made of, or is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from random_directory import ROWS, TEMPLATE

from octavo.loaders.gguf_writer import decoded_metadata
from octavo.quantize.vocabulary import check_same_ids, vocabulary_metadata
from octavo.text.tokenizer import Tokenizer, load_tokenizer

MakeDirectory = Callable[..., Path]
TEXT = "the  hen, 1234 and\n\ttin at the inn: Zoë's <s> 日本 "


def _written(directory: Path) -> tuple[Tokenizer, dict[str, Any]]:
    metadata = decoded_metadata(vocabulary_metadata(directory, load_tokenizer(directory), ROWS))
    return load_tokenizer(metadata), metadata


def _change(directory: Path, name: str, change: Callable[[dict[str, Any]], object]) -> Path:
    document = json.loads((directory / name).read_text())
    change(document)
    (directory / name).write_text(json.dumps(document))
    return directory


@pytest.mark.parametrize(
    ("family", "model", "pre", "space"),
    [
        ("llama", "gpt2", "smollm", False),
        ("qwen2", "gpt2", "qwen2", False),
        ("mistral", "llama", "default", True),
        ("gemma3", "llama", "default", False),
    ],
)
def test_ids_templates_and_special_tokens_are_kept(
    random_model: MakeDirectory, family: str, model: str, pre: str, space: bool
) -> None:
    directory = random_model(family)
    original = load_tokenizer(directory)
    written, metadata = _written(directory)
    assert (metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.pre"]) == (model, pre)
    assert metadata["tokenizer.ggml.add_space_prefix"] is space
    assert len(metadata["tokenizer.ggml.tokens"]) == ROWS
    for parse_special in (True, False):
        assert written.encode(TEXT, parse_special=parse_special) == original.encode(TEXT, parse_special=parse_special)
    assert written.bos_token_id == 1 and written.eos_token_ids == original.eos_token_ids == (2,)
    assert written.add_bos_token == original.add_bos_token == (model == "llama")
    assert written.chat_templates == {"default": TEMPLATE}
    ids = original.encode(TEXT, parse_special=False)
    assert written.decode(ids) == original.decode(ids)


def test_old_spelling_of_merges(random_model: MakeDirectory) -> None:
    def join(document: dict[str, Any]) -> None:
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]

    directory = random_model("llama")
    expected = load_tokenizer(directory).encode(TEXT)
    assert _written(_change(directory, "tokenizer.json", join))[0].encode(TEXT) == expected


def test_more_end_tokens_than_a_file_has_room_for(random_model: MakeDirectory) -> None:
    directory = random_model("llama")
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5, 6]}))
    assert _written(directory)[0].eos_token_ids == (2, 5, 6)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5, 6, 7]}))
    with pytest.raises(ValueError, match=r"would end at the tokens \(2, 5, 6\), not \(2, 5, 6, 7\)"):
        _written(directory)


def _add_prefix_space(document: dict[str, Any]) -> None:
    document["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = True


def _add_token_without_row(document: dict[str, Any]) -> None:
    document["model"]["vocab"]["zz"] = ROWS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_add_prefix_space, "cuts text into words as none of"),
        (lambda d: d.update(normalizer={"type": "Lowercase"}), "cuts text into words as none of"),
        (lambda d: d.update(pre_tokenizer=None), "neither byte-level BPE nor BPE with byte_fallback"),
        (_add_token_without_row, f"token 'zz' has the id {ROWS}, the embedding has {ROWS} rows"),
    ],
)
def test_other_tokenizers_are_refused(
    random_model: MakeDirectory, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    directory = _change(random_model("llama"), "tokenizer.json", change)
    with pytest.raises(ValueError, match=message):
        _written(directory)


def test_added_tokens_without_a_row_are_left_out(random_model: MakeDirectory) -> None:
    directory = random_model("gemma3")
    added = {"id": ROWS, "content": "<image>", "special": True, "normalized": False}
    added |= {"single_word": False, "lstrip": False, "rstrip": False}

    def add(document: dict[str, Any]) -> None:
        vocabulary = document["model"]["vocab"]
        while len(vocabulary) < ROWS:
            vocabulary[f"<unused{len(vocabulary)}>"] = len(vocabulary)
        document["added_tokens"].append(added)

    written, metadata = _written(_change(directory, "tokenizer.json", add))
    assert len(metadata["tokenizer.ggml.tokens"]) == ROWS
    assert max(written.encode("<image>")) < ROWS


def test_unigram_is_refused(random_model: MakeDirectory) -> None:
    directory = random_model("llama")
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}
    _change(directory, "tokenizer.json", lambda d: d.update(model=unigram))
    with pytest.raises(ValueError, match="is a Unigram tokenizer"):
        _written(directory)


def test_other_ids_are_found(random_model: MakeDirectory) -> None:
    directory = random_model("gemma3")
    original = load_tokenizer(directory)
    _change(directory, "tokenizer.json", lambda d: d["model"]["merges"].pop(0))
    with pytest.raises(ValueError, match=r"would give .* the ids"):
        check_same_ids(original, load_tokenizer(directory), "here")
