"""A Tokenizer from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.text.gguf_codec import GGUFCodec, mark_end_tokens
from octavo.text.gguf_vocabulary import GGUFVocabulary, read_vocabulary
from octavo.text.pre_tokenizers import find_pre_tokenizer
from octavo.text.tokenizer import Tokenizer

_TEMPLATE = "tokenizer.chat_template"


def load_gguf_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Read the tokenizer.* keys; ValueError names the key that is missing, wrong or not supported."""
    vocabulary, eos_token_ids = mark_end_tokens(read_vocabulary(metadata))
    add_bos_token = vocabulary.add_bos_token
    if add_bos_token is None:
        add_bos_token = _adds_bos_by_default(vocabulary)
    return Tokenizer(
        GGUFCodec(vocabulary),
        bos_token_id=vocabulary.bos_token_id,
        eos_token_ids=eos_token_ids,
        add_bos_token=add_bos_token,
        special_tokens=_special_tokens(vocabulary),
        chat_templates=_chat_templates(metadata),
    )


def _adds_bos_by_default(vocabulary: GGUFVocabulary) -> bool:
    if vocabulary.bos_token_id is None:
        return False
    return vocabulary.model == "llama" or find_pre_tokenizer(vocabulary.pre).add_bos


def _special_tokens(vocabulary: GGUFVocabulary) -> dict[str, str]:
    named = {
        "bos_token": vocabulary.bos_token_id,
        "eos_token": vocabulary.eos_token_id,
        "unk_token": vocabulary.unknown_token_id,
        "pad_token": vocabulary.padding_token_id,
    }
    return {name: vocabulary.tokens[token_id] for name, token_id in named.items() if token_id is not None}


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    templates = {}
    for key, value in metadata.items():
        if key == _TEMPLATE:
            templates["default"] = value
        elif key.startswith(_TEMPLATE + "."):
            templates[key[len(_TEMPLATE) + 1 :]] = value
        else:
            continue
        if not isinstance(value, str):
            raise ValueError(f"{key} is a {type(value).__name__}; it must be a string")
    return templates
