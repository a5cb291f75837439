"""A complete model directory in a few kilobytes: random weights, a tokenizer of single letters, a chat
template.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

WEIGHTS = Path(__file__).parent / "models" / "data"
SPECIAL = ("<unk>", "<s>", "</s>")
VOCABULARY = (*SPECIAL, *(chr(32 + place) for place in range(92)), "}")
TEMPLATE = "<s>{% for m in messages %}{{ m.role }}: {{ m.content }}; {% endfor %}assistant: "


PIECES = [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
"""The steps of a decoder in which each token stands for certain bytes"""


def make_small_model(target: Path, name: str = "llama", has_bytes: bool = False) -> Path:
    """Copies the weights `name` to the directory `target` and puts a tokenizer beside them.

    Its decoder is of a kind that says which bytes a token stands for only with `has_bytes`.
    """
    target.mkdir(parents=True, exist_ok=True)
    for source in (WEIGHTS / name).iterdir():
        shutil.copy(source, target / source.name)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": place,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for place, token in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": PIECES} if has_bytes else {"type": "Fuse"},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "vocab": {token: place for place, token in enumerate(VOCABULARY)},
            "merges": [],
        },
    }
    (target / "tokenizer.json").write_text(json.dumps(tokenizer))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": TEMPLATE}
    (target / "tokenizer_config.json").write_text(json.dumps(names))
    return target
