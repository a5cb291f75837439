"""A Tokenizer from a Hugging Face model directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.text.gguf_vocabulary import END_SPELLINGS
from octavo.text.hf_codec import HFCodec
from octavo.text.tokenizer import Tokenizer

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def load_directory_tokenizer(path: Path) -> Tokenizer:
    """Read tokenizer.json and the small files beside it; ValueError names the file and field at fault."""
    codec = HFCodec(path)
    config = _read_object(path / "special_tokens_map.json") | _read_object(path / "tokenizer_config.json")
    special_tokens = _special_tokens(config)
    ids = codec.control_tokens
    before, _ = codec.added_by_post_processor()
    bos_token_id = ids.get(special_tokens.get("bos_token", ""))
    if bos_token_id is None and before:
        bos_token_id = before[0]
    adds_bos = config.get("add_bos_token")
    if not isinstance(adds_bos, bool):
        adds_bos = before[:1] == [bos_token_id]
    return Tokenizer(
        codec,
        bos_token_id=bos_token_id,
        eos_token_ids=_end_ids(path, ids, special_tokens.get("eos_token"), codec.vocab_size),
        add_bos_token=adds_bos and bos_token_id is not None,
        special_tokens=special_tokens,
        chat_templates=_chat_templates(path, config),
    )


def _read_object(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{file} holds a {type(value).__name__}; it must be an object")
    return value


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Spellings by name; each is written as a string or as an object with "content"."""
    found = {}
    for name in _NAMED_TOKENS:
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found


def _end_ids(path: Path, control: Mapping[str, int], eos_token: str | None, vocab_size: int) -> list[int]:
    """generation_config.json decides; without it config.json, and the spellings that always end a turn."""
    eos = {control[eos_token]} if eos_token is not None and eos_token in control else set()
    for name in ("generation_config.json", "config.json"):
        value = _read_object(path / name).get("eos_token_id")
        if value is None:
            continue
        listed = value if isinstance(value, list) else [value]
        for token_id in listed:
            if not isinstance(token_id, int) or token_id < 0:
                raise ValueError(f"{path / name}: eos_token_id has {token_id!r}; it must be a token id")
        if name == "generation_config.json":
            return sorted({*listed, *eos})
        eos |= set(listed)
    spelled = {token_id for spelling, token_id in control.items() if spelling in END_SPELLINGS}
    return sorted(eos | spelled)


def _chat_templates(path: Path, config: Mapping[str, Any]) -> dict[str, str]:
    file = path / "chat_template.jinja"
    if file.is_file():
        return {"default": file.read_text(encoding="utf-8")}
    template = config.get("chat_template") or _read_object(path / "chat_template.json").get("chat_template")
    if template is None:
        return {}
    if isinstance(template, str):
        return {"default": template}
    if isinstance(template, list) and all(isinstance(item, dict) for item in template):
        named = {item.get("name"): item.get("template") for item in template}
        if all(isinstance(name, str) and isinstance(source, str) for name, source in named.items()):
            return {str(name): str(source) for name, source in named.items()}
    raise ValueError(f"{path}: chat_template must be a string or a list of named templates")
